"""RBAC rules for missing permissions, to be applied by an administrator. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioinformer.model.resource import Resource

__all__ = [
    "ANONYMOUS",
    "VERBS",
    "MissingPermission",
    "Subject",
    "as_yaml",
    "manifests",
    "subject_of",
]

VERBS = ("list", "watch")
"""Verbs that an informer needs."""

ANONYMOUS = "system:anonymous"

_GROUP = "rbac.authorization.k8s.io"
_VERSION = f"{_GROUP}/v1"
_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")

# The limit of Kubernetes is higher, but unreadable.
_NAME_CHARACTERS = 80
_HASH_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of a binding."""

    kind: str
    """`User`, `Group` or `ServiceAccount`."""

    name: str
    namespace: str = ""
    """Namespace of a service account."""

    def document(self) -> dict[str, str]:
        """Return the subject of a binding."""
        if self.namespace:
            name = {"name": self.name, "namespace": self.namespace}
            return {"kind": self.kind, **name}

        return {"apiGroup": _GROUP, "kind": self.kind, "name": self.name}


@dataclass(frozen=True, slots=True)
class MissingPermission:
    """Resource that cannot be listed or watched."""

    resource: Resource
    namespace: str = ""
    """Namespace, or empty for all and for cluster-scoped resources."""


def subject_of(user: str, group: str = "") -> Subject | None:
    """Return the subject to bind rules to, or None for an unknown or anonymous user.

    Args:
        user: User name on the server.
        group: Group of the user to bind the rules to, or empty.

    Example:
        >>> subject_of("system:serviceaccount:shop:app")
        Subject(kind='ServiceAccount', name='app', namespace='shop')
    """
    if group:
        return Subject("Group", group)

    if user in {"", ANONYMOUS}:
        return None

    account = _ACCOUNT.fullmatch(user)
    if account is not None:
        return Subject("ServiceAccount", account[2], account[1])

    return Subject("User", user)


def manifests(
    needs: Iterable[MissingPermission], subject: Subject
) -> list[dict[str, Any]]:
    """Return a role and a binding for each namespace.

    They grant both verbs, even if only one is missing. Names are derived from resources
    and subject, so that rules for others are not overwritten.

    Args:
        needs: Missing permissions, in any order, possibly repeated.
        subject: Subject of the bindings.
    """
    namespaces: dict[str, list[Resource]] = {}
    for it in dict.fromkeys(needs):
        namespaces.setdefault(it.namespace, []).append(it.resource)

    found = []
    for namespace, resources in namespaces.items():
        found += _role_with_binding(namespace, resources, subject)

    return found


def as_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """Return documents as YAML for `kubectl apply -f -`, or an empty string."""
    if not documents:
        return ""

    return yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)


def _role_with_binding(
    namespace: str, resources: list[Resource], subject: Subject
) -> list[dict[str, Any]]:
    kind = "Role" if namespace else "ClusterRole"
    plurals = sorted(str(it) for it in resources)
    name = _short(f"aioinformer-{'-'.join(plurals)}")
    key = f"{subject.kind}/{subject.namespace}/{subject.name}"
    role = {
        "apiVersion": _VERSION,
        "kind": kind,
        "metadata": _metadata(name, namespace),
        "rules": _rules(resources),
    }
    binding = {
        "apiVersion": _VERSION,
        "kind": f"{kind}Binding",
        "metadata": _metadata(f"{name}-{_hash(key)}", namespace),
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": name},
        "subjects": [subject.document()],
    }
    return [role, binding]


def _metadata(name: str, namespace: str) -> dict[str, str]:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _rules(resources: list[Resource]) -> list[dict[str, list[str]]]:
    groups: dict[str, set[str]] = {}
    for it in resources:
        groups.setdefault(it.group, set()).add(it.plural)

    return [
        {"apiGroups": [group], "resources": sorted(plurals), "verbs": list(VERBS)}
        for group, plurals in sorted(groups.items())
    ]


def _short(name: str) -> str:
    if len(name) <= _NAME_CHARACTERS:
        return name

    return f"{name[:_NAME_CHARACTERS].rstrip('-.')}-{_hash(name)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]
