"""RBAC: what the roles and bindings in the storage let somebody do. Synchronous."""

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
    "first_roles",
]

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"

_API_GROUP = "rbac.authorization.k8s.io"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
# What "view" leaves out because it would lead to more rights than it gives.
_SECRET = frozenset({"secrets", "roles", "rolebindings"})
_ABOUT_RIGHTS = frozenset({"roles", "rolebindings"})


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who asks.

    Attributes:
        name: As bindings name them.
        groups: The groups they are in; whoever is in `system:masters` may do everything.

    Raises:
        OptionsError: If the name is no text, or the groups are not several: one text
            would be a group for each of its letters.
    """

    name: str
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise OptionsError(f"the name of a User is a text, not {self.name!r}")

        # Whatever the annotation says, a list is written easily.
        given: object = self.groups
        if not isinstance(given, tuple | list) or not all(
            isinstance(it, str) and it for it in given
        ):
            raise OptionsError(
                f"the groups of a User are a tuple such as ('support',), not {given!r}"
            )

        object.__setattr__(self, "groups", tuple(given))

    @property
    def is_master(self) -> bool:
        """They may do everything, whatever the roles say."""
        return MASTERS in self.groups


class RBACAuthorizer:
    """The rules that apply to a user: those of all roles that are bound to them."""

    def __init__(self, storage: Storage) -> None:
        self._collections = [
            storage.collection(resource)
            for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)
        ]
        # The last changes that have been read. Not their versions: a server that goes
        # back to a backup gives the same ones again, for other roles.
        self._tails: list[Change] = []
        self._bodies: list[dict[str, dict[str, Any]]] = []

    def problem(self, user: User, info: RequestInfo) -> str | None:
        """Say why `user` may not do what is `asked`; None if they may.

        Returns:
            What to append to the refusal: mostly nothing, else which role is missing.
        """
        if user.is_master:
            return None

        missing: list[str] = []
        for rule in self.rules(user, info.namespace, missing):
            if _allows(rule, info):
                return None

        told = list(dict.fromkeys(missing))
        if len(told) < 2:
            return "".join(f": RBAC: {it}" for it in told)

        return f": RBAC: [{', '.join(told)}]"

    def rules(
        self, user: User, namespace: str, missing: list[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield every rule that applies to `user` in a namespace; empty for all.

        Args:
            user: Who.
            namespace: Where; only rules for the whole cluster if empty.
            missing: Is appended what is said of roles that are bound but not there.
        """
        cluster_roles, cluster_bindings, roles, bindings = self._read()
        for binding in cluster_bindings.values():
            if _is_meant(user, binding):
                yield from _rules_of(binding, "", cluster_roles, roles, missing)

        for key, binding in bindings.items():
            if key.startswith(f"{namespace}/") and _is_meant(user, binding):
                yield from _rules_of(binding, namespace, cluster_roles, roles, missing)

    def _read(self) -> list[dict[str, dict[str, Any]]]:
        """Decode all roles and bindings, once for each state of them."""
        tails = [it.tail for it in self._collections]
        if tails != self._tails:
            self._bodies = [
                {stored.key: stored.body() for stored in it} for it in self._collections
            ]
            self._tails = tails

        return self._bodies


def _allows(rule: Mapping[str, Any], info: RequestInfo) -> bool:
    """Say whether one rule of a role lets through what is asked."""
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


def first_roles(kinds: Iterable[Collection]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield the cluster roles and bindings that every server begins with.

    Those that people bind (`cluster-admin`, `admin`, `edit`, `view`), and those by which
    everyone may ask what is served and who they are; not the many of its own parts.

    Args:
        kinds: What is served; `view` and the like are about all of it.

    Yields:
        Whether it is a binding, and its body.
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
        ("edit", about(_ABOUT_RIGHTS, _READ + _WRITE)),
        ("view", about(_SECRET, _READ)),
        ("system:basic-user", _ABOUT_ONESELF),
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
_ABOUT_ONESELF = [
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


def _is_meant(user: User, binding: Mapping[str, Any]) -> bool:
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
    """Return the rules of the role that a binding names."""
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
