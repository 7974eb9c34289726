"""Requests of lists and watches, and reading of list responses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from budget_helpers import Clock
from canned import CannedServer, Stream, list_body

from aioinformer.budget import LoopBudget
from aioinformer.client import Client, ListWatch
from aioinformer.errors import (
    DecodeError,
    Forbidden,
    OptionsError,
    SelectorSyntaxError,
    TransportError,
)
from aioinformer.model import ShardSelector, ranges_of
from aioinformer.model.resources import NODES, PODS
from aioinformer.watch import ListOptions, Selectors, WatchOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.model import KubeObject
    from aioinformer.watch import ListerWatcher


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


@pytest.fixture
async def client(server: CannedServer) -> AsyncIterator[Client]:
    async with Client.from_url(server.url) as client:
        yield client


# ---------------------------------------------------------------- requests


def test_list_watch_implements_lister_watcher() -> None:
    lister: ListerWatcher = ListWatch(Client.from_env(), PODS)

    assert lister.list is not None


@pytest.mark.parametrize(
    ("options", "query"),
    [
        pytest.param(ListOptions(), "", id="newest"),
        pytest.param(
            ListOptions(resource_version="0", limit=500),
            "?limit=500&resourceVersion=0",
            id="first",
        ),
        pytest.param(
            ListOptions(continue_token="a=b", limit=5),
            "?limit=5&continue=a%3Db",
            id="page",
        ),
        pytest.param(
            ListOptions(resource_version="9", resource_version_match="NotOlderThan"),
            "?resourceVersion=9&resourceVersionMatch=NotOlderThan",
            id="match",
        ),
    ],
)
async def test_list_sends_query_of_options(
    server: CannedServer, client: Client, options: ListOptions, query: str
) -> None:
    stream = Stream(server)
    stream.send(list_body())
    stream.end()

    async with ListWatch(client, PODS).list(options):
        pass

    assert server.seen[0].target == f"/api/v1/pods{query}"


@pytest.mark.parametrize(
    ("options", "query"),
    [
        pytest.param(
            WatchOptions(), "watch=true&allowWatchBookmarks=true", id="default"
        ),
        pytest.param(
            WatchOptions(resource_version="5", timeout_seconds=300, bookmarks=False),
            "watch=true&resourceVersion=5&timeoutSeconds=300",
            id="from-a-version",
        ),
        pytest.param(
            WatchOptions(send_initial_events=True),
            "watch=true&allowWatchBookmarks=true&sendInitialEvents=true"
            "&resourceVersionMatch=NotOlderThan",
            id="initial-events",
        ),
    ],
)
async def test_watch_sends_query_of_options(
    server: CannedServer, client: Client, options: WatchOptions, query: str
) -> None:
    Stream(server).end()

    async with ListWatch(client, NODES).watch(options):
        pass

    assert server.seen[0].target == f"/api/v1/nodes?{query}"


async def test_list_watch_selects_by_namespace_labels_and_fields(
    server: CannedServer, client: Client
) -> None:
    Stream(server).end()
    source = ListWatch(
        client,
        PODS,
        namespace="x",
        label_selector="app=web,tier",
        field_selector="spec.nodeName=n",
        gzip=True,
    )

    async with source.watch(WatchOptions(bookmarks=False)):
        pass

    assert server.seen[0].target == (
        "/api/v1/namespaces/x/pods?labelSelector=app%3Dweb%2Ctier"
        "&fieldSelector=spec.nodeName%3Dn&watch=true"
    )
    assert server.seen[0].headers["Accept-Encoding"] == "gzip"
    assert "'app=web,tier'" in repr(source)


async def test_selector_by_shard_is_sent_with_lists_and_watches(
    server: CannedServer, client: Client
) -> None:
    shards = ShardSelector(ranges_of(2)[1:])
    source = ListWatch(client, PODS, shards=shards)
    Stream(server).end()

    async with source.list(ListOptions()):
        pass

    async with source.watch(WatchOptions()):
        pass

    queries = [dict(parse_qsl(urlsplit(it.target).query)) for it in server.seen]
    assert [it["shardSelector"] for it in queries] == [str(shards)] * 2


async def test_selector_of_no_shard_selects_no_name_either(
    server: CannedServer, client: Client
) -> None:
    """Servers that ignore shards respect it."""
    Stream(server).end()
    for field_selector in ("", "spec.nodeName=n"):
        source = ListWatch(
            client, PODS, field_selector=field_selector, shards=ShardSelector(())
        )
        async with source.list(ListOptions()):
            pass

    queries = [dict(parse_qsl(urlsplit(it.target).query)) for it in server.seen]
    assert [it["fieldSelector"] for it in queries] == [
        "metadata.name=.",
        "spec.nodeName=n,metadata.name=.",
    ]


async def test_list_watch_with_other_selectors_has_the_same_resource() -> None:
    client = Client.from_url("http://example.com")
    source = ListWatch(client, PODS, namespace="shop", label_selector="app=web")
    other = source.with_selectors(Selectors(field_selector="metadata.name=a"))

    assert source.selectors == Selectors(label_selector="app=web")
    assert other.selectors == Selectors(field_selector="metadata.name=a")
    assert repr(other) == ("<ListWatch /api/v1/namespaces/shop/pods 'metadata.name=a'>")
    with pytest.raises(SelectorSyntaxError):
        source.with_selectors(Selectors(label_selector="a in"))


def test_list_watch_rejects_invalid_selectors() -> None:
    client = Client.from_env()

    with pytest.raises(SelectorSyntaxError):
        ListWatch(client, PODS, label_selector="a in b")

    with pytest.raises(SelectorSyntaxError):
        ListWatch(client, PODS, field_selector="spec.nodeName")


def test_list_watch_rejects_namespace_of_cluster_scoped_resource() -> None:
    with pytest.raises(OptionsError, match="cluster-scoped"):
        ListWatch(Client.from_env(), NODES, namespace="x")


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_refusal_is_raised_on_entering(
    server: CannedServer, client: Client, verb: str
) -> None:
    server.json({"kind": "Status", "code": 403, "reason": "Forbidden"}, 403)
    source = ListWatch(client, PODS)
    answer: Any = (
        source.list(ListOptions()) if verb == "list" else source.watch(WatchOptions())
    )

    with pytest.raises(Forbidden):
        await answer.__aenter__()


# ---------------------------------------------------------------- lists


async def test_list_yields_objects_while_it_arrives(
    server: CannedServer, client: Client
) -> None:
    body = list_body(*"abcdefgh", token="next")
    half = len(body) // 2
    stream = Stream(server)
    stream.send(body[:half])
    found: list[KubeObject] = []

    async with ListWatch(client, PODS).list(ListOptions()) as page:
        async for objects in page:
            if not found:
                assert page.continue_token == "next"
                stream.send(body[half:])
                stream.end()

            found += objects

        assert page.resource_version == "7"

    assert "".join(it.name for it in found) == "abcdefgh"


@pytest.mark.parametrize("cut", [0, 20, 400])
async def test_truncated_list_raises_transport_error(
    server: CannedServer, client: Client, cut: int
) -> None:
    stream = Stream(server)
    stream.send(list_body("a", "b")[:cut] or b" ")

    async with ListWatch(client, PODS).list(ListOptions()) as page:
        stream.break_off()
        with pytest.raises(TransportError):
            _ = [objects async for objects in page]


async def test_incomplete_list_body_raises_decode_error(
    server: CannedServer, client: Client
) -> None:
    stream = Stream(server)
    stream.send(list_body("a", "b")[:-40])
    stream.end()

    async with ListWatch(client, PODS).list(ListOptions()) as page:
        with pytest.raises(DecodeError):
            _ = [objects async for objects in page]


async def test_list_of_other_kind_does_not_block_loop(
    server: CannedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, budget = Clock(), LoopBudget.current()
    monkeypatch.setattr("aioinformer.budget.perf_counter", clock)
    server.json({"kind": "NodeList", "apiVersion": "v1", "items": []})

    async with ListWatch(client, PODS).list(ListOptions()) as page:
        with pytest.raises(DecodeError):
            _ = [objects async for objects in page]

    clock.work(1000)
    await budget.start()
    assert budget.statistics().stalls == 0


async def test_list_times_out_after_30_silent_seconds(
    server: CannedServer, client: Client
) -> None:
    stream = Stream(server)
    stream.send(b'{"kind":"PodList",')
    loop = asyncio.get_running_loop()
    before = loop.time()

    async with ListWatch(client, PODS).list(ListOptions()) as page:
        with pytest.raises(TransportError, match="nothing for 30 s"):
            _ = [objects async for objects in page]

    assert loop.time() - before == pytest.approx(30, abs=0.5)


async def test_leaving_list_early_closes_connection(
    server: CannedServer, client: Client
) -> None:
    Stream(server).send(list_body("a", "b")[:-40])

    async with ListWatch(client, PODS).list(ListOptions()):
        pass

    await server.gone.wait()


async def test_list_is_read_in_pieces_of_at_most_256_kib(
    server: CannedServer, client: Client
) -> None:
    stream = Stream(server)
    stream.send(b"x" * 1_000_000)
    stream.end()
    sizes = []

    async with client.stream("GET", "/anything") as response:
        while piece := await response.read_some():
            sizes.append(len(piece))

    assert sum(sizes) == 1_000_000
    assert max(sizes) <= 256 * 1024
