"""What the API server does with writes: create, update, patch, status, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    MAPS_PATH,
    PODS_PATH,
    WIDGETS_PATH,
    a_server,
    a_session,
    ask,
    named,
    patch,
    widget,
)

from aioinformer.model.resources import CONFIG_MAPS, NAMESPACES, PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from aioinformer.testing import APIServer


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with a_server() as running:
        yield running


@pytest.fixture
async def http(server: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with a_session(server) as session:
        yield session


DEPLOYMENTS_PATH = "/apis/apps/v1/namespaces/default/deployments"
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


# -------------------------------------------------------------------- create


async def test_create_completes_the_object(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    code, pod = await ask(http, "POST", PODS_PATH, named("web", spec={"x": 1}))

    metadata = pod.pop("metadata")
    assert code == 201
    assert pod == {
        "kind": "Pod",
        "apiVersion": "v1",
        "spec": {"x": 1},
        "status": {"phase": "Pending"},
    }
    assert metadata.pop("uid").count("-") == 4
    assert metadata.pop("creationTimestamp").endswith("Z")
    assert metadata == {
        "name": "web",
        "namespace": "default",
        "resourceVersion": server.resource_version,
        "generation": 1,
    }


async def test_create_generates_a_name(http: aiohttp.ClientSession) -> None:
    body = {"metadata": {"generateName": "web-"}}

    found = [await ask(http, "POST", MAPS_PATH, body) for _ in range(20)]

    names = {made["metadata"]["name"] for _, made in found}
    assert len(names) == 20
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


async def test_create_of_a_taken_name_is_409(http: aiohttp.ClientSession) -> None:
    await ask(http, "POST", DEPLOYMENTS_PATH, named("web"))

    code, status = await ask(http, "POST", DEPLOYMENTS_PATH, named("web"))

    assert code == 409
    assert status["reason"] == "AlreadyExists"
    assert status["message"] == 'deployments.apps "web" already exists'
    assert status["details"] == {
        "name": "web",
        "group": "apps",
        "kind": "deployments",
    }


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        pytest.param({}, 422, "name or generateName is required", id="no-name"),
        pytest.param(named("Web_1"), 422, "RFC 1123", id="bad-name"),
        pytest.param(named("a" * 254), 422, "RFC 1123", id="long-name"),
        pytest.param(named("a", labels={"b c": "d"}), 422, "b c", id="bad-label"),
        pytest.param(named("a", labels={"b": 1}), 400, "strings", id="number-label"),
        pytest.param(
            named("a", metadata={"namespace": "b"}), 400, "namespace", id="namespace"
        ),
        pytest.param(named("a", kind="Pod"), 400, "cannot be handled", id="kind"),
        pytest.param(named("a", apiVersion="v2"), 400, "API version", id="version"),
        pytest.param([1], 400, "not a JSON object", id="list"),
        pytest.param({"metadata": 1}, 400, "metadata is not", id="metadata"),
        pytest.param(
            named("a", metadata={"finalizers": "x"}), 400, "list", id="finalizers"
        ),
        pytest.param(
            named("a", metadata={"resourceVersion": "7"}),
            500,
            "resourceVersion should not be set",
            id="with-version",
        ),
    ],
)
async def test_create_refuses_a_bad_body(
    server: APIServer, http: aiohttp.ClientSession, body: Any, code: int, text: str
) -> None:
    answered, status = await ask(http, "POST", MAPS_PATH, body)

    assert answered == status["code"] == code
    assert text in status["message"]
    assert server.objects(CONFIG_MAPS) == []


async def test_an_invalid_field_is_named_in_the_causes(
    http: aiohttp.ClientSession,
) -> None:
    _, status = await ask(http, "POST", DEPLOYMENTS_PATH, {})

    assert status["reason"] == "Invalid"
    assert status["details"]["kind"] == "Deployment"
    assert status["details"]["causes"][0]["reason"] == "FieldValueRequired"
    assert status["details"]["causes"][0]["field"] == "metadata.name"


async def test_broken_json_is_400(http: aiohttp.ClientSession) -> None:
    headers = {"Content-Type": "application/json"}

    async with http.post(MAPS_PATH, data=b"{", headers=headers) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (400, "BadRequest")


async def test_a_body_that_is_not_json_is_415(http: aiohttp.ClientSession) -> None:
    code, status = await ask(
        http, "POST", MAPS_PATH, named("a"), content_type="application/octet-stream"
    )

    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


async def test_a_custom_resource_must_say_what_it_is(
    http: aiohttp.ClientSession,
) -> None:
    code, _ = await ask(http, "POST", WIDGETS_PATH, named("a"))
    full, _ = await ask(http, "POST", WIDGETS_PATH, widget("a"))

    assert (code, full) == (400, 201)


async def test_rbac_names_may_contain_colons(http: aiohttp.ClientSession) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"

    made, _ = await ask(http, "POST", path, named("system:node"))
    found, _ = await ask(http, "GET", f"{path}/system:node")
    refused, _ = await ask(http, "POST", path, named("a%b"))

    assert (made, found, refused) == (201, 200, 422)


async def test_a_dry_run_stores_nothing(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("old"))
    version = server.resource_version

    made = await ask(http, "POST", PODS_PATH, named("new"), dryRun="All")
    changed = await patch(
        http, f"{PODS_PATH}/old", {"spec": {"nodeName": "a"}}, dryRun="All"
    )
    gone = await ask(http, "DELETE", f"{PODS_PATH}/old", dryRun="All")

    assert (made[0], changed[0], gone[0]) == (201, 200, 200)
    assert "resourceVersion" not in made[1]["metadata"]
    assert changed[1]["spec"] == {"nodeName": "a"}
    assert [pod["metadata"]["name"] for pod in server.objects(PODS)] == ["old"]
    assert "spec" not in server.get(PODS, "old")
    assert server.resource_version == version


# -------------------------------------------------------------------- namespaces


async def test_default_namespaces_exist(http: aiohttp.ClientSession) -> None:
    _, found = await ask(http, "GET", "/api/v1/namespaces")

    names = {item["metadata"]["name"] for item in found["items"]}
    assert {"default", "kube-system"} <= names


async def test_create_in_a_missing_namespace_is_404(
    http: aiohttp.ClientSession,
) -> None:
    code, status = await ask(
        http, "POST", "/api/v1/namespaces/shop/configmaps", named("a")
    )

    assert code == 404
    assert status["message"] == 'namespaces "shop" not found'
    assert status["details"] == {"name": "shop", "kind": "namespaces"}


async def test_missing_namespaces_are_created_where_that_is_asked_for() -> None:
    async with a_server(auto_namespaces=True) as server, a_session(server) as http:
        code, _ = await ask(
            http, "POST", "/api/v1/namespaces/shop/configmaps", named("a")
        )

        assert code == 201
        assert server.get(NAMESPACES, "shop")["status"] == {"phase": "Active"}


async def test_a_deleted_namespace_takes_its_content_along(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(NAMESPACES, named("shop"))
    server.create(CONFIG_MAPS, named("a"), namespace="shop")
    server.create(CONFIG_MAPS, named("a"))

    code, _ = await ask(http, "DELETE", "/api/v1/namespaces/shop")

    assert code == 200
    assert [it["metadata"]["namespace"] for it in server.objects(CONFIG_MAPS)] == [
        "default"
    ]
    code, _ = await ask(http, "GET", "/api/v1/namespaces/shop")
    assert code == 404


async def test_a_namespace_waits_for_the_finalizers_of_its_content(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(NAMESPACES, named("shop"))
    held = named("held", metadata={"finalizers": ["example.com/wait"]})
    server.create(CONFIG_MAPS, held, namespace="shop")

    _, waiting = await ask(http, "DELETE", "/api/v1/namespaces/shop")
    refused = await ask(
        http, "POST", "/api/v1/namespaces/shop/configmaps", named("late")
    )
    release = {"metadata": {"finalizers": None}}
    server.patch(CONFIG_MAPS, "held", release, namespace="shop")

    assert waiting["status"] == {"phase": "Terminating"}
    assert refused[0] == 403
    assert "being terminated" in refused[1]["message"]
    assert "shop" not in str(server.objects(NAMESPACES))


async def test_the_default_namespace_cannot_be_deleted(
    http: aiohttp.ClientSession,
) -> None:
    code, status = await ask(http, "DELETE", "/api/v1/namespaces/default")

    assert (code, status["reason"]) == (403, "Forbidden")


# -------------------------------------------------------------------- update


async def test_an_unknown_object_is_404(http: aiohttp.ClientSession) -> None:
    code, status = await ask(http, "GET", f"{PODS_PATH}/web")

    assert (code, status["reason"]) == (404, "NotFound")
    assert status["message"] == 'pods "web" not found'
    assert status["details"] == {"name": "web", "kind": "pods"}
    for method in ("PUT", "DELETE"):
        code, _ = await ask(http, method, f"{PODS_PATH}/web", named("web"))
        assert code == 404


async def test_update_replaces_all_but_what_the_server_owns(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    old = server.create(CONFIG_MAPS, named("a", labels={"x": "y"}, data={"k": "1"}))
    body = named("a", metadata={"creationTimestamp": "1999-01-01T00:00:00Z"})

    code, new = await ask(http, "PUT", f"{MAPS_PATH}/a", {**body, "data": {"k": "2"}})

    assert code == 200
    assert new["data"] == {"k": "2"}
    assert "labels" not in new["metadata"]
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    assert int(new["metadata"]["resourceVersion"]) > int(
        old["metadata"]["resourceVersion"]
    )


async def test_an_update_of_a_stale_version_is_409(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    stale = server.create(CONFIG_MAPS, named("a", data={"k": "1"}))
    server.patch(CONFIG_MAPS, "a", {"data": {"k": "2"}})

    code, status = await ask(http, "PUT", f"{MAPS_PATH}/a", stale)

    assert (code, status["reason"]) == (409, "Conflict")
    assert "the object has been modified" in status["message"]
    assert status["details"] == {"name": "a", "kind": "configmaps"}
    assert server.get(CONFIG_MAPS, "a")["data"] == {"k": "2"}


async def test_an_update_that_changes_nothing_keeps_the_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    body = server.create(CONFIG_MAPS, named("a", data={"k": "<1>", "j": "é"}))
    version = server.resource_version

    code, same = await ask(http, "PUT", f"{MAPS_PATH}/a", body)

    assert (code, same) == (200, body)
    assert server.resource_version == version


async def test_a_change_of_type_is_a_change(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("web", spec={"x": 1}))

    _, changed = await patch(http, f"{PODS_PATH}/web", {"spec": {"x": True}})

    assert changed["spec"]["x"] is True
    assert changed["metadata"]["generation"] == 2


async def test_an_update_cannot_change_the_uid(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(CONFIG_MAPS, named("a"))

    body = named("a", metadata={"uid": "another"})
    code, status = await ask(http, "PUT", f"{MAPS_PATH}/a", body)
    patched, _ = await patch(http, f"{MAPS_PATH}/a", {"metadata": {"uid": "another"}})

    assert (code, patched, status["reason"]) == (409, 409, "Conflict")
    assert "UID in precondition: another" in status["message"]


async def test_an_update_cannot_rename(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(CONFIG_MAPS, named("a"))

    code, status = await ask(http, "PUT", f"{MAPS_PATH}/a", named("b"))
    moved, _ = await patch(http, f"{MAPS_PATH}/a", {"metadata": {"namespace": "x"}})

    assert (code, moved) == (400, 400)
    assert "does not match the name on the URL" in status["message"]


@pytest.mark.parametrize("path", [WIDGETS_PATH, LEASES_PATH])
async def test_some_kinds_cannot_be_updated_without_a_version(
    http: aiohttp.ClientSession, path: str
) -> None:
    body = widget("a") if path == WIDGETS_PATH else named("a")
    _, made = await ask(http, "POST", path, body)

    without, status = await ask(http, "PUT", f"{path}/a", body)
    within, _ = await ask(http, "PUT", f"{path}/a", made)
    by_patch, _ = await patch(http, f"{path}/a", {"spec": {"x": 1}})

    assert (without, within, by_patch) == (422, 200, 200)
    assert "must be specified for an update" in status["message"]


# -------------------------------------------------------------------- patch


async def test_a_merge_patch_merges(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    old = {"spec": {"keep": 1, "drop": 2, "list": [1, 2], "deep": {"a": 1}}}
    server.create(PODS, named("web", **old))
    change = {"spec": {"drop": None, "list": [3], "deep": {"b": None, "c": 2}}}

    code, new = await patch(http, f"{PODS_PATH}/web", change)

    assert code == 200
    assert new["spec"] == {"keep": 1, "list": [3], "deep": {"a": 1, "c": 2}}


async def test_a_patch_that_changes_nothing_keeps_the_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("web", labels={"a": "b"}))
    version = server.resource_version

    change = {"metadata": {"labels": {"a": "b", "absent": None}}}
    code, same = await patch(http, f"{PODS_PATH}/web", change)

    assert (code, same["metadata"]["resourceVersion"]) == (200, version)


async def test_a_patch_with_a_version_is_an_optimistic_lock(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    pod = server.create(PODS, named("web"))
    version = pod["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": version, "labels": {"a": "b"}}}

    first, _ = await patch(http, f"{PODS_PATH}/web", change)
    second, status = await patch(http, f"{PODS_PATH}/web", change)

    assert (first, second, status["reason"]) == (200, 409, "Conflict")


@pytest.mark.parametrize("kind", ["json-patch", "strategic-merge-patch", "apply-patch"])
async def test_other_kinds_of_patches_are_415(
    server: APIServer, http: aiohttp.ClientSession, kind: str
) -> None:
    server.create(PODS, named("web"))

    code, status = await ask(
        http, "PATCH", f"{PODS_PATH}/web", [], content_type=f"application/{kind}+json"
    )

    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


async def test_a_patch_must_be_an_object(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("web"))

    code, _ = await patch(http, f"{PODS_PATH}/web", [1])

    assert code == 400
