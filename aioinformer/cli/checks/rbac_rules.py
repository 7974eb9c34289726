"""RBAC rules: what an administrator has to apply, so that somebody may run informers. Pure."""

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
"""What an informer needs."""

ANONYMOUS = "system:anonymous"

_GROUP = "rbac.authorization.k8s.io"
_VERSION = f"{_GROUP}/v1"
_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")

# Names of roles may be much longer; nobody wants to read that.
_NAME_CHARACTERS = 80
_HASH_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a binding gives rights to."""

    kind: str
    """`User`, `Group` or `ServiceAccount`."""

    name: str
    namespace: str = ""
    """Of a service account."""

    def document(self) -> dict[str, str]:
        """Write it as bindings do."""
        if self.namespace:
            name = {"name": self.name, "namespace": self.namespace}
            return {"kind": self.kind, **name}

        return {"apiGroup": _GROUP, "kind": self.kind, "name": self.name}


@dataclass(frozen=True, slots=True)
class MissingPermission:
    """A resource that somebody may not list and watch."""

    resource: Resource
    namespace: str = ""
    """Where; empty for all namespaces, and for what is in none."""


def subject_of(user: str, group: str = "") -> Subject | None:
    """Say whom to give rights to; None for who has not logged in, or is not known.

    Args:
        user: As the server names them.
        group: One of theirs, if all of it is to have the rights.

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
    """Write the roles and bindings that fulfil needs, for each place two of them.

    They have both verbs of what lacks one. Names are made of what is in a role, and of
    whom it is bound to: what is applied for others, or other resources, stays as it is.

    Args:
        needs: In any order, also several times.
        subject: Who has them.
    """
    places: dict[str, list[Resource]] = {}
    for it in dict.fromkeys(needs):
        places.setdefault(it.namespace, []).append(it.resource)

    found = []
    for namespace, resources in places.items():
        found += _role_with_binding(namespace, resources, subject)

    return found


def as_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """Write documents as `kubectl apply -f -` reads them; nothing if there are none."""
    if not documents:
        return ""

    return yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)


def _role_with_binding(
    namespace: str, resources: list[Resource], subject: Subject
) -> list[dict[str, Any]]:
    kind = "Role" if namespace else "ClusterRole"
    plurals = sorted(str(it) for it in resources)
    name = _short(f"aioinformer-{'-'.join(plurals)}")
    who = f"{subject.kind}/{subject.namespace}/{subject.name}"
    role = {
        "apiVersion": _VERSION,
        "kind": kind,
        "metadata": _metadata(name, namespace),
        "rules": _rules(resources),
    }
    binding = {
        "apiVersion": _VERSION,
        "kind": f"{kind}Binding",
        "metadata": _metadata(f"{name}-{_hash(who)}", namespace),
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
