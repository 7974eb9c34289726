"""The seam between the list-watch machine and whatever answers its requests.

The client, a fake, and a replayed recording all implement `ListerWatcher`. Nothing
above this file knows whether there is a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.watch.connectivity import Connectivity
    from aioinformer.watch.events import WatchEvent

__all__ = [
    "Connected",
    "ListOptions",
    "ListPage",
    "ListerWatcher",
    "Selection",
    "ServedCheck",
    "Watch",
    "WatchOptions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """What to list: one page of it, or all of it."""

    resource_version: str = ""
    """`""` for the newest state, `"0"` for whatever the server has at hand."""

    resource_version_match: str = ""
    """`"NotOlderThan"`, `"Exact"`, or empty for the server's own rule."""

    limit: int = 0
    """Objects in one page; 0 for all. A server may ignore it."""

    continue_token: str = ""
    """The token of the page before; then `resource_version` must be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Which changes to watch, and for how long."""

    resource_version: str = ""
    """Changes after this version. `""` and `"0"` begin with the current objects."""

    timeout_seconds: int | None = None
    """After how many seconds the server ends the watch; None leaves it to the server."""

    bookmarks: bool = True
    """Ask for BOOKMARK events, which carry nothing but a newer version."""

    send_initial_events: bool = False
    """Ask for the current objects as ADDED events, ended by an annotated BOOKMARK."""


class ListPage(Protocol):
    """The answer to one list request, read while it arrives.

    Iterate it once, to its end; each step yields the objects that are complete. Who may
    leave before the end, by a cancellation too, closes the iterator: `aclosing()`.
    """

    @property
    def resource_version(self) -> str:
        """The version of the list; complete when the iteration has ended."""

    @property
    def continue_token(self) -> str:
        """Where the next page begins; empty on the last one."""

    @property
    def skipped(self) -> int:
        """Objects left out so far, because they cannot be read."""

    @property
    def unreadable(self) -> list[str]:
        """The keys of those of them that are of the kind asked for.

        An object of which not even the key can be read fails the page: left out, it
        would seem deleted.
        """

    def __aiter__(  # noqa: PYI058 - it has to have an aclose()
        self,
    ) -> AsyncGenerator[list[KubeObject], None]: ...


class ListerWatcher(Protocol):
    """Lists and watches one collection: a resource, perhaps narrowed by selectors.

    Entering the contexts sends the request and waits for the answer's head; leaving
    them closes its connection. They raise `ApiError` for a refusal, `TransportError`
    where the network failed, `DecodeError` where the answer cannot be read, and
    nothing else.
    """

    def list(self, options: ListOptions) -> AbstractAsyncContextManager[ListPage]:
        """Ask for the objects, or for one page of them."""

    def watch(self, options: WatchOptions) -> AbstractAsyncContextManager[Watch]:
        """Ask for the changes."""


@runtime_checkable
class Selection(Protocol):
    """What a `ListerWatcher` may know besides: what belongs to its collection."""

    @property
    def resource(self) -> Resource:
        """What is listed and watched."""

    def selects(self, obj: KubeObject) -> bool:
        """Whether an object of the resource is one that is listed and watched."""


@runtime_checkable
class Connected(Protocol):
    """Optional part of a `ListerWatcher`: the state of its client's connection."""

    @property
    def connectivity(self) -> Connectivity:
        """Whether the server can be reached; the same for all sources of one client."""


@runtime_checkable
class ServedCheck(Protocol):
    """What a `ListerWatcher` may know besides: whether its resource exists at all."""

    async def is_served(self) -> bool:
        """Ask the server, now, whether it names the resource among those it serves.

        Raises:
            ApiError: The server refused to say.
            TransportError: The network failed.
            DecodeError: The answer cannot be read.

        Cancellation:
            Safe.
        """


class Watch(ABC):
    """A stream of changes: an async iterator of events, or of batches of them.

    ::

        async with client.watch(PODS, namespace="shop") as stream:
            async for event in stream:
                ...

    Events and batches may be taken by turns: nothing is lost, nothing comes twice. Only
    one task reads at a time; any code of the same loop may call `stop()`.

    A subclass implements `_fetch()` and `_close()`, and calls `super().__init__()`.
    """

    def __init__(self) -> None:
        # Fetched, and not handed out yet: an iteration takes one at a time.
        self._ready: deque[WatchEvent] = deque()
        self._ended = False
        self._stopped = False

    @property
    def skipped(self) -> int:
        """Events left out so far, because they cannot be read or are not asked for."""
        return 0

    @property
    def stopped(self) -> bool:
        """True once `stop()` was called."""
        return self._stopped

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events: all that have arrived. An empty list is the end.

        Raises:
            TransportError: The connection broke, or its last line was cut off.
            DecodeError: A line is not what a watch sends.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._ready:
            waiting = list(self._ready)
            self._ready.clear()
            return waiting

        if self._ended:
            return []

        events = await self._fetch()
        if self._stopped:
            return []

        if not events:
            self._ended = True

        return events

    def stop(self) -> None:
        """End the watch, at once; whoever waits for events gets the end. Idempotent."""
        if not self._stopped:
            self._stopped = self._ended = True
            self._ready.clear()
            self._close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._ready:
            self._ready.extend(await self.next_batch())

        if not self._ready:
            raise StopAsyncIteration

        return self._ready.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    async def _fetch(self) -> list[WatchEvent]:
        """Wait for events that nobody has had yet; none are the end.

        Raises what `next_batch()` does. A cancellation must lose nothing.
        """

    @abstractmethod
    def _close(self) -> None:
        """Let go of what it holds, and wake a `_fetch()` that waits; called once."""
