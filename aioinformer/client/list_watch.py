"""`ListWatch`: lists and watches one collection of a server."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, Self

from aioinformer.budget import LoopBudget
from aioinformer.client.verbs import selection
from aioinformer.errors import DecodeError, ResourceExpired, TransportError
from aioinformer.watch.decoding import ListSplitter, ObjectDecoder, StreamDecoder
from aioinformer.watch.interface import ListOptions

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import WatchOptions

__all__ = [
    "AnswerBody",
    "HTTPListPage",
    "HTTPWatch",
    "ListWatch",
    "Requester",
    "list_parameters",
    "watch_parameters",
]

# The server ends a watch by itself; ten seconds later it is not going to any more.
WATCH_GRACE_SECONDS = 10.0


class AnswerBody(Protocol):
    """The body of an answer: what `Response` is to those who only read it."""

    async def read_some(self, *, patient: bool = False) -> bytes:
        """Wait for the next bytes; see `Response.read_some()`."""

    def close(self) -> None:
        """End it, at once; whoever waits gets a `TransportError`. Idempotent."""


class Requester(Protocol):
    """Sends requests: a client, or what speaks to a server without a network."""

    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
    ) -> AbstractAsyncContextManager[AnswerBody]:
        """Send a request and read its answer; see `Endpoint.stream()`."""


class ListWatch:
    """Lists and watches one resource, perhaps in one namespace, perhaps by selectors.

    Implements `aioinformer.watch.interface.ListerWatcher`; see there for the errors of
    its contexts. It holds no connection itself, and may be made before the client is
    entered.

    Args:
        client: Sends the requests; must be entered by then.
        resource: What to list and watch.
        namespace: Only objects of this one; None for all.
        label_selector: As kubectl accepts it; empty for all.
        field_selector: As kubectl accepts it; empty for all.
        gzip: Ask for compressed answers; None for what the client was told.

    Raises:
        SelectorSyntaxError: If a selector cannot be parsed.
        OptionsError: If a namespace is given for a cluster-scoped resource.
    """

    def __init__(
        self,
        client: Requester,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        gzip: bool | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._path = resource.path(namespace or None)
        self._selection = selection(label_selector, field_selector)
        self._gzip = gzip
        self._decoder = ObjectDecoder(resource)

    @property
    def resource(self) -> Resource:
        """What is listed and watched."""
        return self._resource

    @asynccontextmanager
    async def list(self, options: ListOptions) -> AsyncIterator[HTTPListPage]:
        """Ask for the objects, or for one page of them.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed.
            DecodeError: If the answer is a web page.

        Cancellation:
            Safe: the connection is closed.
        """
        params = {**self._selection, **list_parameters(options)}
        answer = self._client.stream("GET", self._path, params, gzip=self._gzip)
        async with answer as response:
            yield HTTPListPage(response, ListSplitter(self._decoder))

    @asynccontextmanager
    async def watch(self, options: WatchOptions) -> AsyncIterator[HTTPWatch]:
        """Ask for the changes.

        With `options.timeout_seconds` the watch ends by itself 10 s after the server
        should have ended it.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed.
            DecodeError: If the answer is a web page.

        Cancellation:
            Safe: the connection is closed.
        """
        params = {**self._selection, **watch_parameters(options)}
        answer = self._client.stream("GET", self._path, params, gzip=self._gzip)
        async with answer as response:
            decoder = StreamDecoder(self._decoder)
            stream = HTTPWatch(response, decoder, options.timeout_seconds)
            try:
                yield stream
            finally:
                stream.stop()

    async def read_all(self, options: ListOptions) -> builtins.list[KubeObject]:
        """List all pages, from the one that `options` name on.

        If the server forgets the list between two pages, all is read again, once and
        without pages; not where `options` begin in the middle of a list.

        Raises:
            ApiError: If the server refused.
            TransportError: If the network failed.
            DecodeError: If the answer cannot be read, or leads to itself.

        Cancellation:
            Safe: the connection is closed.
        """
        first, may_restart = options, not options.continue_token
        objects: builtins.list[KubeObject] = []
        while True:
            try:
                async with self.list(options) as page:
                    async for batch in page:
                        objects += batch
            except ResourceExpired:
                # On the first page it is what the caller asked for that is too old.
                if options is first or not may_restart:
                    raise

                objects, first, may_restart = [], ListOptions(), False
                options = first
                continue

            token = page.continue_token
            if not token:
                return objects

            if token == options.continue_token:
                raise DecodeError(
                    f"the list of {self._path} does not get on: its next page is the "
                    "same again"
                )

            options = ListOptions(limit=options.limit, continue_token=token)

    def __repr__(self) -> str:
        selectors = "".join(f" {text!r}" for text in self._selection.values() if text)
        return f"<ListWatch {self._path}{selectors}>"


def list_parameters(options: ListOptions) -> dict[str, str]:
    """The query parameters of a list; those that are empty are left out of a request."""
    return {
        "limit": str(options.limit or ""),
        "continue": options.continue_token,
        "resourceVersion": options.resource_version,
        "resourceVersionMatch": options.resource_version_match,
    }


def watch_parameters(options: WatchOptions) -> dict[str, str]:
    """The query parameters of a watch; those that are empty are left out of a request."""
    initial, seconds = options.send_initial_events, options.timeout_seconds
    return {
        "watch": "true",
        "allowWatchBookmarks": "true" if options.bookmarks else "",
        "resourceVersion": options.resource_version,
        "sendInitialEvents": "true" if initial else "",
        "resourceVersionMatch": "NotOlderThan" if initial else "",
        "timeoutSeconds": "" if seconds is None else str(seconds),
    }


class HTTPListPage:
    """The answer to one list request, read while it arrives.

    Iterate it once, to its end; each step yields the objects that are complete.
    """

    def __init__(self, response: AnswerBody, splitter: ListSplitter) -> None:
        self._response = response
        self._splitter = splitter

    @property
    def resource_version(self) -> str:
        """The version of the list; complete when the iteration has ended."""
        return self._splitter.resource_version

    @property
    def continue_token(self) -> str:
        """Where the next page begins; empty on the last one.

        Known as soon as the first objects are, where the server writes it in front.
        """
        return self._splitter.continue_token

    @property
    def skipped(self) -> int:
        """Objects left out so far, because they cannot be read."""
        return self._splitter.skipped

    @property
    def unreadable(self) -> list[str]:
        """The keys of those of them whose names could be read."""
        return self._splitter.unreadable

    async def __aiter__(self) -> AsyncGenerator[list[KubeObject], None]:
        budget = LoopBudget.current()
        while piece := await self._response.read_some():
            await budget.start()
            objects = self._splitter.feed(piece)
            budget.end()
            if objects:
                yield objects

        objects = self._splitter.finish()
        if objects:
            yield objects


class HTTPWatch:
    """A stream of changes: an async iterator of events, or of batches of them.

    Both ways may be mixed: an iteration that was left goes on where it stopped.
    """

    def __init__(
        self, response: AnswerBody, decoder: StreamDecoder, seconds: int | None
    ) -> None:
        self._response = response
        self._decoder = decoder
        self._ready: deque[WatchEvent] = deque()
        self._ended = False
        # What was read and not decoded yet: a cancellation must not lose it.
        self._piece: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds + WATCH_GRACE_SECONDS, self.stop)

    @property
    def skipped(self) -> int:
        """Events left out so far: of an unknown type, or with an unreadable object."""
        return self._decoder.skipped

    async def next_batch(self) -> list[WatchEvent]:
        """Wait for events: all that have arrived. An empty list is the end.

        Raises:
            TransportError: If the connection broke, or its last line was cut off.
            DecodeError: If a line is not what a watch sends.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._ready:
            waiting = list(self._ready)
            self._ready.clear()
            return waiting

        budget = LoopBudget.current()
        while not self._ended:
            if self._piece is None:
                self._piece = await self._read()

            await budget.start()
            piece, self._piece = self._piece, None
            events = self._take(piece)
            budget.end()
            if events:
                return events

        return []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._ready:
            self._ready.extend(await self.next_batch())

        if not self._ready:
            raise StopAsyncIteration

        return self._ready.popleft()

    def stop(self) -> None:
        """End the watch, at once; whoever waits for events gets the end. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

        self._ended = True
        self._ready.clear()
        self._response.close()

    async def _read(self) -> bytes:
        """Wait for bytes; none are the end, which `stop()` brings about as well."""
        try:
            return await self._response.read_some(patient=True)
        except TransportError as exc:
            if not self._ended:
                raise

            # aiohttp raises one and the same object for all connections that we close:
            # what its traceback refers to, which is all of this, would stay alive.
            if exc.__cause__ is not None:
                exc.__cause__.__traceback__ = None

            return b""

    def _take(self, piece: bytes) -> list[WatchEvent]:
        if self._ended:
            return []

        if piece:
            return self._feed(piece)

        self._ended = True
        try:
            return self._decoder.finish()
        except DecodeError as exc:
            raise TransportError(f"the watch was cut off within a line: {exc}") from exc

    def _feed(self, piece: bytes) -> list[WatchEvent]:
        try:
            return self._decoder.feed(piece)
        except DecodeError:
            self._ended = True
            raise
