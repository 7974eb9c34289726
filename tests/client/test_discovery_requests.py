"""What a server is asked, in either form, and what becomes of a group that is broken."""

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


def told(groups: list[Group]) -> dict[str, list[str] | str]:
    """By version the names of what is served, or the problem with it."""
    return {
        group.api_version(version): version.problem
        or [it.name for it in version.resources or ()]
        for group in groups
        for version in group.versions
    }


async def test_asks_two_documents_where_they_tell_everything() -> None:
    async with OldServer(NEW) as server, server.client() as client:
        found = told(await DiscoveryRequests(client).fetch())

    assert found == {"v1": ["pods"], "apps/v1": ["sets"], "a.b/v1": STALE}
    assert sorted(server.asked) == ["/api", "/apis"]
    assert server.accepted == [AGGREGATED] * 2


async def test_asks_an_older_server_for_each_version() -> None:
    async with OldServer(OLD) as server, server.client() as client:
        found = told(await DiscoveryRequests(client).fetch())

    assert list(found) == ["v1", "apps/v1", "a.b/v2", "a.b/v1"]
    assert found["v1"] == ["pods"]
    assert sorted(server.asked) == sorted(OLD)


async def test_the_server_of_the_tests_tells_everything_in_two_documents() -> None:
    async with APIServer() as server, server.client() as client:
        await define_widgets(client)
        found = await DiscoveryRequests(client).fetch()

    names = {it.name: it for it in found}
    assert next(iter(names)) == ""
    assert "widgets" in told([names["example.com"]])["example.com/v1"]
    assert {"deployments", "deployments/scale"} <= set(told(found)["apps/v1"])


async def test_what_has_not_changed_is_not_told_again() -> None:
    async with OldServer(NEW) as server, server.client() as client:
        server.tags = {"/api": '"1"', "/apis": '"2"'}
        questions = DiscoveryRequests(client)
        first = await questions.fetch()
        assert server.unchanged == 0
        again = await questions.fetch()
        assert (told(again), server.unchanged) == (told(first), 2)

        server.documents["/apis"] = aggregated(("new.test", {"v1": {"news": "New"}}))
        server.tags["/apis"] = '"3"'
        found = told(await questions.fetch())

    assert found == {"v1": ["pods"], "new.test/v1": ["news"]}
    assert server.unchanged == 3


async def test_our_own_server_answers_that_nothing_has_changed() -> None:
    async with APIServer() as server, server.client() as client:
        async with client.stream("GET", "/apis", accept=AGGREGATED) as answer:
            etag = answer.headers["ETag"]
            await answer.read()

        async with client.stream(
            "GET", "/apis", accept=AGGREGATED, etag=etag
        ) as answer:
            assert (answer.status, await answer.read()) == (304, b"")

        questions = DiscoveryRequests(client)
        before = await questions.fetch()
        assert (await questions.fetch())[1] is before[1]
        await define_widgets(client)
        assert "example.com/v1" in told(await questions.fetch())


async def test_what_an_older_server_says_of_versions_is_asked_for_each_time() -> None:
    async with OldServer(OLD) as server, server.client() as client:
        server.tags = {"/apis": '"1"'}
        questions = DiscoveryRequests(client)
        await questions.fetch()
        server.documents["/apis/apps/v1"] = PODS
        found = told(await questions.fetch())

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
async def test_a_broken_group_hides_only_itself(broken: Any, words: str) -> None:
    documents = {**OLD, "/apis/a.b/v2": broken}
    async with OldServer(documents) as server, server.client() as client:
        found = told(await DiscoveryRequests(client).fetch())

    assert words in found.pop("a.b/v2")
    assert found == {"v1": ["pods"], "apps/v1": ["sets"], "a.b/v1": ["sets"]}


@pytest.mark.parametrize("missing", [403, 404])
@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_one_of_the_two_is_enough(path: str, missing: int) -> None:
    async with OldServer({**NEW, path: missing}) as server, server.client() as client:
        found = told(await DiscoveryRequests(client).fetch())

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
async def test_without_groups_nothing_is_known(
    documents: dict[str, Any], error: type[Exception]
) -> None:
    async with OldServer(documents) as server, server.client() as client:
        with pytest.raises(error) as caught:
            await DiscoveryRequests(client).fetch()

    if not documents:
        assert "check that its URL is that of an API server" in str(caught.value)


async def test_a_server_that_is_not_there_is_an_error_of_the_network() -> None:
    async with OldServer(NEW) as server:
        client = server.client()

    async with client:
        with pytest.raises(TransportError):
            await DiscoveryRequests(client).fetch()


async def test_an_older_server_is_asked_a_few_things_at_a_time() -> None:
    names = [f"g{number}.test" for number in range(3 * REQUESTS_AT_ONCE)]
    documents: dict[str, Any] = {f"/apis/{it}/v1": SETS for it in names}
    documents["/apis"] = group_list(*(named(it, "v1") for it in names))
    async with OldServer(documents) as server, server.client() as client:
        server.hold = asyncio.Event()
        asking = asyncio.create_task(DiscoveryRequests(client).fetch())
        while server.waiting < REQUESTS_AT_ONCE:
            await asyncio.sleep(0.01)

        await asyncio.sleep(1)  # of virtual time: the others would be here by now
        assert server.waiting == REQUESTS_AT_ONCE
        server.hold.set()
        found = told(await asking)

    assert found == {f"{it}/v1": ["sets"] for it in names}


async def test_asking_can_be_cancelled() -> None:
    async with OldServer(OLD) as server, server.client() as client:
        server.hold = asyncio.Event()
        asking = asyncio.create_task(DiscoveryRequests(client).fetch())
        while not server.waiting:
            await asyncio.sleep(0.01)

        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

        server.hold.set()
