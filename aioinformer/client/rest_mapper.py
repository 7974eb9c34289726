"""`RESTMapper`: what a server serves, and what a word means there. Pure.

Words are understood as kubectl understands them. Where several resources have the name,
the first one counts, in the server's order of groups, preferred versions first; names
count before short names, whole groups before their beginnings, and kinds last.

Two things are other than there, where kubectl does not do what was written: upper case
does not keep a short name from being one, and a version counts beside it (of
`hpa.v1.autoscaling` kubectl shows version 2).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aioinformer.model.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aioinformer.client.discovery_documents import APIResource, Group

__all__ = ["RESTMapper", "ServedResource"]

# More would be a list to search, and no hint.
SUGGESTIONS = 3


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource as the server describes it.

    Attributes:
        resource: Where it is, and of what kind.
        singular: Its name for one of them, such as `"pod"`.
        short_names: Such as `"po"`.
        categories: Names of sets that it belongs to, such as `"all"`.
        verbs: What can be asked of it, such as `"list"` and `"watch"`.
        subresources: Such as `"status"`.
    """

    resource: Resource
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Meaning:
    """One way to read a word. None stands for any; all is in lower case."""

    name: str
    group: str | None = None
    version: str | None = None

    def includes(self, resource: Resource) -> bool:
        """Whether a resource is in the group and version that are meant."""
        return self.group in {None, resource.group} and (
            self.version in {None, resource.version}
        )

    def begins(self, resource: Resource) -> bool:
        """Whether a resource is in a group whose name begins so."""
        return self.version in {None, resource.version} and (
            bool(self.group) and resource.group.startswith(self.group or "")
        )


_Named: TypeAlias = "Mapping[str, list[ServedResource]]"
_Way: TypeAlias = "tuple[_Named, str, Callable[[Resource], bool]]"
"""A table of names, one of them, and which of those that have it fit."""


class RESTMapper:
    """What a server serves, by every name that it has.

    Args:
        groups: In the server's order, the core group first.
    """

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = list(groups)
        self.resources = [it for group in self.groups for it in _served(group)]
        """All of them, in all versions, those that count first in front."""
        self.broken: Mapping[str, str] = {
            group.api_version(version): version.problem
            for group in self.groups
            for version in group.versions
            if version.problem
        }
        """What could not be learnt: versions such as `"metrics.k8s.io/v1beta1"`, and why."""
        self._names: dict[str, list[ServedResource]] = {}
        self._short_names: dict[str, list[ServedResource]] = {}
        self._kinds: dict[str, list[ServedResource]] = {}
        for it in self.resources:
            for name in {it.resource.plural, it.singular}:
                self._names.setdefault(name.lower(), []).append(it)

            for name in it.short_names:
                self._short_names.setdefault(name.lower(), []).append(it)

            self._kinds.setdefault(it.resource.kind.lower(), []).append(it)

    def __repr__(self) -> str:
        return f"<RESTMapper of {len(self.resources)} resources>"

    def find(self, word: str, api_version: str = "") -> ServedResource | None:
        """Find what a word means; None if nothing has the name.

        Args:
            word: A plural, singular, short name or kind, in upper or lower case; perhaps
                with a group behind a dot, or a version and a group.
            api_version: Restricts it to this one, such as `"apps/v1"`.
        """
        ways = self._ways(_meanings(word, api_version), exactly=bool(api_version))
        found = (_first(*way) for way in ways)
        return next((it for it in found if it is not None), None)

    def _ways(self, meanings: list[_Meaning], *, exactly: bool) -> Iterator[_Way]:
        """Where to look for a word, in which order."""
        for it in meanings:
            yield self._names, it.name, it.includes
            yield self._short_names, it.name, it.includes

        if not exactly:
            for it in meanings:
                yield self._names, it.name, it.begins
                yield self._short_names, it.name, it.begins

        for it in meanings:
            yield self._kinds, it.name, it.includes

    def preferred(self, category: str = "") -> tuple[ServedResource, ...]:
        """All resources, each in the version that counts, as `kubectl api-resources`.

        Args:
            category: Only those that belong to it, such as `"all"`.
        """
        first: dict[tuple[str, str], ServedResource] = {}
        for it in self.resources:
            first.setdefault((it.resource.group, it.resource.plural), it)

        return tuple(
            it for it in first.values() if not category or category in it.categories
        )

    def unknown(self, word: str, api_version: str = "") -> str:
        """Say that a word means nothing here, what is similar, and what is not known."""
        place = f" in {api_version}" if api_version else ""
        text = f"the server has no resource {word!r}{place}"
        similar = " or ".join(repr(it) for it in self._similar(word, api_version))
        text += f"; did you mean {similar}?" if similar else ""

        if self.broken and not api_version:
            missing = ", ".join(f"{name} ({why})" for name, why in self.broken.items())
            stop = "" if similar else "."
            text += f"{stop} It could not tell what is in {missing}"

        return text

    def _similar(self, word: str, api_version: str) -> list[str]:
        """Names that may have been meant, as they can be written."""
        name = word.lower() if api_version else word.lower().partition(".")[0]
        elsewhere = self.find(name)
        if elsewhere is not None:
            # The name is right: the group or version is not.
            return [_full_name(elsewhere.resource)]

        known = self._names.keys() | self._short_names.keys()
        close = difflib.get_close_matches(name, sorted(known), n=SUGGESTIONS)
        found = [self.find(it) for it in close]
        return list(dict.fromkeys(it.resource.plural for it in found if it is not None))


def _first(
    known: _Named, name: str, fits: Callable[[Resource], bool]
) -> ServedResource | None:
    return next((it for it in known.get(name, ()) if fits(it.resource)), None)


def _meanings(word: str, api_version: str) -> list[_Meaning]:
    """The ways to read a word, the most likely one first."""
    word = word.lower()
    if api_version:
        group, _, version = api_version.rpartition("/")
        return [_Meaning(word, group, version)]

    name, dot, rest = word.partition(".")
    if not dot:
        return [_Meaning(name)]

    version, dot, group = rest.partition(".")
    longest = [_Meaning(name, group, version)] if dot else []
    # kubectl does not know the last one: `pods.v1`.
    return [*longest, _Meaning(name, rest), _Meaning(name, "", rest)]


def _full_name(resource: Resource) -> str:
    """`pods.v1`, `deployments.v1.apps`: what means this and nothing else."""
    return f"{resource.plural}.{resource.version}.{resource.group}".rstrip(".")


def _served(group: Group) -> Iterator[ServedResource]:
    for version in group.versions:
        lines = version.resources or []
        parts: dict[str, list[str]] = {}
        for line in lines:
            name, _, part = line.name.partition("/")
            if part:
                parts.setdefault(name, []).append(part)

        for line in lines:
            if line.name and "/" not in line.name and version.name:
                yield _described(line, group.name, version.name, parts)


def _described(
    line: APIResource, group: str, version: str, parts: Mapping[str, list[str]]
) -> ServedResource:
    return ServedResource(
        Resource(group, version, line.name, line.kind, line.namespaced),
        # Old servers leave it out.
        singular=line.singular_name or line.kind.lower(),
        short_names=tuple(line.short_names or ()),
        categories=tuple(line.categories or ()),
        verbs=tuple(line.verbs or ()),
        subresources=tuple(parts.get(line.name, ())),
    )
