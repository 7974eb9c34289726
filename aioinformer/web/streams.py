"""`EventStream`: the objects of an informer as server-sent events, to any number of users.

What the adapters for aiohttp and ASGI stand on; and what somebody uses whose framework
has neither.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget
from aioinformer.errors import (
    AioInformerError,
    InformerStopped,
    NotSynced,
    OptionsError,
    SelectorSyntaxError,
)
from aioinformer.model.times import seconds_of
from aioinformer.web.change_log import ChangeLog
from aioinformer.web.responses import (
    EventID,
    HTTPResponse,
    encode_event,
    heartbeat,
    refusal,
)
from aioinformer.web.selection import StreamSelection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from aioinformer.informer.handlers.registration import Registration
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration
    from aioinformer.web.change_log import Reader

__all__ = [
    "MAX_READERS",
    "WRITE_SECONDS",
    "EventStream",
    "StreamRequest",
    "TooManyReaders",
    "not_begun",
]

logger = guarded_logger(__name__)

CHUNK = 64 * 1024
"""Bytes that are made ahead of a reader, but for the last object; so many are written
at once."""

MAX_READERS = 1000
"""Readers that a stream has at the most, unless told."""

WRITE_SECONDS = 30.0
"""How long one write may take, unless told."""

LOOK_SECONDS = 0.2
"""How often it is looked whether the informer, the host or a reader has gone. uvicorn
tells its apps nothing when it stops, nor aiohttp a handler that its client has left."""

WOKEN_AT_ONCE = 128
"""So many readers are woken in one turn of the loop; it takes half a millisecond."""

GRACE_SECONDS = 1.0
"""How long a reader that takes nothing may hold up the end."""


def not_begun() -> HTTPResponse:
    """Return the answer to a reader to whom `EventStream.send()` has written nothing."""
    return refusal(503, "the stream is full, or has ended", Retry_After="5")


class TooManyReaders(AioInformerError):
    """The stream has as many readers as it may have; try again later."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a reader asks for."""

    selection: StreamSelection
    """Which objects."""
    last_event_id: str = ""
    """Where it was before, if it was here."""


@dataclass(eq=False, slots=True)
class _Connection:
    """One reader, from its coming to its leaving."""

    gone: Callable[[], bool]
    """Whether it has left."""
    limit: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    """Ends it when it has left, or is stuck at the end."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is something to tell it."""
    writing: bool = False
    over: bool = False
    """Nothing more is to be written."""

    def end(self) -> None:
        """StreamRequest for its end: at once, or after a write that does not take long."""
        if not self.over:
            self.over = True
            self._end_in(GRACE_SECONDS if self.writing else 0.0)

    def look(self) -> None:
        """See whether it has left."""
        if self.limit.when() is None and self.gone():
            self._end_in(0.0)

    def _end_in(self, seconds: float) -> None:
        if self.limit.when() is None:
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)


class _Stuck(Exception):
    """A reader took nothing for `write_timeout`."""


class _Feed:
    """A log that an informer fills, and how it does."""

    def __init__(self, informer: SharedInformer, told: Callable[[], None]) -> None:
        self.log = ChangeLog()
        self.epoch = secrets.token_hex(4)
        self._applied = told
        # What waits while a change is told to many readers is merged, as it is for each
        # of them.
        self.registration: Registration = informer.add_event_handler(
            on_event=self._apply, name="event stream", coalesce=True, resync_period=0
        )

    async def _apply(self, event: Notification) -> None:
        budget = LoopBudget.current()
        for count, _ in enumerate(self.log.applying(event), 1):
            if count % WOKEN_AT_ONCE == 0:
                # To wake a reader takes longer than to tell it: here they wake.
                budget.end()
                await asyncio.sleep(0)
                await budget.start()
            elif budget.over():
                await budget.start()

        self._applied()

    def reader(self, ask: StreamRequest, connection: _Connection) -> Reader:
        """Begin where the reader was, or anew."""
        position = EventID.parse(ask.last_event_id)
        here = (self.epoch, ask.selection.token)
        since = None
        if position is not None and (position.epoch, position.selection) == here:
            since = position.number

        return self.log.reader(ask.selection, since, on_news=connection.news.set)

    def position(self, reader: Reader, ask: StreamRequest) -> EventID | None:
        """Where it is; None in the middle of something."""
        number = reader.reached
        if number is None:
            return None

        return EventID(self.epoch, number, ask.selection.token)


class EventStream:
    """The objects of one informer as server-sent events, for any number of readers.

    Events are named `added`, `updated` and `deleted`; their data is the object as JSON,
    the stored bytes. First comes `reset` (forget what you have), then everything there
    is as `added`, then `synced`, then the changes. A reader that comes back with the id
    of the last event, as browsers do by themselves, goes on from there, without gap, and
    is not told everything again; `reset` and all again if that place is not known any
    more: in another process, after more than 1,000 deletions, or when nobody has read
    for longer than `resume_seconds`.

    Guarantees:
        In one connection an object's last event follows its last change, and is what a
        handler with `coalesce=True` and a filter would be told, with no change that was
        seen too late told twice. After a resume an event may come again; treat `added`
        and `updated` alike, as "this is how it is now".
        A slow reader delays nobody. What waits for it is merged for each object, so it
        costs some 200 bytes for each object at most, and 1,000 bodies of deleted ones.
        One that takes nothing for `write_timeout` is cut off, and costs nothing any more.
        What readers are told takes its turn with all heavy work of the loop, a piece of
        2 ms at a time. Each change is judged once for all readers that ask for the same,
        and costs 2 microseconds for each reader whom it concerns.
        When the informer ends, or the host stops, all streams end.

    All readers share one handler of the informer, and what it keeps: some 100 bytes for
    each object. It is added by the first reader, and removed with the first change that
    comes when there has been no reader for `resume_seconds`.

    It belongs to the informer's loop.

    Args:
        informer: Whose objects.
        namespace: Only of this namespace, or of these; None for all.
        label_selector: Only what matches, as kubectl takes it.
        query: Readers may ask for less by the query of the URL: `namespace=` and
            `labelSelector=`. Else those are refused.
        heartbeat: After how many silent seconds a comment is sent.
        secret_data: Send what Secrets hold. Else `data` and `stringData` are left out.
        resume_seconds: How long a reader may be away and still go on where it was.
        max_readers: Maximum number of readers at once; None for any. More are refused.
        write_timeout: Seconds, or a timedelta, that a reader may take for 64 KiB; None
            for any time. It is cut off then, and may resume like any other.
        host_stops: Whether the web server has been asked to stop; looked at five times
            a second.

    Raises:
        OptionsError: A namespace without a name, or a time that is none.
        SelectorSyntaxError: The selector cannot be parsed.
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
                "times to wait must be positive"
            )

        if max_readers is not None and max_readers < 1:
            raise OptionsError(f"max_readers={max_readers}: nobody could read")

        self._max_readers = max_readers
        self._write_timeout = (
            None if write_timeout is None else seconds_of(write_timeout)
        )
        if self._write_timeout is not None and self._write_timeout <= 0:
            raise OptionsError(f"write_timeout={write_timeout} must be positive")

        self._secret_data = secret_data
        self._host_stops = host_stops
        self._feed: _Feed | None = None
        self._closed = False
        self._connections: set[_Connection] = set()  # who reads now
        self._left = 0.0  # when the last one did
        self._looking: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return (
            f"<EventStream of {self._informer.name} readers={len(self._connections)}>"
        )

    @property
    def readers(self) -> int:
        """How many read now."""
        return len(self._connections)

    def ask(
        self, query: Iterable[tuple[str, str]] = (), last_event_id: str | None = None
    ) -> StreamRequest:
        """What a request asks for.

        Args:
            query: Names and values from the URL. Beside those of the selection there is
                `lastEventId`, for scripts, which cannot set the header.
            last_event_id: The header `Last-Event-ID`.

        Raises:
            OptionsError: It asks for what it may not have.
            SelectorSyntaxError: A selector cannot be parsed.
            InformerStopped: There is nothing to read any more.
            TooManyReaders: There are `max_readers` already.
        """
        pairs = list(query)
        if not self._query and {name for name, _ in pairs} & _NARROWING:
            raise OptionsError("this stream takes no namespace= and no labelSelector=")

        if self._ended:
            raise InformerStopped(f"{self._informer.name} has ended, or the app stops")

        if self._full:
            raise TooManyReaders(
                f"{self._informer.name} has {len(self._connections)} readers, as many as it may"
            )

        given = dict(pairs).get("lastEventId", "")
        return StreamRequest(self._selection.narrowed(pairs), last_event_id or given)

    def ask_or_refuse(
        self, query: Iterable[tuple[str, str]], last_event_id: str | None
    ) -> StreamRequest | HTTPResponse:
        """As `ask()`, for who serves HTTP: what it would raise is an answer, 400 or 503."""
        try:
            return self.ask(query, last_event_id)
        except (OptionsError, SelectorSyntaxError) as exc:
            return refusal(400, str(exc))
        except (InformerStopped, TooManyReaders) as exc:
            return refusal(503, str(exc), Retry_After="5")

    async def send(
        self,
        ask: StreamRequest,
        write: Callable[[bytes], Awaitable[object]],
        *,
        gone: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Send events until the reader, the informer or the app has gone.

        Args:
            ask: What `ask()` made of the request.
            write: Called with bytes, one call at a time; it waits while the reader is
                slow. The first call may begin the answer: if there is none, the stream
                has filled up or ended since `ask()`. Then answer `not_begun()`.
            gone: Whether the reader has left; for hosts that do not cancel the request
                then. Looked at five times a second.

        Returns:
            True if everything that was sent got through, so that the answer can be
            ended in order; False if the reader has gone, or is stuck: then abort the
            connection, or what it has not taken is kept for as long as it likes.

        Raises:
            WrongLoop: The informer belongs to another event loop.
            Exception: What `write` raised.

        Cancellation:
            Safe: nothing is left of it.
        """
        connection = _Connection(gone)
        try:
            feed = self._join(connection)
        except (InformerStopped, TooManyReaders):
            return True  # since `ask()`; nothing was written

        try:
            async with connection.limit:
                await self._send(feed, ask, write, connection)
        except _Stuck:
            logger.info(
                "%s: reader cut off (took nothing for %g s)",
                self._informer.name,
                self._write_timeout,
            )
            return False
        except TimeoutError:
            if not connection.limit.expired():
                raise

            return connection.over and not connection.writing
        finally:
            self._leave(connection)

        return True

    def close(self) -> None:
        """End all streams: a stuck one within a second. Idempotent; nothing follows."""
        self._closed = True
        self._end()

    # ------------------------------------------------------------ one reader

    async def _send(
        self,
        feed: _Feed,
        ask: StreamRequest,
        write: Callable[[bytes], Awaitable[object]],
        connection: _Connection,
    ) -> None:
        async def send(chunk: bytes) -> None:
            for start in range(0, len(chunk), CHUNK):
                if connection.over:  # its limit would cut this off
                    break

                connection.writing = True
                await self._write(write, chunk[start : start + CHUNK])
                connection.writing = False

        await send(heartbeat())  # so that the headers are on their way
        while not connection.over:
            try:
                await feed.registration.wait_synced(self._heartbeat)
                break
            except NotSynced:
                await send(heartbeat())
            except InformerStopped:
                return

        reader = feed.reader(ask, connection)
        try:
            while not connection.over:
                connection.news.clear()
                if reader.behind:
                    await send(await self._chunk(feed, reader, ask))
                    continue

                try:
                    async with asyncio.timeout(self._heartbeat):
                        await connection.news.wait()
                except TimeoutError:
                    await send(heartbeat(feed.position(reader, ask)))
        finally:
            feed.log.dismiss(reader)

    async def _write(
        self, write: Callable[[bytes], Awaitable[object]], piece: bytes
    ) -> None:
        limit = asyncio.timeout(self._write_timeout)
        try:
            async with limit:
                await write(piece)
        except TimeoutError as exc:
            if limit.expired():
                raise _Stuck from exc

            raise

    async def _chunk(self, feed: _Feed, reader: Reader, ask: StreamRequest) -> bytes:
        """What to send next; empty if all that was looked at is not for this reader."""
        budget = LoopBudget.current()
        await budget.start()
        parts: list[bytes] = []
        size = 0
        while reader.behind and size < CHUNK and not budget.over():
            told = reader.step()
            if told is None:
                continue

            position = feed.position(reader, ask)
            part = encode_event(
                told,
                position,
                secret_data=self._secret_data,
                resource=self._informer.resource,
            )
            parts.append(part)
            size += len(part)

        budget.end()
        return b"".join(parts)

    # ------------------------------------------------------------ all of them

    def _join(self, connection: _Connection) -> _Feed:
        if self._ended:
            raise InformerStopped("the informer has ended, or the app stops")

        if self._full:
            raise TooManyReaders("there are as many readers as there may be")

        if self._feed is None:
            self._feed = _Feed(self._informer, self._applied)

        self._connections.add(connection)
        if self._looking is None:
            self._look_again()

        return self._feed

    def _leave(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._left = asyncio.get_running_loop().time()
            if self._looking is not None:
                self._looking.cancel()
                self._looking = None

            if not self._resume_seconds:
                self._forget()

    def _applied(self) -> None:
        """The log has been filled."""
        if not self._connections:
            now = asyncio.get_running_loop().time()
            if now - self._left > self._resume_seconds:
                self._forget()

    def _forget(self) -> None:
        if self._feed is not None:
            self._feed.registration.remove()
            self._feed = None

    @property
    def _full(self) -> bool:
        return self._max_readers is not None and self.readers >= self._max_readers

    @property
    def _ended(self) -> bool:
        phase = self._informer.status.phase
        return self._closed or self._host_stops() or phase in {"stopping", "stopped"}

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._look_again()
        if self._ended:
            self._end()

        for connection in self._connections:
            connection.look()

    def _end(self) -> None:
        for connection in self._connections:
            connection.end()


_NARROWING = {"namespace", "labelSelector"}
