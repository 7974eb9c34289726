"""Helpers of the tests of resumed watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fake_source import FakeSource, Silence, Stream, added, thing
from informer_helpers import Even

from aioinformer.errors import TransportError
from aioinformer.watch import RetryWatch

if TYPE_CHECKING:
    from aioinformer.watch import WatchEvent

BROKEN = TransportError("broken")


def retry_watch(
    *watches: Stream | Exception | Silence, version: str = "1", **options: Any
) -> tuple[FakeSource, RetryWatch]:
    source = FakeSource(watches=watches)
    return source, RetryWatch(source, version, rng=Even(), **options)


def events_of(*versions: int) -> list[WatchEvent]:
    return [added(thing(f"o{version}", version)) for version in versions]


def summaries(events: list[WatchEvent]) -> list[str]:
    return [f"{event.type} {event.object.resource_version}" for event in events]


async def take(watch: RetryWatch, number: int) -> list[str]:
    return summaries([await anext(watch) for _ in range(number)])


async def take_all(watch: RetryWatch) -> list[str]:
    return summaries([event async for event in watch])
