"""What the API server knows about each kind, beyond its path.

Typed kinds are those compiled into a Kubernetes API server; custom ones come from a
CustomResourceDefinition. The two differ in ways that clients can see: the order of JSON
keys, whether list items say what they are, whether a PUT must name a version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from aioinformer.errors import OptionsError
from aioinformer.model import resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer.model.resource import Resource

__all__ = ["Kind", "built_in_kinds", "custom_kind"]

# Which part of an object counts its `metadata.generation` up when it changes.
GenerationRule = Literal["", "spec", "spec and annotations", "all but metadata"]

# A selectable field: where its value is, and what a missing one counts as.
FieldRule = tuple[tuple[str, ...], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind as the server serves it."""

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

    fields: Mapping[str, FieldRule] = field(default_factory=dict)
    """What field selectors may ask for, besides `metadata.name` and `.namespace`."""

    short_names: tuple[str, ...] = ()

    @property
    def prefix(self) -> bytes:
        """How the JSON of a typed object begins; list items are without it."""
        name, version = self.resource.kind, self.resource.api_version
        return f'{{"kind":"{name}","apiVersion":"{version}",'.encode()

    def field_values(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Read the values of all selectable fields of an object."""
        return {
            name: _text_at(body, path, default)
            for name, (path, default) in self.fields.items()
        }


def built_in_kinds() -> Iterator[Kind]:
    """Yield every kind that a plain server serves."""
    for name in resources.__all__:
        resource = getattr(resources, name)
        if name.isupper():
            yield _built_in(resource)


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
        unconditional=resource != resources.LEASES,
        fields=_FIELDS.get(resource, {}),
        short_names=_SHORT_NAMES.get(resource.plural, ()),
    )


def _text_at(body: Mapping[str, Any], path: tuple[str, ...], default: str) -> str:
    value: Any = body
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None

    if value is None:
        return default

    return str(value).lower() if isinstance(value, bool) else str(value)


def _fields(**defaults: str) -> dict[str, FieldRule]:
    """Make rules for `spec__nodeName=""`: a field whose name is its path."""
    paths = ((tuple(name.split("__")), default) for name, default in defaults.items())
    return {".".join(path): (path, default) for path, default in paths}


_FIELDS: dict[Resource, dict[str, FieldRule]] = {
    resources.PODS: _fields(
        spec__nodeName="",
        spec__restartPolicy="Always",
        spec__schedulerName="default-scheduler",
        spec__serviceAccountName="",
        spec__hostNetwork="false",
        status__phase="",
        status__podIP="",
        status__nominatedNodeName="",
    ),
    resources.EVENTS: {
        **_fields(
            involvedObject__kind="",
            involvedObject__namespace="",
            involvedObject__name="",
            involvedObject__uid="",
            involvedObject__apiVersion="",
            involvedObject__resourceVersion="",
            involvedObject__fieldPath="",
            reason="",
            reportingComponent="",
            type="",
        ),
        "source": (("source", "component"), ""),
    },
    resources.NAMESPACES: _fields(status__phase=""),
    resources.NODES: _fields(spec__unschedulable="false"),
    resources.SECRETS: _fields(type="Opaque"),
    resources.SERVICES: _fields(spec__clusterIP="", spec__type="ClusterIP"),
    resources.JOBS: {"status.successful": (("status", "succeeded"), "0")},
    resources.REPLICA_SETS: _fields(status__replicas="0"),
    resources.REPLICATION_CONTROLLERS: _fields(status__replicas="0"),
}

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
    resources.PODS: "spec",
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

_SHORT_NAMES: dict[str, tuple[str, ...]] = {
    "configmaps": ("cm",),
    "cronjobs": ("cj",),
    "customresourcedefinitions": ("crd", "crds"),
    "daemonsets": ("ds",),
    "deployments": ("deploy",),
    "endpoints": ("ep",),
    "events": ("ev",),
    "horizontalpodautoscalers": ("hpa",),
    "ingresses": ("ing",),
    "limitranges": ("limits",),
    "namespaces": ("ns",),
    "networkpolicies": ("netpol",),
    "nodes": ("no",),
    "persistentvolumeclaims": ("pvc",),
    "persistentvolumes": ("pv",),
    "poddisruptionbudgets": ("pdb",),
    "pods": ("po",),
    "priorityclasses": ("pc",),
    "replicasets": ("rs",),
    "replicationcontrollers": ("rc",),
    "resourcequotas": ("quota",),
    "serviceaccounts": ("sa",),
    "services": ("svc",),
    "statefulsets": ("sts",),
    "storageclasses": ("sc",),
}
