"""Figures of the structure of this code base: files, classes, circles, call paths.

`scripts/house` runs this. It measures any checkout, so that a table from before a change
can be compared with one from after: what moves is found by its name, wherever it is.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Module", "circles", "main", "measure", "modules_of", "twice"]

ROOT = Path(__file__).parents[2]
OURS, SERVER, TESTS = "aioinformer", "server", "tests"

# Public entry points, then what is found by its name alone.
CLASSES = (
    "SharedInformer",
    "SharedInformerFactory",
    "Client",
    "WorkQueue",
    "PriorityQueue",
    "DeltaFIFO",
    "Store",
    "Reflector",
    "Controller",
    "Manager",
    "Pipeline",
    "ReconcileClient",
)

Figure = int | float | str
Imports = set[tuple[str, str]]
"""Importing module, and imported module or name."""


@dataclass(slots=True)
class Report:
    """Result of a measurement.

    Attributes:
        figures: Lines of the table, in order.
        details: Details of some figures, by title.
    """

    figures: dict[str, Figure] = field(default_factory=dict)
    details: dict[str, list[str]] = field(default_factory=dict)


# ---------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class Module:
    """One file of a checkout.

    Attributes:
        path: Path relative to the checkout.
        part: Package, server for tests, or tests.
        text: Content.
    """

    path: Path
    part: str
    text: str

    @property
    def name(self) -> str:
        """Return the name for imports."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return self.text.count("\n")


def modules_of(root: Path) -> list[Module]:
    """Return the files of a checkout, sorted.

    The server for tests is a package of its own, or, where there is none, a folder of
    the package.
    """
    server = Path("aioinformer_apiserver")
    if not (root / server).is_dir():
        server = Path("aioinformer", "testing")

    modules = []
    for folder in (Path("aioinformer"), Path("aioinformer_apiserver"), Path("tests")):
        for path in sorted((root / folder).rglob("*.py")):
            relative = path.relative_to(root)
            part = TESTS if folder.name == "tests" else OURS
            if relative.is_relative_to(server):
                part = SERVER

            modules.append(Module(relative, part, path.read_text(encoding="utf-8")))

    return modules


def sizes(modules: Sequence[Module]) -> Iterator[tuple[str, Figure]]:
    """Return the number of files of each length by part."""
    for part in (OURS, SERVER, TESTS):
        of_part = [it for it in modules if it.part == part]
        if not of_part:
            continue

        largest = max(of_part, key=lambda it: it.lines)
        yield f"{part}: files", len(of_part)
        yield f"{part}: lines", sum(it.lines for it in of_part)
        yield f"{part}: median lines", statistics.median(it.lines for it in of_part)
        yield f"{part}: lines of the largest file", largest.lines
        yield f"{part}: the largest file", "/".join(largest.path.parts[1:])

    folder = Path("aioinformer", "informer")
    inside = [it for it in modules if it.path.is_relative_to(folder)]
    yield "aioinformer/informer/: files", len(inside)


# ---------------------------------------------------------------- classes


def classes_of(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return the modules that define each public class, by its name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.parse(module.text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module.name)

    return dict(found)


def twice(modules: Iterable[Module]) -> list[str]:
    """Return the public classes defined in several modules, with these."""
    found = classes_of(modules)
    return [
        f"{name}: {', '.join(sorted(found[name]))}"
        for name in sorted(found)
        if len(set(found[name])) > 1
    ]


# ---------------------------------------------------------------- who imports whom


class _Imports(ast.NodeVisitor):
    """A visitor that sorts the imports of a module by when they happen."""

    def __init__(self) -> None:
        self.loading: set[str] = set()
        self.later: set[str] = set()
        self.types: set[str] = set()
        self._kind = self.loading

    def visit_Import(self, node: ast.Import) -> None:
        self._kind.update(it.name for it in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._kind.update(f"{node.module}.{it.name}" for it in node.names)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) not in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            self.generic_visit(node)
            return

        self._visit_as(self.types, node.body)
        for statement in node.orelse:
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_as(self.later, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_as(self.later, node.body)

    def _visit_as(self, kind: set[str], body: Iterable[ast.stmt]) -> None:
        before, self._kind = self._kind, kind
        for statement in body:
            self.visit(statement)

        self._kind = before


def imports_of(modules: Iterable[Module]) -> tuple[Imports, Imports, Imports]:
    """Return the imports on load, in functions, and for type checkers.

    A package is what its `__init__` holds: to import a module is not to import the
    packages that it is in.
    """
    kinds: tuple[Imports, Imports, Imports] = (set(), set(), set())
    for module in modules:
        found = _Imports()
        found.visit(ast.parse(module.text))
        for kind, names in zip(
            kinds, (found.loading, found.later, found.types), strict=True
        ):
            kind.update((module.name, it) for it in names)

    return kinds


def circles(modules: Sequence[Module], imports: Imports) -> list[list[str]]:
    """Return the strongly connected sets of at least two modules."""
    names = {it.name for it in modules}
    targets: defaultdict[str, set[str]] = defaultdict(set)
    for importer, imported in imports:
        # A name in a module, or a module.
        module = imported if imported in names else imported.rpartition(".")[0]
        if module in names - {importer}:
            targets[importer].add(module)

    reached = {name: _reached(name, targets) for name in names}
    found = {
        frozenset(it for it in reached[name] if name in reached[it]) for name in names
    }
    return sorted(sorted(it) for it in found if it)


def _reached(start: str, targets: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new = targets.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new

    return reached


# ---------------------------------------------------------------- what is run


def environment(root: Path) -> dict[str, str]:
    """Return the environment of processes that import the packages of a checkout."""
    return {**os.environ, "PYTHONPATH": str(root)}


def probe(root: Path, modules: Iterable[Module]) -> Mapping[str, Any]:
    """Run `house_probe`, and return its figures."""
    defined = classes_of(modules)
    wanted = {name: defined.get(name, []) for name in CLASSES}
    script = Path(__file__).with_name("house_probe.py")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(wanted)],
        env=environment(root),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    probed: Mapping[str, Any] = json.loads(done.stdout)
    if probed["root"] != str(root):
        raise SystemExit(f"not {root} was measured, but {probed['root']}")

    return probed


def number_of_tests(root: Path) -> int:
    """Return the number of tests that the suite would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    done = subprocess.run(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    matched = re.search(r"^(\d+)(?:/\d+)? tests? collected", done.stdout, re.MULTILINE)
    if matched is None:
        raise SystemExit(f"the number of tests is missing:\n{done.stdout[-500:]}")

    return int(matched[1])


def timed(root: Path, what: str, *command: str) -> Iterator[tuple[str, Figure]]:
    """Run a command in the checkout; return its outcome, CPU time and duration."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    last = (done.stdout.splitlines() or [""])[-1]
    yield f"{what}: outcome", last.strip("=# ").partition(" in ")[0]
    yield f"{what}: CPU seconds", round(used)
    yield f"{what}: wall seconds", round(wall)


# ---------------------------------------------------------------- all of it


def measure(
    root: Path, *, tests: bool = False, times: bool = False, ci: bool = False
) -> Report:
    """Return all figures of a checkout.

    Args:
        root: Path of the checkout.
        tests: True to count the tests, too.
        times: True to run and time the tests.
        ci: True to run and time the continuous integration.
    """
    report = Report()
    modules = modules_of(root)
    ours = [it for it in modules if it.part == OURS]
    server = [it for it in modules if it.part == SERVER]
    figures = report.figures
    figures.update(sizes(modules))

    probed = probe(root, ours)
    for name, depth in probed["depths"].items():
        figures[f"depth of inheritance: {name}"] = depth

    loading, later, types = imports_of(ours + server)
    for title, imports in (
        ("import circles, when loaded", loading),
        ("import circles, at any time", loading | later),
        ("import circles, with those for type checkers", loading | later | types),
    ):
        found = circles(ours + server, imports)
        figures[title] = len(found)
        report.details[title] = [", ".join(it) for it in found]

    for part, members in (
        (OURS, ours),
        (SERVER, server),
        ("both together", ours + server),
    ):
        title = f"class names defined twice: {part}"
        report.details[title] = twice(members)
        figures[title] = len(report.details[title])

    for title, way in (
        ("way of an event", probed["event"]),
        ("way of a key", probed["key"]),
    ):
        figures[f"{title}: files"] = len({it["file"] for it in way})
        figures[f"{title}: functions"] = len(way)
        report.details[title] = list(_steps(way))
        report.details[f"{title}: entered more than once"] = [
            f"{it['entries']} times {it['function']}" for it in way if it["entries"] > 1
        ]

    if tests:
        figures["tests: number"] = number_of_tests(root)

    if times or ci:
        subprocess.run(["make", "setup"], cwd=root, check=True)

    if times:
        figures.update(timed(root, "tests", "make", "test"))

    if ci:
        figures.update(timed(root, "CI", "./.ci/run"))

    return report


def _steps(way: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return a line for each file in the order of entry, with its functions."""
    functions: defaultdict[str, list[str]] = defaultdict(list)
    for it in way:
        functions[it["file"]].append(it["function"])

    yield from (f"{file}: {', '.join(names)}" for file, names in functions.items())


# ---------------------------------------------------------------- the command


def table(heads: Sequence[str], columns: Sequence[Mapping[str, Figure]]) -> str:
    """Return figures side by side; a missing figure is a dash."""
    titles = list(dict.fromkeys(title for column in columns for title in column))
    rows = [["figure", *heads]]
    rows += [[it, *(_shown(column.get(it)) for column in columns)] for it in titles]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    rows.insert(1, ["-" * widths[0], *("-" * (it - 1) + ":" for it in widths[1:])])
    lines = []
    for title, *cells in rows:
        aligned = [it.rjust(w) for it, w in zip(cells, widths[1:], strict=True)]
        lines.append(f"| {' | '.join([title.ljust(widths[0]), *aligned])} |")

    return "\n".join(lines)


def _shown(figure: Figure | None) -> str:
    match figure:
        case None:
            return "-"
        case float():
            return f"{figure:g}"
        case _:
            return str(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a checkout, print the table, and return 0."""
    parser = argparse.ArgumentParser(
        prog="scripts/house",
        description="Prints figures about the structure of the code base.",
    )
    add = parser.add_argument
    add("--root", type=Path, default=ROOT, help="checkout to measure")
    add("--json", type=Path, metavar="FILE", help="write the figures to this file")
    add(
        "--compare",
        type=Path,
        metavar="FILE",
        help="print the figures of this file, too",
    )
    add("--tests", action="store_true", help="count the tests, too")
    add("--time-tests", action="store_true", help="run and time the test suite")
    add("--time-ci", action="store_true", help="run and time .ci/run")
    add("--verbose", action="store_true", help="list the counted items")
    options = parser.parse_args(arguments)

    report = measure(
        options.root.resolve(),
        tests=options.tests,
        times=options.time_tests,
        ci=options.time_ci,
    )
    if options.json is not None:
        written = json.dumps(asdict(report), indent=1)
        options.json.write_text(f"{written}\n", encoding="utf-8")

    if options.compare is None:
        print(table(["now"], [report.figures]))
    else:
        former = json.loads(options.compare.read_text(encoding="utf-8"))
        print(table(["before", "after"], [former["figures"], report.figures]))

    for title, lines in report.details.items() if options.verbose else ():
        print(f"\n{title}: {len(lines)}")
        print("".join(f"  {it}\n" for it in lines), end="")

    return 0


if __name__ == "__main__":
    sys.exit(main())
