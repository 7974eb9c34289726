"""`FakeListerWatcher`: a source of lists and watches without a server."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from aioinformer.client.list_watch import list_parameters, watch_parameters
from aioinformer.errors import ApiError, OptionsError, TransportError
from aioinformer.model.resources import PODS
from aioinformer.model.selectors import FieldSelector, LabelSelector
from aioinformer.watch.decoding import ObjectDecoder, StreamDecoder
from aioinformer.watch.interface import Selectors, Watch
from aioinformer_apiserver.arguments import (
    body_of,
    instance_of,
    resource_of,
    text_of,
    whole_of,
)
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.reads.lists import page_of
from aioinformer_apiserver.reads.watches import open_watcher
from aioinformer_apiserver.requests.queries import ListQuery, Scope, WatchQuery
from aioinformer_apiserver.serialization.formats import Whole
from aioinformer_apiserver.storage.dispatcher import TIMER_RESOLUTION, Waker
from aioinformer_apiserver.storage.encoding import error_line
from aioinformer_apiserver.storage.kinds import Kind, built_in_kinds
from aioinformer_apiserver.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.watch.events import WatchEvent
    from aioinformer.watch.interface import ListOptions, WatchOptions
    from aioinformer_apiserver.reads.lists import StoredPage
    from aioinformer_apiserver.reads.watches import Watcher
    from aioinformer_apiserver.storage.storage import StoredObject

__all__ = ["FakeListPage", "FakeListerWatcher", "PlayedWatch"]


class FakeListerWatcher:
    """Set of objects in memory that supports lists and watches, and nothing else.

    For tests of event handlers, without a server and its validation: objects are stored
    as given. Versions and missing uids are assigned in the order of the calls, so that
    every run is the same. All methods take effect at once.

    Implements `ListerWatcher` and `Reselectable` of `aioinformer.watch`.

    Args:
        *objects: Initial objects.
        resource: Resource of the objects.

    Raises:
        OptionsError: If an object has no name, is of another kind, or is a duplicate.

    Attributes:
        requests: Options of all lists and watches so far; may be cleared.

    Example:
        >>> source = FakeListerWatcher({"metadata": {"name": "web"}})
        >>> running = {"metadata": {"name": "web"}, "status": {"phase": "Running"}}
        >>> changed = source.modify(running)
        >>> changed["metadata"]["resourceVersion"]
        '3'
    """

    def __init__(
        self, *objects: Mapping[str, Any] | KubeObject, resource: Resource = PODS
    ) -> None:
        self.requests: list[ListOptions | WatchOptions] = []
        self._resource = resource_of("resource", resource)
        self._storage = Storage()
        self._collection = self._storage.serve(_kind_of(resource))
        self._selectors = Selectors()
        self._scope = Scope()
        self._uids = 0
        self._watches: set[PlayedWatch] = set()
        self._refusals: list[ApiError | TransportError] = []
        for obj in objects:
            self.add(obj)

    def __repr__(self) -> str:
        count, version = len(self._collection), self.resource_version
        return f"<FakeListerWatcher {self._resource} objects={count} version={version}>"

    @property
    def resource_version(self) -> str:
        """Newest version, for `wait_for_version()` of an informer."""
        return str(self._storage.version)

    @property
    def watches(self) -> int:
        """Number of open watches."""
        return len(self._watches)

    @property
    def resource(self) -> Resource:
        """Resource of the objects."""
        return self._resource

    @property
    def selectors(self) -> Selectors:
        """Selectors of the lists and watches."""
        return self._selectors

    def with_selectors(self, selectors: Selectors) -> Self:
        """Return a source of the same objects with other selectors.

        It does not filter by shard, like a server without that feature.

        Raises:
            SelectorSyntaxError: If a selector cannot be parsed.
        """
        other = copy(self)
        other._selectors = selectors  # noqa: SLF001 - a copy
        other._scope = Scope(  # noqa: SLF001
            labels=LabelSelector.parse(selectors.label_selector),
            fields=FieldSelector.parse(selectors.field_selector),
        )
        return other

    def selects(self, obj: KubeObject) -> bool:
        """Return True if the selectors select an object."""
        return self._selectors.selects(obj)

    # ---------------------------------------------------------------- objects

    def add(self, obj: Mapping[str, Any] | KubeObject) -> dict[str, Any]:
        """Add an object.

        Args:
            obj: The object. `apiVersion`, `kind` and `metadata.uid` may be missing. The
                default namespace is `default`.

        Returns:
            Object with its version, as a new dictionary.

        Raises:
            OptionsError: If it has no name, is of another kind, or already exists.
        """
        body, key = self._complete(obj)
        if self._collection.get(key) is not None:
            raise OptionsError(f"{self._resource} {key} already exists")

        if not body["metadata"].get("uid"):
            self._uids += 1
            body["metadata"]["uid"] = f"uid-{self._uids}"

        return self._storage.put(self._collection, body).body()

    def modify(self, obj: Mapping[str, Any] | KubeObject) -> dict[str, Any]:
        """Replace an object, which keeps its uid unless another one is given.

        Returns:
            Object with its version, as a new dictionary.

        Raises:
            OptionsError: If it does not exist, or is of another kind.
        """
        body, key = self._complete(obj)
        before = self._existing(key)
        body["metadata"].setdefault("uid", before.uid)
        return self._storage.put(self._collection, body).body()

    def delete(self, obj: Mapping[str, Any] | KubeObject) -> None:
        """Delete an object; only its name and namespace matter.

        Raises:
            OptionsError: If it does not exist, or is of another kind.
        """
        _, key = self._complete(obj)
        self._storage.drop(self._collection, self._existing(key))

    # ---------------------------------------------------------------- faults

    def bookmark(self) -> None:
        """Send a bookmark of the newest version to all watches that accept bookmarks."""
        for watch in self._open():
            watch.bookmark(self._storage.version)

    def error(self, error: ApiError) -> None:
        """End all watches with an ERROR event.

        Raises:
            OptionsError: If it is not an ApiError.
        """
        instance_of("error", error, ApiError, "an ApiError")
        for watch in self._open():
            watch.finish(line=error_line(error))

    def gone(self) -> None:
        """Discard all history, and end all watches with a 410."""
        self._storage.compact()
        self.error(statuses.expired("too old resource version: it has expired"))

    def cut(self) -> None:
        """Break the connections of all watches, as a network does."""
        for watch in self._open():
            watch.finish(failure=TransportError("the connection was cut by the test"))

    def end(self) -> None:
        """End all watches cleanly, as a server does from time to time."""
        for watch in self._open():
            watch.finish()

    def refuse(self, error: ApiError | TransportError, *, times: int = 1) -> None:
        """Let the next requests fail.

        Args:
            error: Error to raise.
            times: Number of requests that fail.

        Raises:
            OptionsError: If the error has another type, or `times` is less than one.
        """
        if not isinstance(error, ApiError):
            instance_of(
                "error", error, TransportError, "an ApiError or a TransportError"
            )

        whole_of("times", times, least=1)
        self._refusals += [error] * times

    # ---------------------------------------------------------------- ListerWatcher

    def list(self, options: ListOptions) -> AbstractAsyncContextManager[FakeListPage]:
        """Answer a list request.

        Raises:
            ApiError: Error of `refuse()`, or of a server for such options.
            TransportError: Error of `refuse()`.

        Cancellation:
            Safe.
        """
        return self._listed(options)

    @asynccontextmanager
    async def _listed(self, options: ListOptions) -> AsyncIterator[FakeListPage]:
        await self._begin(options)
        query = ListQuery.parse(_given(list_parameters(options)))
        version = self._storage.version
        if query.not_older > version:
            raise statuses.too_large_version(query.not_older, version)

        page = page_of(self._collection, version, query, self._scope)
        yield FakeListPage(page, ObjectDecoder(self._resource))

    def watch(self, options: WatchOptions) -> AbstractAsyncContextManager[PlayedWatch]:
        """Answer a watch request, with an ERROR event for an expired version.

        Raises:
            ApiError: Error of `refuse()`, or of a server for such options.
            TransportError: Error of `refuse()`.

        Cancellation:
            Safe.
        """
        return self._watched(options)

    @asynccontextmanager
    async def _watched(self, options: WatchOptions) -> AsyncIterator[PlayedWatch]:
        await self._begin(options)
        query = WatchQuery.parse(_given(watch_parameters(options)))
        shown = Whole(self._collection.kind)
        watcher = open_watcher(self._collection, query, self._scope, shown)
        watch = PlayedWatch(watcher, shown, query, ObjectDecoder(self._resource))
        if watcher is None:
            error = statuses.expired(f"too old resource version: {query.version}")
            watch.finish(line=error_line(error))
        elif options.send_initial_events:
            watch.bookmark(self._storage.version, initial_events_end=True)

        unsubscribe = self._collection.subscribe(watch.wake)
        self._watches.add(watch)
        try:
            async with watch:
                yield watch
        finally:
            self._watches.discard(watch)
            unsubscribe()

    # ---------------------------------------------------------------- helpers

    async def _begin(self, options: ListOptions | WatchOptions) -> None:
        self.requests.append(options)
        await asyncio.sleep(0)  # A request takes at least one turn of the loop.
        if self._refusals:
            raise self._refusals.pop(0)

    def _open(self) -> tuple[PlayedWatch, ...]:
        return tuple(self._watches)

    def _existing(self, key: str) -> StoredObject:
        stored = self._collection.get(key)
        if stored is None:
            raise OptionsError(f"{self._resource} {key} does not exist")

        return stored

    def _complete(
        self, obj: Mapping[str, Any] | KubeObject
    ) -> tuple[dict[str, Any], str]:
        """Return a complete copy of an object, and its key."""
        given = body_of("an object", obj)
        resource = self._resource
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **given}
        if (body["apiVersion"], body["kind"]) != (resource.api_version, resource.kind):
            raise OptionsError(
                f"{body['apiVersion']} {body['kind']} is not one of {resource}: pass the "
                "resource of the objects as resource="
            )

        metadata = body["metadata"] = body_of("metadata", body.get("metadata") or {})
        name = text_of("metadata.name", metadata.get("name"))
        if not resource.namespaced:
            return body, name

        place = text_of(
            "metadata.namespace", metadata.setdefault("namespace", "default")
        )
        return body, f"{place}/{name}"


class FakeListPage:
    """Response to a list request."""

    def __init__(self, page: StoredPage, decoder: ObjectDecoder) -> None:
        self._page = page
        self._decoder = decoder

    @property
    def resource_version(self) -> str:
        """Version of the list."""
        return str(self._page.metadata["resourceVersion"])

    @property
    def continue_token(self) -> str:
        """Token for the next page; empty on the last page."""
        return str(self._page.metadata.get("continue", ""))

    @property
    def skipped(self) -> int:
        """Number of skipped objects: 0."""
        return 0

    @property
    def unreadable(self) -> list[str]:
        """Keys of unreadable objects: none."""
        return []

    async def __aiter__(self) -> AsyncGenerator[list[KubeObject], None]:
        if self._page.objects:
            yield [self._decoder.decode(it.raw) for it in self._page.objects]


class PlayedWatch(Watch):
    """Response to a watch request.

    Args:
        watcher: Source of changes; None if there are none.
        shown: Format of bookmarks.
        query: Parameters of the watch.
        decoder: Decoder of objects.
    """

    def __init__(
        self,
        watcher: Watcher | None,
        shown: Whole,
        query: WatchQuery,
        decoder: ObjectDecoder,
    ) -> None:
        super().__init__()
        self._watcher = watcher
        self._format = shown
        self._bookmarks = query.bookmarks
        self._decoder = StreamDecoder(decoder)
        self._lines: list[bytes] = []
        self._failure: TransportError | None = None
        self._finished = False
        self._waker = Waker()
        self.wake: Callable[[], None] = self._waker.wake
        """Function to call when there may be new events."""
        now = asyncio.get_running_loop().time()
        self._until = now + query.timeout if query.timeout else math.inf

    @property
    def skipped(self) -> int:
        """Number of skipped events, such as those of another kind."""
        return self._decoder.skipped

    def bookmark(self, version: int, *, initial_events_end: bool = False) -> None:
        """Append a bookmark to the events so far."""
        self._pull()
        if self._bookmarks and not self._finished:
            self._lines.append(
                self._format.bookmark(version, initial_events_end=initial_events_end)
            )
            self.wake()

    def finish(
        self, *, line: bytes = b"", failure: TransportError | None = None
    ) -> None:
        """End the watch after the events so far.

        Args:
            line: Last line; empty for none.
            failure: Error to raise instead of a clean end.
        """
        self._pull()
        if not self._finished:
            self._lines += [line] if line else []
            self._finished, self._failure = True, failure
            self.wake()

    async def _fetch(self) -> list[WatchEvent]:
        while True:
            events = self._take()
            if events:
                return events

            if self._failure is not None:
                raise self._failure

            now = asyncio.get_running_loop().time() + TIMER_RESOLUTION
            if self._finished or now >= self._until:
                return []

            await self._waker.wait(self._until)

    def _close(self) -> None:
        self._lines.clear()
        self._watcher, self._failure, self._finished = None, None, True
        self.wake()

    def _take(self) -> list[WatchEvent]:
        self._pull()
        lines, self._lines = self._lines, []
        return self._decoder.feed(b"".join(lines))

    def _pull(self) -> None:
        """Take all changes so far, so that later lines follow them."""
        while self._watcher is not None and not self._finished:
            lines = self._watcher.take()
            if not lines:
                return

            self._lines += lines


def _kind_of(resource: Resource) -> Kind:
    known = (kind for kind in built_in_kinds() if kind.resource == resource)
    return next(known, Kind(resource=resource, typed=False))


def _given(parameters: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in parameters.items() if text}
