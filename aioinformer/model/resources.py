"""Built-in resources of Kubernetes, as `Resource` constants.

`lookup("apps/v1", "deployments")` finds them by name. For others (custom resources,
resources of newer servers) create a `Resource`.
"""

from __future__ import annotations

from aioinformer.model.resource import Resource

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
    "HORIZONTAL_POD_AUTOSCALERS",
    "INGRESSES",
    "INGRESS_CLASSES",
    "JOBS",
    "LEASES",
    "LIMIT_RANGES",
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
    "built_in_resources",
    "lookup",
    "short_names",
    "similar",
]


def _core(plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource("", "v1", plural, kind, namespaced)


def _apps(plural: str, kind: str) -> Resource:
    return Resource("apps", "v1", plural, kind)


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("rbac.authorization.k8s.io", "v1", plural, kind, namespaced)


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


def similar(word: str) -> Resource | None:
    """Find the built-in resource with this plural or kind, in any case.

    Args:
        word: Name, such as `"pods"`, `"Pod"` or `"deployment"`.
    """
    lower = str(word).lower()
    known = _KNOWN.values()
    return next((it for it in known if lower in {it.plural, it.kind.lower()}), None)
