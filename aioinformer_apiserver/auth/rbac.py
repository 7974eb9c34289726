"""RBAC: users, and their permissions by the roles and bindings in the storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError
from aioinformer.model.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aioinformer_apiserver.requests.routes import RequestInfo
    from aioinformer_apiserver.storage.storage import Change, Collection, Storage

__all__ = [
    "AUTHENTICATED",
    "MASTERS",
    "UNAUTHENTICATED",
    "RBACAuthorizer",
    "User",
    "bootstrap_roles",
]

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"

_API_GROUP = "rbac.authorization.k8s.io"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
# Excluded from "view", because reading them would give further permissions.
_SENSITIVE = frozenset({"secrets", "roles", "rolebindings"})
_RBAC_RESOURCES = frozenset({"roles", "rolebindings"})


@dataclass(frozen=True, slots=True)
class User:
    """A user.

    Attributes:
        name: Name in role bindings.
        groups: Groups of the user, as a tuple or list. Members of `system:masters` may
            do everything.

    Raises:
        OptionsError: If the name is not a string, or the groups are not a tuple or
            list: a string would be one group for each of its letters.
    """

    name: str
    groups: tuple[str, ...] | list[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise OptionsError(
                f"the name of a User must be a string, not {self.name!r}"
            )

        given: object = self.groups
        if not isinstance(given, tuple | list) or not all(
            isinstance(it, str) and it for it in given
        ):
            raise OptionsError(
                "the groups of a User must be a tuple or list such as ['support'], not "
                f"{given!r}"
            )

        object.__setattr__(self, "groups", tuple(given))

    @property
    def is_master(self) -> bool:
        """True if the user may do everything, regardless of roles."""
        return MASTERS in self.groups


class RBACAuthorizer:
    """Authorizer by the rules of all roles that are bound to a user."""

    def __init__(self, storage: Storage) -> None:
        self._collections = [
            storage.collection(resource)
            for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)
        ]
        # Last changes that have been read. Not their versions: a server that restores a
        # backup uses the same versions again for other roles.
        self._tails: list[Change] = []
        self._bodies: list[dict[str, dict[str, Any]]] = []

    def denial(self, user: User, info: RequestInfo) -> str | None:
        """Return why a user may not send a request; None if they may.

        Returns:
            Suffix of the error message: mostly empty, otherwise the missing roles.
        """
        if user.is_master:
            return None

        missing: list[str] = []
        for rule in self.rules(user, info.namespace, missing):
            if _allows(rule, info):
                return None

        messages = list(dict.fromkeys(missing))
        if len(messages) < 2:
            return "".join(f": RBAC: {it}" for it in messages)

        return f": RBAC: [{', '.join(messages)}]"

    def rules(
        self, user: User, namespace: str, missing: list[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield every rule that applies to a user in a namespace.

        Args:
            user: The user.
            namespace: Namespace; empty for rules of the whole cluster only.
            missing: List to which messages about missing roles are appended.
        """
        cluster_roles, cluster_bindings, roles, bindings = self._read()
        for binding in cluster_bindings.values():
            if _binds(user, binding):
                yield from _rules_of(binding, "", cluster_roles, roles, missing)

        for key, binding in bindings.items():
            if key.startswith(f"{namespace}/") and _binds(user, binding):
                yield from _rules_of(binding, namespace, cluster_roles, roles, missing)

    def _read(self) -> list[dict[str, dict[str, Any]]]:
        """Decode all roles and bindings, once for each of their states."""
        tails = [it.tail for it in self._collections]
        if tails != self._tails:
            self._bodies = [
                {stored.key: stored.body() for stored in it} for it in self._collections
            ]
            self._tails = tails

        return self._bodies


def _allows(rule: Mapping[str, Any], info: RequestInfo) -> bool:
    """Return whether a rule allows a request."""
    if not _covers(rule.get("verbs"), info.verb):
        return False

    if not info.version:
        return any(
            url == info.path
            or (url.endswith("*") and info.path.startswith(url[:-1].rstrip("*")))
            for url in rule.get("nonResourceURLs") or ()
        )

    names = rule.get("resourceNames") or ()
    return (
        _covers(rule.get("apiGroups"), info.group)
        and _covers_resource(rule.get("resources") or (), info)
        and (not names or info.name in names)
    )


def bootstrap_roles(
    kinds: Iterable[Collection],
) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield the initial cluster roles and bindings of a server.

    These are the user-facing roles (`cluster-admin`, `admin`, `edit`, `view`) and those
    for discovery and self-reviews by everyone, but not the roles of cluster components.

    Args:
        kinds: Served collections, which `admin`, `edit` and `view` cover.

    Yields:
        True for a binding or False for a role, and its body.
    """
    everything = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    resources = [it.kind.resource for it in kinds if it.kind.resource.namespaced]
    names = sorted({(it.group, it.plural) for it in resources})

    def about(left_out: frozenset[str], verbs: tuple[str, ...]) -> list[dict[str, Any]]:
        return [
            {
                "apiGroups": [group],
                "resources": [plural, f"{plural}/status", f"{plural}/scale"],
                "verbs": list(verbs),
            }
            for group, plural in names
            if plural not in left_out
        ] + [{"apiGroups": [""], "resources": ["namespaces"], "verbs": list(_READ)}]

    nothing: frozenset[str] = frozenset()
    for name, rules in (
        ("cluster-admin", everything),
        ("admin", about(nothing, _READ + _WRITE)),
        ("edit", about(_RBAC_RESOURCES, _READ + _WRITE)),
        ("view", about(_SENSITIVE, _READ)),
        ("system:basic-user", _SELF_REVIEW_RULES),
        ("system:discovery", [_gets(_DISCOVERY)]),
        ("system:public-info-viewer", [_gets(_PUBLIC)]),
    ):
        yield False, {"metadata": {"name": name}, "rules": rules}

    for name, groups in (
        ("cluster-admin", (MASTERS,)),
        ("system:basic-user", (AUTHENTICATED,)),
        ("system:discovery", (AUTHENTICATED,)),
        ("system:public-info-viewer", (AUTHENTICATED, UNAUTHENTICATED)),
    ):
        subjects = [
            {"kind": "Group", "apiGroup": _API_GROUP, "name": it} for it in groups
        ]
        role = {"apiGroup": _API_GROUP, "kind": "ClusterRole", "name": name}
        yield True, {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}


_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
)
_SELF_REVIEW_RULES = [
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    },
    {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
        "verbs": ["create"],
    },
]


def _gets(urls: tuple[str, ...]) -> dict[str, Any]:
    return {"nonResourceURLs": list(urls), "verbs": ["get"]}


def _covers(allowed: Iterable[str] | None, info: str) -> bool:
    return any(it in {"*", info} for it in allowed or ())


def _covers_resource(allowed: Iterable[str], info: RequestInfo) -> bool:
    whole = info.plural
    if info.subresource:
        whole = f"{info.plural}/{info.subresource}"

    accepted = {"*", whole}
    if info.subresource:
        accepted.add(f"*/{info.subresource}")

    return any(it in accepted for it in allowed)


def _binds(user: User, binding: Mapping[str, Any]) -> bool:
    place = (binding.get("metadata") or {}).get("namespace") or ""
    return any(_is_subject(user, it, place) for it in binding.get("subjects") or ())


def _is_subject(user: User, subject: Mapping[str, Any], place: str) -> bool:
    name = subject.get("name")
    match subject.get("kind"):
        case "User":
            return name == user.name
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            place = subject.get("namespace") or place
            return user.name == f"system:serviceaccount:{place}:{name}"
        case _:
            return False


def _rules_of(
    binding: Mapping[str, Any],
    namespace: str,
    cluster_roles: Mapping[str, dict[str, Any]],
    roles: Mapping[str, dict[str, Any]],
    missing: list[str] | None,
) -> Iterable[dict[str, Any]]:
    """Return the rules of the role that a binding refers to."""
    reference = binding.get("roleRef") or {}
    name = reference.get("name")
    if reference.get("kind") == "Role":
        kind, role = "role", roles.get(f"{namespace}/{name}")
    else:
        kind, role = "clusterrole", cluster_roles.get(str(name))

    if role is None:
        if missing is not None:
            missing.append(f'{kind}.{_API_GROUP} "{name}" not found')

        return ()

    return role.get("rules") or ()
