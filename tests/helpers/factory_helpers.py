"""Clients and servers for the tests of factories."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from canned import CannedServer, list_body

from aioinformer.client import Client
from aioinformer.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


class Bug(InternalError):
    """A made-up bug of the package."""


def break_requests(
    client: Client,
    plural: str,
    *,
    after: float = 0.0,
    when: asyncio.Event | None = None,
    watches_only: bool = False,
) -> None:
    """Make requests for a resource raise a bug, of which an informer dies.

    Args:
        client: Client of the requests.
        plural: Plural of the resource.
        after: Delay of the error in seconds.
        when: Event before which nothing is raised.
        watches_only: True to answer lists.
    """
    answer = client.stream

    @asynccontextmanager
    async def stream(
        method: str, path: str, params: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        if path.endswith(f"/{plural}") and (
            "watch" in (params or {}) or not watches_only
        ):
            await asyncio.sleep(after)
            if when is not None:
                await when.wait()

            raise Bug(plural)

        async with answer(method, path, params, **options) as response:
            yield response

    client.stream = stream  # type: ignore[method-assign]


NO_NODES = b'{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}'


class FakeClient(Client):
    """A client that can be entered and closed, and never gets a response."""

    def __init__(self, *, broken: Exception | None = None) -> None:
        super().__init__(lambda: NotImplemented)
        self.record: list[str] = []
        self.broken = broken
        self._up = False

    @property
    def entered(self) -> bool:
        return self._up

    async def start(self) -> None:
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken

        self._up = True
        self.record.append("entered")

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._up = False
        self.record.append("left")

    @asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[Any]:
        assert self._up
        self.record.append("asked")
        await asyncio.Event().wait()
        yield


class API(CannedServer):
    """A client of a server with two pods and no nodes, whose watches are silent."""

    def __init__(self) -> None:
        super().__init__()
        self.answer(self._answer)

    @staticmethod
    async def _answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            pods = request.path.endswith("/pods")
            body = list_body("a", "b") if pods else NO_NODES
            return web.Response(body=body, content_type="application/json")

        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await asyncio.Event().wait()
        return response


@asynccontextmanager
async def served() -> AsyncIterator[API]:
    async with API() as api:
        yield api
