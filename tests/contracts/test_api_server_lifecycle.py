"""What the API server does beside the body: status, generation, finalizers, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from api_calls import (
    MAPS_PATH,
    PODS_PATH,
    WIDGETS,
    WIDGETS_PATH,
    a_server,
    a_session,
    ask,
    named,
    next_events,
    patch,
    told,
    versions,
    widget,
)

from aioinformer.model.resources import CONFIG_MAPS, DEPLOYMENTS, PODS

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


DEPLOYMENT_PATH = DEPLOYMENTS.path("default", "web")


# -------------------------------------------------------------------- status


@pytest.mark.parametrize(
    ("path", "first"), [(PODS_PATH, {"phase": "Pending"}), (WIDGETS_PATH, None)]
)
async def test_create_ignores_the_status_that_was_sent(
    http: aiohttp.ClientSession, path: str, first: object
) -> None:
    body = widget("a", status={"phase": "Running"})
    if path == PODS_PATH:
        body = named("a", status={"phase": "Running"})

    _, made = await ask(http, "POST", path, body)

    assert made.get("status") == first


async def test_a_node_is_created_with_its_status(http: aiohttp.ClientSession) -> None:
    body = named("n1", status={"capacity": {"cpu": "4"}})

    _, made = await ask(http, "POST", "/api/v1/nodes", body)

    assert made["status"] == {"capacity": {"cpu": "4"}}


async def test_a_plain_write_leaves_the_status_alone(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    pod = server.create(PODS, named("web", status={"phase": "Running"}))
    other = {**pod, "status": {"phase": "Failed"}}

    _, updated = await ask(http, "PUT", f"{PODS_PATH}/web", other)
    _, patched = await patch(http, f"{PODS_PATH}/web", {"status": {"phase": "Failed"}})

    assert updated == patched == pod


async def test_the_status_subresource_changes_the_status_only(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("web", spec={"nodeName": "a"}))
    body = named("web", labels={"x": "y"}, spec={"nodeName": "b"})

    _, updated = await ask(
        http, "PUT", f"{PODS_PATH}/web/status", {**body, "status": {"phase": "Running"}}
    )
    _, patched = await patch(
        http,
        f"{PODS_PATH}/web/status",
        {"status": {"podIP": "10.0.0.1"}, "spec": {"nodeName": "c"}},
    )
    _, found = await ask(http, "GET", f"{PODS_PATH}/web/status")

    assert updated["status"] == {"phase": "Running"}
    assert found == patched
    assert patched["status"] == {"phase": "Running", "podIP": "10.0.0.1"}
    assert patched["spec"] == {"nodeName": "a"}
    assert "labels" not in patched["metadata"]
    assert patched["metadata"]["generation"] == 1


async def test_a_status_of_a_stale_version_is_409(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    stale = server.create(PODS, named("web"))
    server.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}})

    code, _ = await ask(http, "PUT", f"{PODS_PATH}/web/status", stale)

    assert code == 409


async def test_kinds_without_the_subresource_take_a_status_as_any_field(
    http: aiohttp.ClientSession,
) -> None:
    _, made = await ask(http, "POST", MAPS_PATH, named("a", status={"x": 1}))

    assert made["status"] == {"x": 1}


# -------------------------------------------------------------------- generation


async def test_the_generation_counts_changes_of_the_spec(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("web", spec={"x": 1}))

    changes = (
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"x": 2}},
        {"metadata": {"generation": 77}},
        {"spec": {"x": 2}},
    )
    found = [(await patch(http, f"{PODS_PATH}/web", change))[1] for change in changes]

    assert [it["metadata"]["generation"] for it in found] == [1, 1, 2, 2, 2]


async def test_the_generation_of_a_deployment_counts_annotations_too(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(DEPLOYMENTS, named("web"))

    _, labelled = await patch(
        http, DEPLOYMENT_PATH, {"metadata": {"labels": {"a": "b"}}}
    )
    _, noted = await patch(
        http, DEPLOYMENT_PATH, {"metadata": {"annotations": {"a": "b"}}}
    )

    assert labelled["metadata"]["generation"] == 1
    assert noted["metadata"]["generation"] == 2


async def test_the_generation_of_a_custom_resource_counts_all_but_metadata(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(WIDGETS, named("a", data=1))
    path = f"{WIDGETS_PATH}/a"

    _, labelled = await patch(http, path, {"metadata": {"labels": {"a": "b"}}})
    _, status = await patch(http, f"{path}/status", {"status": {"x": 1}})
    _, changed = await patch(http, path, {"data": 2})

    found = [it["metadata"]["generation"] for it in (labelled, status, changed)]
    assert found == [1, 1, 2]


async def test_config_maps_have_no_generation(http: aiohttp.ClientSession) -> None:
    _, made = await ask(http, "POST", MAPS_PATH, named("a", data={"a": "b"}))

    assert "generation" not in made["metadata"]


# -------------------------------------------------------------------- delete


async def test_a_delete_is_answered_with_a_status_without_a_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    made = server.create(DEPLOYMENTS, named("web"))

    code, status = await ask(http, "DELETE", DEPLOYMENT_PATH)

    assert code == 200
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": "web",
            "group": "apps",
            "kind": "deployments",
            "uid": made["metadata"]["uid"],
        },
    }
    assert server.objects(DEPLOYMENTS) == []


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_delete_may_have_preconditions(
    server: APIServer, http: aiohttp.ClientSession, field: str
) -> None:
    made = server.create(CONFIG_MAPS, named("a"))
    right = {"preconditions": {field: made["metadata"][field]}}

    refused, status = await ask(
        http, "DELETE", f"{MAPS_PATH}/a", {"preconditions": {field: "1"}}
    )
    code, _ = await ask(http, "DELETE", f"{MAPS_PATH}/a", right)

    assert (refused, status["reason"], code) == (409, "Conflict", 200)
    assert "Precondition failed" in status["message"]


async def test_delete_options_must_be_an_object(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(CONFIG_MAPS, named("a"))

    code, _ = await ask(http, "DELETE", f"{MAPS_PATH}/a", [1])

    assert code == 400


async def test_an_object_waits_for_its_finalizers(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    body = named("a", metadata={"finalizers": ["example.com/x", "example.com/y"]})
    server.create(CONFIG_MAPS, body)

    _, marked = await ask(http, "DELETE", f"{MAPS_PATH}/a")
    version = server.resource_version
    _, again = await ask(http, "DELETE", f"{MAPS_PATH}/a")

    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (again, server.resource_version) == (marked, version)
    finalizers = {"metadata": {"finalizers": ["example.com/y"]}}
    code, _ = await patch(http, f"{MAPS_PATH}/a", finalizers)
    assert (code, len(server.objects(CONFIG_MAPS))) == (200, 1)
    code, _ = await patch(http, f"{MAPS_PATH}/a", {"metadata": {"finalizers": []}})
    assert (code, server.objects(CONFIG_MAPS)) == (200, [])


async def test_an_update_without_finalizers_releases_the_object(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(CONFIG_MAPS, named("a", metadata={"finalizers": ["example.com/x"]}))
    _, marked = await ask(http, "DELETE", f"{MAPS_PATH}/a")
    marked["metadata"]["finalizers"] = []

    async with http.get(MAPS_PATH, params={"watch": "1"}) as watch:
        code, answered = await ask(http, "PUT", f"{MAPS_PATH}/a", marked)
        events = await next_events(watch, 2)

    assert code == 200
    assert "finalizers" not in answered["metadata"]
    # The state without finalizers was never stored: the event shows the one before.
    assert told(events) == [("ADDED", "a"), ("DELETED", "a")]
    assert events[1]["object"]["metadata"]["finalizers"] == ["example.com/x"]
    assert versions(events)[1] == int(server.resource_version)


async def test_no_finalizer_can_be_added_to_a_dying_object(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(CONFIG_MAPS, named("a", metadata={"finalizers": ["example.com/x"]}))
    server.delete(CONFIG_MAPS, "a")

    more = {"metadata": {"finalizers": ["example.com/x", "example.com/y"]}}
    code, status = await patch(http, f"{MAPS_PATH}/a", more)

    assert code == 422
    assert "example.com/y" in status["message"]


async def test_marking_for_deletion_counts_the_generation(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(PODS, named("web", metadata={"finalizers": ["example.com/x"]}))

    _, marked = await ask(http, "DELETE", f"{PODS_PATH}/web")

    assert marked["metadata"]["generation"] == 2


async def test_a_collection_can_be_deleted_by_selector(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    for name in ("a", "b", "c"):
        server.create(CONFIG_MAPS, named(name, labels={"keep": str(name == "b")}))

    code, found = await ask(http, "DELETE", MAPS_PATH, labelSelector="keep=False")

    assert (code, found["kind"]) == (200, "ConfigMapList")
    assert [it["metadata"]["name"] for it in found["items"]] == ["a", "c"]
    assert [it["metadata"]["name"] for it in server.objects(CONFIG_MAPS)] == ["b"]
