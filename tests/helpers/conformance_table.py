"""The conformance table: read from docs/conformance, checked, and rendered as a page.

`scripts/conformance` runs this. Edit the files of the table; the page is generated.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Component", "Row", "main", "numbers_of", "page_of", "problems_of", "read"]

ROOT = Path(__file__).parents[2]

DECIDED, LATER = "decided otherwise", "later"
# Reasons for a row without tests, in the order of the columns.
REASONS = {
    DECIDED: "aioinformer differs on purpose, as the row describes",
    "Go only": "it concerns something that Python does not have",
    "feature gate": "it only switches behaviour that is listed elsewhere",
    "deprecated twin": "an older form of behaviour that is listed elsewhere",
    LATER: "planned, with the part of aioinformer that the row names",
}
_ID = re.compile(r"([A-Z]+)-([1-9]\d*)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TEXTS = ("id", "behaviour", "upstream", "reason", "instead", "comes_with")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One behaviour of client-go, and its counterpart in aioinformer."""

    id: str = ""
    behaviour: str = ""
    upstream: str = ""
    tests: tuple[str, ...] = ()
    reason: str = ""
    instead: str = ""
    comes_with: str = ""

    @property
    def group(self) -> str:
        """Letters of its id."""
        return self.id.partition("-")[0]

    @property
    def number(self) -> int:
        """Number of its id; 0 if the id is invalid."""
        matched = _ID.fullmatch(self.id)
        return int(matched[2]) if matched else 0


@dataclass(frozen=True, slots=True)
class Component:
    """One file of the table."""

    name: str
    title: str
    groups: Mapping[str, str]
    rows: Sequence[Row]


# ---------------------------------------------------------------- reading


def read(root: Path) -> tuple[list[Component], list[str]]:
    """Return the components of the table in a checkout, and mistakes in their form."""
    components, problems = [], []
    for path in sorted((root / "docs" / "conformance").glob("*.toml")):
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as exc:
            problems.append(f"{path.name}: {exc}")
            continue

        problems += [f"{path.name}: {it}" for it in _wrong_form(content)]
        components.append(_component(path.name, content))

    return components, problems


def _wrong_form(content: Mapping[str, Any]) -> Iterator[str]:
    for key in ("title", "upstream", "groups", "row"):
        if not content.get(key):
            yield f"has no {key}"

    for key in content.keys() - {"title", "upstream", "groups", "row"}:
        yield f"has an unknown key: {key}"

    for row in content.get("row", ()):
        name = row.get("id", "a row without id")
        for key in sorted(row.keys() - {*_TEXTS, "tests"}):
            yield f"{name}: has an unknown key: {key}"

        if not isinstance(row.get("tests", []), list):
            yield f"{name}: tests is not a list"


def _component(name: str, content: Mapping[str, Any]) -> Component:
    rows = []
    for row in content.get("row", ()):
        given = {"upstream": content.get("upstream", ""), **row}
        texts = {key: " ".join(str(given.get(key, "")).split()) for key in _TEXTS}
        tests = given.get("tests")
        named = tests if isinstance(tests, list) else []
        rows.append(Row(**texts, tests=tuple(map(str, named))))

    return Component(
        name, str(content.get("title", "")), content.get("groups") or {}, rows
    )


# ---------------------------------------------------------------- checking


def problems_of(components: Iterable[Component], root: Path) -> Iterator[str]:
    """Return a line for each mistake in the content of the table.

    Args:
        components: Components from `read`.
        root: Checkout with the tests.
    """
    seen: Counter[str] = Counter()
    for component in components:
        seen.update(component.groups.keys())
        seen.update(row.id for row in component.rows)
        yield from (f"{component.name}: {it}" for it in _wrong_groups(component))
        for row in component.rows:
            found = (*_wrong_texts(row), *_wrong_reason(row), *_wrong_tests(row, root))
            yield from (f"{component.name}: {row.id}: {it}" for it in found)

    yield from (f"{name}: exists {n} times" for name, n in seen.items() if n > 1)


def numbers_of(ranges: str) -> set[int]:
    """Return the numbers in a text like `1-4, 10`.

    Raises:
        ValueError: The text has another form.
    """
    numbers: set[int] = set()
    for part in ranges.split(","):
        matched = _RANGE.fullmatch(part.strip())
        if matched is None:
            raise ValueError(f"{ranges!r} is not a list of ranges such as '1-4, 10'")

        numbers.update(range(int(matched[1]), int(matched[2] or matched[1]) + 1))

    return numbers


def _wrong_groups(component: Component) -> Iterator[str]:
    declared: set[tuple[str, int]] = set()
    for group, ranges in component.groups.items():
        try:
            declared |= {(group, number) for number in numbers_of(ranges)}
        except ValueError as exc:
            yield f"{group}: {exc}"

    given = [(row.group, row.number) for row in component.rows]
    for group, number in sorted(declared - set(given)):
        yield f"{group}-{number}: its group has the number, but there is no row"

    for group, number in sorted(set(given) - declared):
        yield f"{group}-{number}: its group lacks the number"

    order = list(component.groups)
    known = [it for it in given if it in declared]
    if known != sorted(known, key=lambda it: (order.index(it[0]), it[1])):
        yield "its rows are not in the order of its groups and numbers"


def _wrong_texts(row: Row) -> Iterator[str]:
    if not row.number:
        yield "is not an id"

    if not row.behaviour.endswith("."):
        yield "its behaviour is not a sentence"

    if not row.upstream.endswith(".go"):
        yield f"its upstream is not a Go file: {row.upstream!r}"


def _wrong_reason(row: Row) -> Iterator[str]:
    if not row.tests and not row.reason:
        yield "has neither tests nor a reason"

    if row.reason and row.reason not in REASONS:
        yield f"unknown reason: {row.reason!r}"

    if row.tests and row.reason not in {"", DECIDED}:
        yield f"has tests, but also the reason {row.reason!r}"

    if row.reason == DECIDED and not row.instead.endswith("."):
        yield "is decided otherwise, but has no sentence in `instead`"

    if row.instead and row.reason in {"", LATER}:
        yield 'has `instead`, but its reason is not "decided otherwise"'

    if (row.reason == LATER) != bool(row.comes_with):
        yield f"comes_with requires the reason {LATER!r}, and vice versa"


def _wrong_tests(row: Row, root: Path) -> Iterator[str]:
    for test, times in Counter(row.tests).items():
        path, _, name = test.partition("::")
        if times > 1:
            yield f"lists a test twice: {test}"

        if not path.startswith("tests/") or not (root / path).is_file():
            yield f"no such test file: {test}"
        elif name not in _tests_in(root / path):
            yield f"no such test: {test}"


@cache
def _tests_in(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file, without parameters."""
    return frozenset(_tests_of(ast.parse(path.read_text(encoding="utf-8"))))


def _tests_of(parent: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in parent.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test"):
                    yield name
            case ast.ClassDef(name=name):
                if name.startswith("Test"):
                    yield from (f"{name}::{test}" for test in _tests_of(node))
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Attribute(attr="TestCase")
            ):
                yield name
            case _:
                pass


# ---------------------------------------------------------------- showing

_INTRODUCTION = """\
# Conformance to client-go

aioinformer is client-go's informer machinery for asyncio. This page lists the behaviours of
client-go. For each it has our tests, our decision to differ, or the reason for no test.

A row has an id, the behaviour of client-go, its file (in client-go, or in apimachinery if it
begins with `apimachinery/`), and our tests. Where aioinformer differs, the tests check the
behaviour described before them. Reasons for a row without tests, or with other tests:

{reasons}

`scripts/conformance` generates this page from `docs/conformance/*.toml`; edit those.
`make check` runs `scripts/conformance --check`. It fails if a row has neither test nor
reason, if a test does not exist, or if this page is out of date.

"""


def page_of(components: Sequence[Component]) -> str:
    """Return the page as Markdown."""
    reasons = "\n".join(f"- *{name}*: {text}." for name, text in REASONS.items())
    parts = [_INTRODUCTION.format(reasons=reasons), *_summary(components)]
    for component in components:
        parts += [f"\n## {component.title}\n\n", *_table(_COLUMNS, _cells(component))]

    return "".join(parts)


_COLUMNS = ("id", "behaviour of client-go", "file", "our tests, or the reason")


def _summary(components: Sequence[Component]) -> Iterator[str]:
    total: Counter[str] = Counter()
    lines = []
    for component in components:
        counts = Counter(row.reason or "tested" for row in component.rows)
        total += counts
        link = f"[{component.title}](#{_anchor(component.title)})"
        lines.append([link, *_figures(counts)])

    lines.append(["all", *_figures(total)])
    yield from _table(("component", "ids", "tested", *REASONS), lines)


def _figures(counts: Counter[str]) -> list[str]:
    figures = (counts.total(), counts["tested"], *(counts[it] for it in REASONS))
    return [str(it or "") for it in figures]


def _cells(component: Component) -> Iterator[list[str]]:
    for row in component.rows:
        yield [row.id, row.behaviour, f"`{row.upstream}`", _verdict(row)]


def _verdict(row: Row) -> str:
    reason = f"*{row.reason}*" if row.reason else ""
    words = ": ".join(it for it in (reason, row.instead or row.comes_with) if it)
    return f"{words} {', '.join(map(_link, row.tests))}".strip()


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[`{name}`](../{path})"


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n"
    for cells in lines:
        escaped = (it.replace("|", "\\|") for it in cells)
        yield f"| {' | '.join(escaped)} |\n"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the page, or only check it; the exit status is 1 if there are problems."""
    parser = argparse.ArgumentParser(
        prog="scripts/conformance",
        description="Writes docs/conformance.md from docs/conformance/*.toml.",
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    only_check = parser.parse_args(arguments).check

    components, problems = read(root)
    problems += problems_of(components, root)
    path, page = root / "docs" / "conformance.md", page_of(components)
    if only_check and (not path.exists() or path.read_text(encoding="utf-8") != page):
        problems.append("docs/conformance.md: is out of date, run scripts/conformance")

    for problem in problems:
        print(problem, file=sys.stderr)

    if not problems and not only_check:
        path.write_text(page, encoding="utf-8")

    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
