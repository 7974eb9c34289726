"""`ListWatch.from_kubernetes_asyncio`: through somebody else's client, over sockets."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from canned import CannedServer, Stream, list_body
from conftest import pod
from kubernetes_asyncio.client import ApiClient, Configuration, CoreV1Api
from kubernetes_asyncio_helpers import LIBRARIES, listing, read

from aioinformer import SharedInformer
from aioinformer.client import ListWatch
from aioinformer.errors import (
    Unauthorized,
)
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer, faults
from aioinformer.watch import ListOptions, WatchOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer_apiserver.faults import Fault


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


@pytest.fixture
async def canned() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return import_module(f"{request.param}.client")


def create(server: APIServer, name: str) -> None:
    body = pod(name, "shop")
    del body["metadata"]["resourceVersion"]
    server.create(PODS, body)


async def until(informer: SharedInformer, names: str) -> None:
    while "".join(sorted(it.name for it in informer.store.list())) != names:
        await asyncio.sleep(0.1)


# ---------------------------------------------------------------- an informer


async def test_an_informer_of_a_generated_function(server: APIServer) -> None:
    create(server, "a")

    async with ApiClient(Configuration(host=server.url)) as api:
        core_v1 = CoreV1Api(api)
        informer = SharedInformer(
            ListWatch.from_kubernetes_asyncio(
                core_v1.list_namespaced_pod, namespace="shop"
            )
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(informer.run())
            await informer.wait_synced(timeout=10)
            assert informer.store.list_keys() == ["shop/a"]

            create(server, "b")
            await until(informer, "ab")
            running.cancel()


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param([faults.Cut(after_bytes=0)], id="cut"),
        pytest.param([faults.Cut(after_bytes=0, reset=True)], id="reset"),
        pytest.param([faults.Cut(head=False)], id="cut-before-the-head"),
        pytest.param([faults.Cut(after_bytes=100)], id="cut-in-a-line"),
        pytest.param([faults.Gone()], id="410"),
        pytest.param([faults.Gone(after_events=1)], id="410-later"),
        pytest.param([faults.Refuse(status=403, verb="list")], id="403"),
        pytest.param([faults.Refuse(status=401, verb="watch")], id="401"),
        pytest.param(
            [faults.Refuse(status=500), faults.Cut(after_bytes=0)], id="500-and-cut"
        ),
        pytest.param([faults.Page(verb="list")], id="web-page"),
    ],
)
async def test_an_informer_gets_over_it(
    server: APIServer, library: Any, trouble: list[Fault]
) -> None:
    create(server, "a")
    server.faults.add(*trouble)

    async with listing(server.url, library) as source:
        informer = SharedInformer(source)
        running = asyncio.create_task(informer.run())
        await informer.wait_synced(timeout=60, fail_fast=False)
        for name in "bcd":
            create(server, name)
            await asyncio.sleep(5)

        async with asyncio.timeout(120):
            await until(informer, "abcd")

        running.cancel()
        await asyncio.wait({running})

    server.faults.check()


# ---------------------------------------------------------------- what is asked for


async def test_sends_what_a_list_watch_sends(server: APIServer, library: Any) -> None:
    options = ListOptions(resource_version="0", limit=5)

    async with listing(server.url, library) as source:
        async with source.list(options) as page:
            assert [it async for it in page] == []

        async with source.watch(
            WatchOptions(send_initial_events=True, timeout_seconds=9)
        ):
            pass

    assert [it.query for it in server.requests] == [
        {"limit": "5", "resourceVersion": "0"},
        {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": "9",
        },
    ]


async def test_streams_custom_objects_too(canned: CannedServer, library: Any) -> None:
    Stream(canned).end()
    async with library.ApiClient(library.Configuration(host=canned.url)) as api:
        source = ListWatch.from_kubernetes_asyncio(
            library.CustomObjectsApi(api).list_namespaced_custom_object,
            group="example.com",
            version="v1",
            namespace="shop",
            plural="widgets",
            label_selector="app in (a)",
        )
        async with source.watch(WatchOptions(send_initial_events=True)):
            pass

    (seen,) = canned.seen
    target = urlsplit(seen.target)
    assert target.path == "/apis/example.com/v1/namespaces/shop/widgets"
    query = dict(parse_qsl(target.query))
    assert (query["sendInitialEvents"], query["labelSelector"]) == (
        "true",
        "app in (a)",
    )


async def test_asks_for_plain_json(canned: CannedServer, library: Any) -> None:
    canned.text(list_body("a").decode(), 200, "application/json")

    async with listing(canned.url, library) as source:
        assert await read(source) == ["a"]

    headers = canned.seen[0].headers
    assert headers["Accept"] == "application/json"
    assert headers["Accept-Encoding"] == "identity"


async def test_sends_the_headers_that_were_given(canned: CannedServer) -> None:
    canned.text(list_body("a").decode(), 200, "application/json")

    async with ApiClient(Configuration(host=canned.url)) as api:
        source = ListWatch.from_kubernetes_asyncio(
            CoreV1Api(api).list_node, _headers={"X-Given": "yes"}
        )
        async with source.list(ListOptions()):
            pass

    assert canned.seen[0].headers["X-Given"] == "yes"


async def test_says_who_we_are(library: Any) -> None:
    async with APIServer(token="right") as server:
        async with listing(server.url, library, token="right") as source:
            assert await read(source) == []
            assert await source.is_served()

        async with listing(server.url, library, token="wrong") as source:
            with pytest.raises(Unauthorized):
                await read(source)


async def test_asks_for_the_token_before_each_request(library: Any) -> None:
    async with APIServer(token="new") as server:

        async def refresh(configuration: Any) -> None:
            configuration.api_key["BearerToken"] = "new"

        async with listing(
            server.url, library, token="old", refresh_api_key_hook=refresh
        ) as source:
            assert await read(source) == []
