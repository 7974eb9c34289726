"""Runs of `aioinformer doctor`, and a front of a server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from aiohttp import web

from aioinformer.cli.doctor import DoctorOptions, doctor
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    import pytest

    from aioinformer.cli.connection import ConnectionOptions

__all__ = ["HANG", "TOKEN", "Front", "Outcome", "examined", "serving"]

TOKEN = "an-admins-token"

HANG = "hang"
"""A response that never arrives."""

# Hop-by-hop headers, which are not passed on.
_OF_A_HOP = {"transfer-encoding", "content-length", "connection", "date", "server"}


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run, from its JSON."""

    status: int
    document: dict[str, Any]

    def mark(self, step: str, resource: str | None = None) -> str:
        return str(self._finding(step, resource)["mark"])

    def text(self, step: str, resource: str | None = None) -> str:
        return str(self._finding(step, resource)["text"])

    @property
    def failed(self) -> list[str]:
        """Return the failed steps."""
        return [
            it["step"] for it in self.document["findings"] if it["mark"] == "failed"
        ]

    @property
    def rules(self) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] = self.document["rules"]
        return rules

    def _finding(self, step: str, resource: str | None) -> dict[str, Any]:
        (found,) = [
            it
            for it in self.document["findings"]
            if (it["step"], it["resource"]) == (step, resource)
        ]
        return dict(found)


async def examined(
    target: ConnectionOptions,
    *resources: str,
    capfd: pytest.CaptureFixture[str],
    **options: Any,
) -> Outcome:
    """Run the doctor in this process, for pods by default, and read its JSON."""
    more: dict[str, Any] = {"resources": resources} if resources else {}
    capfd.readouterr()
    status = await doctor(DoctorOptions(report="json", **more, **options), target)
    out, err = capfd.readouterr()
    assert err == ""
    return Outcome(status, json.loads(out))


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[APIServer]:
    """Run a server with three pods that sends bookmarks at once."""
    async with APIServer(
        token=TOKEN, auto_namespaces=True, bookmark_seconds=0.02, **options
    ) as server:
        for name in ("a", "b", "c"):
            server.create(PODS, {"metadata": {"name": name}}, namespace="shop")

        yield server


class Front:
    """A front of a server, with TLS on request, that passes other requests on.

    Attributes:
        answers: Own responses by path: a document, the status of a refusal, the text
            of a web page, or `HANG`.
        refused: Query parameters that are refused.
        url: Address.
    """

    def __init__(self, upstream: str, context: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Any] = {}
        self.refused: set[str] = set()
        self.url = ""
        self._upstream = upstream
        self._context = context

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        context = self._context
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        answer = self.answers.get(request.path)
        if self.refused & set(request.query):
            answer = 422

        if answer is None:
            return await self._pass_on(request)

        if answer == HANG:
            await asyncio.Event().wait()

        if isinstance(answer, int):
            status = {
                "kind": "Status",
                "message": "refused by the test",
                "code": answer,
            }
            return web.json_response(status, status=answer)

        if isinstance(answer, str):
            return web.Response(text=answer, content_type="text/html")

        return web.json_response(answer)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        async with self._session.request(
            request.method,
            f"{self._upstream}{request.path}",
            params=request.query,
            data=await request.read() or None,
            skip_auto_headers=["Content-Type"],
            headers={k: v for k, v in request.headers.items() if k != "Host"},
        ) as answer:
            headers = {
                k: v for k, v in answer.headers.items() if k.lower() not in _OF_A_HOP
            }
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)

        return response
