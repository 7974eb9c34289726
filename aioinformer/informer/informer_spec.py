"""`InformerSpec`: identity and options of one informer of a factory."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from aioinformer.errors import OptionsError
from aioinformer.informer.handlers.resync import resync_seconds
from aioinformer.informer.listwatch.interface import (
    ReflectorKeywords,
    ReflectorOptions,
)
from aioinformer.model.compression import check_compression
from aioinformer.model.resource import Resource
from aioinformer.model.resources import SECRETS, lookup, meant, similar
from aioinformer.model.selectors import FieldSelector, LabelSelector, selector_text
from aioinformer.model.validation import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.cache.index import IndexFunction
    from aioinformer.model.compression import Compression
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.shards import ShardSelector
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
"""One namespace, several, or all of them: None or an empty string."""


class InformerOptions(ReflectorKeywords, total=False):
    """Options of `SharedInformerFactory.informer`, as keyword arguments."""

    namespace: Namespaces
    label_selector: str
    field_selector: str
    shards: ShardSelector | None
    indexers: Mapping[str, IndexFunction[KubeObject]] | None
    transform: Transform | None
    compression: Compression | None
    resync_period: Duration | None
    metadata_only: bool
    cached: bool | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerSpec:
    """Request for an informer, with the factory's defaults applied.

    Attributes:
        resource: Resource to list and watch; its kind may be unknown.
        namespaces: Sorted namespaces; empty for all.
        label_selector: Label selector in kubectl's syntax.
        field_selector: Field selector in kubectl's syntax.
        metadata_only: Whether to request the metadata of objects only.
        name: Name of a separate informer, or None for the shared one.
        options: Options of the reflector.
        transform: Transform of objects before they are stored.
        compression: Compression of stored bodies; None for none.
        resync_period: Seconds between resyncs; 0 for none.
        place: Line of the user's code that made the request.
        by_name: True if discovery has to find the resource. Then its kind is the name
            that the user passed, or its plural if it has no kind.
        cached: True to keep the objects on disk, in the factory's `cache_dir`.
        shards: Selector by a hash of each object's uid or namespace; None for all.

    Raises:
        SelectorSyntaxError: If a selector cannot be parsed.
        OptionsError: If the compression is unknown or not installed.
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
    cached: bool = False
    shards: ShardSelector | None = None

    def __post_init__(self) -> None:
        check_compression(self.compression)
        LabelSelector.parse(self.label_selector)
        FieldSelector.parse(self.field_selector)

    @property
    def identity(self) -> tuple[object, ...]:
        """Key of the informer: equal for all requests that share it.

        Selectors are compared parsed. The kind is left out, as a request may lack it.
        """
        return (
            self.resource.api_version,
            self.resource.plural,
            self.namespaces,
            LabelSelector.parse(self.label_selector),
            FieldSelector.parse(self.field_selector),
            self.metadata_only,
            self.shards,
            self.name,
        )

    @property
    def selection(self) -> str:
        """Text of the identity, the same in all processes: what a store on disk holds."""
        return "\n".join(
            (
                self.resource.api_version,
                self.resource.plural,
                *self.namespaces,
                f"labels {LabelSelector.parse(self.label_selector)}",
                f"fields {FieldSelector.parse(self.field_selector)}",
                "metadata only" if self.metadata_only else "complete objects",
                self.name or "",
                *(() if self.shards is None else (f"shards {self.shards}",)),
            )
        )

    @property
    def directory(self) -> str:
        """Start of the names of its stores: resource, and a hash of the selection."""
        resource = self.resource
        group = f".{resource.group}" if resource.group else ""
        digest = hashlib.sha256(self.selection.encode()).hexdigest()
        return f"{resource.plural}{group}-{digest[:12]}"

    def describe(self) -> str:
        """Return a short, unique name, such as `pods in shop where app=web`."""
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
            + ("" if self.shards is None else " by shard")
        )

    def check_same(self, again: InformerSpec, transform: Transform | None) -> None:
        """Raise unless a later request has the same options.

        Args:
            again: Later request with the same identity.
            transform: Current transform of the informer.

        Raises:
            OptionsError: If the options differ; the message has both places.
        """
        here = self._shared_options(transform)
        there = again._shared_options(again.transform)
        differ = [name for name in here if here[name] != there[name]]
        if "" in {here["kind"], there["kind"]}:
            # A request without a kind may not know whether the resource is namespaced.
            differ = [name for name in differ if name not in {"kind", "namespaced"}]

        if differ:
            raise OptionsError(
                f"informer {self.describe()!r} exists, requested at {self.place} with "
                f"{_described(here, differ)}, and is requested at {again.place} with "
                f"{_described(there, differ)}: pass name= for a second informer"
            )

    def _shared_options(self, transform: Transform | None) -> dict[str, Any]:
        """Return the options that all users of the informer must agree on."""
        return {
            "kind": self.resource.kind,
            "namespaced": self.resource.namespaced,
            "options": self.options,
            "resync_period": self.resync_period,
            "transform": transform,
            "compression": self.compression,
            "cached": self.cached,
        }


def _described(options: dict[str, Any], names: Iterable[str]) -> str:
    """Return some of the options for an error message; functions by their names."""
    values = ((name, options[name]) for name in names)
    return " and ".join(
        f"{name}={getattr(it, '__qualname__', None) or repr(it)}" for name, it in values
    )


def namespaces_of(namespaces: Namespaces) -> tuple[str, ...]:
    """Return the sorted namespaces, each once; empty for all.

    Raises:
        OptionsError: If the sequence is empty, or has an empty name.
    """
    if namespaces is None or namespaces == "":
        return ()

    given: Any = [namespaces] if isinstance(namespaces, str) else namespaces
    names = list(given) if isinstance(given, Iterable) else []
    if not names or not all(isinstance(it, str) and it for it in names):
        raise OptionsError(
            f"pass names of namespaces, or None for all, not {namespaces!r}"
        )

    for name in names:
        if name == "*" or "," in name:
            raise OptionsError(
                f"invalid namespace {name!r}: pass None for all namespaces, and a list "
                "for several"
            )

    return tuple(sorted(set(names)))


def calling_place() -> str:
    """Return the calling line of code outside this package, as `"file.py:12"`."""
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
        namespace: Default namespaces; not for cluster-scoped resources.
        label_selector: Label selector added to that of each informer.
        field_selector: Field selector added to that of each informer.
        transform: Default transform.
        resync_period: Default resync period.
        custom_resync: Default resync periods by resource; they override
            `resync_period`.
        metadata_only: True to request only metadata, even without `metadata_only` in
            the request.
        any_resource: True to request unknown resources by their API version and plural,
            without discovery.
        cached: True to keep objects on disk, except those of several namespaces, and
            Secrets unless their request has `cached=True`.

    Raises:
        OptionsError: If a namespace, a period or a selector is invalid.
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
    cached: bool = False

    def __post_init__(self) -> None:
        namespaces_of(self.namespace)
        LabelSelector.parse(_both(self.label_selector, ""))
        FieldSelector.parse(_both(self.field_selector, ""))
        for period in (self.resync_period, *self.custom_resync.values()):
            resync_seconds(period)  # checks it

        for known in self.custom_resync:
            if not isinstance(known, Resource):
                raise OptionsError(
                    f"keys of custom_resync must be Resources, such as PODS, not {known!r}"
                )

    def spec(
        self, api_version: str | Resource, plural: str, options: InformerOptions
    ) -> InformerSpec:
        """Apply the defaults to a request.

        Raises:
            OptionsError: If the resource is unknown, or an option is invalid.
            SelectorSyntaxError: If a selector cannot be parsed.
        """
        resource, by_name = self._resource(api_version, plural)
        namespace, transform = options.get("namespace"), options.get("transform")
        if namespace is None and resource.namespaced:
            namespace = self.namespace

        namespaces = namespaces_of(namespace)
        return InformerSpec(
            resource=resource,
            by_name=by_name,
            namespaces=namespaces,
            label_selector=_both(self.label_selector, options.get("label_selector")),
            field_selector=_both(self.field_selector, options.get("field_selector")),
            metadata_only=self.metadata_only or options.get("metadata_only", False),
            shards=options.get("shards"),
            name=options.get("name") or None,
            options=_reflector_options(options),
            transform=self.transform if transform is None else transform,
            compression=options.get("compression"),
            resync_period=self._resync_period(resource, options.get("resync_period")),
            place=calling_place(),
            cached=self._cached(resource, namespaces, options.get("cached")),
        )

    def _cached(
        self, resource: Resource, namespaces: tuple[str, ...], asked: bool | None
    ) -> bool:
        """Return whether an informer has a store on disk."""
        if asked and not self.cached:
            raise OptionsError("cached=True needs a factory with cache_dir=")

        if asked and len(namespaces) > 1:
            raise OptionsError(
                "cached=True is not supported with several namespaces: request one "
                "informer for each, or all namespaces"
            )

        if asked is not None:
            return asked

        secret = _names(resource) == _names(SECRETS)
        return self.cached and len(namespaces) <= 1 and not secret

    def _resync_period(self, resource: Resource, period: Duration | None) -> float:
        if period is not None:
            return resync_seconds(period)

        for known, its_period in self.custom_resync.items():
            if _names(known) == _names(resource):
                return resync_seconds(its_period)

        return resync_seconds(self.resync_period)

    def _resource(self, api_version: Any, name: Any) -> tuple[Resource, bool]:
        """Return the resource, and whether discovery has to find it by its name.

        A built-in resource is completed if the request lacks its kind.
        """
        if isinstance(api_version, Resource):
            if name:
                raise OptionsError(
                    f"pass a Resource or two names, not both: {name!r}. Pass a "
                    f"namespace by name: namespace={name!r}"
                )

            resource = api_version
            if resource.kind:
                return resource, False

            return lookup(*_names(resource)) or resource, False

        if not (isinstance(api_version, str) and isinstance(name, str) and name):
            raise OptionsError(_unknown(api_version, name))

        known = lookup(api_version, name)
        if known is not None:
            return known, False

        similar_one = similar(name)
        if similar_one is not None and similar_one.api_version == api_version:
            return similar_one, False

        if self.any_resource and name == name.lower():
            return Resource.of(api_version, name), False

        if not _may_be_served(api_version, similar_one):
            raise OptionsError(_unknown(api_version, name))

        kind = name if name != name.lower() else ""
        return Resource.of(api_version, name.lower(), kind), True


def _names(resource: Resource) -> tuple[str, str]:
    return resource.api_version, resource.plural


def _may_be_served(api_version: str, similar_one: Resource | None) -> bool:
    """Return True if a server may have a resource that is not built in.

    The core group has built-in resources only. Groups without a dot belong to
    Kubernetes,
    too: there, the name of a built-in resource of another group is a mistake.
    """
    group = api_version.rpartition("/")[0]
    return bool(group) and ("." in group or similar_one is None)


def _unknown(api_version: object, name: object) -> str:
    """Return the error message for an unknown name, with a suggestion."""
    given = f"{shown(name)} of {shown(api_version)}" if name else shown(api_version)
    text = f"{given} is not a built-in resource. "
    known = meant(*filter(None, (name, api_version)))
    if known is not None:
        return f"{text}Did you mean {known.api_version!r}, {known.plural!r}?"

    if not name:
        return f"{text}Pass two names, such as 'v1', 'pods', or a Resource"

    return f"{text}Custom ones have a group, such as 'example.com/v1'"


def _reflector_options(options: InformerOptions) -> ReflectorOptions:
    """Return the options of the reflector, by their names."""
    names = {field.name for field in fields(ReflectorOptions)}
    own: dict[str, Any] = {name: it for name, it in options.items() if name in names}
    return ReflectorOptions(**own)


def _both(one: str, other: str | None) -> str:
    """Return both selectors, joined by a comma, which means "and"."""
    return ",".join(selector_text(it) for it in (one, other) if it)
