"""Built-in resources of Kubernetes, as `Resource` constants.

`lookup("apps/v1", "deployments")` finds them by name. For others (custom resources,
resources of newer servers) create a `Resource`.
"""

from __future__ import annotations

import re

from aioinformer.errors import OptionsError
from aioinformer.model.resource import Resource
from aioinformer.model.validation import shown

__all__ = [
    "CLUSTER_ROLES",
    "CLUSTER_ROLE_BINDINGS",
    "CONFIG_MAPS",
    "CRON_JOBS",
    "CUSTOM_RESOURCE_DEFINITIONS",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "ENDPOINTS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "EVENTS_V1",
    "HORIZONTAL_POD_AUTOSCALERS",
    "HORIZONTAL_POD_AUTOSCALERS_V1",
    "INGRESSES",
    "INGRESS_CLASSES",
    "JOBS",
    "LEASES",
    "LIMIT_RANGES",
    "MUTATING_WEBHOOK_CONFIGURATIONS",
    "NAMESPACES",
    "NETWORK_POLICIES",
    "NODES",
    "PERSISTENT_VOLUMES",
    "PERSISTENT_VOLUME_CLAIMS",
    "PODS",
    "POD_DISRUPTION_BUDGETS",
    "POD_TEMPLATES",
    "PRIORITY_CLASSES",
    "REPLICATION_CONTROLLERS",
    "REPLICA_SETS",
    "RESOURCE_QUOTAS",
    "ROLES",
    "ROLE_BINDINGS",
    "SECRETS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "STATEFUL_SETS",
    "STORAGE_CLASSES",
    "VALIDATING_WEBHOOK_CONFIGURATIONS",
    "built_in_resources",
    "check_resource",
    "find_kind",
    "kind_of_model",
    "lookup",
    "meant",
    "short_names",
    "similar",
    "spelled",
]


def _core(plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource("", "v1", plural, kind, namespaced)


def _apps(plural: str, kind: str) -> Resource:
    return Resource("apps", "v1", plural, kind)


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("rbac.authorization.k8s.io", "v1", plural, kind, namespaced)


def _webhooks(plural: str, kind: str) -> Resource:
    return Resource(
        "admissionregistration.k8s.io", "v1", plural, kind, namespaced=False
    )


CONFIG_MAPS = _core("configmaps", "ConfigMap")
ENDPOINTS = _core("endpoints", "Endpoints")
EVENTS = _core("events", "Event")
LIMIT_RANGES = _core("limitranges", "LimitRange")
NAMESPACES = _core("namespaces", "Namespace", namespaced=False)
NODES = _core("nodes", "Node", namespaced=False)
PERSISTENT_VOLUMES = _core("persistentvolumes", "PersistentVolume", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = _core("persistentvolumeclaims", "PersistentVolumeClaim")
PODS = _core("pods", "Pod")
POD_TEMPLATES = _core("podtemplates", "PodTemplate")
REPLICATION_CONTROLLERS = _core("replicationcontrollers", "ReplicationController")
RESOURCE_QUOTAS = _core("resourcequotas", "ResourceQuota")
SECRETS = _core("secrets", "Secret")
SERVICES = _core("services", "Service")
SERVICE_ACCOUNTS = _core("serviceaccounts", "ServiceAccount")

DAEMON_SETS = _apps("daemonsets", "DaemonSet")
DEPLOYMENTS = _apps("deployments", "Deployment")
REPLICA_SETS = _apps("replicasets", "ReplicaSet")
STATEFUL_SETS = _apps("statefulsets", "StatefulSet")

CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
JOBS = Resource("batch", "v1", "jobs", "Job")

HORIZONTAL_POD_AUTOSCALERS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
INGRESS_CLASSES = Resource(
    "networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False
)
NETWORK_POLICIES = Resource(
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)

ROLES = _rbac("roles", "Role", namespaced=True)
ROLE_BINDINGS = _rbac("rolebindings", "RoleBinding", namespaced=True)
CLUSTER_ROLES = _rbac("clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = _rbac(
    "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
MUTATING_WEBHOOK_CONFIGURATIONS = _webhooks(
    "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
VALIDATING_WEBHOOK_CONFIGURATIONS = _webhooks(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)

_KNOWN: dict[tuple[str, str], Resource] = {
    (resource.api_version, resource.plural): resource
    for resource in list(globals().values())
    if isinstance(resource, Resource)
}

# Second versions of kinds above. `lookup()` does not find them.
EVENTS_V1 = Resource("events.k8s.io", "v1", "events", "Event")
HORIZONTAL_POD_AUTOSCALERS_V1 = Resource(
    "autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
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


def built_in_resources() -> tuple[Resource, ...]:
    """Return every built-in resource, preferred versions first."""
    return *_KNOWN.values(), EVENTS_V1, HORIZONTAL_POD_AUTOSCALERS_V1


_BY_KIND = {(it.api_version, it.kind): it for it in built_in_resources()}


def short_names(resource: Resource) -> tuple[str, ...]:
    """Return the short names of a built-in resource.

    Example:
        >>> short_names(DEPLOYMENTS)
        ('deploy',)
    """
    return _SHORT_NAMES.get(resource.plural, ())


def lookup(api_version: str, plural: str) -> Resource | None:
    """Find a built-in resource; return None if there is none.

    Args:
        api_version: API version, such as `"v1"` or `"apps/v1"`.
        plural: Plural in lower case, such as `"pods"`.
    """
    return _KNOWN.get((api_version, plural))


def find_kind(api_version: str, kind: str) -> Resource | None:
    """Find the built-in resource of a kind; return None if there is none.

    Example:
        >>> str(find_kind("apps/v1", "Deployment"))
        'deployments.apps'
    """
    return _BY_KIND.get((api_version, kind))


def similar(word: str) -> Resource | None:
    """Find the built-in resource with this plural, kind or short name, in any case.

    Args:
        word: Name, such as `"pods"`, `"Pod"` or `"po"`.
    """
    lower = str(word).lower()
    return next((it for it in _KNOWN.values() if lower in _names_of(it)), None)


def _names_of(resource: Resource) -> tuple[str, ...]:
    return resource.plural, resource.kind.lower(), *short_names(resource)


# What precedes the kind in the names of kubernetes_asyncio's models: `V1Pod`,
# `CoreV1Event`.
_MODEL = re.compile(r"([A-Z][a-z]+)?V\d+((alpha|beta)\d+)?(?=[A-Z])")


def kind_of_model(name: str) -> str:
    """Return the kind that a model of kubernetes_asyncio is for; empty if unknown.

    Example:
        >>> kind_of_model("V1ConfigMap")
        'ConfigMap'
    """
    prefix = _MODEL.match(name)
    return name[prefix.end() :] if prefix else ""


def meant(*words: object) -> Resource | None:
    """Find the built-in resource that was probably meant, for an error message.

    Args:
        *words: Names, such as `"apps/v1/deployments"` or `"pods.v1"`, and models of a
            client or their classes.
    """
    for word in words:
        if isinstance(word, Resource):
            return word

        kind = word if isinstance(word, type) else type(word)
        text = word if isinstance(word, str) else kind.__name__
        forms = text, text.rpartition("/")[2], text.partition(".")[0]
        for form in (*forms, kind_of_model(text)):
            if found := similar(form):
                return found

    return None


def spelled(*words: object) -> str:
    """Return the code of a resource that was given by names, for an error message.

    Example:
        >>> spelled("apps/v1", "deployments")
        'DEPLOYMENTS of aioinformer.model.resources'
    """
    known = meant(*reversed(words))
    for name in __all__ if known is not None else ():
        if globals()[name] == known:
            return f"{name} of aioinformer.model.resources"

    match words:
        case [str(version), str(plural), *_] if version and plural:
            return f"Resource.of({version!r}, {plural!r})"
        case _:
            return (
                "one of aioinformer.model.resources, such as PODS, or "
                'Resource.of("apps/v1", "deployments", "Deployment")'
            )


def check_resource(given: object) -> None:
    """Reject anything but a `Resource`, such as a name.

    Raises:
        OptionsError: If it is not a resource.
    """
    if not isinstance(given, Resource):
        raise OptionsError(f"not a Resource: {shown(given)}. Write {spelled(given)}")
