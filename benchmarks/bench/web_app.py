"""A web app with informers in its event loop, controlled through a pipe.

It responds to every request with a few bytes of JSON from the start. Each of its
informers has an async handler that only counts.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from aiohttp import web

from aioinformer import Client, KubeObject, Resource, SharedInformerFactory
from aioinformer.web.aiohttp import dashboard
from bench.digest import digest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from multiprocessing.connection import Connection

    Serving = Callable[["Watched"], AbstractAsyncContextManager[int]]

__all__ = ["SERVERS", "run_app"]

TIMEOUT_SECONDS = 300.0


def run_app(
    pipe: Connection,
    server: str,
    loop: str,
    url: str,
    informers: int,
    core: int | None,
    shown: bool = False,
) -> None:
    """Serve until killed.

    It responds to each command when it is done: `rest SECONDS`, `collect`, `freeze`,
    `sync`, `watch EVENTS` and `digests`. Their start and end times are those of
    `time.monotonic()`.

    Args:
        pipe: Pipe for the port, and then for the responses.
        server: A key of `SERVERS`.
        loop: Module of the event loop: "asyncio" or "uvloop".
        url: Address of the API server.
        informers: Number of informers, each of another collection.
        core: Core to use; None for any.
        shown: True to serve the dashboard, too.
    """
    if core is not None:
        os.sched_setaffinity(0, {core})

    factory = importlib.import_module(loop).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_run(pipe, SERVERS[server], url, informers, shown))


async def _run(
    pipe: Connection, serving: Serving, url: str, informers: int, shown: bool
) -> None:
    # As a program does before it serves: an entered client loads aiohttp.
    async with Client.from_url(url) as client:
        watched = Watched(client, informers, shown=shown)
        async with serving(watched) as port:
            pipe.send(port)
            while True:
                command = await asyncio.to_thread(pipe.recv)
                pipe.send(await watched.obey(*command.split()))


class Watched:
    """Informers of the app."""

    def __init__(self, client: Client, informers: int, *, shown: bool) -> None:
        self.shown = shown
        self._factory = SharedInformerFactory(client)
        self._informers = [
            self._factory.informer(Resource("", "v1", f"pods{number}", "Pod"))
            for number in range(informers)
        ]
        self._handlers = [
            it.add_event_handler(self._added, self._updated) for it in self._informers
        ]
        self._events = 0
        self._awaited = 0
        self._seen = asyncio.Event()

    def dashboard(self) -> web.Application:
        """Return the dashboard, which follows the informers from now on."""
        return dashboard(factory=self._factory)

    def body(self) -> bytes:
        """Return the response to every request."""
        return msgspec.json.encode({"pods": len(self._informers[0].store)})

    async def obey(self, command: str, number: str = "0") -> Any:
        """Execute the commands of `run_app`."""
        begun = time.monotonic()
        match command:
            case "collect":
                gc.collect()
            case "freeze":
                gc.collect()
                gc.freeze()
            case "rest":
                await asyncio.sleep(float(number))
            case "sync":
                await self._sync()
            case "watch":
                await self._watch(int(number))
            case "digests":
                return [
                    digest(pod.raw for pod in it.store.list()) for it in self._informers
                ]
            case _:
                raise ValueError(command)

        return begun, time.monotonic()

    async def _sync(self) -> None:
        await self._factory.start()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for handler in self._handlers:
                await handler.wait_synced()

    async def _watch(self, events: int) -> None:
        self._awaited = events
        self._tell()  # the events may arrive before the command
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self._seen.wait()

    async def _added(self, pod: KubeObject) -> None:
        pass

    async def _updated(self, old: KubeObject, new: KubeObject) -> None:
        self._events += 1
        self._tell()

    def _tell(self) -> None:
        if self._events == self._awaited:
            self._seen.set()


# ---------------------------------------------------------------- the web servers


@asynccontextmanager
async def _aiohttp(watched: Watched) -> AsyncIterator[int]:
    async def respond(request: web.Request) -> web.Response:
        return web.Response(body=watched.body(), content_type="application/json")

    app = web.Application()
    app.router.add_get("/", respond)
    if watched.shown:
        app.add_subapp("/dashboard", watched.dashboard())

    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _asgi(watched: Watched) -> AsyncIterator[int]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = watched.body()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(
        app, port=0, lifespan="off", access_log=False, log_level="warning"
    )
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)

        yield server.servers[0].sockets[0].getsockname()[1]
        server.should_exit = True


SERVERS: dict[str, Serving] = {"aiohttp": _aiohttp, "uvicorn": _asgi}
"""Context managers that serve on a free port, by the name of the server."""
