"""Discovery documents: parsing and writing. Pure.

There are two forms. Servers since 1.26 describe everything in two *aggregated*
documents, at `/api` and `/apis`. All servers have the older form, where these two list
groups and versions, and each version has its own document. Both are parsed into
`Group`s of `GroupVersion`s with resources in the older form, which kubectl stores in
files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from aioinformer.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "AGGREGATED",
    "APIResource",
    "Group",
    "GroupVersion",
    "read_groups",
    "read_resources",
    "write_groups",
    "write_resources",
]

AGGREGATED: Final = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
    "application/json"
)
"""Media types that accept both forms, as in client-go.

Version 2 is that of servers since 1.30. Both versions have the same fields.
"""

T = TypeVar("T")

STALE = "its API server does not respond (the entry is marked as stale)"


class APIResource(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Resource, or subresource such as `pods/status`, in the older form.

    `group` and `version` are those of the kind, if they differ from the document's.
    """

    name: str
    # Go always writes these four. A factory makes msgspec do the same.
    singular_name: str = msgspec.field(default_factory=str)
    namespaced: bool = msgspec.field(default_factory=bool)
    group: str = ""
    version: str = ""
    kind: str = msgspec.field(default_factory=str)
    verbs: list[str] | None = msgspec.field(default_factory=lambda: None)
    short_names: list[str] | None = None
    categories: list[str] | None = None
    storage_version_hash: str = ""


@dataclass(slots=True)
class GroupVersion:
    """Version of a group, with its resources.

    Attributes:
        name: Name, such as `"v1"`.
        resources: Resources; None if not requested yet.
        problem: Reason why they could not be discovered; empty if they could.
    """

    name: str
    resources: list[APIResource] | None = None
    problem: str = ""

    @property
    def known(self) -> bool:
        """True if there is nothing left to request."""
        return self.resources is not None or bool(self.problem)


@dataclass(slots=True)
class Group:
    """API group.

    Attributes:
        name: Name; empty for the core group.
        versions: Versions, the preferred one first.
    """

    name: str
    versions: list[GroupVersion]

    def api_version(self, version: GroupVersion) -> str:
        """Return the `apiVersion` of objects: `"v1"`, `"apps/v1"`."""
        return f"{self.name}/{version.name}" if self.name else version.name


# ------------------------------------------------------------------ as they are sent


class _Kind(msgspec.Struct, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(msgspec.Struct, rename="camel", gc=False):
    subresource: str = ""
    response_kind: _Kind | None = None
    verbs: list[str] | None = None


class _Resource(msgspec.Struct, rename="camel", gc=False):
    resource: str = ""
    response_kind: _Kind | None = None
    scope: str = ""
    singular_resource: str = ""
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None
    subresources: list[_Subresource] | None = None


class _Version(msgspec.Struct, gc=False):
    version: str = ""
    resources: list[_Resource] | None = None
    freshness: str = ""


class _Name(msgspec.Struct, gc=False):
    name: str = ""


class _Item(msgspec.Struct, gc=False):
    metadata: _Name | None = None
    versions: list[_Version] | None = None


class _Aggregated(
    msgspec.Struct, tag_field="kind", tag="APIGroupDiscoveryList", gc=False
):
    items: list[_Item] | None = None


class _NamedVersion(msgspec.Struct, rename="camel", gc=False):
    version: str = ""
    group_version: str = ""


class _NamedGroup(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    name: str
    versions: list[_NamedVersion] | None = None
    preferred_version: _NamedVersion | None = None


class _Groups(msgspec.Struct, tag_field="kind", tag="APIGroupList", gc=False):
    groups: list[_NamedGroup] | None = None


class _CoreVersions(msgspec.Struct, tag_field="kind", tag="APIVersions", gc=False):
    versions: list[str] | None = None


class _Resources(msgspec.Struct, tag_field="kind", tag="APIResourceList", gc=False):
    resources: list[APIResource] | None


_Root: TypeAlias = _Aggregated | _Groups | _CoreVersions

_ROOTS: msgspec.json.Decoder[_Root] = msgspec.json.Decoder(_Root)
_RESOURCES = msgspec.json.Decoder(_Resources)


# ------------------------------------------------------------------ reading


def read_groups(document: bytes) -> list[Group]:
    """Parse the document at `/api` or `/apis`, in either form.

    Raises:
        DecodeError: If it is in neither form.
    """
    root = _decoded(_ROOTS, document)
    if isinstance(root, _Aggregated):
        return [_aggregated(item) for item in root.items or ()]

    if isinstance(root, _Groups):
        return [_named(group) for group in root.groups or ()]

    return [Group("", [GroupVersion(name) for name in root.versions or ()])]


def read_resources(document: bytes) -> list[APIResource]:
    """Parse the document at `/api/v1` or `/apis/apps/v1`.

    Raises:
        DecodeError: If it is not such a document.
    """
    return _decoded(_RESOURCES, document).resources or []


def _decoded(decoder: msgspec.json.Decoder[T], document: bytes) -> T:
    try:
        return decoder.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DecodeError(f"cannot read a discovery document: {exc}") from exc


def _named(group: _NamedGroup) -> Group:
    names = [it.version for it in group.versions or ()]
    preferred = group.preferred_version.version if group.preferred_version else ""
    # Sorting is stable: the others keep the server's order.
    names.sort(key=lambda name: name != preferred)
    return Group(group.name, [GroupVersion(name) for name in names])


def _aggregated(item: _Item) -> Group:
    name = item.metadata.name if item.metadata is not None else ""
    return Group(name, [_version(it) for it in item.versions or ()])


def _version(version: _Version) -> GroupVersion:
    if version.freshness == "Stale":
        # Its resources may not exist any more. kubectl hides it as well.
        return GroupVersion(version.version, problem=STALE)

    lines = [line for it in version.resources or () for line in _lines(it)]
    return GroupVersion(version.version, lines)


def _lines(resource: _Resource) -> Iterator[APIResource]:
    """Yield a resource and its subresources in the older form."""
    namespaced = resource.scope == "Namespaced"
    if resource.response_kind is not None:
        yield APIResource(
            name=resource.resource,
            singular_name=resource.singular_resource,
            namespaced=namespaced,
            group=resource.response_kind.group,
            version=resource.response_kind.version,
            kind=resource.response_kind.kind,
            verbs=resource.verbs,
            short_names=resource.short_names,
            categories=resource.categories,
        )

    for sub in resource.subresources or ():
        kind = sub.response_kind or _Kind()
        yield APIResource(
            name=f"{resource.resource}/{sub.subresource}",
            singular_name=resource.singular_resource,
            namespaced=namespaced,
            group=kind.group,
            version=kind.version,
            kind=kind.kind,
            verbs=sub.verbs,
        )


# ------------------------------------------------------------------ writing


def write_groups(groups: Iterable[Group]) -> bytes:
    """Write groups and versions in the older form: an `APIGroupList`."""
    named = []
    for group in groups:
        versions = [
            _NamedVersion(it.name, group.api_version(it)) for it in group.versions
        ]
        preferred = versions[0] if versions else None
        named.append(_NamedGroup(group.name, versions, preferred))

    return _written("APIGroupList", groups=named)


def write_resources(api_version: str, resources: Iterable[APIResource]) -> bytes:
    """Write what is served in one version in the older form: an `APIResourceList`."""
    return _written(
        "APIResourceList", groupVersion=api_version, resources=list(resources)
    )


def _written(kind: str, **fields: object) -> bytes:
    head = {"kind": kind, "apiVersion": "v1"}
    return msgspec.json.encode({**head, **fields}) + b"\n"
