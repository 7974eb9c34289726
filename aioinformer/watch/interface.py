"""Interfaces of watches and of their sources.

The client, a fake and a replayed recording implement `ListerWatcher`. Code that uses it
does not depend on a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from aioinformer.errors import OptionsError
from aioinformer.model.selectors import FieldSelector, LabelSelector
from aioinformer.model.shards import ShardSelector

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.watch.connectivity import Connectivity
    from aioinformer.watch.events import WatchEvent

__all__ = [
    "Connected",
    "Identified",
    "ListOptions",
    "ListPage",
    "ListerWatcher",
    "ManagedFieldsOptOut",
    "Reselectable",
    "Selection",
    "Selectors",
    "ServedCheck",
    "ShardedPage",
    "Watch",
    "WatchOptions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """Options of a list request, for one page or for all objects."""

    resource_version: str = ""
    """`""` for the newest state, `"0"` for any state that the server has."""

    resource_version_match: str = ""
    """`"NotOlderThan"`, `"Exact"`, or empty for the server's default."""

    limit: int = 0
    """Objects in one page; 0 for all. A server may ignore it."""

    continue_token: str = ""
    """Token of the previous page; then `resource_version` must be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Options of a watch request."""

    resource_version: str = ""
    """Version to start after. `""` and `"0"` begin with the current objects."""

    timeout_seconds: int | None = None
    """Seconds after which the server ends the watch; None for its default."""

    grace_seconds: float = 10.0
    """Seconds after which the client ends a watch that the server should have ended."""

    bookmarks: bool = True
    """True to send BOOKMARK events, which have only a newer version."""

    send_initial_events: bool = False
    """True to send current objects as ADDED events, then an annotated BOOKMARK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selectors:
    """Selectors of a list-watch; an object is selected if all of them select it.

    Raises:
        OptionsError: If `shards` is no `ShardSelector`.
    """

    label_selector: str = ""
    """Label selector in kubectl's syntax; empty for all."""

    field_selector: str = ""
    """Field selector in kubectl's syntax; empty for all."""

    shards: ShardSelector | None = None
    """Selector by a hash of each object's uid or namespace; None for all."""

    def __post_init__(self) -> None:
        given: Any = self.shards
        if not isinstance(given, ShardSelector | None):
            raise OptionsError(f"shards must be a ShardSelector, not {given!r}")

    def selects(self, obj: KubeObject) -> bool:
        """Return True if an object is selected.

        Field selectors are evaluated as far as possible on the client: a server may
        know fields under other names, or with defaults.
        """
        return (
            LabelSelector.parse(self.label_selector).matches(obj)
            and FieldSelector.parse(self.field_selector).matches(obj)
            and (self.shards is None or self.shards.selects(obj))
        )


class ListPage(Protocol):
    """Response to one list request, read while it arrives.

    Iterate it once, to its end. Each step yields the objects that are complete. Code
    that may leave before the end, also by a cancellation, closes the iterator with
    `aclosing()`.
    """

    @property
    def resource_version(self) -> str:
        """Version of the list; known when the iteration has ended."""

    @property
    def continue_token(self) -> str:
        """Token of the next page; empty on the last one."""

    @property
    def skipped(self) -> int:
        """Number of objects left out so far, because they cannot be read."""

    @property
    def unreadable(self) -> list[str]:
        """Keys of the unreadable objects of the requested kind.

        An object whose key cannot be read fails the page. Without it, the object would
        seem deleted.
        """

    def __aiter__(  # noqa: PYI058 - it has to have an aclose()
        self,
    ) -> AsyncGenerator[list[KubeObject], None]: ...


@runtime_checkable
class ShardedPage(Protocol):
    """Optional part of a `ListPage`: the server's answer to a `shardSelector`."""

    @property
    def sharded(self) -> bool:
        """True if the list shows that the server has filtered it by shard.

        Known when the iteration has ended.
        """


class ListerWatcher(Protocol):
    """Source that lists and watches one collection: a resource, or a selection of it.

    Entering the contexts sends the request and waits for the head of the response.
    Leaving them closes its connection. They raise `ApiError` for a refusal,
    `TransportError` if the network failed, `DecodeError` if the response cannot be
    read, and nothing else.
    """

    def list(self, options: ListOptions) -> AbstractAsyncContextManager[ListPage]:
        """Request all objects, or one page of them."""

    def watch(self, options: WatchOptions) -> AbstractAsyncContextManager[Watch]:
        """Request changes."""


@runtime_checkable
class Selection(Protocol):
    """Optional part of a `ListerWatcher`: membership in its collection."""

    @property
    def resource(self) -> Resource:
        """Listed and watched resource."""

    def selects(self, obj: KubeObject) -> bool:
        """Return whether an object of the resource is in the collection."""


@runtime_checkable
class Reselectable(Selection, Protocol):
    """Optional part of a `ListerWatcher`: other selections of the same collection."""

    @property
    def selectors(self) -> Selectors:
        """Selectors of its objects."""

    def with_selectors(self, selectors: Selectors) -> ListerWatcher:
        """Return a source with other selectors, and everything else the same.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed.
        """


@runtime_checkable
class ManagedFieldsOptOut(Protocol):
    """Optional part of a `ListerWatcher`: objects without their managed fields."""

    def without_managed_fields(self) -> ListerWatcher:
        """Return a source that requests no managed fields, and is the same otherwise.

        The server may ignore that and send them.
        """


@runtime_checkable
class Connected(Protocol):
    """Optional part of a `ListerWatcher`: the state of its client's connection."""

    @property
    def connectivity(self) -> Connectivity:
        """Reachability of the server, shared by all sources of one client."""


@runtime_checkable
class Identified(Protocol):
    """Optional part of a `ListerWatcher`: the identity of its server and cluster."""

    async def endpoint_print(self) -> str:
        """Return a print of the server's certificate authority or address.

        Sends no request. Equal in all processes that use the same endpoint; empty if
        that cannot be known. It has no credentials.

        Raises:
            OptionsError: If the client was never entered.
            OSError: If the process cannot open more files just now.

        Cancellation:
            Safe.
        """

    async def cluster_uid(self) -> str:
        """Return the uid of the cluster, by a request; empty if it cannot be known.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response cannot be read.

        Cancellation:
            Safe.
        """


@runtime_checkable
class ServedCheck(Protocol):
    """Optional part of a `ListerWatcher`: whether its resource exists."""

    async def is_served(self) -> bool:
        """Return whether the server serves the resource now, by a request.

        Raises:
            ApiError: If the server refused the request.
            TransportError: If the network failed.
            DecodeError: If the response cannot be read.

        Cancellation:
            Safe.
        """


class Watch(ABC):
    """Stream of changes: an async iterator of events, or of batches of them.

    ::

        async with client.watch(PODS, namespace="shop") as stream:
            async for event in stream:
                ...

    Events and batches may be taken by turns: nothing is lost or repeated. Only one task
    reads at a time. Any code of the same loop may call `stop()`.

    A subclass implements `_close()` and either `_fetch()` or `next_batch()`, and calls
    `super().__init__()`.
    """

    def __init__(self) -> None:
        # Fetched events that were not returned yet: an iteration returns one at a time.
        self._ready: deque[WatchEvent] = deque()
        self._ended = False
        self._stopped = False

    @property
    def skipped(self) -> int:
        """Number of events left out so far: unreadable ones, or of another kind."""
        return 0

    @property
    def stopped(self) -> bool:
        """True after `stop()`."""
        return self._stopped

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events and return all that have arrived; an empty list is the end.

        Raises:
            TransportError: If the connection broke, or its last line was cut off.
            DecodeError: If a line is not an event.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._ready:
            return self._take_ready()

        if self._ended:
            return []

        events = await self._fetch()
        if self._stopped:
            return []

        if not events:
            self._ended = True

        return events

    def stop(self) -> None:
        """End the watch at once, also for a waiting reader. Idempotent."""
        if not self._stopped:
            self._stopped = self._ended = True
            self._ready.clear()
            self._close()

    def _take_ready(self) -> list[WatchEvent]:
        """Return the fetched events that were not returned yet."""
        events = list(self._ready)
        self._ready.clear()
        return events

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

    async def _fetch(self) -> list[WatchEvent]:
        """Wait for events that were not returned before; return none at the end.

        Raises the errors of `next_batch()`. A cancellation must lose nothing.
        """
        raise NotImplementedError

    @abstractmethod
    def _close(self) -> None:
        """Free the resources, and wake a waiting `_fetch()`; called once."""
