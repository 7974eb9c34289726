"""Handlers, processors and reflectors for the tests of informers."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fake_source import FakeSource, FakeStore, Page, Silence, Stream, thing

from aioinformer.informer import (
    Added,
    Deleted,
    Reflector,
    ReflectorOptions,
    SharedInformer,
    Updated,
)
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.handlers.event_handlers import EventHandlers, HandlerOptions
from aioinformer.informer.handlers.listener import Listener
from aioinformer.informer.handlers.processor import Processor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from aioinformer.errors import HandlerError
    from aioinformer.informer.handlers.resync import Resync
    from aioinformer.informer.notifications import Notification

    Handler = Callable[[Notification], Awaitable[None] | None]


async def settle() -> None:
    """Let every task run until it waits; takes no time."""
    for _ in range(100):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(life: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run a coroutine during the block, then cancel it and raise its errors."""
    task = asyncio.create_task(life)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})

    if not task.cancelled():
        task.result()


def keep_busy(seconds: float) -> None:
    """Block the loop, as handlers should not."""
    until = perf_counter() + seconds
    while perf_counter() < until:
        pass


class Even(random.Random):
    """A generator that always draws 0.5, so gaps between attempts are 1.5 d."""

    def random(self) -> float:
        return 0.5


def events(*names: str) -> list[Notification]:
    return [Added(thing(name)) for name in names]


def text_of(event: Notification) -> str:
    """Return kind and name of an event; `missed` is a deletion without final state."""
    match event:
        case Added(obj=obj, initial=initial):
            return f"{'initial' if initial else 'added'} {obj.name}"
        case Updated(new=new):
            return f"updated {new.name}"
        case Deleted(obj=obj, final_state_unknown=unknown):
            return f"{'missed' if unknown else 'deleted'} {obj.name}"


def name_of(event: Notification) -> str:
    return event.new.name if isinstance(event, Updated) else event.obj.name


class Recorder:
    """A handler that records names; subclasses do more."""

    def __init__(self) -> None:
        self.record: list[str] = []

    def __call__(self, event: Notification) -> Awaitable[None] | None:
        self.record.append(name_of(event))
        return None


class Slow(Recorder):
    """A handler that takes some seconds for each event."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.running = 0
        self.together = 0

    async def __call__(self, event: Notification) -> None:
        self.running += 1
        self.together = max(self.together, self.running)
        try:
            await asyncio.sleep(self.seconds)
            self.record.append(name_of(event))
        finally:
            self.running -= 1


class Stage(Processor):
    """A processor that creates its listeners and keeps reported failures."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[HandlerError] = []

    def listen(
        self,
        handler: Handler,
        *,
        name: str = "pods/greet",
        resync: Resync | None = None,
        **options: Any,
    ) -> Listener:
        listener = Listener(
            name,
            EventHandlers(on_event=handler),
            ErrorReporter("pods", self.failures.append),
            HandlerOptions(**options),
            resync=resync,
        )
        self.add(listener)
        return listener


def pods_of(
    *lists: Page | Exception | Silence,
    watches: tuple[Stream | Exception | Silence, ...] = (),
    **options: Any,
) -> SharedInformer:
    source = FakeSource(lists or [Page([thing("a"), thing("b")], version=5)], watches)
    return SharedInformer(source, name="pods", rng=Even(), **options)


def reflector_of(
    source: FakeSource, store: FakeStore | None = None, **options: float
) -> Reflector:
    return Reflector(
        source,
        store or FakeStore(),
        name="pods",
        options=ReflectorOptions(**options) if options else None,  # type: ignore[arg-type]
        rng=Even(),
    )
