"""API reference of the site: one page for each public module, from the docstrings.

Every name in the `__all__` of a public module is documented once, in the first module of
`PUBLIC_MODULES` that exports it. Other modules that export it link there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

import griffe
from site_docstrings import Docstrings
from site_pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PUBLIC_MODULES", "Entry", "Reference"]

# The public API: what these modules have in `__all__`, and the public members of it.
# Everything else is internal and may change in any release.
PUBLIC_MODULES = (
    "aioinformer.informer",
    "aioinformer.controller",
    "aioinformer.workqueue",
    "aioinformer.cache",
    "aioinformer.model",
    "aioinformer.model.resources",
    "aioinformer.client",
    "aioinformer.watch",
    "aioinformer.errors",
    "aioinformer.backoff",
    "aioinformer.metrics",
    "aioinformer.metrics_prometheus",
    "aioinformer.tables",
    "aioinformer.recording",
    "aioinformer.web.aiohttp",
    "aioinformer.web.asgi",
    "aioinformer.web.dashboard",
    "aioinformer.web.streams",
    "aioinformer.webhooks",
    "aioinformer.testing",
    "aioinformer.testing.faults",
    "aioinformer.testing.plugin",
    "aioinformer.testing.simulation",
    "aioinformer_apiserver",
    "aioinformer",  # the last: it exports names of the others
)

_INTRODUCTION = [
    "The public modules. Names that these pages do not list are internal, and may change",
    "in any release. Most programs need only `aioinformer` itself, the constants of",
    "`aioinformer.model.resources`, and `aioinformer.testing` in their tests.",
]

_OPTIONS = """\
    options:
      heading_level: 2
      show_root_heading: true
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A public name: the module that exports it, and what it names."""

    module: str
    name: str
    target: griffe.Object = field(repr=False, compare=False)

    @property
    def path(self) -> str:
        """Return the dotted name by which users import it."""
        return f"{self.module}.{self.name}"

    @property
    def summary(self) -> str:
        """Return the first sentence of the docstring, in one line."""
        if self.target.docstring:
            first = self.target.docstring.value.partition("\n\n")[0]
            return " ".join(first.split())

        # A constant without a docstring.
        shown = repr(getattr(import_module(self.module), self.name))
        return f"`{shown}`" if not shown.startswith("<") else ""

    @property
    def is_row(self) -> bool:
        """Tell whether its row in the table of the module is all there is to say."""
        return not self.target.has_docstring


class Reference:
    """The public names, read from the source without importing it."""

    def __init__(self) -> None:
        # With griffe's own extensions, which add the constructors of dataclasses.
        loader = griffe.GriffeLoader(
            extensions=griffe.load_extensions(Docstrings()), search_paths=[str(ROOT)]
        )
        self._loaded = {
            name: loader.load(name) for name in ("aioinformer", "aioinformer_apiserver")
        }
        loader.resolve_aliases(implicit=True, external=False)

    def module(self, path: str) -> griffe.Object:
        """Return a module by its dotted name."""
        package, _, rest = path.partition(".")
        return _final(self._loaded[package][rest] if rest else self._loaded[package])

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The public names, by dotted name, in the order of their pages."""
        found = {}
        for path in PUBLIC_MODULES:
            module = self.module(path)
            exports = [str(name) for name in module.exports or ()]
            for name in sorted(exports, key=str.lower):
                if not module.members[name].is_module:
                    entry = Entry(path, name, _final(module.members[name]))
                    found[entry.path] = entry

        return found

    @cached_property
    def homes(self) -> dict[str, Entry]:
        """The entry that documents an object, by its path in the source."""
        found: dict[str, Entry] = {}
        for entry in self.entries.values():
            found.setdefault(entry.target.path, entry)

        return found

    def home(self, entry: Entry) -> Entry:
        """Return the entry that documents the same object."""
        return self.homes[entry.target.path]

    def members(self, entry: Entry) -> list[str]:
        """Return the public members of a class, also those of internal bases."""
        if not isinstance(entry.target, griffe.Class):
            return []

        own = filter(_is_public, entry.target.members)
        hidden = self._repeated(entry)
        return [*(it for it in own if it not in hidden), *self._inherited(entry)]

    def _repeated(self, entry: Entry) -> set[str]:
        """Return the members that only implement one of a public base.

        They have its signature, and a docstring of one line.
        """
        if not isinstance(entry.target, griffe.Class):
            return set()

        bases = [it for it in entry.target.mro() if it.path in self.homes]
        return {
            name
            for name, it in entry.target.members.items()
            for base in bases
            if _is_public(name)
            and it.has_docstring
            and name in base.members
            and _signature(_final(it), "") == _signature(_final(base.members[name]), "")
            and "\n" not in _text(_final(it))
        }

    def described(self, entry: Entry) -> list[str]:
        """Return the members with a docstring. Others override a described one."""
        members = entry.target.all_members
        return [it for it in self.members(entry) if _final(members[it]).has_docstring]

    def find(self, name: str) -> list[str]:
        """Return the dotted names that a name in a text may stand for, the best first.

        It may be `Client.list`, `aioinformer.Client`, `cache.Store`, with parentheses
        or an argument, `SharedInformer(name=)`. A single word in lower case is no name.
        """
        path = name.partition("(")[0]
        called = path != name
        path = path.removeprefix("aioinformer.")
        if path in {it.removeprefix("aioinformer.") for it in PUBLIC_MODULES}:
            return [name] if name in PUBLIC_MODULES else []

        first, *rest = path.split(".")
        # `until()` is a function, but `forget()` a method of some object.
        is_function = called and f"aioinformer.{first}" in self.entries
        if not (rest or "_" in first or first[0].isupper() or is_function):
            return []

        for entry in self._named.get(path, ()):
            return [self.home(entry).path]

        owner, _, member = path.rpartition(".")
        for entry in self._named.get(owner, ()):
            if member in entry.target.all_members:
                return self._anchors_of_member(entry, member)

        return []

    def _anchors_of_member(self, entry: Entry, member: str) -> list[str]:
        owners = [self.home(entry).path]
        inherited = entry.target.inherited_members.get(member)
        if inherited is not None:
            base = self.homes.get(_final(inherited).path.rpartition(".")[0])
            owners[:0] = [base.path] if base else []

        # A member without a docstring has no anchor.
        return [*(f"{it}.{member}" for it in owners), owners[-1]]

    @cached_property
    def _named(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            package = entry.module.removeprefix("aioinformer").strip(".")
            for name in {entry.name, f"{package}.{entry.name}"}:
                found.setdefault(name, []).append(entry)

        return found

    def _inherited(self, entry: Entry) -> list[str]:
        # A public base has an entry of its own.
        if not isinstance(entry.target, griffe.Class):
            return []

        bases = {
            name: _final(it).path.rpartition(".")[0]
            for name, it in entry.target.inherited_members.items()
        }
        return [
            name
            for name, base in bases.items()
            if _is_public(name) and base not in self.homes
        ]

    # -------------------------------------------------------------- pages

    def pages(self) -> dict[str, str]:
        """Return the Markdown of the pages, by the path that each would have."""
        found = {"README.md": self._index()}
        for path in PUBLIC_MODULES:
            entries = [it for it in self.entries.values() if it.module == path]
            found[page_of(path)] = self._page(path, entries)

        return {f"docs/reference/{name}": text for name, text in found.items()}

    def summary(self, path: str) -> str:
        """Return the first sentence of a module's docstring."""
        return Entry(path, "", self.module(path)).summary

    def _index(self) -> str:
        modules = sorted(PUBLIC_MODULES)
        rows = [f"- [{it}]({page_of(it)}): {self.summary(it)}" for it in modules]
        return "\n".join(["# API reference\n", *_INTRODUCTION, "", *rows, ""])

    def _page(self, path: str, entries: list[Entry]) -> str:
        lines = [f"# {path} {{ #{path} }}\n", f"::: {path}"]
        lines += ["    options:", "      members: false"]
        lines += ["      show_root_heading: false"]
        lines += ["      show_root_toc_entry: false", ""]
        lines += ["| name | |", "|---|---|"]
        for entry in entries:
            home = self.home(entry)
            link = f"{page_of(home.module)}#{home.path}"
            # The anchor of a name that has no section on this page is in its row.
            has_section = home is entry and not entry.is_row
            anchor = "" if has_section else f"{{ #{entry.path} }}"
            summary = entry.summary.replace("|", "\\|")
            lines.append(f"| [`{entry.name}`]({link}){anchor} | {summary} |")

        lines.append("")
        short = [it.name for it in entries if f"aioinformer.{it.name}" in self.entries]
        if short and path != "aioinformer":
            names = ", ".join(f"`{name}`" for name in short)
            lines.append(f"`aioinformer` also exports {names}.\n")

        for entry in entries:
            if self.home(entry) is entry and not entry.is_row:
                lines += [f"::: {entry.path}", _OPTIONS.rstrip()]
                if self._repeated(entry):
                    lines.append(f"      members: {self.members(entry)}")

                if inherited := self._inherited(entry):
                    lines.append(f"      inherited_members: {inherited}")

                lines += ["", *self._inherited_links(entry)]

        return "\n".join(lines)

    def _inherited_links(self, entry: Entry) -> Iterator[str]:
        """Yield a line for each public base: its members are on its own page."""
        if not isinstance(entry.target, griffe.Class):
            return

        own = set(self.members(entry))
        for base in entry.target.mro():
            home = self.homes.get(base.path)
            if home is None:
                continue

            page = page_of(home.module)
            links = [
                f"[`{name}`]({page}#{home.path}.{name})"
                for name in self.described(home)
                if name not in own
            ]
            own.update(self.described(home))
            if links:
                yield f"Inherited from `{home.name}`: {', '.join(links)}.\n"

    def text(self, path: str) -> str:
        """Return the page of a module as plain Markdown: signatures and docstrings."""
        parts = [f"# {path}", _text(self.module(path))]
        for entry in self.entries.values():
            if entry.module == path:
                parts.extend(self._text_of(entry))

        return "\n\n".join(parts) + "\n"

    def _text_of(self, entry: Entry) -> Iterator[str]:
        home = self.home(entry)
        if home is not entry:
            yield f"## {entry.path}\n\nSee {home.path}."
            return

        text = entry.summary if entry.is_row else _text(entry.target)
        yield f"## {_signature(entry.target, entry.path)}\n\n{text}"
        if isinstance(entry.target, griffe.Class):
            members = entry.target.all_members
            for name in self.described(entry):
                member = _final(members[name])
                yield f"### {_signature(member, name)}\n\n{_text(member)}"


def page_of(module: str) -> str:
    """Return the file name of a module's page."""
    return f"{module}.md"


def _final(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _text(found: griffe.Object) -> str:
    return found.docstring.value if found.docstring else ""


def _signature(found: griffe.Object, name: str) -> str:
    if isinstance(found, griffe.Class):
        constructor = found.all_members.get("__init__")
        found = _final(constructor) if constructor else found

    if isinstance(found, griffe.Function):
        shown = str(found.signature(name=name)).removesuffix(" -> None")
        return f"async {shown}" if "async" in found.labels else shown

    return name
