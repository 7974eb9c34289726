"""One minimal object of each built-in kind that a real server accepts."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer.model import resources

if TYPE_CHECKING:
    from contract_servers import ServerUnderTest

    from aioinformer.model.resource import Resource

__all__ = ["SAMPLES", "Sample"]

_SPEC = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}
_TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": _SPEC}
_SELECTOR = {"matchLabels": {"app": "web"}}
_ONCE = {"spec": {**_SPEC, "restartPolicy": "Never"}}
_SET = {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}}
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Sample:
    """A kind, and the fields of its objects besides names."""

    resource: Resource
    content: dict[str, Any]

    def name(self, target: ServerUnderTest) -> str:
        """Return a name that no other test uses, for cluster-scoped objects too."""
        if self.resource == resources.CUSTOM_RESOURCE_DEFINITIONS:
            return f"things.{target.namespace}.example.com"

        return f"{target.namespace}-x"

    def path(self, target: ServerUnderTest) -> str:
        """Return the path of the collection."""
        namespace = target.namespace if self.resource.namespaced else None
        return self.resource.path(namespace)

    def body(self, target: ServerUnderTest) -> dict[str, Any]:
        """Return a new object."""
        content = deepcopy(self.content)
        if self.resource == resources.CUSTOM_RESOURCE_DEFINITIONS:
            content["spec"]["group"] = f"{target.namespace}.example.com"

        if self.resource == resources.EVENTS:
            content["involvedObject"]["namespace"] = target.namespace

        return {"metadata": {"name": self.name(target)}, **content}


def _samples() -> dict[Resource, dict[str, Any]]:
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    claim = {"requests": {"storage": "1Gi"}}
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    return {
        resources.CONFIG_MAPS: {"data": {"a": "b"}},
        resources.ENDPOINTS: {},
        resources.EVENTS: {"involvedObject": {"name": "web"}, "reason": "Why"},
        resources.LIMIT_RANGES: {"spec": {"limits": []}},
        resources.PERSISTENT_VOLUME_CLAIMS: {
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": claim}
        },
        resources.PODS: {"spec": _SPEC},
        resources.POD_TEMPLATES: {"template": _TEMPLATE},
        resources.REPLICATION_CONTROLLERS: {
            "spec": {"selector": {"app": "web"}, "template": _TEMPLATE}
        },
        resources.RESOURCE_QUOTAS: {"spec": {"hard": {"services": "1000"}}},
        resources.SECRETS: {"data": {"a": "Yg=="}},
        resources.SERVICES: {"spec": {"ports": [{"port": 80}]}},
        resources.SERVICE_ACCOUNTS: {},
        resources.DAEMON_SETS: _SET,
        resources.DEPLOYMENTS: _SET,
        resources.REPLICA_SETS: _SET,
        resources.STATEFUL_SETS: {"spec": {**_SET["spec"], "serviceName": "web"}},
        resources.CRON_JOBS: {
            "spec": {
                "schedule": "* * * * *",
                "jobTemplate": {"spec": {"template": _ONCE}},
            }
        },
        resources.JOBS: {"spec": {"template": _ONCE}},
        resources.HORIZONTAL_POD_AUTOSCALERS: {
            "spec": {"scaleTargetRef": scaled, "maxReplicas": 3}
        },
        resources.POD_DISRUPTION_BUDGETS: {
            "spec": {"minAvailable": 1, "selector": _SELECTOR}
        },
        resources.LEASES: {"spec": {"holderIdentity": "me"}},
        resources.ENDPOINT_SLICES: {"addressType": "IPv4", "endpoints": []},
        resources.INGRESSES: {"spec": {"defaultBackend": backend}},
        resources.NETWORK_POLICIES: {"spec": {"podSelector": {}}},
        resources.ROLES: {"rules": []},
        resources.ROLE_BINDINGS: {
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "x"}
        },
        resources.NODES: {},
        resources.PERSISTENT_VOLUMES: {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/tmp"},
            }
        },
        resources.INGRESS_CLASSES: {"spec": {"controller": "example.com/x"}},
        resources.PRIORITY_CLASSES: {"value": 7},
        resources.STORAGE_CLASSES: {"provisioner": "example.com/x"},
        resources.CUSTOM_RESOURCE_DEFINITIONS: {
            "spec": {
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [version],
            }
        },
        resources.CLUSTER_ROLES: {"rules": []},
        resources.CLUSTER_ROLE_BINDINGS: {
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "x"}
        },
    }


# All but namespaces, which have tests of their own.
SAMPLES = {
    resource.plural: Sample(resource, content)
    for resource, content in _samples().items()
}
