"""Authentication and authorization: tokens, RBAC, impersonation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from api_calls import ask, patch
from each_case import each_case

from aioinformer.errors import OptionsError
from aioinformer.model.resources import CLUSTER_ROLES, CONFIG_MAPS, ROLE_BINDINGS
from aioinformer.testing import APIServer
from aioinformer_apiserver import User

if TYPE_CHECKING:
    from contract_servers import ServerUnderTest

RBAC = "apis/rbac.authorization.k8s.io/v1"
RBAC_GROUP = "rbac.authorization.k8s.io"
ALICE = {"kind": "User", "apiGroup": RBAC_GROUP, "name": "alice"}


async def allow(
    target: ServerUnderTest, http: aiohttp.ClientSession, *rules: dict[str, Any]
) -> None:
    """Give alice a role in the namespace of the test."""
    role = {"metadata": {"name": "of-alice"}, "rules": list(rules)}
    code, _ = await ask(http, "POST", target.path("roles", RBAC), role)
    assert code == 201
    reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "of-alice"}
    await bind(target, http, reference)


async def bind(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    role: dict[str, str],
    subject: dict[str, str] = ALICE,
) -> None:
    body = {"metadata": {"name": "alice"}, "roleRef": role, "subjects": [subject]}
    code, status = await ask(http, "POST", target.path("rolebindings", RBAC), body)
    assert code == 201, status


async def settled(
    http: aiohttp.ClientSession, path: str, wanted: int = 200
) -> tuple[int, dict[str, Any]]:
    """Repeat a request until it has the expected answer.

    A real server watches roles, and applies them later.
    """
    code, found = await ask(http, "GET", path)
    for _ in range(100):
        if code == wanted:
            break

        code, found = await ask(http, "GET", path)

    return code, found


async def test_unknown_token_is_rejected_with_401(target: ServerUnderTest) -> None:
    async with target.session("nobody's") as http:
        code, status = await ask(http, "GET", target.path("configmaps"))

    assert code == 401
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


async def test_request_without_token_is_anonymous(target: ServerUnderTest) -> None:
    async with target.session() as http:
        del http.headers["Authorization"]
        code, status = await ask(http, "GET", "/api/v1/pods")
        version, _ = await ask(http, "GET", "/version")
        groups, refused = await ask(http, "GET", "/apis")

    assert (code, version, groups) == (403, 200, 403)
    assert status["message"] == (
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" '
        'in API group "" at the cluster scope'
    )
    assert refused["message"] == (
        'forbidden: User "system:anonymous" cannot get path "/apis"'
    )


@each_case(
    "method, path, message, details",
    [
        pytest.param(
            "GET",
            "/api/v1/namespaces/{ns}/configmaps",
            'configmaps is forbidden: User "alice" cannot list resource "configmaps" '
            'in API group "" in the namespace "{ns}"',
            {"kind": "configmaps"},
            id="list",
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/{ns}/configmaps?watch=1",
            'configmaps is forbidden: User "alice" cannot watch resource "configmaps" '
            'in API group "" in the namespace "{ns}"',
            {"kind": "configmaps"},
            id="watch",
        ),
        pytest.param(
            "DELETE",
            "/apis/apps/v1/namespaces/{ns}/deployments/web",
            'deployments.apps "web" is forbidden: User "alice" cannot delete resource '
            '"deployments" in API group "apps" in the namespace "{ns}"',
            {"kind": "deployments", "group": "apps", "name": "web"},
            id="object",
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/{ns}/pods/web/status",
            'pods "web" is forbidden: User "alice" cannot get resource "pods/status" '
            'in API group "" in the namespace "{ns}"',
            {"kind": "pods", "name": "web"},
            id="subresource",
        ),
        pytest.param(
            "GET",
            "/apis/unheard.of/v1/things/x",
            'things.unheard.of "x" is forbidden: User "alice" cannot get resource '
            '"things" in API group "unheard.of" at the cluster scope',
            {"kind": "things", "group": "unheard.of", "name": "x"},
            id="not-served",
        ),
        pytest.param(
            "GET",
            "/unheard-of",
            'forbidden: User "alice" cannot get path "/unheard-of"',
            {},
            id="path",
        ),
    ],
)
async def test_forbidden_error_names_user_verb_resource_and_namespace(
    target: ServerUnderTest,
    alice: aiohttp.ClientSession,
    method: str,
    path: str,
    message: str,
    details: dict[str, str],
) -> None:
    code, status = await ask(alice, method, path.replace("{ns}", target.namespace))

    assert (code, status["reason"]) == (403, "Forbidden")
    assert status["message"] == message.replace("{ns}", target.namespace)
    assert status["details"] == details


async def test_authenticated_user_may_read_discovery(
    alice: aiohttp.ClientSession,
) -> None:
    codes = [
        (await ask(alice, "GET", path))[0] for path in ("/api", "/apis", "/api/v1")
    ]

    assert codes == [200, 200, 200]


async def test_role_allows_only_its_verbs_and_resources(
    target: ServerUnderTest, http: aiohttp.ClientSession, alice: aiohttp.ClientSession
) -> None:
    await allow(
        target,
        http,
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create"]},
    )
    maps = target.path("configmaps")

    listed, _ = await settled(alice, maps)
    created, _ = await ask(alice, "POST", maps, {"metadata": {"name": "a"}})
    read, _ = await ask(alice, "GET", f"{maps}/a")
    elsewhere, _ = await ask(alice, "GET", "/api/v1/namespaces/default/configmaps")

    assert (listed, created, read, elsewhere) == (200, 201, 403, 403)


async def test_role_can_be_limited_to_object_names(
    target: ServerUnderTest, http: aiohttp.ClientSession, alice: aiohttp.ClientSession
) -> None:
    maps = target.path("configmaps")
    for name in ("a", "b"):
        await ask(http, "POST", maps, {"metadata": {"name": name}})

    await allow(
        target,
        http,
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["a"],
            "verbs": ["get", "list", "deletecollection"],
        },
    )
    one, _ = await settled(alice, f"{maps}/a")
    other, _ = await ask(alice, "GET", f"{maps}/b")
    selected, _ = await ask(alice, "GET", maps, fieldSelector="metadata.name=a")
    every, _ = await ask(alice, "GET", maps)
    # A selector counts as a name for reads, but not for deletes.
    deleted, _ = await ask(alice, "DELETE", maps, fieldSelector="metadata.name=a")

    assert (one, other, selected, every, deleted) == (200, 403, 200, 403, 403)


async def test_subresource_requires_its_own_rule(
    target: ServerUnderTest, http: aiohttp.ClientSession, alice: aiohttp.ClientSession
) -> None:
    widgets = target.path("widgets", "apis/example.com/v1")
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
    }
    await ask(http, "POST", widgets, widget)
    await allow(
        target,
        http,
        {
            "apiGroups": ["example.com"],
            "resources": ["widgets/status"],
            "verbs": ["get", "patch"],
        },
    )
    whole, _ = await settled(alice, f"{widgets}/w/status")
    status, _ = await patch(alice, f"{widgets}/w/status", {"status": {"n": 1}})
    main, _ = await patch(alice, f"{widgets}/w", {"spec": {"n": 1}})

    assert (whole, status, main) == (200, 200, 403)


@pytest.mark.parametrize(
    ("method", "resource", "media_type"),
    [
        ("PATCH", "configmaps", "application/apply-patch+yaml"),
        ("PUT", "leases.coordination.k8s.io", "application/json"),
    ],
    ids=["apply", "update"],
)
async def test_write_that_creates_object_requires_verb_create(
    method: str,
    resource: str,
    media_type: str,
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    alice: aiohttp.ClientSession,
) -> None:
    plural, _, group = resource.partition(".")
    version = f"apis/{group}/v1" if group else "api/v1"
    path = f"{target.path(plural, version)}/new"
    kind = "Lease" if group else "ConfigMap"
    body = {
        "apiVersion": f"{group}/v1" if group else "v1",
        "kind": kind,
        "metadata": {"name": "new"},
    }
    names = {"apiGroups": [group], "resources": [plural]}
    await allow(target, http, {**names, "verbs": ["get", "patch", "update"]})
    await settled(alice, path, 404)
    options: Any = {"content_type": media_type}
    if method == "PATCH":
        options["fieldManager"] = "alice"

    refused, status = await ask(alice, method, path, body, **options)
    made, _ = await ask(http, method, path, body, **options)

    assert (refused, made) == (403, 201)
    prefix = f'{resource} "new" is forbidden: User "alice" cannot create resource '
    assert status["message"].startswith(prefix)


async def test_forbidden_error_names_missing_role_of_binding(
    target: ServerUnderTest, http: aiohttp.ClientSession, alice: aiohttp.ClientSession
) -> None:
    reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "missing"}
    await bind(target, http, reference)

    code, status = await ask(alice, "GET", target.path("configmaps"))
    for _ in range(100):
        if "missing" in status["message"]:
            break

        code, status = await ask(alice, "GET", target.path("configmaps"))

    assert code == 403
    assert status["message"].endswith(
        ': RBAC: role.rbac.authorization.k8s.io "missing" not found'
    )


async def test_forbidden_error_names_each_missing_role_once(
    target: ServerUnderTest, http: aiohttp.ClientSession, alice: aiohttp.ClientSession
) -> None:
    for binding, role in (("a", "lost"), ("b", "gone"), ("c", "gone")):
        reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": role}
        body = {
            "metadata": {"name": binding},
            "roleRef": reference,
            "subjects": [ALICE],
        }
        await ask(http, "POST", target.path("rolebindings", RBAC), body)

    message = ""
    for _ in range(100):
        _, status = await ask(alice, "GET", target.path("configmaps"))
        message = status["message"]
        if "lost" in message and "gone" in message:
            break

    reported = [f'role.{RBAC_GROUP} "{name}" not found' for name in ("lost", "gone")]
    ends = [f": RBAC: [{a}, {b}]" for a, b in (reported, reversed(reported))]
    assert message.endswith(tuple(ends))


async def test_role_binding_to_group_applies_to_its_members(
    target: ServerUnderTest, http: aiohttp.ClientSession, alice: aiohttp.ClientSession
) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    role = {"metadata": {"name": "readers"}, "rules": [rule]}
    await ask(http, "POST", target.path("roles", RBAC), role)
    reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "readers"}
    group = {
        "kind": "Group",
        "apiGroup": RBAC_GROUP,
        "name": f"readers-of-{target.namespace}",
    }
    await bind(target, http, reference, group)
    headers = {"Impersonate-User": "bob", "Impersonate-Group": group["name"]}

    async with target.session() as admin:
        admin.headers.update(headers)
        code, _ = await settled(admin, target.path("configmaps"))

    assert code == 200


async def test_permissions_of_impersonated_user_replace_own_permissions(
    target: ServerUnderTest, alice: aiohttp.ClientSession
) -> None:
    async with target.session() as admin:
        admin.headers["Impersonate-User"] = "bob"
        code, status = await ask(admin, "GET", "/api/v1/pods")

    alice.headers["Impersonate-User"] = "bob"
    refused, _ = await ask(alice, "GET", "/api/v1/pods")

    assert (code, refused) == (403, 403)
    assert 'User "bob" cannot list' in status["message"]


@each_case(
    "header, wanted",
    [
        ("bearer {}", 200),
        ("Bearer {} and more", 200),
        ("Bearer  {}", 403),
        ("Bearer", 403),
        ("Basic {}", 403),
    ],
)
async def test_only_bearer_authorization_is_accepted(
    target: ServerUnderTest, header: str, wanted: int
) -> None:
    async with target.session() as http:
        http.headers["Authorization"] = header.format(target.token)
        code, _ = await ask(http, "GET", target.path("configmaps"))

    assert code == wanted


# ---------------------------------------------------------------- our server only


# In a cluster a controller fills these roles; a kube-apiserver alone leaves them empty.
@pytest.mark.parametrize(
    ("role", "reading", "secrets", "writing"),
    [("view", 200, 403, 403), ("edit", 200, 200, 201), ("admin", 200, 200, 201)],
)
async def test_default_cluster_roles_can_be_bound(
    role: str, reading: int, secrets: int, writing: int
) -> None:
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": "it"}, "roleRef": reference, "subjects": [ALICE]}
    maps = "/api/v1/namespaces/default/configmaps"
    async with (
        APIServer(token="admin", users={"key": "alice"}) as server,
        aiohttp.ClientSession(
            server.url, headers={"Authorization": "Bearer key"}
        ) as http,
    ):
        server.create(ROLE_BINDINGS, binding)
        codes = (
            (await ask(http, "GET", maps))[0],
            (await ask(http, "GET", maps.replace("configmaps", "secrets")))[0],
            (await ask(http, "POST", maps, {"metadata": {"name": "a"}}))[0],
        )

    assert codes == (reading, secrets, writing)


async def test_server_without_tokens_allows_everything() -> None:
    async with APIServer() as server, server.client() as client:
        await client.create(
            CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="default"
        )

    assert server.requests[-1].user == "kubernetes-admin"


async def test_users_can_have_groups() -> None:
    boss = User("boss", ("system:masters",))
    async with (
        APIServer(token="admin", users={"key": boss}) as server,
        server.client(token="key") as it,
    ):
        await it.list(CONFIG_MAPS)

    assert server.requests[-1].user == "boss"


def test_token_with_two_users_is_rejected() -> None:
    with pytest.raises(OptionsError, match="is also the token of"):
        APIServer(token="same", users={"same": "alice"})


@pytest.mark.parametrize("options", [{"token": ""}, {"users": {"": "alice"}}])
def test_empty_token_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="empty"):
        APIServer(**options)


async def test_roles_created_after_snapshot_grant_nothing_after_restore() -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "readers"}
    binding = {"metadata": {"name": "it"}, "roleRef": reference, "subjects": [ALICE]}
    maps = "/api/v1/namespaces/default/configmaps"
    key = {"Authorization": "Bearer key"}
    async with APIServer(token="admin", users={"key": "alice"}) as server:
        backup = server.snapshot()
        codes = []
        for rules in ([rule], []):
            await server.restart(snapshot=backup)
            role = {"metadata": {"name": "readers"}, "rules": rules}
            server.create(CLUSTER_ROLES, role)
            server.create(ROLE_BINDINGS, binding)
            async with aiohttp.ClientSession(server.url, headers=key) as http:
                codes.append((await ask(http, "GET", maps))[0])

    assert codes == [200, 403]
