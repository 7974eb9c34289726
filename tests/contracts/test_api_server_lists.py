"""What the API server lists: shapes, versions, pages, selectors."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

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


def names(found: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


def fill(server: APIServer, count: int) -> None:
    for number in range(count):
        server.create(PODS, named(f"web-{number}"))


# -------------------------------------------------------------------- shapes


async def test_items_of_typed_kinds_do_not_say_what_they_are(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    pod = server.create(PODS, named("web", spec={"nodeName": "a"}))

    _, found = await ask(http, "GET", PODS_PATH)

    assert list(found) == ["kind", "apiVersion", "metadata", "items"]
    assert (found["kind"], found["apiVersion"]) == ("PodList", "v1")
    assert found["metadata"] == {"resourceVersion": server.resource_version}
    del pod["kind"], pod["apiVersion"]
    assert found["items"] == [pod]


async def test_items_of_custom_kinds_say_what_they_are(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    made = server.create(WIDGETS, named("a", spec={"z": 1, "a": 2}))

    _, found = await ask(http, "GET", WIDGETS_PATH)

    assert list(found) == ["apiVersion", "items", "kind", "metadata"]
    assert (found["kind"], found["apiVersion"]) == ("WidgetList", "example.com/v1")
    assert found["items"] == [made]
    assert found["metadata"]["continue"] == ""


async def test_typed_objects_keep_the_order_of_go_structs(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    metadata = {
        "managedFields": [{"manager": "x"}],
        "finalizers": ["example.com/x"],
        "annotations": {"b": "1", "a": "2"},
        "labels": {"b": "1", "a": "2"},
        "name": "web",
    }
    body = {"status": {"phase": "Running"}, "spec": {}, "metadata": metadata}
    server.create(PODS, body)

    async with http.get(f"{PODS_PATH}/web") as answer:
        found = json.loads(await answer.read())

    assert list(found) == ["kind", "apiVersion", "metadata", "spec", "status"]
    assert list(found["metadata"]) == [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "labels",
        "annotations",
        "finalizers",
        "managedFields",
    ]
    assert list(found["metadata"]["labels"]) == ["a", "b"]


async def test_custom_objects_have_sorted_keys(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(WIDGETS, named("a", spec={"z": 1, "a": {"y": 1, "b": 2}}))

    async with http.get(f"{WIDGETS_PATH}/a") as answer:
        found = json.loads(await answer.read())

    assert list(found) == ["apiVersion", "kind", "metadata", "spec"]
    assert list(found["metadata"]) == sorted(found["metadata"])
    assert list(found["spec"]) == ["a", "z"]
    assert list(found["spec"]["a"]) == ["b", "y"]


async def test_text_is_escaped_as_go_escapes_it(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(CONFIG_MAPS, named("a", data={"x": "<a&b>é"}))

    async with http.get(f"{MAPS_PATH}/a") as answer:
        raw = await answer.read()

    assert '"x":"\\u003ca\\u0026b\\u003eé"'.encode() in raw
    assert json.loads(raw)["data"] == {"x": "<a&b>é"}


async def test_an_empty_list_has_the_newest_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(CONFIG_MAPS, named("a"))

    _, found = await ask(http, "GET", PODS_PATH)

    assert found["items"] == []
    assert found["metadata"]["resourceVersion"] == server.resource_version


async def test_a_list_is_in_the_order_of_its_keys(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    for namespace in ("a-b", "a"):
        server.create(NAMESPACES, named(namespace))
        server.create(PODS, named("z"), namespace=namespace)
        server.create(PODS, named("b"), namespace=namespace)

    _, found = await ask(http, "GET", "/api/v1/pods")

    keys = [
        (it["metadata"]["namespace"], it["metadata"]["name"]) for it in found["items"]
    ]
    # By "namespace/name", where a dash comes before the slash.
    assert keys == [("a-b", "b"), ("a-b", "z"), ("a", "b"), ("a", "z")]


async def test_a_large_list_arrives_whole(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    for number in range(300):
        server.create(CONFIG_MAPS, named(f"map-{number}", data={"x": "y" * 2000}))

    async with http.get(MAPS_PATH) as answer:
        zipped = await answer.json()
        assert answer.headers["Content-Encoding"] == "gzip"

    async with http.get(MAPS_PATH, headers={"Accept-Encoding": "identity"}) as answer:
        plain = await answer.json()
        assert "Content-Encoding" not in answer.headers

    assert zipped == plain
    assert names(plain) == sorted(f"map-{number}" for number in range(300))


# -------------------------------------------------------------------- pages


async def test_pages_add_up_to_the_list(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    fill(server, 5)
    _, first = await ask(http, "GET", PODS_PATH, limit="2")
    token = first["metadata"]["continue"]
    _, second = await ask(http, "GET", PODS_PATH, **{"limit": "2", "continue": token})
    token = second["metadata"]["continue"]
    _, third = await ask(http, "GET", PODS_PATH, **{"limit": "2", "continue": token})

    assert [names(page) for page in (first, second, third)] == [
        ["web-0", "web-1"],
        ["web-2", "web-3"],
        ["web-4"],
    ]
    assert first["metadata"]["remainingItemCount"] == 3
    assert second["metadata"]["remainingItemCount"] == 1
    assert "continue" not in third["metadata"]


async def test_later_pages_show_the_state_of_the_first(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    fill(server, 4)
    _, first = await ask(http, "GET", PODS_PATH, limit="1")
    server.delete(PODS, "web-1")
    server.patch(PODS, "web-2", {"metadata": {"labels": {"new": "1"}}})
    server.create(PODS, named("web-9"))

    token = first["metadata"]["continue"]
    _, rest = await ask(http, "GET", PODS_PATH, **{"continue": token})

    assert names(rest) == ["web-1", "web-2", "web-3"]
    assert "labels" not in rest["items"][1]["metadata"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    _, now = await ask(http, "GET", PODS_PATH)
    assert names(now) == ["web-0", "web-2", "web-3", "web-9"]


@pytest.mark.parametrize("how", ["compaction", "writes"])
async def test_an_expired_token_is_410(
    server: APIServer, http: aiohttp.ClientSession, how: str
) -> None:
    fill(server, 3)
    _, first = await ask(http, "GET", PODS_PATH, limit="1")
    if how == "compaction":
        server.create(CONFIG_MAPS, named("later"))
        server.compact()
    else:
        for number in range(21):
            server.create(PODS, named(f"new-{number}"))

    token = first["metadata"]["continue"]
    code, status = await ask(http, "GET", PODS_PATH, **{"continue": token})

    assert (code, status["reason"]) == (410, "Expired")
    assert "continue parameter is too old" in status["message"]


async def test_a_token_of_somebody_else_is_400(http: aiohttp.ClientSession) -> None:
    for token in ("nonsense", "e30", "!"):
        code, status = await ask(http, "GET", PODS_PATH, **{"continue": token})

        assert (code, status["reason"]) == (400, "BadRequest")


async def test_a_selector_hides_the_remaining_count(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    fill(server, 3)

    _, found = await ask(
        http, "GET", PODS_PATH, limit="1", fieldSelector="metadata.name!=web-0"
    )

    assert names(found) == ["web-1"]
    assert "remainingItemCount" not in found["metadata"]
    assert found["metadata"]["continue"]


# -------------------------------------------------------------------- versions


async def test_version_zero_with_a_limit_is_answered_whole(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    fill(server, 3)

    _, found = await ask(http, "GET", PODS_PATH, limit="1", resourceVersion="0")

    assert len(found["items"]) == 3
    assert "continue" not in found["metadata"]


async def test_a_bare_version_with_a_limit_reads_the_past(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    fill(server, 2)
    past = server.resource_version
    server.delete(PODS, "web-0")
    params = {"resourceVersion": past}

    _, limited = await ask(http, "GET", PODS_PATH, limit="5", **params)
    _, whole = await ask(http, "GET", PODS_PATH, **params)
    _, newer = await ask(
        http,
        "GET",
        PODS_PATH,
        limit="5",
        resourceVersionMatch="NotOlderThan",
        **params,
    )
    _, exact = await ask(http, "GET", PODS_PATH, resourceVersionMatch="Exact", **params)

    assert names(limited) == names(exact) == ["web-0", "web-1"]
    assert limited["metadata"]["resourceVersion"] == past
    assert names(whole) == names(newer) == ["web-1"]
    assert whole["metadata"]["resourceVersion"] == server.resource_version


async def test_a_forgotten_version_is_410(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    fill(server, 2)
    server.compact()

    code, status = await ask(http, "GET", PODS_PATH, resourceVersion="2", limit="5")
    bare, _ = await ask(http, "GET", PODS_PATH, resourceVersion="2")

    assert (code, status["reason"]) == (410, "Expired")
    assert bare == 200


@pytest.mark.parametrize("match", [{}, {"resourceVersionMatch": "NotOlderThan"}])
async def test_a_version_in_the_future_is_504(
    server: APIServer, http: aiohttp.ClientSession, match: dict[str, str]
) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()

    async with http.get(
        PODS_PATH, params={"resourceVersion": "999", **match}
    ) as answer:
        status = await answer.json()

    assert loop.time() - start == pytest.approx(3.0, abs=0.1)
    assert answer.headers["Retry-After"] == "1"
    assert (answer.status, status["code"], status["reason"]) == (504, 504, "Timeout")
    current = server.resource_version
    assert status["message"].endswith(
        f"Too large resource version: 999, current: {current}"
    )
    assert status["details"] == {
        "causes": [
            {
                "reason": "ResourceVersionTooLarge",
                "message": "Too large resource version",
            }
        ],
        "retryAfterSeconds": 1,
    }


async def test_a_version_that_arrives_in_time_is_answered(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    wanted = str(int(server.resource_version) + 1)
    loop = asyncio.get_running_loop()
    loop.call_later(1, lambda: server.create(PODS, named("late")))

    code, found = await ask(http, "GET", PODS_PATH, resourceVersion=wanted)

    assert (code, names(found)) == (200, ["late"])
    assert found["metadata"]["resourceVersion"] == wanted


async def test_an_exact_version_in_the_future_is_500(
    http: aiohttp.ClientSession,
) -> None:
    code, _ = await ask(http, "GET", PODS_PATH, resourceVersion="999", limit="1")

    assert code == 500


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"resourceVersion": "abc"}, 400),
        ({"resourceVersion": "-1"}, 400),
        ({"limit": "many"}, 400),
        ({"labelSelector": "a in ("}, 400),
        ({"fieldSelector": "metadata.name"}, 400),
        ({"fieldSelector": "spec.unknown=1"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Newer", "resourceVersion": "1"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"resourceVersionMatch": "Exact", "continue": "x"}, 422),
        ({"resourceVersion": "5", "continue": "x"}, 400),
        ({"sendInitialEvents": "true"}, 422),
    ],
    ids=str,
)
async def test_bad_parameters_are_refused(
    http: aiohttp.ClientSession, params: dict[str, str], code: int
) -> None:
    answered, status = await ask(http, "GET", PODS_PATH, **params)

    assert answered == status["code"] == code
