"""`EventStream`: the objects of an informer as server-sent events, for any framework."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from aioinformer._user_code import user_errors
from aioinformer.budget import LoopBudget
from aioinformer.errors import (
    HandlerError,
    InformerStopped,
    NotSynced,
    OptionsError,
    SelectorSyntaxError,
)
from aioinformer.model.callables import check_plain, check_takes
from aioinformer.model.objects import KubeObject
from aioinformer.model.times import seconds_of
from aioinformer.web.change_log import ChangeLog
from aioinformer.web.connections import (
    CHUNK,
    MAX_READERS,
    WRITE_SECONDS,
    Connections,
    TooManyReaders,
)
from aioinformer.web.responses import (
    EventID,
    HTTPResponse,
    encode_event,
    heartbeat,
    redacted,
    refusal,
    rendered,
)
from aioinformer.web.selection import StreamSelection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from aioinformer.informer.handlers.registration import Registration
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration
    from aioinformer.web.change_log import Reader
    from aioinformer.web.connections import Connection
    from aioinformer.web.responses import Render

__all__ = ["EventStream", "StreamRequest"]

RENDERED = 128
"""Projections kept for the other readers of a change."""

RENDERED_BYTES = 16 * 1024
"""Maximum size of a projection that is kept."""

WOKEN_AT_ONCE = 128
"""Readers woken in one turn of the loop, which takes half a millisecond."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """Checked request of a reader."""

    selection: StreamSelection
    """Objects that the reader gets."""
    last_event_id: str = ""
    """Id of the last event that it received, or empty."""


class _Feed:
    """Change log that an informer fills."""

    def __init__(
        self, informer: SharedInformer, on_applied: Callable[[], None]
    ) -> None:
        self.log = ChangeLog()
        self.epoch = secrets.token_hex(4)
        self._applied = on_applied
        # Changes are coalesced while many readers are notified, as for each reader.
        self.registration: Registration = informer.add_event_handler(
            on_event=self._apply, name="event stream", coalesce=True, resync_period=0
        )

    async def _apply(self, event: Notification) -> None:
        budget = LoopBudget.current()
        for count, _ in enumerate(self.log.applying(event), 1):
            if count % WOKEN_AT_ONCE == 0:
                # Waking a reader takes longer than notifying it: they wake here.
                budget.end()
                await asyncio.sleep(0)
                await budget.start()
            elif budget.over():
                await budget.start()

        self._applied()

    def reader(self, request: StreamRequest, connection: Connection) -> Reader:
        """Return a reader that resumes where it was, or starts from the beginning."""
        position = EventID.parse(request.last_event_id)
        here = (self.epoch, request.selection.token)
        since = None
        if position is not None and (position.epoch, position.selection) == here:
            since = position.number

        return self.log.reader(request.selection, since, on_news=connection.wakeup.set)

    def position(self, reader: Reader, request: StreamRequest) -> EventID | None:
        """Return the position of a reader, or None between two positions."""
        number = reader.reached
        if number is None:
            return None

        return EventID(self.epoch, number, request.selection.token)


class _EventData:
    """Data of events: objects as stored, or their projections.

    Args:
        informer: Informer of the objects, which reports failures of the function.
        render: Function of the user, or None.
        secret_data: True to include the data of Secrets.
    """

    def __init__(
        self, informer: SharedInformer, render: Render | None, secret_data: bool
    ) -> None:
        self._informer = informer
        self._render = render
        self._secret_data = secret_data
        # Readers get the same changes at about the same time. By id, as objects are not
        # hashable: the object stays alive with its entry.
        self._recent: OrderedDict[int, tuple[KubeObject, bytes | None]] = OrderedDict()

    def of(self, obj: KubeObject) -> bytes | None:
        """Return the data for an object, or None if the function fails."""
        if self._render is None:
            return self._visible(obj)

        kept = self._recent.get(id(obj))
        if kept is not None:
            return kept[1]

        data = self._rendered(obj, self._render)
        if data is None or len(data) <= RENDERED_BYTES:
            self._recent[id(obj)] = obj, data
            if len(self._recent) > RENDERED:
                self._recent.popitem(last=False)

        return data

    def _rendered(self, obj: KubeObject, render: Render) -> bytes | None:
        visible = self._visible(obj)
        shown = obj if visible == obj.raw else KubeObject.of(visible)
        try:
            return rendered(shown, render)
        except user_errors() as exc:
            name = getattr(render, "__qualname__", None) or repr(render)
            failure = HandlerError("render function", name, obj)
            failure.__cause__ = exc
            self._informer.report_failure(failure)
            return None

    def _visible(self, obj: KubeObject) -> bytes:
        return obj.raw if self._secret_data else redacted(obj, self._informer.resource)


class EventStream:
    """Objects of one informer as server-sent events, for any number of readers.

    Events are named `added`, `updated` and `deleted`. Their data is the object as JSON,
    as stored, or its projection by `render`. A stream starts with `reset` (forget all
    objects), an `added` for each object, and `synced`. Changes follow. A reader that
    reconnects with the id of the last event, as browsers do, resumes without a gap. It
    gets a `reset` and all objects again if its position is unknown: in another process,
    after more than 1,000 deletions, or if there were no readers for longer than
    `resume_seconds`.

    Guarantees:
        In one connection, the last event of an object follows its last change. Events
        are those of a handler with `coalesce=True` and a filter. After a resume, events
        may be repeated: treat `added` and `updated` alike, as the current state. A slow
        reader does not delay others. Its pending events are merged by object: at most
        some 200 bytes for each object, and 1,000 bodies of deleted ones. A reader that
        takes nothing for `write_timeout` is disconnected. Encoding shares the loop's
        budget with all heavy work, in slices of 2 ms. Each change is matched once for
        all readers with equal selections, and costs 2 microseconds for each reader that
        gets it. All streams end when the informer ends or the server stops.

    All readers share one handler of the informer, which keeps some 100 bytes for each
    object. The first reader adds it. It is removed by the first change after
    `resume_seconds` without readers.

    It belongs to the informer's event loop.

    Args:
        informer: Informer whose objects are sent.
        namespace: One or several namespaces to send; None for all.
        label_selector: Label selector of the objects to send.
        query: True to let readers narrow the selection by the parameters `namespace=`
            and `labelSelector=` of the URL. False refuses these.
        heartbeat: Seconds of silence after which a comment is sent.
        secret_data: True to send the data of Secrets, and to pass it to `render`.
        render: Function from a `KubeObject` to the data of its events: bytes, which are
            sent as they are, or a value to encode as JSON (a dict, dataclass, Pydantic
            model, ...). It also gets deleted objects, so return what identifies the
            object, such as its `key`. It is called once for a change that several
            readers get, in the event loop, and must not wait. If it fails, the event is
            left out. The failure is logged (repeated ones in part), counted, and passed
            to the informer's `on_error`. None sends the objects as stored.
        resume_seconds: Time for which a disconnected reader can resume.
        max_readers: Maximum number of concurrent readers, or None. Others are refused.
        write_timeout: Seconds, or a timedelta, that a reader may take for 64 KiB; None
            for no limit. It is disconnected then, and may resume.
        host_stops: Function that returns True if the web server should stop. It is
            called five times a second.

    Raises:
        OptionsError: If a namespace has no name, a time or limit is invalid, or `render`
            is not a plain function of one argument.
        SelectorSyntaxError: If the selector cannot be parsed.
    """

    def __init__(
        self,
        informer: SharedInformer,
        *,
        namespace: str | Sequence[str] | None = None,
        label_selector: str = "",
        query: bool = True,
        heartbeat: Duration = 15.0,
        secret_data: bool = False,
        render: Render | None = None,
        resume_seconds: Duration = 60.0,
        max_readers: int | None = MAX_READERS,
        write_timeout: Duration | None = WRITE_SECONDS,
        host_stops: Callable[[], bool] = lambda: False,
    ) -> None:
        self._informer = informer
        self._selection = StreamSelection.of(namespace, label_selector)
        self._query = query
        self._heartbeat = seconds_of(heartbeat)
        self._resume_seconds = seconds_of(resume_seconds)
        if self._heartbeat <= 0 or self._resume_seconds < 0:
            raise OptionsError(
                f"heartbeat={heartbeat}, resume_seconds={resume_seconds}: "
                "durations must be positive"
            )

        self._connections = Connections(
            informer.name,
            max_readers=max_readers,
            write_timeout=write_timeout,
            has_ended=lambda: host_stops() or _is_over(informer),
        )
        if render is not None:
            check_plain(render, "render")
            check_takes(render, "render", "render(obj)")

        self._data = _EventData(informer, render, secret_data)
        self._feed: _Feed | None = None
        self._left = 0.0  # time at which the last reader left

    def __repr__(self) -> str:
        return (
            f"<EventStream of {self._informer.name} readers={len(self._connections)}>"
        )

    @property
    def readers(self) -> int:
        """Number of current readers."""
        return len(self._connections)

    def check(
        self, query: Iterable[tuple[str, str]] = (), last_event_id: str | None = None
    ) -> StreamRequest:
        """Check a request.

        Args:
            query: Parameters of the URL: those of the selection, and `lastEventId` for
                scripts, which cannot set the header.
            last_event_id: Value of the header `Last-Event-ID`.

        Raises:
            OptionsError: If it requests objects outside of the stream's selection.
            SelectorSyntaxError: If a selector cannot be parsed.
            InformerStopped: If the informer has ended.
            TooManyReaders: If there are `max_readers` already.
        """
        pairs = list(query)
        if not self._query and {name for name, _ in pairs} & _NARROWING:
            raise OptionsError(
                "this stream does not accept namespace= or labelSelector="
            )

        if self._connections.ended:
            raise InformerStopped(
                f"{self._informer.name} has ended, or the app is stopping"
            )

        self._connections.check_room()
        given = dict(pairs).get("lastEventId", "")
        return StreamRequest(self._selection.narrowed(pairs), last_event_id or given)

    def check_or_refuse(
        self, query: Iterable[tuple[str, str]], last_event_id: str | None
    ) -> StreamRequest | HTTPResponse:
        """Check a request as `check()` does, and return errors as a response: 400 or 503."""
        try:
            return self.check(query, last_event_id)
        except (OptionsError, SelectorSyntaxError) as exc:
            return refusal(400, str(exc))
        except (InformerStopped, TooManyReaders) as exc:
            return refusal(503, str(exc), Retry_After="5")

    async def send(
        self,
        request: StreamRequest,
        write: Callable[[bytes], Awaitable[object]],
        *,
        disconnected: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Send events until the reader leaves, the informer ends, or the app stops.

        Args:
            request: Result of `check()`.
            write: Coroutine function that sends bytes, and waits while the reader is
                slow. Calls do not overlap. The first call may start the response.
                Without any call, the stream filled up or ended since `check()`: respond
                with `not_begun()`.
            disconnected: Function that returns True if the reader has left, for servers
                that do not cancel the request. It is called five times a second.

        Returns:
            True if everything was sent, so that the response can be completed. False if
            the reader has left or is stuck: abort the connection, or its unsent data is
            kept.

        Raises:
            WrongLoop: If the informer belongs to another event loop.
            Exception: Exception of `write`.

        Cancellation:
            Safe: nothing is left running.
        """
        if self._connections.ended or self._connections.full:
            return True  # since `check()`, and nothing was written

        if self._feed is None:
            self._feed = _Feed(self._informer, self._applied)

        produce = partial(self._send, self._feed, request)
        try:
            return await self._connections.serve(
                produce, write, disconnected=disconnected
            )
        finally:
            self._leave()

    def close(self) -> None:
        """End all streams, stuck ones within a second, and refuse others. Idempotent."""
        self._connections.close()

    # ------------------------------------------------------------ one reader

    async def _send(
        self, feed: _Feed, request: StreamRequest, connection: Connection
    ) -> None:
        send = connection.send
        await send(heartbeat())  # sends the headers
        while not connection.over:
            try:
                await feed.registration.wait_synced(self._heartbeat)
                break
            except NotSynced:
                await send(heartbeat())
            except InformerStopped:
                return

        reader = feed.reader(request, connection)
        try:
            while not connection.over:
                connection.wakeup.clear()
                if reader.pending:
                    await send(await self._chunk(feed, reader, request))
                    continue

                try:
                    async with asyncio.timeout(self._heartbeat):
                        await connection.wakeup.wait()
                except TimeoutError:
                    await send(heartbeat(feed.position(reader, request)))
        finally:
            feed.log.dismiss(reader)

    async def _chunk(
        self, feed: _Feed, reader: Reader, request: StreamRequest
    ) -> bytes:
        """Return the next events, or nothing if this slice found none."""
        budget = LoopBudget.current()
        await budget.start()
        parts: list[bytes] = []
        size = 0
        while reader.pending and size < CHUNK and not budget.over():
            event = reader.step()
            if event is None:
                continue

            position = feed.position(reader, request)
            data = b"{}" if event.obj is None else self._data.of(event.obj)
            if data is None:
                continue

            part = encode_event(event.kind, data, position)
            parts.append(part)
            size += len(part)

        budget.end()
        return b"".join(parts)

    # ------------------------------------------------------------ all of them

    def _leave(self) -> None:
        if not self._connections:
            self._left = asyncio.get_running_loop().time()
            if not self._resume_seconds:
                self._forget()

    def _applied(self) -> None:
        """Remove the handler if there were no readers for long."""
        if not self._connections:
            now = asyncio.get_running_loop().time()
            if now - self._left > self._resume_seconds:
                self._forget()

    def _forget(self) -> None:
        if self._feed is not None:
            self._feed.registration.remove()
            self._feed = None


def _is_over(informer: SharedInformer) -> bool:
    return informer.status.phase in {"stopping", "stopped"}


_NARROWING = {"namespace", "labelSelector"}
