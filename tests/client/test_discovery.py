"""`Discovery`: shared and cached results of discovery requests."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from discovery_helpers import (
    OldServer,
    aggregated,
    define_widgets,
    make_files_older,
)

from aioinformer.client import Client, ClientConfig, Discovery
from aioinformer.client.discovery import MAX_AGE_SECONDS, REFRESH_SECONDS
from aioinformer.errors import (
    NotFound,
    OptionsError,
    ServerError,
    TransportError,
    WrongLoop,
)
from aioinformer.model.resources import DEPLOYMENTS, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CORE = aggregated(("", {"v1": {"pods": "Pod"}}))
APPS = ("apps", {"v1": {"deployments": "Deployment"}})
WIDGETS = ("example.com", {"v1": {"widgets": "Widget"}})


def documents(*groups: Any) -> dict[str, Any]:
    return {"/api": CORE, "/apis": aggregated(*groups)}


@pytest.fixture
async def server() -> AsyncIterator[OldServer]:
    async with OldServer(documents(APPS)) as server:
        yield server


@pytest.fixture
async def client(server: OldServer) -> AsyncIterator[Client]:
    async with server.client() as client:
        yield client


# ---------------------------------------------------------------- what is found


@pytest.mark.parametrize(
    "word", ["deploy", "deployments.apps", "deployments.v1.apps", "Deployment"]
)
async def test_discovery_finds_resources_by_all_names(word: str) -> None:
    async with APIServer() as server, server.client() as client:
        assert await client.discovery.resource(word) == DEPLOYMENTS


async def test_discovery_works_while_the_default_executor_is_busy() -> None:
    busy, pool = threading.Event(), ThreadPoolExecutor(1)
    async with APIServer() as server, server.client() as client:
        asyncio.get_running_loop().set_default_executor(pool)
        pool.submit(busy.wait)
        try:
            async with asyncio.timeout(60):
                found = await client.discovery.resource("deploy")
                with pytest.raises(NotFound):
                    await client.discovery.resource("nothing")
        finally:
            busy.set()

    assert found == DEPLOYMENTS


async def test_discovery_returns_names_verbs_and_subresources() -> None:
    async with APIServer() as server, server.client() as client:
        found = await client.discovery.served("deploy")
        everything = await client.discovery.resources()
        some = await client.discovery.resources(category="all")

    assert found.resource == DEPLOYMENTS
    assert (found.singular, found.short_names) == ("deployment", ("deploy",))
    assert {"scale", "status"} <= set(found.subresources)
    assert {"list", "watch"} <= set(found.verbs)
    assert set(some) < set(everything)
    assert found in some


async def test_discovery_with_api_version_finds_only_that_version() -> None:
    async with APIServer() as server, server.client() as client:
        newest = await client.discovery.resource("hpa")
        older = await client.discovery.resource("hpa", "autoscaling/v1")
        with pytest.raises(NotFound, match=r"no resource 'hpa' in v1\. Did you mean"):
            await client.discovery.resource("hpa", "v1")

    assert (newest.version, older.version) == ("v2", "v1")


async def test_unknown_kind_error_suggests_similar_names(client: Client) -> None:
    with pytest.raises(NotFound) as caught:
        await client.discovery.resource("Deploymnt")

    assert caught.value.status == 404
    assert caught.value.message == (
        "the server has no resource 'Deploymnt'. Did you mean 'deployments'?"
    )


async def test_broken_group_is_logged_once(
    server: OldServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    server.documents = documents(APPS, ("metrics.test", {"v1": None}))
    discovery = Discovery(client, max_age=0)
    assert discovery.broken == {}

    await discovery.resource("Deployment")
    assert list(discovery.broken) == ["metrics.test/v1"]
    await asyncio.sleep(1)
    assert await discovery.resource("Pod") == PODS
    assert len(server.asked) == 4
    assert caplog.text.count("discovery of metrics.test/v1 failed") == 1

    with pytest.raises(NotFound, match=r"not be discovered: metrics\.test/v1"):
        await discovery.resource("ghosts")

    server.documents = documents(APPS)
    await asyncio.sleep(1)
    await discovery.resource("Pod")
    assert discovery.broken == {}


async def test_resource_of_broken_group_raises_server_error(
    server: OldServer, client: Client
) -> None:
    server.documents = documents(APPS, ("metrics.test", {"v1": None}))

    with pytest.raises(ServerError, match=r"cannot describe metrics\.test/v1"):
        await client.discovery.resource("ghosts", "metrics.test/v1")

    with pytest.raises(NotFound):
        await client.discovery.resource("ghosts", "apps/v1")


# ---------------------------------------------------------------- when it sends requests


async def test_discovery_sends_nothing_before_first_use(
    server: OldServer, client: Client
) -> None:
    discovery = client.discovery

    assert repr(discovery) == "<Discovery known=None>"
    assert (client.discovery is discovery, server.asked) == (True, [])


async def test_concurrent_callers_share_one_discovery(
    server: OldServer, client: Client
) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(client.discovery.resource("Pod"))

    await client.discovery.resources()
    assert sorted(server.asked) == ["/api", "/apis"]


async def test_discovery_repeats_requests_after_max_age(
    server: OldServer, client: Client
) -> None:
    discovery = Discovery(client, max_age=timedelta(minutes=10))
    await discovery.resource("Pod")
    await asyncio.sleep(599)
    await discovery.resource("Pod")
    assert len(server.asked) == 2

    await asyncio.sleep(2)
    await discovery.resource("Pod")
    assert len(server.asked) == 4


async def test_discovery_result_is_valid_for_six_hours_by_default(
    server: OldServer, client: Client
) -> None:
    await client.discovery.resource("Pod")
    await asyncio.sleep(MAX_AGE_SECONDS - 1)
    await client.discovery.resource("Pod")
    assert len(server.asked) == 2

    await asyncio.sleep(2)
    await client.discovery.resource("Pod")
    assert len(server.asked) == 4


async def test_unknown_kind_triggers_new_discovery(
    server: OldServer, client: Client
) -> None:
    await client.discovery.resource("Pod")
    server.documents = documents(APPS, WIDGETS)
    await asyncio.sleep(REFRESH_SECONDS)

    found = await client.discovery.resource("Widget")

    assert found.api_version == "example.com/v1"
    assert len(server.asked) == 4


async def test_unknown_kind_triggers_discovery_at_most_every_two_seconds(
    server: OldServer, client: Client
) -> None:
    async def ask() -> None:
        with pytest.raises(NotFound):
            await client.discovery.resource("Widget")

    await ask()
    for _ in range(5):
        await ask()

    assert len(server.asked) == 2
    await asyncio.sleep(REFRESH_SECONDS)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(ask())

    assert len(server.asked) == 4


async def test_invalidated_discovery_repeats_requests(
    server: OldServer, client: Client
) -> None:
    await client.discovery.resource("Pod")
    server.documents = documents(WIDGETS)
    client.discovery.invalidate()

    await client.discovery.resource("Widget")
    with pytest.raises(NotFound):
        await client.discovery.resource("Deployment")


async def test_call_after_invalidation_gets_result_of_later_requests(
    server: OldServer, client: Client
) -> None:
    server.hold, server.held_paths = asyncio.Event(), "/apis"
    early = asyncio.create_task(client.discovery.resource("Deployment"))
    while not server.waiting:
        await asyncio.sleep(0.01)

    client.discovery.invalidate()
    late = asyncio.create_task(client.discovery.resource("Deployment"))
    await asyncio.sleep(0)
    server.hold.set()

    assert await early == await late == DEPLOYMENTS
    assert len(server.asked) == 4


async def test_unchanged_documents_renew_age_of_result(
    server: OldServer, client: Client
) -> None:
    server.tags = {"/api": '"1"', "/apis": '"1"'}
    discovery = Discovery(client, max_age=60)
    for _ in range(3):
        await discovery.resource("Pod")
        await discovery.resource("Pod")
        await asyncio.sleep(61)

    assert (len(server.asked), server.unchanged) == (6, 4)


# ---------------------------------------------------------------- failures


async def test_concurrent_callers_share_failure_of_discovery(
    server: OldServer, client: Client
) -> None:
    server.documents["/apis"] = 503
    server.hold, server.held_paths = asyncio.Event(), "/apis"
    asking = [asyncio.create_task(client.discovery.resource("Pod")) for _ in range(5)]
    while not server.waiting:
        await asyncio.sleep(0.01)

    server.hold.set()
    ends = await asyncio.gather(*asking, return_exceptions=True)

    assert [type(it) for it in ends] == [ServerError] * 5
    assert len({id(it) for it in ends}) == 5
    assert len(server.asked) == 2


async def test_discovery_is_repeated_after_failure(
    server: OldServer, client: Client
) -> None:
    server.documents["/apis"] = 503
    with pytest.raises(ServerError):
        await client.discovery.resource("Pod")

    server.documents = documents(APPS)
    assert await client.discovery.resource("Pod") == PODS


async def test_cancelled_caller_does_not_cancel_others(
    server: OldServer, client: Client
) -> None:
    server.hold, server.held_paths = asyncio.Event(), "/apis"
    first = asyncio.create_task(client.discovery.resource("Pod"))
    second = asyncio.create_task(client.discovery.resource("Pod"))
    while not server.waiting:
        await asyncio.sleep(0.01)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    server.hold.set()
    assert await second == PODS


async def test_discovery_of_unentered_client_raises_options_error(
    tmp_path: Path,
) -> None:
    client = Client.from_url("http://127.0.0.1:1")
    for discovery in (client.discovery, Discovery(client, tmp_path)):
        with pytest.raises(OptionsError, match="not entered"):
            await discovery.resource("Pod")

    async with client:
        with pytest.raises(TransportError):
            await client.discovery.resource("Pod")


@pytest.mark.parametrize("age", [-1, float("nan"), float("inf")])
def test_discovery_rejects_invalid_max_age(age: float) -> None:
    with pytest.raises(OptionsError):
        Discovery(Client.from_url("http://127.0.0.1:1"), max_age=age)


@pytest.mark.looptime(False)
def test_discovery_starts_over_in_another_loop() -> None:
    client = Client.from_url("http://127.0.0.1:1")

    async def fail() -> None:
        async with client:
            calls = [client.discovery.resource("Pod") for _ in range(3)]
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(it) for it in ends} == {TransportError}

    asyncio.run(fail())
    asyncio.run(fail())


# ---------------------------------------------------------------- files


async def test_discovery_starts_over_for_another_server(server: OldServer) -> None:
    async with OldServer({"/api": CORE, "/apis": aggregated(WIDGETS)}) as other:
        urls = [server.url, other.url]
        client = Client(lambda: ClientConfig(server=urls.pop(0)))
        async with client:
            assert await client.discovery.resource("Deployment") == DEPLOYMENTS

        async with client:
            found = await client.discovery.resources()

    assert [it.resource.kind for it in found] == ["Pod", "Widget"]


async def test_discovery_reads_files_instead_of_requesting(
    server: OldServer, client: Client, tmp_path: Path
) -> None:
    await Discovery(client, tmp_path).resource("Pod")
    assert len(server.asked) == 2

    other = Discovery(client, str(tmp_path))
    await other.resource("Deployment")
    assert len(server.asked) == 2
    name = server.url.removeprefix("http://").replace(":", "_")
    assert (tmp_path / name / "apps" / "v1" / "serverresources.json").is_file()


async def test_kind_missing_in_files_is_requested(
    server: OldServer, client: Client, tmp_path: Path
) -> None:
    await Discovery(client, tmp_path).resource("Pod")
    server.documents = documents(WIDGETS)

    await Discovery(client, tmp_path).resource("Widget")

    # The files have it now, too.
    requests_before = len(server.asked)
    await Discovery(client, tmp_path).resource("Widget")
    assert len(server.asked) == requests_before


async def test_discovery_ignores_old_files(
    server: OldServer, client: Client, tmp_path: Path
) -> None:
    await Discovery(client, tmp_path).resource("Pod")
    make_files_older(tmp_path, 1000)

    await Discovery(client, tmp_path).resource("Pod")
    assert len(server.asked) == 2
    await Discovery(client, tmp_path, max_age=999).resource("Pod")
    assert len(server.asked) == 4


async def test_result_from_files_has_age_of_files(
    server: OldServer, client: Client, tmp_path: Path
) -> None:
    await Discovery(client, tmp_path).resource("Pod")
    make_files_older(tmp_path, 1000)

    discovery = Discovery(client, tmp_path, max_age=2000)
    await discovery.resource("Pod")
    await asyncio.sleep(900)
    await discovery.resource("Pod")
    assert len(server.asked) == 2

    make_files_older(tmp_path, 1000)  # now older than max_age

    await asyncio.sleep(200)
    await discovery.resource("Pod")
    assert len(server.asked) == 4


async def test_invalidated_discovery_ignores_files(
    server: OldServer, client: Client, tmp_path: Path
) -> None:
    discovery = Discovery(client, tmp_path)
    await discovery.resource("Pod")
    server.documents = documents(WIDGETS)
    discovery.invalidate()

    await discovery.resource("Widget")
    await Discovery(client, tmp_path).resource("Widget")


async def test_unwritable_cache_folder_does_not_fail_discovery(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")

    assert await Discovery(client, tmp_path / "file").resource("Pod") == PODS
    assert "cannot write discovery files" in caplog.text


async def test_discovery_finds_custom_resource_created_later() -> None:
    async with APIServer() as server, server.client() as client:
        with pytest.raises(NotFound):
            await client.discovery.resource("wd")

        await define_widgets(client)
        await asyncio.sleep(REFRESH_SECONDS)
        found = await client.discovery.resource("wd")

    assert (found.plural, found.kind, found.namespaced) == ("widgets", "Widget", True)


async def test_discovery_in_another_loop_than_client_raises_wrong_loop(
    client: Client,
) -> None:
    def ask() -> None:
        asyncio.run(client.discovery.resource("Pod"))

    with pytest.raises(WrongLoop):
        await asyncio.to_thread(ask)

    assert await client.discovery.resource("Pod") == PODS
