"""`InformerSpec`: one informer of a factory, its identity and its options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from aioinformer.errors import OptionsError
from aioinformer.informer.handlers.resync import resync_seconds
from aioinformer.informer.listwatch.interface import ReflectorOptions
from aioinformer.model.compression import check_compression
from aioinformer.model.resource import Resource
from aioinformer.model.resources import lookup, similar
from aioinformer.model.selectors import FieldSelector, LabelSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.cache.index import IndexFunction
    from aioinformer.model.compression import Compression
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration
    from aioinformer.model.transforms import Transform

__all__ = [
    "FactoryDefaults",
    "InformerOptions",
    "InformerSpec",
    "Namespaces",
    "calling_place",
    "namespaces_of",
]


_PACKAGE = __name__.partition(".")[0]


Namespaces: TypeAlias = str | Sequence[str] | None
"""One namespace, several, or all of them: None, or an empty text."""


class InformerOptions(TypedDict, total=False):
    """The options of `SharedInformerFactory.informer`; see there."""

    namespace: Namespaces
    label_selector: str
    field_selector: str
    indexers: Mapping[str, IndexFunction[KubeObject]] | None
    transform: Transform | None
    compression: Compression | None
    resync_period: Duration | None
    page_size: int | None
    streaming_list: bool
    watch_seconds: Duration
    watch_grace_seconds: Duration
    internal_error_seconds: Duration
    metadata_only: bool
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerSpec:
    """Request for an informer, with the factory's defaults applied.

    Attributes:
        resource: Resource to list and watch, as far as it is known.
        namespaces: Sorted namespaces; empty for all.
        label_selector: Label selector in kubectl's syntax.
        field_selector: Field selector in kubectl's syntax.
        metadata_only: Whether to request the metadata of objects only.
        name: The name that was given to have an informer of its own, or None.
        options: Options of the reflector.
        transform: Transform of objects before they are stored.
        compression: Compression of stored bodies; None for none.
        resync_period: After how many seconds handlers are told everything again; 0 for
            never.
        place: Line of the user's code that made the request.
        by_name: The server is to say which resource it is: the kind, or the plural if
            there is none, is a name that it may have.

    Raises:
        SelectorSyntaxError: If a selector cannot be parsed.
        OptionsError: If there is no such compression, or it is not installed.
    """

    resource: Resource
    namespaces: tuple[str, ...]
    label_selector: str
    field_selector: str
    metadata_only: bool
    name: str | None
    options: ReflectorOptions
    transform: Transform | None
    resync_period: float
    place: str
    by_name: bool = False
    compression: Compression | None = None

    def __post_init__(self) -> None:
        check_compression(self.compression)
        LabelSelector.parse(self.label_selector)
        FieldSelector.parse(self.field_selector)

    @property
    def identity(self) -> tuple[object, ...]:
        """Key of the informer: equal for all requests that share it.

        Selectors count by what they mean, not by how they are written. The kind does
        not count: not everybody who names a resource knows it.
        """
        return (
            self.resource.api_version,
            self.resource.plural,
            self.namespaces,
            LabelSelector.parse(self.label_selector),
            FieldSelector.parse(self.field_selector),
            self.metadata_only,
            self.name,
        )

    def describe(self) -> str:
        """`pods`, or `pods in shop where app=web`: short, and different where they are."""
        if self.name:
            return self.name

        kind = self.resource
        plural = (
            kind.plural if kind.version == "v1" else f"{kind.plural}.{kind.version}"
        )
        return (
            ("metadata of " if self.metadata_only else "")
            + plural
            + (f".{kind.group}" if kind.group else "")
            + (f" in {','.join(self.namespaces)}" if self.namespaces else "")
            + (f" where {self.label_selector}" if self.label_selector else "")
            + (f" having {self.field_selector}" if self.field_selector else "")
        )

    def check_same(self, again: InformerSpec, transform: Transform | None) -> None:
        """Raise unless a later question asks for the same options.

        Args:
            again: The later question, of the same identity.
            transform: The one that the informer has by now.

        Raises:
            OptionsError: The options differ; the text names both places.
        """
        here, there = self._wishes(transform), again._wishes(again.transform)
        differ = [name for name in here if here[name] != there[name]]
        if "" in {here["kind"], there["kind"]}:
            # Not everybody knows it, nor then whether it has namespaces.
            differ = [name for name in differ if name not in {"kind", "namespaced"}]

        if differ:
            raise OptionsError(
                f"there is an informer {self.describe()!r}, asked for at {self.place} "
                f"with {_told(here, differ)}; asked for again at {again.place} with "
                f"{_told(there, differ)}: give name= for a second one"
            )

    def _wishes(self, transform: Transform | None) -> dict[str, Any]:
        """Return the options that all users of the informer must agree on."""
        return {
            "kind": self.resource.kind,
            "namespaced": self.resource.namespaced,
            "options": self.options,
            "resync_period": self.resync_period,
            "transform": transform,
            "compression": self.compression,
        }


def _told(wishes: dict[str, Any], names: Iterable[str]) -> str:
    """Some of the wishes, for a person; functions by their names."""
    values = ((name, wishes[name]) for name in names)
    return " and ".join(
        f"{name}={getattr(it, '__qualname__', None) or repr(it)}" for name, it in values
    )


def namespaces_of(given: Namespaces) -> tuple[str, ...]:
    """Several namespaces in one order, each once; empty for all.

    Raises:
        OptionsError: If they are none at all, or one of them is no name.
    """
    if given is None or given == "":
        return ()

    if isinstance(given, str):
        return (given,)

    names = set(given)
    if not names or not all(names):
        raise OptionsError(
            f"name the namespaces, or give None for all of them, not {given!r}"
        )

    return tuple(sorted(names))


def calling_place() -> str:
    """`"file.py:12"`: the innermost line of code outside of this package."""
    frame = sys._getframe()  # noqa: SLF001 - as the standard library's `warnings` does
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back

    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FactoryDefaults:
    """Defaults of a factory, applied to every request.

    Attributes:
        namespace: Of informers that name none; not of cluster-scoped resources.
        label_selector: Holds for all informers, beside their own.
        field_selector: Holds for all informers, beside their own.
        transform: Of informers that give none.
        resync_period: Of informers that give none.
        custom_resync: Of some resources, before the one for all.
        metadata_only: Ask for nothing but metadata, whatever the question says.
        any_resource: Two names are enough for a resource that is not built in.

    Raises:
        OptionsError: If a namespace or a period cannot be one, or a selector is no
            text.
        SelectorSyntaxError: If a selector cannot be parsed.
    """

    namespace: Namespaces = None
    label_selector: str = ""
    field_selector: str = ""
    transform: Transform | None = None
    resync_period: Duration | None = None
    custom_resync: Mapping[Resource, Duration] = field(default_factory=dict)
    metadata_only: bool = False
    any_resource: bool = False

    def __post_init__(self) -> None:
        namespaces_of(self.namespace)
        LabelSelector.parse(_both(self.label_selector, ""))
        FieldSelector.parse(_both(self.field_selector, ""))
        for period in (self.resync_period, *self.custom_resync.values()):
            resync_seconds(period)  # complains

        for known in self.custom_resync:
            if not isinstance(known, Resource):
                raise OptionsError(
                    f"custom_resync is by Resource, such as resources.PODS: {known!r}"
                )

    def spec(
        self, api_version: str | Resource, plural: str, asked: InformerOptions
    ) -> InformerSpec:
        """Apply the defaults to a request.

        Raises:
            OptionsError: If the resource is unknown, or an option cannot work.
            SelectorSyntaxError: If a selector cannot be parsed.
        """
        resource, by_name = self._resource(api_version, plural)
        namespace, transform = asked.get("namespace"), asked.get("transform")
        if namespace is None and resource.namespaced:
            namespace = self.namespace

        return InformerSpec(
            resource=resource,
            by_name=by_name,
            namespaces=namespaces_of(namespace),
            label_selector=_both(self.label_selector, asked.get("label_selector")),
            field_selector=_both(self.field_selector, asked.get("field_selector")),
            metadata_only=self.metadata_only or asked.get("metadata_only", False),
            name=asked.get("name") or None,
            options=_reflector_options(asked),
            transform=self.transform if transform is None else transform,
            compression=asked.get("compression"),
            resync_period=self._resync_period(resource, asked.get("resync_period")),
            place=calling_place(),
        )

    def _resync_period(self, resource: Resource, asked: Duration | None) -> float:
        if asked is not None:
            return resync_seconds(asked)

        for known, period in self.custom_resync.items():
            if _names(known) == _names(resource):
                return resync_seconds(period)

        return resync_seconds(self.resync_period)

    def _resource(
        self, api_version: str | Resource, name: Any
    ) -> tuple[Resource, bool]:
        """The resource that is meant, and whether the server has to say which it is.

        One that is built in is known better than by those who leave out its kind. The
        name should be a text; whoever gives a `Resource` there is told so.
        """
        if isinstance(api_version, Resource):
            if name:
                raise OptionsError(f"give a Resource, or two names: not also {name!r}")

            given = api_version
            return given if given.kind else lookup(*_names(given)) or given, False

        known = lookup(api_version, name)
        if known is not None:
            return known, False

        meant = similar(name or api_version)
        if not name or not isinstance(name, str):
            raise OptionsError(_unknown(api_version, name, meant))

        if meant is not None and meant.api_version == api_version:
            return meant, False

        if self.any_resource and name == name.lower():
            return Resource.of(api_version, name), False

        if not _may_be_served(api_version, meant):
            raise OptionsError(_unknown(api_version, name, meant))

        kind = name if name != name.lower() else ""
        return Resource.of(api_version, name.lower(), kind), True


def _names(resource: Resource) -> tuple[str, str]:
    return resource.api_version, resource.plural


def _may_be_served(api_version: str, meant: Resource | None) -> bool:
    """Whether a server may have what is not built in under this name.

    The core group has nothing else. Groups without a dot belong to Kubernetes, too: a
    name that is built in elsewhere is a mistake there.
    """
    group = api_version.rpartition("/")[0]
    return bool(group) and ("." in group or meant is None)


def _unknown(api_version: str, name: object, meant: Resource | None) -> str:
    """Return the error text for a name that is not built in, with a suggestion."""
    text = f"{name!r} of {api_version!r} is not a built-in resource; "
    if meant is not None:
        return f"{text}did you mean {meant.api_version!r}, {meant.plural!r}?"

    if not name:
        return f"{text}give two names, such as 'v1', 'pods', or a Resource"

    return f"{text}custom ones have a group, as in 'example.com/v1'"


def _reflector_options(asked: InformerOptions) -> ReflectorOptions:
    """Return the options that are meant for the reflector; all of them by name."""
    names = {field.name for field in fields(ReflectorOptions)}
    given: dict[str, Any] = {name: it for name, it in asked.items() if name in names}
    return ReflectorOptions(**given)


def _both(one: str, other: str | None) -> str:
    """The selector of what both select: a comma means "and"."""
    given = [it for it in (one, other) if it]
    for text in given:
        if not isinstance(text, str):
            raise OptionsError(f"a selector is a text such as 'app=web', not {text!r}")

    return ",".join(given)
