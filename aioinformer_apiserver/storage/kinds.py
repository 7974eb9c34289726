"""Properties of each kind besides its path.

Typed kinds are those compiled into a Kubernetes API server. Custom kinds come from a
CustomResourceDefinition. Clients can see the difference: in the order of JSON keys, the
`kind` of list items, and whether a PUT requires a version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from aioinformer.errors import OptionsError
from aioinformer.model import Resource, resources
from aioinformer_apiserver.schema.openapi_schema import schema_of
from aioinformer_apiserver.storage.conversion import (
    autoscaler_to_v1,
    autoscaler_to_v2,
    event_to_core,
    event_to_events_v1,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioinformer_apiserver.schema import Schema

__all__ = [
    "SUBRESOURCE_KINDS",
    "FieldRule",
    "Kind",
    "ScalePaths",
    "built_in_kinds",
    "custom_kind",
    "value_at",
    "version_order",
]


def value_at(body: object, path: Sequence[str]) -> Any:
    """Return the value at a path; None if there is none."""
    for name in path:
        if not isinstance(body, dict):
            return None

        body = body.get(name)

    return body


# A selectable field: the path of its value, and the default of a missing one.
FieldRule = tuple[tuple[str, ...], str]


def _text_at(body: Mapping[str, Any], path: tuple[str, ...], default: str) -> str:
    """Return the value at a path as text for selectors."""
    value = value_at(body, path) if path else None
    if value is None:
        return default

    return str(value).lower() if isinstance(value, bool) else str(value)


def _fields(**defaults: str) -> dict[str, FieldRule]:
    """Make rules such as `spec__nodeName=""` for fields whose name is their path."""
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
        # Selectors accept it, but never match a value.
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

# Part of an object whose changes increment `metadata.generation`. With "once" it is
# always 1.
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

# Verbs of custom resources in the order of a real server, and those that remain while
# their definition is being deleted.
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

# Kinds of the objects of subresources, where they differ from the kind itself.
SUBRESOURCE_KINDS: Mapping[str, Resource] = {
    "binding": Resource("", "v1", "bindings", "Binding"),
    "eviction": Resource("policy", "v1", "evictions", "Eviction"),
    "scale": Resource("autoscaling", "v1", "scales", "Scale"),
    "token": Resource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest"),
}

# Subresources with a single verb.
_ONE_VERB = {
    "binding": ("create",),
    "eviction": ("create",),
    "finalize": ("update",),
    "token": ("create",),
}

_FINAL_VERBS = ("delete", "deletecollection", "get", "list", "watch")


def _identity(body: dict[str, Any]) -> dict[str, Any]:
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Paths of the values that the `scale` subresource shows."""

    replicas: tuple[str, ...] = ("spec", "replicas")
    """Desired number of replicas, the only value that may be written."""

    current: tuple[str, ...] = ("status", "replicas")
    """Current number of replicas."""

    selector: tuple[str, ...] = ("spec", "selector")
    """Selector of the pods, as an object or a text; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """A kind that the server serves. Compared by identity."""

    resource: Resource

    typed: bool = True
    """False for custom resources."""

    has_status: bool = False
    """True if there is a `status` subresource, so that other writes ignore `status`."""

    generation: GenerationRule = ""
    """Rule for `metadata.generation`; empty if objects have none."""

    first_status: Mapping[str, Any] | None = None
    """Status of a new object; None to omit it."""

    unconditional: bool = True
    """True if a PUT does not require a `metadata.resourceVersion`."""

    created_by_update: bool = False
    """True if a PUT creates a missing object."""

    fields: Mapping[str, FieldRule] = field(default_factory=dict)
    """Selectable fields besides `metadata.name` and `.namespace`."""

    short_names: tuple[str, ...] = ()

    categories: tuple[str, ...] = ()
    """Categories in discovery, such as `all`."""

    singular: str = ""
    """Singular name in lower case; empty for that of the kind."""

    list_kind: str = ""
    """Kind of lists; empty for the default."""

    scale: ScalePaths | None = None
    """Paths of the `scale` subresource; None if there is none."""

    columns: tuple[Mapping[str, Any], ...] = ()
    """Printer columns in the definition of a custom resource."""

    custom_schema: Schema | None = None
    """Schema of a custom resource; None if it has none."""

    storage_schema: Schema | None = None
    """Schema of the storage version of a custom resource, if that is another version.
    It also prunes objects."""

    conversion: Mapping[str, Any] | None = None
    """Conversion webhook of a custom resource with several versions; None if all
    versions have the same fields."""

    storage_version: str = ""
    """Storage version of a custom resource with a conversion webhook."""

    stored_as: Resource | None = None
    """Storage version, if that is another one with other fields. Validation and tables
    use that version."""

    to_storage: Callable[[dict[str, Any]], dict[str, Any]] = _identity
    """Conversion of a body to the storage version. Pure."""

    from_storage: Callable[[dict[str, Any]], dict[str, Any]] = _identity
    """Conversion of a body from the storage version. Pure."""

    warning: str = ""
    """Warning of a deprecated version; empty for none."""

    versions: tuple[str, ...] = ()
    """All API versions of the same objects in this group; empty for a single one.
    Managed fields of other groups are dropped."""

    served: bool = True
    """False for a version that is only stored."""

    definition: object = None
    """Definition of a custom resource; equal definitions give equal kinds."""

    terminating: bool = False
    """True while the definition is being deleted, so that nothing can be created."""

    def __post_init__(self) -> None:
        name = self.resource.kind
        object.__setattr__(self, "singular", self.singular or name.lower())
        object.__setattr__(self, "list_kind", self.list_kind or f"{name}List")

    @property
    def stored(self) -> Resource:
        """Storage version, as far as it affects the format of objects."""
        return self.stored_as or self.resource

    @property
    def schema(self) -> Schema | None:
        """Schema of the objects; None if there is none."""
        return schema_of(self.resource) if self.typed else self.custom_schema

    @property
    def subresources(self) -> dict[str, tuple[str, ...]]:
        """Subresources with their verbs, in the order of discovery."""
        present = {
            "binding": self.resource == resources.PODS,
            "eviction": self.resource == resources.PODS,
            "finalize": self.resource == resources.NAMESPACES,
            "scale": self.scale is not None,
            "status": self.has_status,
            "token": self.resource == resources.SERVICE_ACCOUNTS,
        }
        found = [name for name, is_present in present.items() if is_present]
        ordered = found if self.typed else found[::-1]
        return {name: _ONE_VERB.get(name, _SUBRESOURCE_VERBS) for name in ordered}

    @property
    def verbs(self) -> tuple[str, ...]:
        """Verbs in the order of discovery."""
        if self.resource == resources.NAMESPACES:
            return tuple(verb for verb in _VERBS if verb != "deletecollection")

        if self.typed:
            return _VERBS

        return _FINAL_VERBS if self.terminating else _CUSTOM_VERBS

    @property
    def prefix(self) -> bytes:
        """Beginning of the JSON of a typed object, which list items omit."""
        name, version = self.resource.kind, self.resource.api_version
        return f'{{"kind":"{name}","apiVersion":"{version}",'.encode()

    def field_values(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Return the values of all selectable fields of an object."""
        values = {
            name: _text_at(body, path, default)
            for name, (path, default) in self.fields.items()
        }
        if self.typed and values.get("source") == "":
            # The reporting component is the default of an event's source.
            values["source"] = values.get("reportingComponent", "")

        return values


@cache
def built_in_kinds() -> tuple[Kind, ...]:
    """Return all built-in kinds, the same objects each time."""
    named = [getattr(resources, name) for name in resources.__all__ if name.isupper()]
    found = [_built_in(it) for it in named if it not in _OTHER_VERSIONS]
    return *found, *(_other_version(found, it) for it in _OTHER_VERSIONS)


def custom_kind(resource: Resource) -> Kind:
    """Return the kind of a custom resource with a status and without a schema.

    Raises:
        OptionsError: If the resource has no kind, or is in the core group.
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
    """Return the kind of a built-in resource in an additional version."""
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


# Additional versions: their storage version, and the conversions to and from it.
_OTHER_VERSIONS = {
    resources.HORIZONTAL_POD_AUTOSCALERS_V1: (
        resources.HORIZONTAL_POD_AUTOSCALERS,
        autoscaler_to_v2,
        autoscaler_to_v1,
    ),
    resources.EVENTS_V1: (resources.EVENTS, event_to_core, event_to_events_v1),
}

_VERSIONS = {resources.HORIZONTAL_POD_AUTOSCALERS: ("autoscaling/v1", "autoscaling/v2")}

# Kinds with a status subresource, and the status of a new object.
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
    # A Deployment's annotations are copied to its ReplicaSets, so they count.
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
    resources.MUTATING_WEBHOOK_CONFIGURATIONS: "all but metadata",
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS: "all but metadata",
}

_CONDITIONAL = frozenset(
    {
        resources.CUSTOM_RESOURCE_DEFINITIONS,
        resources.LEASES,
        resources.MUTATING_WEBHOOK_CONFIGURATIONS,
        resources.POD_DISRUPTION_BUDGETS,
        resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
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
    resources.MUTATING_WEBHOOK_CONFIGURATIONS: ("api-extensions",),
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS: ("api-extensions",),
}

_NAME = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")
_MATURITY = {"": 0, "beta": 1, "alpha": 2}


def version_order(name: str) -> tuple[bool, int, int, int, str]:
    """Return a sort key for versions: stable ones first, and newer ones first.

    Example:
        >>> sorted(["v1beta1", "v1", "x", "v10", "v2", "v2beta1"], key=version_order)
        ['v10', 'v2', 'v1', 'v2beta1', 'v1beta1', 'x']
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return True, 0, 0, 0, name

    major, maturity, minor = found.groups(default="")
    return False, _MATURITY[maturity], -int(major), -int(minor or 0), ""
