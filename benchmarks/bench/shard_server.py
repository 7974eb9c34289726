"""A test server with pods, and a relay for each client that counts what it receives.

It runs in a process of its own, and obeys commands through a pipe.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from aioinformer.model.resources import LEASES, PODS
from aioinformer.testing import APIServer
from bench.corpus import pods

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["CHANGED", "serve"]

CHANGED = "changed"
"""Label of pods that were changed."""

CHUNK_BYTES = 1 << 16


def serve(pipe: Connection, count: int, relays: int, filters: bool) -> None:
    """Serve pods until killed. The first message has the address of each relay.

    Args:
        pipe: Pipe for commands and answers.
        count: Number of pods.
        relays: Number of relays.
        filters: True if the server filters by shard.
    """
    asyncio.run(_serve(pipe, count, relays, filters=filters))


async def _serve(pipe: Connection, count: int, relays: int, *, filters: bool) -> None:
    gates = {"ShardedListAndWatch": filters}
    async with (
        APIServer(auto_namespaces=True, feature_gates=gates) as server,
        AsyncExitStack() as stack,
    ):
        for body in pods(count):
            del body["metadata"]["resourceVersion"]
            server.create(PODS, body)

        port = int(server.url.rpartition(":")[2])
        counted = [Relay(port) for _ in range(relays)]
        ports = [await it.open(stack) for it in counted]
        pipe.send([f"http://127.0.0.1:{it}" for it in ports])
        while True:
            command, *arguments = await asyncio.to_thread(pipe.recv)
            pipe.send(await _answer(server, counted, command, *arguments))


async def _answer(
    server: APIServer, relays: list[Relay], command: str, *arguments: Any
) -> Any:
    match command, *arguments:
        case ("bytes",):
            return [it.received for it in relays]
        case ("requests",):
            return len([it for it in server.requests if it.resource == LEASES.plural])
        case "change", int(count):
            for body in server.objects(PODS)[:count]:
                metadata = body["metadata"]
                labels = {"metadata": {"labels": {CHANGED: "yes"}}}
                server.patch(
                    PODS, metadata["name"], labels, namespace=metadata["namespace"]
                )
                await asyncio.sleep(0.001)  # others are served, such as renewals

            return count
        case _:
            raise ValueError(command)


class Relay:
    """Port whose connections continue to the server.

    Attributes:
        received: Bytes that the client has received.
    """

    def __init__(self, port: int) -> None:
        self.received = 0
        self._port = port

    async def open(self, stack: AsyncExitStack) -> int:
        """Listen for the time of a stack; return the port."""
        listener = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        await stack.enter_async_context(listener)
        port: int = listener.sockets[0].getsockname()[1]
        return port

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # A client that is killed resets its connections.
        with suppress(ConnectionError):
            there = await asyncio.open_connection("127.0.0.1", self._port)
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._pump(reader, there[1]))
                await self._pump(there[0], writer, counts=True)
                sending.cancel()

        writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        counts: bool = False,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                self.received += len(data) if counts else 0
                writer.write(data)
                await writer.drain()

        writer.close()
