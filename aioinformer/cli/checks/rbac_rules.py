"""RBAC rules, to be applied by an administrator. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from aioinformer.cli.error_messages import ANONYMOUS
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.model.resources import LEASES
from aioinformer.model.yaml_values import YAMLDumper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioinformer.model.resource import Resource

__all__ = [
    "ALL_VERBS",
    "SHARDS_VERBS",
    "VERBS",
    "Grant",
    "MissingPermission",
    "Subject",
    "as_yaml",
    "manifests",
    "manifests_of_program",
    "subject_of",
]

VERBS = ("list", "watch")
"""Verbs that an informer needs."""

SHARDS_VERBS: Final[Mapping[Resource, tuple[str, ...]]] = {
    LEASES: ("list", "watch", "create", "update", "delete"),
    EVENTS: ("create", "patch"),
}
"""Verbs that `Shards` needs in its namespace."""

ALL_VERBS = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
)
"""Verbs of requests for resources, in the order of rules."""

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
    """Resource for which verbs are not permitted."""

    resource: Resource
    namespace: str = ""
    """Namespace, or empty for all and for cluster-scoped resources."""

    verbs: tuple[str, ...] = VERBS
    """Verbs that are needed, also those that are permitted."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Verbs that a program needs on a resource."""

    group: str
    resource: str
    """Plural, perhaps with a subresource, such as `sites/status`."""

    verbs: tuple[str, ...]
    namespace: str = ""
    """Namespace, or empty for all and for cluster-scoped resources."""

    name: str = ""
    """Name of the only object, or empty for all."""

    purpose: str = ""
    """Suffix of a role of its own, or empty for the main role of the namespace."""


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

    They grant all needed verbs, even if only one is missing. Names are derived from
    resources and subject, so that rules for others are not overwritten.

    Args:
        needs: Missing permissions, in any order, possibly repeated.
        subject: Subject of the bindings.
    """
    namespaces: dict[str, list[MissingPermission]] = {}
    for it in dict.fromkeys(needs):
        namespaces.setdefault(it.namespace, []).append(it)

    found = []
    key = _hash(f"{subject.kind}/{subject.namespace}/{subject.name}")
    for namespace, missing in namespaces.items():
        resources = sorted({str(it.resource) for it in missing})
        name = _short(f"aioinformer-{'-'.join(resources)}")
        rules = _rules(
            Grant(it.resource.group, it.resource.plural, it.verbs) for it in missing
        )
        names = (name, f"{name}-{key}")
        found += _role_with_binding(namespace, names, rules, subject)

    return found


def manifests_of_program(
    grants: Iterable[Grant], account: Subject
) -> list[dict[str, Any]]:
    """Return a service account, and a role and a binding for each namespace.

    All are named after the account, so that a later output replaces an earlier one for
    the same namespace, and no other.

    Args:
        grants: Permissions of the program, in any order, possibly repeated.
        account: Service account of the program.
    """
    roles: dict[tuple[str, str], list[Grant]] = {}
    for it in grants:
        roles.setdefault((it.namespace, it.purpose), []).append(it)

    found: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _metadata(account.name, account.namespace),
        }
    ]
    for (namespace, purpose), granted in sorted(roles.items()):
        is_own = namespace == account.namespace
        # Accounts of other namespaces may have the same name.
        name = account.name if is_own else f"{account.namespace}:{account.name}"
        name += f"-{purpose}" if purpose else ""
        found += _role_with_binding(namespace, (name, name), _rules(granted), account)

    return found


def as_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """Return documents as YAML for `kubectl apply -f -`, or an empty string."""
    if not documents:
        return ""

    text: str = yaml.dump_all(
        documents, Dumper=YAMLDumper, sort_keys=False, explicit_start=True
    )
    return text


def _role_with_binding(
    namespace: str,
    names: tuple[str, str],
    rules: list[dict[str, list[str]]],
    subject: Subject,
) -> list[dict[str, Any]]:
    """Return a role and its binding, which have these names."""
    kind = "Role" if namespace else "ClusterRole"
    role = {
        "apiVersion": _VERSION,
        "kind": kind,
        "metadata": _metadata(names[0], namespace),
        "rules": rules,
    }
    binding = {
        "apiVersion": _VERSION,
        "kind": f"{kind}Binding",
        "metadata": _metadata(names[1], namespace),
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": names[0]},
        "subjects": [subject.document()],
    }
    return [role, binding]


def _metadata(name: str, namespace: str) -> dict[str, str]:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _rules(grants: Iterable[Grant]) -> list[dict[str, list[str]]]:
    """Return one rule for all resources of a group with the same verbs and name."""
    verbs: dict[tuple[str, str, str], set[str]] = {}
    for it in grants:
        verbs.setdefault((it.group, it.resource, it.name), set()).update(it.verbs)

    resources: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for (group, resource, name), needed in sorted(verbs.items()):
        ordered = tuple(sorted(needed, key=ALL_VERBS.index))
        resources.setdefault((group, ordered, name), []).append(resource)

    return [
        {
            "apiGroups": [group],
            "resources": plurals,
            **({"resourceNames": [name]} if name else {}),
            "verbs": list(ordered),
        }
        for (group, ordered, name), plurals in resources.items()
    ]


def _short(name: str) -> str:
    if len(name) <= _NAME_CHARACTERS:
        return name

    return f"{name[:_NAME_CHARACTERS].rstrip('-.')}-{_hash(name)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]
