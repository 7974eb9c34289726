"""Readers of server-sent events for the tests of web apps."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import SharedInformer
    from aioinformer.web.streams import EventStream

__all__ = ["Page", "Sent", "SentEvents", "handlers_of"]


@dataclass(frozen=True)
class Sent:
    """An event as a browser passes it to a page."""

    name: str
    data: Any
    last_id: str

    def __str__(self) -> str:
        metadata = self.data.get("metadata")
        return f"{self.name} {metadata['name']}" if metadata else self.name


class SentEvents:
    """A parser of event streams, for the used part of the standard."""

    def __init__(self) -> None:
        self.events: list[Sent] = []
        self.comments = 0
        self.last_id = ""
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        for block in blocks:
            fields: dict[str, str] = {}
            for line in block.decode().split("\n"):
                name, _, value = line.partition(": ")
                if line.startswith(":"):
                    self.comments += 1
                elif name == "data" and name in fields:
                    fields[name] += f"\n{value}"
                else:
                    assert name not in fields
                    fields[name] = value

            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                data = json.loads(fields["data"])
                self.events.append(Sent(fields["event"], data, self.last_id))

    @property
    def names(self) -> list[str]:
        return [str(event) for event in self.events]

    def take(self) -> list[str]:
        """Return the events since the last call."""
        names = self.names
        self.events.clear()
        return names


class Page(SentEvents):
    """A reader that keeps its events."""

    def __init__(self, stream: EventStream, **query: str) -> None:
        super().__init__()
        self.stream = stream
        self.query = query
        self.in_order: bool | None = None
        self.chunks = 0
        self.largest = 0
        self.away = False
        self.open = asyncio.Event()
        self.open.set()

    async def write(self, chunk: bytes) -> None:
        await self.open.wait()
        self.chunks += 1
        self.largest = max(self.largest, len(chunk))
        self.feed(chunk)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[asyncio.Task[None]]:
        """Connect, resume after the last event, and disconnect at the end."""
        task = asyncio.create_task(self._read())
        try:
            await asyncio.sleep(1)
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task})

        if not task.cancelled():
            task.result()

    async def _read(self) -> None:
        request = self.stream.check(self.query.items(), self.last_id)
        self.in_order = await self.stream.send(
            request, self.write, disconnected=lambda: self.away
        )


def handlers_of(pods: SharedInformer) -> int:
    return len(pods._processor.listeners)
