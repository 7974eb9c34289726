"""A `ListerWatcher` with scripted responses, and a reflector's store in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from conftest import pod

from aioinformer.model import KubeObject
from aioinformer.watch import (
    EventType,
    ListOptions,
    Watch,
    WatchEvent,
    WatchOptions,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

    from aioinformer.cache.deltas import Delta

# ---------------------------------------------------------------- objects and events


def thing(name: str, version: int | str = 1, uid: str = "", **more: Any) -> KubeObject:
    """Make a pod of a version; its uid follows from its name unless given."""
    metadata = {"resourceVersion": str(version)} | ({"uid": uid} if uid else {})
    return KubeObject.of(pod(name, metadata=metadata, **more))


def added(obj: KubeObject) -> WatchEvent:
    return WatchEvent(EventType.ADDED, obj)


def modified(obj: KubeObject) -> WatchEvent:
    return WatchEvent(EventType.MODIFIED, obj)


def deleted(obj: KubeObject) -> WatchEvent:
    return WatchEvent(EventType.DELETED, obj)


def bookmark(version: int | str) -> WatchEvent:
    metadata = {"resourceVersion": str(version)}
    return WatchEvent(
        EventType.BOOKMARK, KubeObject.of({"kind": "Pod", "metadata": metadata})
    )


def initial_events_end(version: int | str, said: str = "true") -> WatchEvent:
    """Make the bookmark that ends the initial events of a stream."""
    annotations = {"k8s.io/initial-events-end": said}
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    return WatchEvent(
        EventType.BOOKMARK, KubeObject.of({"kind": "Pod", "metadata": metadata})
    )


def error_event(code: int, reason: str = "", **more: Any) -> WatchEvent:
    status = {"kind": "Status", "code": code, "reason": reason, **more}
    return WatchEvent(EventType.ERROR, KubeObject.of(status))


# ---------------------------------------------------------------- responses


@dataclass
class Page:
    """Response to a list request."""

    objects: list[KubeObject] = field(default_factory=list)
    version: int | str = 1
    token: str = ""
    skipped: int = 0
    unreadable: list[str] = field(default_factory=list)
    error: Exception | None = None
    """Error to raise after the objects, instead of the end."""

    head: float = 0.0
    """Seconds until the response starts."""

    seconds: float = 0.0
    """Seconds from then until the objects arrive."""

    piece: int = 2
    """Number of objects in one step of the iteration."""


END: Literal["end"] = "end"
Step: TypeAlias = "list[WatchEvent] | Exception | float | Literal['end']"


class Stream(Watch):
    """Response to a watch request: the given steps, then silence.

    A step is a batch of events, an error to be raised, seconds to wait, or `END`.
    """

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self._steps = deque(steps)
        self._more = asyncio.Event()
        self._nap: asyncio.Future[None] | None = None
        self._skipped = 0

    @property
    def skipped(self) -> int:
        return self._skipped

    @skipped.setter
    def skipped(self, number: int) -> None:
        self._skipped = number

    def send(self, *events: WatchEvent) -> None:
        """Deliver a batch of events."""
        self.then(list(events))

    def then(self, step: Step) -> None:
        """Append a step."""
        self._steps.append(step)
        self._more.set()

    def _close(self) -> None:
        self.then(END)
        self._wake(self._nap)

    async def _fetch(self) -> list[WatchEvent]:
        while not self.stopped:
            while not self._steps:
                self._more.clear()
                await self._more.wait()

            step = self._steps.popleft()
            if isinstance(step, list):
                return step

            if isinstance(step, Exception):
                raise step

            if step == END:
                break

            await self._sleep(float(step))

        return []

    async def _sleep(self, seconds: float) -> None:
        """Sleep until stopped; the rest of a cancelled sleep is the next step."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self._nap = loop.create_future()
        timer = loop.call_at(until, self._wake, self._nap)
        try:
            await self._nap
        except asyncio.CancelledError:
            self._steps.appendleft(max(until - loop.time(), 0.0))
            raise
        finally:
            timer.cancel()
            self._nap = None

    @staticmethod
    def _wake(nap: asyncio.Future[None] | None) -> None:
        if nap is not None and not nap.done():
            nap.set_result(None)


class Silence:
    """A response that never starts."""


@dataclass(frozen=True)
class Request:
    """A received request, and its time on the loop's clock."""

    options: ListOptions | WatchOptions
    time: float

    @property
    def verb(self) -> str:
        """Return `list`, `watch`, or `stream` for a watch with initial events."""
        if isinstance(self.options, ListOptions):
            return "list"

        return "stream" if self.options.send_initial_events else "watch"

    @property
    def version(self) -> str:
        return self.options.resource_version

    def __str__(self) -> str:
        token = getattr(self.options, "continue_token", "")
        return f"{self.verb} {token or repr(self.version)}"


# ---------------------------------------------------------------- the source


class FakeSource:
    """A source that answers lists and watches in the order of its script.

    After the last list, that list is repeated. After the last watch, watches are
    silent. Errors in the script are raised.
    """

    def __init__(
        self,
        lists: Iterable[Page | Exception | Silence] = (),
        watches: Iterable[Stream | Exception | Silence] = (),
    ) -> None:
        self.lists = deque(lists or [Page()])
        self.watches = deque(watches)
        self.requests: list[Request] = []
        self.newest: int | str | Page | Exception | Silence = 10**9
        """The version, or the page, that a check of a silent watch finds."""
        self.checks: list[float] = []
        self.open = 0
        """Answers that were begun and not left."""

    @property
    def requested(self) -> list[str]:
        """Return the requests in short: `list '0'`, `list token`, `watch '7'`."""
        return [str(request) for request in self.requests]

    @property
    def times(self) -> list[float]:
        return [request.time for request in self.requests]

    @asynccontextmanager
    async def list(self, options: ListOptions) -> AsyncIterator[FakePage]:
        if options == ListOptions(limit=1):
            self.checks.append(asyncio.get_running_loop().time())
            match self.newest:
                case Exception() as error:
                    raise error
                case Silence():
                    await asyncio.Event().wait()
                case Page() as page:
                    yield FakePage(page)
                case version:
                    yield FakePage(Page(version=version))

            return

        self._note(options)
        answer = self.lists.popleft() if len(self.lists) > 1 else self.lists[0]
        async with self._answered(answer):
            assert isinstance(answer, Page)
            yield FakePage(answer)

    @asynccontextmanager
    async def watch(self, options: WatchOptions) -> AsyncIterator[Stream]:
        self._note(options)
        answer = self.watches.popleft() if self.watches else Stream()
        async with self._answered(answer):
            assert isinstance(answer, Stream)
            yield answer

    def _note(self, options: ListOptions | WatchOptions) -> None:
        self.requests.append(Request(options, asyncio.get_running_loop().time()))

    @asynccontextmanager
    async def _answered(self, answer: object) -> AsyncIterator[None]:
        self.open += 1
        try:
            await asyncio.sleep(0)  # a real request takes at least one turn, too
            if isinstance(answer, Exception):
                raise answer

            if isinstance(answer, Silence):
                await asyncio.Event().wait()

            if isinstance(answer, Page):
                await asyncio.sleep(answer.head)

            yield
        finally:
            self.open -= 1


class ServedSource(FakeSource):
    """A source with scripted answers to `is_served()`; the last one is repeated."""

    def __init__(
        self,
        lists: Iterable[Page | Exception | Silence] = (),
        watches: Iterable[Stream | Exception | Silence] = (),
        served: Iterable[bool | Exception | Silence] = (False,),
    ) -> None:
        super().__init__(lists, watches)
        self.served = deque(served)
        self.served_checks: list[float] = []

    async def is_served(self) -> bool:
        self.served_checks.append(asyncio.get_running_loop().time())
        answer = self.served.popleft() if len(self.served) > 1 else self.served[0]
        async with self._answered(answer):
            assert isinstance(answer, bool)
            return answer


class FakePage:
    def __init__(self, page: Page) -> None:
        self._page = page

    @property
    def resource_version(self) -> str:
        return str(self._page.version)

    @property
    def continue_token(self) -> str:
        return self._page.token

    @property
    def skipped(self) -> int:
        return self._page.skipped

    @property
    def unreadable(self) -> list[str]:
        return self._page.unreadable

    async def __aiter__(self) -> AsyncGenerator[list[KubeObject], None]:
        page = self._page
        await asyncio.sleep(page.seconds)
        for start in range(0, len(page.objects), page.piece):
            yield page.objects[start : start + page.piece]

        if page.error is not None:
            raise page.error


# ---------------------------------------------------------------- a store


class FakeStore:
    """A reflector's store that applies everything at once."""

    def __init__(self) -> None:
        self.objects: dict[str, KubeObject] = {}
        self.staged: list[KubeObject] | None = None
        self.version = ""
        self.fed: list[tuple[list[Delta[KubeObject]], str]] = []
        self.commits: list[str] = []
        self.discards = 0
        self.after_reset: list[bool] = []
        self.unreadable: list[str] = []
        self.deleted: list[str] = []
        self.cleared = 0

    def known(self, key: str) -> KubeObject | None:
        return self.objects.get(key)

    async def stage(
        self, objects: list[KubeObject], *, after_reset: bool = False
    ) -> None:
        self.staged = [*(self.staged or ()), *objects]
        self.after_reset.append(after_reset)

    def stage_deleted(self, keys: list[str]) -> None:
        self.staged = [obj for obj in self.staged or () if obj.key not in keys]
        self.deleted += keys

    async def stage_unreadable(self, keys: list[str]) -> None:
        self.unreadable += keys

    async def discard(self) -> None:
        self.discards += 1
        self.staged = None

    async def commit(
        self, resource_version: str, *, after_reset: bool = False, selects: Any = None
    ) -> None:
        self.objects = {obj.key: obj for obj in self.staged or ()}
        self.staged = None
        self.commits.append(resource_version)
        self.version = resource_version

    async def clear(self) -> None:
        self.cleared += 1
        self.objects = {}

    async def feed(
        self, deltas: list[Delta[KubeObject]], resource_version: str
    ) -> None:
        self.fed.append((deltas, resource_version))
        self.version = resource_version
        for delta in deltas:
            if delta.type == "Deleted":
                self.objects.pop(delta.object.key, None)
            else:
                self.objects[delta.object.key] = delta.object

    async def narrow(self, selects: Callable[[KubeObject], bool]) -> None:
        self.objects = {key: it for key, it in self.objects.items() if selects(it)}

    async def widen(
        self, objects: list[KubeObject], resource_version: str, repeated: int
    ) -> None:
        self.objects |= {it.key: it for it in objects}
        self.version = resource_version

    async def applied(self) -> None:
        pass

    @property
    def names(self) -> list[str]:
        """Return the stored objects as `name@version`."""
        return states_of(self.objects.values())


def states_of(objects: Iterable[KubeObject]) -> list[str]:
    return [f"{obj.name}@{obj.resource_version}" for obj in objects]
