"""`RESTMapper`: resources of a server, found by name as in kubectl. Pure.

If several resources have a name, the first one wins, in the server's order of groups,
preferred versions first. Names take precedence over short names, whole groups over
group prefixes, and kinds come last.

It differs from kubectl in two cases where kubectl ignores part of the input: short
names are case-insensitive, and a version applies to them as well (for
`hpa.v1.autoscaling` kubectl shows version 2).
"""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aioinformer.errors import OptionsError
from aioinformer.model.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aioinformer.client.discovery_documents import APIResource, Group

__all__ = ["RESTMapper", "ServedResource"]

# Longest list of suggestions.
SUGGESTIONS = 3


@dataclass(frozen=True, slots=True)
class ServedResource:
    """Resource as described by the server.

    Attributes:
        resource: Group, version, plural, kind and scope.
        singular: Singular name, such as `"pod"`.
        short_names: Short names, such as `"po"`.
        categories: Categories that contain it, such as `"all"`.
        verbs: Supported verbs, such as `"list"` and `"watch"`.
        subresources: Subresources, such as `"status"`.
    """

    resource: Resource
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Meaning:
    """One interpretation of a word, in lower case. None stands for any."""

    name: str
    group: str | None = None
    version: str | None = None

    def includes(self, resource: Resource) -> bool:
        """Return whether a resource is in this group and version."""
        return self.group in {None, resource.group} and (
            self.version in {None, resource.version}
        )

    def begins(self, resource: Resource) -> bool:
        """Return whether a resource is in a group with this prefix."""
        return self.version in {None, resource.version} and (
            bool(self.group) and resource.group.startswith(self.group or "")
        )


_Named: TypeAlias = "Mapping[str, list[ServedResource]]"
_Lookup: TypeAlias = "tuple[_Named, str, Callable[[Resource], bool]]"
"""Index by names, a name, and a filter of the resources that have it."""


class RESTMapper:
    """Resources of a server by all their names.

    Args:
        groups: API groups in the server's order, the core group first.
    """

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups: list[Group] = list(groups)
        self.resources: list[ServedResource] = [
            it for group in self.groups for it in _served(group)
        ]
        """All resources in all versions, in order of precedence."""
        self.broken: Mapping[str, str] = {
            group.api_version(version): version.problem
            for group in self.groups
            for version in group.versions
            if version.problem
        }
        """Versions that could not be discovered (`"metrics.k8s.io/v1beta1"`), and why."""
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
        """Find a resource by one of its names; return None if there is none.

        Args:
            word: Plural, singular, short name or kind, in any case, optionally followed
                by `.group` or `.version.group`.
            api_version: Only resources of this version, such as `"apps/v1"`.
        """
        lookups = self._lookups(_meanings(word, api_version), exactly=bool(api_version))
        found = (_first(*lookup) for lookup in lookups)
        return next((it for it in found if it is not None), None)

    def _lookups(self, meanings: list[_Meaning], *, exactly: bool) -> Iterator[_Lookup]:
        """Yield the look-ups for a word in order of precedence."""
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
        """Return all resources, each in its preferred version, as kubectl does.

        Args:
            category: Only resources of this category, such as `"all"`; empty for all.
        """
        first: dict[tuple[str, str], ServedResource] = {}
        for it in self.resources:
            first.setdefault((it.resource.group, it.resource.plural), it)

        return tuple(
            it for it in first.values() if not category or category in it.categories
        )

    def unknown(self, word: str, api_version: str = "") -> str:
        """Return the message for an unknown name, with suggestions and undiscovered groups."""
        place = f" in {api_version}" if api_version else ""
        text = f"the server has no resource {word!r}{place}"
        similar = " or ".join(repr(it) for it in self._similar(word, api_version))
        if similar:
            text += f". Did you mean {similar}?"
        elif "." in api_version.partition("/")[0]:
            text += ": is its CustomResourceDefinition installed?"

        if self.broken and not api_version:
            missing = ", ".join(f"{name} ({why})" for name, why in self.broken.items())
            separator = "" if similar else "."
            text += f"{separator} Groups that could not be discovered: {missing}"

        return text

    def _similar(self, word: str, api_version: str) -> list[str]:
        """Return suggestions in a form that `find()` accepts."""
        name = word.lower() if api_version else word.lower().partition(".")[0]
        elsewhere = self.find(name)
        if elsewhere is not None:
            # The name is right, but the group or version is wrong.
            return [_full_name(elsewhere.resource)]

        known = self._names.keys() | self._short_names.keys()
        close = difflib.get_close_matches(name, sorted(known), n=SUGGESTIONS)
        found = [it.resource for name in close if (it := self.find(name)) is not None]
        # A similar name in another group is another resource.
        group = api_version.rpartition("/")[0]
        return list(
            dict.fromkeys(
                it.plural for it in found if not api_version or it.group == group
            )
        )


def _first(
    known: _Named, name: str, fits: Callable[[Resource], bool]
) -> ServedResource | None:
    return next((it for it in known.get(name, ()) if fits(it.resource)), None)


def _meanings(word: str, api_version: str) -> list[_Meaning]:
    """Return the interpretations of a word, the most likely one first."""
    word = word.lower()
    if api_version:
        group, _, version = api_version.rpartition("/")
        return [_Meaning(word, group, version)]

    name, dot, rest = word.partition(".")
    if not dot:
        return [_Meaning(name)]

    version, dot, group = rest.partition(".")
    longest = [_Meaning(name, group, version)] if dot else []
    # kubectl does not support the last one: `pods.v1`.
    return [*longest, _Meaning(name, rest), _Meaning(name, "", rest)]


def _full_name(resource: Resource) -> str:
    """Return an unambiguous name: `pods.v1`, `deployments.v1.apps`."""
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
                # An aggregated server with an odd name must not break all others.
                with suppress(OptionsError):
                    yield _described(line, group.name, version.name, parts)


def _described(
    line: APIResource, group: str, version: str, parts: Mapping[str, list[str]]
) -> ServedResource:
    return ServedResource(
        Resource(group, version, line.name, line.kind, line.namespaced),
        # Old servers omit it.
        singular=line.singular_name or line.kind.lower(),
        short_names=tuple(line.short_names or ()),
        categories=tuple(line.categories or ()),
        verbs=tuple(line.verbs or ()),
        subresources=tuple(parts.get(line.name, ())),
    )
