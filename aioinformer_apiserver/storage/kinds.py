"""What the API server knows about each kind, beyond its path.

Typed kinds are those compiled into a Kubernetes API server; custom ones come from a
CustomResourceDefinition. The two differ in ways that clients can see: the order of JSON
keys, whether list items say what they are, whether a PUT must name a version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from aioinformer.errors import OptionsError
from aioinformer.model import resources
from aioinformer.model.resource import Resource
from aioinformer_apiserver.schema.openapi_schema import schema_of
from aioinformer_apiserver.storage.conversion import (
    autoscaler_to_v1,
    autoscaler_to_v2,
    event_to_core,
    event_to_events_v1,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer_apiserver.schema import Schema

__all__ = [
    "SUBRESOURCE_KINDS",
    "FieldRule",
    "Kind",
    "ScalePaths",
    "built_in_kinds",
    "custom_kind",
    "version_order",
]

# A selectable field: where its value is, and what a missing one counts as.
FieldRule = tuple[tuple[str, ...], str]


def _text_at(body: Mapping[str, Any], path: tuple[str, ...], default: str) -> str:
    """Return the value at a path as a selector compares it."""
    value: Any = body if path else None
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None

    if value is None:
        return default

    return str(value).lower() if isinstance(value, bool) else str(value)


def _fields(**defaults: str) -> dict[str, FieldRule]:
    """Make rules for `spec__nodeName=""`: a field whose name is its path."""
    paths = ((tuple(name.split("__")), default) for name, default in defaults.items())
    return {".".join(path): (path, default) for path, default in paths}


_REFERENCE_FIELDS = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)

_FIELDS: dict[Resource, dict[str, FieldRule]] = {
    resources.PODS: {
        **_fields(
            spec__nodeName="",
            spec__restartPolicy="Always",
            spec__schedulerName="default-scheduler",
            spec__serviceAccountName="",
            spec__hostNetwork="false",
            status__phase="",
            status__podIP="",
            status__nominatedNodeName="",
        ),
        # May be asked for, but has no value that a selector could find.
        "status.podIPs": ((), ""),
    },
    resources.EVENTS: {
        **_fields(
            **{f"involvedObject__{it}": "" for it in _REFERENCE_FIELDS},
            reason="",
            reportingComponent="",
            type="",
        ),
        "source": (("source", "component"), ""),
    },
    resources.EVENTS_V1: _fields(
        **{f"regarding__{it}": "" for it in _REFERENCE_FIELDS},
        reason="",
        reportingController="",
        type="",
    ),
    resources.NAMESPACES: _fields(status__phase=""),
    resources.NODES: _fields(spec__unschedulable="false"),
    resources.SECRETS: _fields(type="Opaque"),
    resources.SERVICES: _fields(spec__clusterIP="", spec__type="ClusterIP"),
    resources.JOBS: {"status.successful": (("status", "succeeded"), "0")},
    resources.REPLICATION_CONTROLLERS: _fields(status__replicas="0"),
}

# Which part of an object counts its `metadata.generation` up when it changes.
# "once": none does, it stays 1.
GenerationRule = Literal[
    "", "once", "spec", "spec and annotations", "all but metadata", "all and labels"
]

_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)

# The order in which a real server tells those of custom resources, and what is left of
# them when their definition is being deleted.
_CUSTOM_VERBS = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)

_SUBRESOURCE_VERBS = ("get", "patch", "update")

# What is sent through a subresource, where that is no object of the kind itself.
SUBRESOURCE_KINDS: Mapping[str, Resource] = {
    "binding": Resource("", "v1", "bindings", "Binding"),
    "eviction": Resource("policy", "v1", "evictions", "Eviction"),
    "scale": Resource("autoscaling", "v1", "scales", "Scale"),
    "token": Resource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest"),
}

# Those with one verb of their own.
_ONE_VERB = {
    "binding": ("create",),
    "eviction": ("create",),
    "finalize": ("update",),
    "token": ("create",),
}

_FINAL_VERBS = ("delete", "deletecollection", "get", "list", "watch")


def _unchanged(body: dict[str, Any]) -> dict[str, Any]:
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where a kind keeps what its `scale` subresource shows."""

    replicas: tuple[str, ...] = ("spec", "replicas")
    """How many are wanted: the one value that is written, too."""

    current: tuple[str, ...] = ("status", "replicas")
    """How many there are."""

    selector: tuple[str, ...] = ("spec", "selector")
    """Which pods are meant, as a selector in whatever form or as its text. Empty if
    that is not told."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """One kind as the server serves it. Told from others by identity."""

    resource: Resource

    typed: bool = True
    """False for custom resources."""

    has_status: bool = False
    """It has a `status` subresource, so that a plain write leaves `status` alone."""

    generation: GenerationRule = ""
    """What bumps `metadata.generation`; empty if its objects carry none."""

    first_status: Mapping[str, Any] | None = None
    """The `status` of a new object; None leaves it out."""

    unconditional: bool = True
    """A PUT without a `metadata.resourceVersion` is accepted."""

    created_by_update: bool = False
    """A PUT to a name that is free creates the object."""

    fields: Mapping[str, FieldRule] = field(default_factory=dict)
    """What field selectors may ask for, besides `metadata.name` and `.namespace`."""

    short_names: tuple[str, ...] = ()

    categories: tuple[str, ...] = ()
    """Groups of kinds that clients ask for by one word, such as `all`."""

    singular: str = ""
    """The name of one, in lower case; empty for that of the kind."""

    list_kind: str = ""
    """The kind of its lists; empty for the usual one."""

    scale: ScalePaths | None = None
    """It has a `scale` subresource, which shows these."""

    columns: tuple[Mapping[str, Any], ...] = ()
    """The columns of its tables, as the definition of a custom resource states them."""

    custom_schema: Schema | None = None
    """What a custom resource looks like; None if nobody has said."""

    storage_schema: Schema | None = None
    """What custom resources look like in the version in which they are kept, if that is
    another one: nothing else can be kept of them."""

    stored_as: Resource | None = None
    """In which version its objects are kept, if that is another one with other fields.
    What is right and how it is printed is decided about that one."""

    to_storage: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged
    """Makes a body of this version one of the version that is kept. Pure."""

    from_storage: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged
    """Makes a body of the version that is kept one of this version. Pure."""

    warning: str = ""
    """What everyone who uses it is told, as its version is deprecated."""

    versions: tuple[str, ...] = ()
    """All API versions of its group in which the same objects are served; empty for the
    one. Who manages fields in another group's is forgotten."""

    served: bool = True
    """False for a version in which objects are only kept."""

    definition: object = None
    """What a custom resource follows from; equal ones describe it equally."""

    terminating: bool = False
    """Its definition is being deleted, so no object can be created."""

    def __post_init__(self) -> None:
        name = self.resource.kind
        object.__setattr__(self, "singular", self.singular or name.lower())
        object.__setattr__(self, "list_kind", self.list_kind or f"{name}List")

    @property
    def stored(self) -> Resource:
        """In which version its objects are kept, so far as that matters to their form."""
        return self.stored_as or self.resource

    @property
    def schema(self) -> Schema | None:
        """What its objects look like; None if that is not known."""
        return schema_of(self.resource) if self.typed else self.custom_schema

    @property
    def subresources(self) -> dict[str, tuple[str, ...]]:
        """Those that every object has, with their verbs, in the order of discovery."""
        held = {
            "binding": self.resource == resources.PODS,
            "eviction": self.resource == resources.PODS,
            "finalize": self.resource == resources.NAMESPACES,
            "scale": self.scale is not None,
            "status": self.has_status,
            "token": self.resource == resources.SERVICE_ACCOUNTS,
        }
        found = [name for name, is_held in held.items() if is_held]
        ordered = found if self.typed else found[::-1]
        return {name: _ONE_VERB.get(name, _SUBRESOURCE_VERBS) for name in ordered}

    @property
    def verbs(self) -> tuple[str, ...]:
        """What can be done with it, in the order of discovery."""
        if self.resource == resources.NAMESPACES:
            return tuple(verb for verb in _VERBS if verb != "deletecollection")

        if self.typed:
            return _VERBS

        return _FINAL_VERBS if self.terminating else _CUSTOM_VERBS

    @property
    def prefix(self) -> bytes:
        """How the JSON of a typed object begins; list items are without it."""
        name, version = self.resource.kind, self.resource.api_version
        return f'{{"kind":"{name}","apiVersion":"{version}",'.encode()

    def field_values(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Read the values of all selectable fields of an object."""
        values = {
            name: _text_at(body, path, default)
            for name, (path, default) in self.fields.items()
        }
        if self.typed and values.get("source") == "":
            # An event that names no source comes from who reports it.
            values["source"] = values.get("reportingComponent", "")

        return values


@cache
def built_in_kinds() -> tuple[Kind, ...]:
    """Return every kind that a plain server serves: the same ones each time."""
    names = [name for name in resources.__all__ if name.isupper()]
    found = [_built_in(getattr(resources, name)) for name in names]
    return *found, *(_other_version(found, it) for it in _OTHER_VERSIONS)


def custom_kind(resource: Resource) -> Kind:
    """Describe a resource as a CustomResourceDefinition with a `status` would.

    Raises:
        OptionsError: If the resource does not name its kind, or is of the core group.
    """
    if not resource.kind or not resource.group:
        raise OptionsError(f"a custom resource needs a kind and a group: {resource!r}")

    return Kind(
        resource=resource,
        typed=False,
        has_status=True,
        generation="all but metadata",
        unconditional=False,
    )


def _built_in(resource: Resource) -> Kind:
    return Kind(
        resource=resource,
        has_status=resource in _FIRST_STATUS,
        generation=_GENERATIONS.get(resource, ""),
        first_status=_FIRST_STATUS.get(resource),
        unconditional=resource not in _CONDITIONAL,
        created_by_update=resource in _CREATED_BY_UPDATE,
        fields=_FIELDS.get(resource, {}),
        short_names=resources.short_names(resource),
        categories=_CATEGORIES.get(resource, ()),
        scale=ScalePaths() if resource in _SCALED else None,
        versions=_VERSIONS.get(resource, ()),
    )


def _other_version(found: list[Kind], resource: Resource) -> Kind:
    """Describe a built-in kind as it is served in one more version."""
    stored, to_storage, from_storage = _OTHER_VERSIONS[resource]
    kept = next(it for it in found if it.resource == stored)
    return replace(
        kept,
        resource=resource,
        stored_as=stored,
        to_storage=to_storage,
        from_storage=from_storage,
        fields=_FIELDS.get(resource, {}),
    )


# Versions in which kinds are served besides: which is kept, and how to get there and back.
_OTHER_VERSIONS = {
    resources.HORIZONTAL_POD_AUTOSCALERS_V1: (
        resources.HORIZONTAL_POD_AUTOSCALERS,
        autoscaler_to_v2,
        autoscaler_to_v1,
    ),
    resources.EVENTS_V1: (resources.EVENTS, event_to_core, event_to_events_v1),
}

_VERSIONS = {resources.HORIZONTAL_POD_AUTOSCALERS: ("autoscaling/v1", "autoscaling/v2")}

# The kinds with a status subresource, and the status that a new object is given.
_FIRST_STATUS: dict[Resource, dict[str, Any]] = {
    resources.PODS: {"phase": "Pending"},
    resources.NAMESPACES: {"phase": "Active"},
    resources.PERSISTENT_VOLUMES: {"phase": "Pending"},
    resources.PERSISTENT_VOLUME_CLAIMS: {"phase": "Pending"},
    resources.NODES: {},
    resources.SERVICES: {"loadBalancer": {}},
    resources.INGRESSES: {"loadBalancer": {}},
    resources.RESOURCE_QUOTAS: {},
    resources.REPLICATION_CONTROLLERS: {"replicas": 0},
    resources.REPLICA_SETS: {"replicas": 0},
    resources.DEPLOYMENTS: {},
    resources.STATEFUL_SETS: {"replicas": 0},
    resources.DAEMON_SETS: {},
    resources.JOBS: {},
    resources.CRON_JOBS: {},
    resources.HORIZONTAL_POD_AUTOSCALERS: {},
    resources.POD_DISRUPTION_BUDGETS: {},
    resources.CUSTOM_RESOURCE_DEFINITIONS: {},
}

_GENERATIONS: dict[Resource, GenerationRule] = {
    # A Deployment's annotations are copied to its ReplicaSets, hence part of its intent.
    resources.DEPLOYMENTS: "spec and annotations",
    resources.ENDPOINT_SLICES: "all and labels",
    resources.PODS: "spec",
    resources.POD_TEMPLATES: "all but metadata",
    resources.PRIORITY_CLASSES: "once",
    resources.REPLICATION_CONTROLLERS: "spec",
    resources.REPLICA_SETS: "spec",
    resources.STATEFUL_SETS: "spec",
    resources.DAEMON_SETS: "spec",
    resources.JOBS: "spec",
    resources.CRON_JOBS: "spec",
    resources.INGRESSES: "spec",
    resources.INGRESS_CLASSES: "spec",
    resources.NETWORK_POLICIES: "spec",
    resources.POD_DISRUPTION_BUDGETS: "spec",
    resources.CUSTOM_RESOURCE_DEFINITIONS: "spec",
}

_CONDITIONAL = frozenset(
    {
        resources.CUSTOM_RESOURCE_DEFINITIONS,
        resources.LEASES,
        resources.POD_DISRUPTION_BUDGETS,
    }
)

_CREATED_BY_UPDATE = frozenset(
    {
        resources.CLUSTER_ROLES,
        resources.CLUSTER_ROLE_BINDINGS,
        resources.ENDPOINTS,
        resources.EVENTS,
        resources.LEASES,
        resources.LIMIT_RANGES,
        resources.ROLES,
        resources.ROLE_BINDINGS,
        resources.SERVICES,
    }
)

_SCALED = frozenset(
    {
        resources.DEPLOYMENTS,
        resources.REPLICA_SETS,
        resources.REPLICATION_CONTROLLERS,
        resources.STATEFUL_SETS,
    }
)

_IN_ALL = (
    resources.PODS,
    resources.REPLICATION_CONTROLLERS,
    resources.SERVICES,
    resources.DAEMON_SETS,
    resources.DEPLOYMENTS,
    resources.REPLICA_SETS,
    resources.STATEFUL_SETS,
    resources.HORIZONTAL_POD_AUTOSCALERS,
    resources.CRON_JOBS,
    resources.JOBS,
)

_CATEGORIES: dict[Resource, tuple[str, ...]] = {
    **dict.fromkeys(_IN_ALL, ("all",)),
    resources.CUSTOM_RESOURCE_DEFINITIONS: ("api-extensions",),
}

_NAME = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")
_MATURITY = {"": 0, "beta": 1, "alpha": 2}


def version_order(name: str) -> tuple[bool, int, int, int, str]:
    """Return the key that sorts versions: stable ones first, and newer ones first.

    Example:
        >>> sorted(["v1beta1", "v1", "x", "v10", "v2", "v2beta1"], key=version_order)
        ['v10', 'v2', 'v1', 'v2beta1', 'v1beta1', 'x']
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return True, 0, 0, 0, name

    major, maturity, minor = found.groups(default="")
    return False, _MATURITY[maturity], -int(major), -int(minor or 0), ""
