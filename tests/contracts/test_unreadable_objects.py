"""Unreadable objects and lists must neither seem deleted nor stay forever.

The server sends data that a kube-apiserver never would, and custom objects nested
deeper than decoders follow, which a kube-apiserver does send.
"""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from canned import CannedServer
from informer_helpers import running, text_of
from json_helpers import nested, written

from aioinformer.client import Client, ListWatch
from aioinformer.errors import DecodeError
from aioinformer.informer import ReflectorOptions, SharedInformer
from aioinformer.model.resource import Resource
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
TYPE = {"apiVersion": "example.com/v1", "kind": "Widget"}
DEEP = nested(1100)

WAYS: dict[str, dict[str, Any]] = {
    "pages": {},
    "stream": {"streaming_list": True},
}


def widget(name: str, version: int = 1, data: bytes = b"{}", **metadata: Any) -> bytes:
    """Make a custom object as a server writes it: with sorted fields."""
    identity = {"name": name, "namespace": "shop", "resourceVersion": str(version)}
    return (
        b'{"apiVersion":"example.com/v1","data":%b,"kind":"Widget","metadata":%b}'
        % (
            data,
            written({**identity, "uid": f"uid-of-{name}", **metadata}),
        )
    )


def line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


class Server:
    """A server that lists its items, and sends given lines to watches."""

    def __init__(self) -> None:
        self.canned = CannedServer()
        self.canned.answer(self._answer)
        self.version = 10
        self.items: list[bytes] = []
        self.instead = b""
        """Body of each list, unless empty."""

        self.lists = 0
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, *lines: bytes) -> None:
        """Send lines to the watch; an empty one ends it."""
        for it in lines:
            self._lines.put_nowait(it)

    def end_history(self) -> None:
        """End the watch so that a list follows."""
        self.send(line("ERROR", b'{"kind":"Status","code":410,"reason":"Expired"}'))
        self.send(b"")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            return web.Response(body=self._list(), content_type="application/json")

        response = web.StreamResponse()
        await response.prepare(request)
        if "sendInitialEvents" in request.query:
            self.lists += 1
            await response.write(self._stream())

        while text := await self._lines.get():
            await response.write(text)

        return response

    def _list(self) -> bytes:
        head = b'{"apiVersion":"example.com/v1","items":['
        end = (
            b'],"kind":"WidgetList","metadata":{"resourceVersion":"%d"}}' % self.version
        )
        return self.instead or head + b",".join(self.items) + end

    def _stream(self) -> bytes:
        end = {
            "resourceVersion": str(self.version),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
        bookmark = line("BOOKMARK", written({**TYPE, "metadata": end}))
        return b"".join(line("ADDED", it) for it in self.items) + bookmark


class Run:
    """An informer of a server, and the events of its handler."""

    def __init__(self, server: Server, informer: SharedInformer) -> None:
        self.server = server
        self.informer = informer
        self.received: list[str] = []
        informer.add_event_handler(
            on_event=lambda it: self.received.append(text_of(it))
        )

    @property
    def names(self) -> list[str]:
        return sorted(it.name for it in self.informer.lister.list())

    async def settled(self, seconds: float = 5.0) -> list[str]:
        """Wait and return the events since the last call."""
        await asyncio.sleep(seconds)
        received, self.received[:] = list(self.received), []
        return received


@asynccontextmanager
async def informed(*items: bytes, **options: Any) -> AsyncIterator[Run]:
    server = Server()
    server.items = list(items)
    async with server.canned, Client.from_url(server.canned.url) as client:
        source = ListWatch(client, WIDGETS)
        chosen = ReflectorOptions(**options)
        informer = SharedInformer(source, options=chosen, rng=random.Random(1))
        run = Run(server, informer)
        async with running(informer.run()):
            await informer.wait_synced(timeout=10)
            await run.settled()
            yield run


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_object_nested_too_deeply_is_stored(way: dict[str, Any]) -> None:
    async with informed(widget("a"), widget("deep", data=DEEP), **way) as run:
        (deep,) = (it for it in run.informer.lister.list() if it.name == "deep")

        assert run.names == ["a", "deep"]
        assert (deep.uid, deep.resource_version) == ("uid-of-deep", "1")
        assert run.informer.status.degraded == 0
        with pytest.raises(DecodeError):
            deep.to_dict()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_relist_keeps_an_object_nested_too_deeply(
    way: dict[str, Any],
) -> None:
    async with informed(widget("a"), widget("b"), **way) as run:
        run.server.items = [widget("a", 11, DEEP), widget("c", 12, DEEP)]
        run.server.end_history()
        received = await run.settled()

    assert run.server.lists == 2
    assert received == ["missed b", "updated a", "added c"]


async def test_G6_deletion_of_object_nested_too_deeply_is_reported() -> None:
    async with informed(widget("a"), widget("b")) as run:
        run.server.send(line("MODIFIED", widget("a", 11, DEEP)))
        run.server.send(line("DELETED", widget("a", 12, DEEP)))
        received = await run.settled()

        assert received == ["updated a", "deleted a"]
        assert run.names == ["b"]
        assert run.server.lists == 1


async def test_G6_deletion_of_object_with_unreadable_labels_is_reported() -> None:
    async with informed(widget("a"), widget("b")) as run:
        run.server.send(line("DELETED", widget("a", 12, labels=7)))

        assert await run.settled() == ["deleted a"]
        assert run.names == ["b"]


async def test_G6_unreadable_deletion_causes_a_relist() -> None:
    async with informed(widget("a"), widget("b")) as run:
        run.server.items, run.server.version = [widget("b")], 12
        run.server.send(line("DELETED", written({**TYPE, "metadata": 7})))
        received = await run.settled()

        assert received == ["missed a"]
        assert run.names == ["b"]


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(b"{}", id="empty"),
        pytest.param(written({**TYPE, "metadata": {}}), id="no-name"),
        pytest.param(written({**TYPE, "metadata": 7}), id="no-metadata"),
        pytest.param(b'{"x":%b}' % DEEP, id="deep"),
    ],
)
async def test_G6_list_with_a_nameless_item_deletes_nothing(
    item: bytes,
) -> None:
    async with informed(widget("a"), widget("b")) as run:
        run.server.items = [item]
        run.server.end_history()
        received = await run.settled(60)

        assert (received, run.names) == ([], ["a", "b"])
        assert isinstance(run.informer.status.last_error, DecodeError)
        assert 3 <= run.server.lists <= 12

        run.server.items = [widget("b")]
        assert await run.settled(90) == ["missed a"]


NO_LISTS = {
    "items-alone": b'{"items":[]}',
    "no-kind": b'{"metadata":{"resourceVersion":"11"},"items":[]}',
    "no-metadata": b'{"kind":"WidgetList","apiVersion":"example.com/v1","items":[]}',
    "no-version": b'{"kind":"WidgetList","metadata":{},"items":[]}',
    "no-kind-behind": b'{"items":[],"metadata":{"resourceVersion":"11"}}',
    "kind-of-an-object": b'{"kind":"Widget","metadata":{"resourceVersion":"11"},"items":[]}',
    "status": b'{"kind":"Status","metadata":{"resourceVersion":"11"},"items":[]}',
}


@pytest.mark.parametrize("body", NO_LISTS.values(), ids=NO_LISTS)
async def test_G6_response_that_is_no_list_deletes_nothing(
    body: bytes,
) -> None:
    async with informed(widget("a"), widget("b")) as run:
        run.server.instead = body
        run.server.end_history()
        received = await run.settled(60)

        assert (received, run.names) == ([], ["a", "b"])
        assert isinstance(run.informer.status.last_error, DecodeError)

        run.server.instead, run.server.version = b"", 12
        run.server.items = [widget("a")]
        assert await run.settled(90) == ["missed b"]


@pytest.mark.parametrize(
    "body",
    [b'{"items":[]}', b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}'],
)
async def test_client_list_raises_on_a_response_that_is_no_list(
    body: bytes,
) -> None:
    server = Server()
    server.instead = body
    async with server.canned, Client.from_url(server.canned.url) as client:
        with pytest.raises(DecodeError):
            await client.list(PODS)


async def test_lister_json_is_valid_json_whatever_the_server_sent() -> None:
    async with informed(widget("a"), widget("b")) as run:
        front = (
            b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":%b,"spec":%b}'
        )
        metadata = written({"name": "c", "namespace": "shop", "resourceVersion": "11"})
        run.server.send(line("ADDED", front % (metadata, b"{}nonsense{}")))
        await run.settled()
        lister = run.informer.lister

        for text in (lister.json(), lister.namespace("shop").json()):
            items = json.loads(text)["items"]
            assert sorted(it["metadata"]["name"] for it in items) == ["a", "b"]

        assert run.names == ["a", "b", "c"]
        assert run.informer.status.degraded == 1


async def test_relist_keeps_the_known_state_of_object_with_unreadable_labels() -> None:
    async with informed(widget("a"), widget("b")) as run:
        other = widget("b", 12).replace(b"example.com/v1", b"example.com/v2")
        run.server.items = [widget("a", 11, labels=7), other]
        run.server.end_history()
        received = await run.settled()

        assert (received, run.names) == ([], ["a", "b"])
        assert run.informer.status.degraded == 2


async def test_error_event_nested_too_deeply_ends_the_watch() -> None:
    async with informed(widget("a")) as run:
        run.server.items = [widget("a"), widget("b", 11)]
        status = b'{"kind":"Status","code":410,"reason":"Expired","details":%b}' % DEEP
        run.server.send(line("ERROR", status), b"")
        received = await run.settled()

    assert received == ["added b"]
    assert run.server.lists == 2
