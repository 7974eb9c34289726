"""Impersonation: its rights, users and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import ask, make
from each_case import each_case

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ME = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


@pytest.fixture
async def admin(target: ServerUnderTest) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a second session of the administrator, for impersonation."""
    async with target.session() as session:
        yield session


async def who(http: aiohttp.ClientSession, user: str, *groups: str) -> dict[str, Any]:
    """Return the impersonated user as the server sees it."""
    http.headers["Impersonate-User"] = user
    for group in groups:
        http.headers.add("Impersonate-Group", group)

    code, answer = await ask(http, "POST", WHO, ME)
    assert code == 201, answer
    found: dict[str, Any] = answer["status"]["userInfo"]
    return found


async def allow(
    target: ServerUnderTest, http: aiohttp.ClientSession, *rules: tuple[str, str, str]
) -> list[str]:
    """Let alice do one thing in all namespaces, and return the created objects."""
    name = f"alice-of-{target.namespace}"
    made = [
        {"apiGroups": [group], "resources": [plural], "verbs": [verb]}
        for group, plural, verb in rules
    ]
    role = {"metadata": {"name": name}, "rules": made}
    await make(http, f"{RBAC}/clusterroles", role)
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": GROUP, "kind": "User", "name": "alice"}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await make(http, f"{RBAC}/clusterrolebindings", binding)
    return [f"{RBAC}/clusterrolebindings/{name}", f"{RBAC}/clusterroles/{name}"]


async def settled(http: aiohttp.ClientSession) -> int:
    """Request the user until the request is allowed.

    A real server watches roles, and applies them later.
    """
    code = 0
    for _ in range(200):
        code, _ = await ask(http, "POST", WHO, ME)
        if code == 201:
            break

    return code


@pytest.mark.parametrize(
    ("user", "given", "groups"),
    [
        ("bob", [], ["system:authenticated"]),
        ("bob", ["a", "b"], ["a", "b", "system:authenticated"]),
        ("bob", ["system:authenticated"], ["system:authenticated"]),
        (
            "system:serviceaccount:shop:till",
            [],
            [
                "system:serviceaccounts",
                "system:serviceaccounts:shop",
                "system:authenticated",
            ],
        ),
        ("system:serviceaccount:shop:till", ["a"], ["a", "system:authenticated"]),
        ("system:serviceaccount:shop", [], ["system:authenticated"]),
    ],
)
async def test_impersonated_user_gets_implied_groups(
    admin: aiohttp.ClientSession, user: str, given: list[str], groups: list[str]
) -> None:
    found = await who(admin, user, *given)

    assert (found["username"], found["groups"]) == (user, groups)


@pytest.mark.parametrize(
    ("user", "group"),
    [("system:anonymous", ""), ("bob", "system:unauthenticated")],
)
async def test_anonymous_user_may_not_impersonate(
    admin: aiohttp.ClientSession, user: str, group: str
) -> None:
    headers = {"Impersonate-User": user} | (
        {"Impersonate-Group": group} if group else {}
    )
    admin.headers.update(headers)

    code, status = await ask(admin, "POST", WHO, ME)

    assert (code, status["reason"]) == (403, "Forbidden")
    assert f'User "{user}" cannot create' in status["message"]


async def test_impersonated_groups_without_user_are_400(
    admin: aiohttp.ClientSession,
) -> None:
    admin.headers["Impersonate-Group"] = "a"

    code, status = await ask(admin, "POST", WHO, ME)

    assert code == 400
    assert status["message"] == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, '
        "Extra:map[string][]string(nil)} without impersonating a user name"
    )


@each_case(
    "user, way",
    [
        ("bob", "user-info"),
        ("system:serviceaccount:shop:till", "serviceaccount"),
        ("system:node:one", "arbitrary-node"),
    ],
)
async def test_forbidden_impersonation_error_names_action(
    target: ServerUnderTest, alice: aiohttp.ClientSession, user: str, way: str
) -> None:
    alice.headers["Impersonate-User"] = user

    code, status = await ask(alice, "GET", target.path("configmaps"))

    assert (code, status["reason"]) == (403, "Forbidden")
    wanted = f'cannot impersonate-on:{way}:list resource "configmaps"'
    assert wanted in status["message"]


NEW = "authentication.k8s.io"


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([("", "users", "impersonate")], id="whatever-they-do"),
        pytest.param(
            [
                (NEW, "users", "impersonate:user-info"),
                (NEW, "selfsubjectreviews", "impersonate-on:user-info:create"),
            ],
            id="for-one-action",
        ),
    ],
)
async def test_impersonating_users_and_groups_needs_separate_permissions(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    alice: aiohttp.ClientSession,
    rules: list[tuple[str, str, str]],
) -> None:
    role = await allow(target, http, *rules)
    alice.headers["Impersonate-User"] = "bob"
    try:
        code = await settled(alice)
        alice.headers["Impersonate-Group"] = "a"
        with_group, _ = await ask(alice, "POST", WHO, ME)
    finally:
        for path in role:
            await ask(http, "DELETE", path)

    assert (code, with_group) == (201, 403)
