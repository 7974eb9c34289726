"""Discovery requests in both forms, and groups that cannot be discovered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from discovery_helpers import OldServer, aggregated, define_widgets, listed, named

from aioinformer.client.discovery import REQUESTS_AT_ONCE, DiscoveryRequests
from aioinformer.client.discovery_documents import AGGREGATED, STALE
from aioinformer.errors import DecodeError, Forbidden, ServerError, TransportError
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from aioinformer.client.discovery_documents import Group

CORE = {"kind": "APIVersions", "versions": ["v1"]}
PODS = {"kind": "APIResourceList", "resources": [listed("pods", "Pod")]}
SETS = {"kind": "APIResourceList", "resources": [listed("sets", "Set")]}


def group_list(*groups: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "APIGroupList", "groups": list(groups)}


OLD = {
    "/api": CORE,
    "/api/v1": PODS,
    "/apis": group_list(named("apps", "v1"), named("a.b", "v2", "v1")),
    "/apis/apps/v1": SETS,
    "/apis/a.b/v1": SETS,
    "/apis/a.b/v2": SETS,
}
NEW = {
    "/api": aggregated(("", {"v1": {"pods": "Pod"}})),
    "/apis": aggregated(("apps", {"v1": {"sets": "Set"}}), ("a.b", {"v1": None})),
}


def served_by_version(groups: list[Group]) -> dict[str, list[str] | str]:
    """Return the names of served resources, or the problem, by version."""
    return {
        group.api_version(version): version.problem
        or [it.name for it in version.resources or ()]
        for group in groups
        for version in group.versions
    }


async def test_aggregated_discovery_sends_two_requests() -> None:
    async with OldServer(NEW) as server, server.client() as client:
        found = served_by_version(await DiscoveryRequests(client).fetch())

    assert found == {"v1": ["pods"], "apps/v1": ["sets"], "a.b/v1": STALE}
    assert sorted(server.asked) == ["/api", "/apis"]
    assert server.accepted == [AGGREGATED] * 2


async def test_discovery_requests_each_version_of_older_server() -> None:
    async with OldServer(OLD) as server, server.client() as client:
        found = served_by_version(await DiscoveryRequests(client).fetch())

    assert list(found) == ["v1", "apps/v1", "a.b/v2", "a.b/v1"]
    assert found["v1"] == ["pods"]
    assert sorted(server.asked) == sorted(OLD)


async def test_test_server_supports_aggregated_discovery() -> None:
    async with APIServer() as server, server.client() as client:
        await define_widgets(client)
        found = await DiscoveryRequests(client).fetch()

    names = {it.name: it for it in found}
    assert next(iter(names)) == ""
    assert "widgets" in served_by_version([names["example.com"]])["example.com/v1"]
    assert {"deployments", "deployments/scale"} <= set(
        served_by_version(found)["apps/v1"]
    )


async def test_unchanged_document_is_reused_after_304() -> None:
    async with OldServer(NEW) as server, server.client() as client:
        server.tags = {"/api": '"1"', "/apis": '"2"'}
        requests = DiscoveryRequests(client)
        first = await requests.fetch()
        assert server.unchanged == 0
        again = await requests.fetch()
        assert (served_by_version(again), server.unchanged) == (
            served_by_version(first),
            2,
        )

        server.documents["/apis"] = aggregated(("new.test", {"v1": {"news": "New"}}))
        server.tags["/apis"] = '"3"'
        found = served_by_version(await requests.fetch())

    assert found == {"v1": ["pods"], "new.test/v1": ["news"]}
    assert server.unchanged == 3


async def test_test_server_returns_304_for_unchanged_documents() -> None:
    async with APIServer() as server, server.client() as client:
        async with client.stream("GET", "/apis", accept=AGGREGATED) as answer:
            etag = answer.headers["ETag"]
            await answer.read()

        async with client.stream(
            "GET", "/apis", accept=AGGREGATED, etag=etag
        ) as answer:
            assert (answer.status, await answer.read()) == (304, b"")

        requests = DiscoveryRequests(client)
        before = await requests.fetch()
        assert (await requests.fetch())[1] is before[1]
        await define_widgets(client)
        assert "example.com/v1" in served_by_version(await requests.fetch())


async def test_documents_of_older_server_are_requested_each_time() -> None:
    async with OldServer(OLD) as server, server.client() as client:
        server.tags = {"/apis": '"1"'}
        requests = DiscoveryRequests(client)
        await requests.fetch()
        server.documents["/apis/apps/v1"] = PODS
        found = served_by_version(await requests.fetch())

    assert found["apps/v1"] == ["pods"]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (503, "503"),
        (404, "404"),
        ({"kind": "Status"}, "cannot read"),
        ([], "cannot read"),
    ],
    ids=str,
)
async def test_broken_group_does_not_affect_others(broken: Any, words: str) -> None:
    documents = {**OLD, "/apis/a.b/v2": broken}
    async with OldServer(documents) as server, server.client() as client:
        found = served_by_version(await DiscoveryRequests(client).fetch())

    assert words in found.pop("a.b/v2")
    assert found == {"v1": ["pods"], "apps/v1": ["sets"], "a.b/v1": ["sets"]}


@pytest.mark.parametrize("missing", [403, 404])
@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_discovery_works_with_one_of_both_root_documents(
    path: str, missing: int
) -> None:
    async with OldServer({**NEW, path: missing}) as server, server.client() as client:
        found = served_by_version(await DiscoveryRequests(client).fetch())

    assert ("v1" in found, "apps/v1" in found) == (path == "/apis", path == "/api")


@pytest.mark.parametrize(
    ("documents", "error"),
    [
        pytest.param({}, DecodeError, id="no-kubernetes"),
        pytest.param({"/api": 403, "/apis": 403}, Forbidden, id="forbidden"),
        pytest.param({"/api": 403}, Forbidden, id="forbidden-and-missing"),
        pytest.param({**NEW, "/apis": 503}, ServerError, id="down"),
        pytest.param({**NEW, "/apis": {"kind": "Pod"}}, DecodeError, id="other-kind"),
    ],
)
async def test_failure_of_both_root_documents_raises(
    documents: dict[str, Any], error: type[Exception]
) -> None:
    async with OldServer(documents) as server, server.client() as client:
        with pytest.raises(error) as caught:
            await DiscoveryRequests(client).fetch()

    if not documents:
        assert "check that its URL is that of an API server" in str(caught.value)


async def test_discovery_of_unreachable_server_raises_transport_error() -> None:
    async with OldServer(NEW) as server:
        client = server.client()

    async with client:
        with pytest.raises(TransportError):
            await DiscoveryRequests(client).fetch()


async def test_discovery_limits_concurrent_requests() -> None:
    names = [f"g{number}.test" for number in range(3 * REQUESTS_AT_ONCE)]
    documents: dict[str, Any] = {f"/apis/{it}/v1": SETS for it in names}
    documents["/apis"] = group_list(*(named(it, "v1") for it in names))
    async with OldServer(documents) as server, server.client() as client:
        server.hold = asyncio.Event()
        fetching = asyncio.create_task(DiscoveryRequests(client).fetch())
        while server.waiting < REQUESTS_AT_ONCE:
            await asyncio.sleep(0.01)

        await asyncio.sleep(1)  # of virtual time: further requests would have arrived
        assert server.waiting == REQUESTS_AT_ONCE
        server.hold.set()
        found = served_by_version(await fetching)

    assert found == {f"{it}/v1": ["sets"] for it in names}


async def test_discovery_requests_can_be_cancelled() -> None:
    async with OldServer(OLD) as server, server.client() as client:
        server.hold = asyncio.Event()
        fetching = asyncio.create_task(DiscoveryRequests(client).fetch())
        while not server.waiting:
            await asyncio.sleep(0.01)

        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching

        server.hold.set()
