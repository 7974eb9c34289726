"""`record()`: records what informers receive, while they run.

In the event loop, a recorder only keeps references to the batches of changes that the
informers publish anyway. Once a second, a thread turns them into lines, compresses them
and writes the file. So a slow disk never delays the loop, and an error of the disk ends
the recording only.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioinformer._runnables import wait_until_cancelled
from aioinformer._tasks import in_thread, wait_through_cancellation
from aioinformer._user_code import guarded_logger, text_of
from aioinformer.errors import OptionsError, RecordingError
from aioinformer.informer.handlers.inbox import Relisted, Snapshot
from aioinformer.informer.lifecycle import Lifecycle
from aioinformer.informer.notifications import Added, Deleted, Updated, object_of
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.times import seconds_of
from aioinformer.recording.lines import InformerLine
from aioinformer.recording.log_file import compressor
from aioinformer.recording.redaction import Redaction
from aioinformer.recording.sinks import (
    Entry,
    FileSink,
    Listed,
    Note,
    Relist,
    RingSink,
    Whole,
    stamped,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aioinformer.errors import HandlerError
    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.model.times import Duration
    from aioinformer.recording.sinks import Sink

__all__ = ["HasInformers", "Recorder", "record"]

logger: Final = guarded_logger(__name__)

FLUSH_SECONDS: Final = 1.0
"""Seconds after a change at which it is passed to the writer. A kill loses so much."""

MOST_BEHIND: Final = 20_000
"""Number of changes that the writer may be behind. Beyond, changes are dropped, and the
recording goes on with all objects as soon as the writer has caught up."""


SAVE_SECONDS: Final = 60.0
"""Shortest time between two files that callbacks make a recorder save."""

FAILURES: Final = 5
"""Number of failures of one object after which the recording is saved."""

# Objects whose failures are counted, the latest ones.
_MOST_FAILING: Final = 1000


class HasInformers(Protocol):
    """Factory or manager."""

    @property
    def informers(self) -> tuple[SharedInformer, ...]:
        """Its informers."""


def record(
    informers: HasInformers | SharedInformer | Iterable[SharedInformer],
    file: str | os.PathLike[str],
    *,
    last: Duration | None = None,
    redact: Iterable[str | tuple[str, ...]] = (),
    hide_secrets: bool = True,
    hash_names: bool = False,
    rotate_bytes: int | None = None,
    rotate_every: Duration | None = None,
    keep: int | None = None,
) -> Recorder:
    """Record what informers receive, while they run.

    ::

        async with record(factory, "incident.alog"):
            ...

    The recording begins with the objects in the stores, or with the first lists if the
    informers have not been run. Then it has every change that their handlers are told,
    with its time, and the states of the informers: phases, failures, errors. Objects
    are recorded as they are stored, after the transform. `replay` plays the file.

    The file is written once a second. If the program is killed, everything up to then
    can be read. An existing recording is continued.

    Args:
        informers: Factory or manager, whose informers at the start are recorded; an
            informer, or several. `Recorder.add` adds later ones. Those with a store on
            disk are refused.
        file: Path of the recording, usually with the ending `.alog`.
        last: Seconds, or a timedelta, to keep in memory, compressed, instead of writing
            everything. `Recorder.save` writes them, also after a signal or when a
            reconcile keeps failing: `save_soon`, `on_error`. None to write everything.
        redact: Paths of fields whose values are replaced by hashes, such as
            `"spec.containers.*.env.*.value"`, or tuples if keys have dots. `*` stands
            for all items.
        hide_secrets: True to replace the data of Secrets, too.
        hash_names: True to replace names and namespaces by hashes, the same ones
            everywhere in a recording, also values of labels and annotations, and
            messages. It takes some 50 microseconds for each change.
        rotate_bytes: Size of the file in bytes from which a new one begins. The full one
            is renamed: `incident.alog` to `incident-20260131T090000.123456Z.alog`.
            None for no limit.
        rotate_every: Seconds, or a timedelta, after which a new file begins. None for no
            limit.
        keep: Number of full files to keep. Older ones are deleted. None for all.

    Raises:
        OptionsError: If an option is invalid, an informer has its store on disk, or the
            package for zstd is not installed: `pip install 'aioinformer[zstd]'`.
    """
    chosen: tuple[SharedInformer, ...] | HasInformers
    if isinstance(informers, SharedInformer):
        chosen = (informers,)
    else:
        chosen = tuple(informers) if isinstance(informers, Iterable) else informers

    path = Path(file)
    ring = None if last is None else _positive("last", seconds_of(last))
    every = None
    if rotate_every is not None:
        every = _positive("rotate_every", seconds_of(rotate_every))

    for name, number in {"rotate_bytes": rotate_bytes, "keep": keep}.items():
        given: Any = number
        if given is not None and (not isinstance(given, int) or given < 1):
            raise OptionsError(
                f"{name} must be a whole number from 1 on, not {number!r}"
            )

    if ring is not None and (rotate_bytes, every, keep) != (None, None, None):
        raise OptionsError("files of last= are written by save(): they are not rotated")

    redaction = Redaction(redact, hide_secrets=hide_secrets, hash_names=hash_names)
    sink: Sink
    if ring is None:
        sink = FileSink(path, redaction, rotate_bytes, every, keep)
    else:
        sink = RingSink(path, redaction, ring)

    return Recorder(chosen, sink, redaction)


def _positive(name: str, seconds: float) -> float:
    if seconds <= 0:
        raise OptionsError(f"{name} must be more than 0 s, not {seconds:g} s")

    return seconds


class Recorder(Lifecycle):
    """Recording of informers, while it is entered. Made by `record`.

    It owns a thread, and a timer while there are changes that were not written yet.
    Informers may be started, stopped and added meanwhile. If the file cannot be
    written, the recording ends with a line in the log, and the informers go on;
    `failure` has the error.

    Args:
        informers: Informers to record from the beginning, or their owner.
        sink: Sink of the entries.
        redaction: Rules for what is recorded.
    """

    def __init__(
        self,
        informers: tuple[SharedInformer, ...] | HasInformers,
        sink: Sink,
        redaction: Redaction,
    ) -> None:
        compressor()  # fails early without its package
        self._chosen = informers
        self._sink = sink
        self._redaction = redaction
        self._observers: list[_Observer] = []
        self._pending: list[Entry] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: _Writer | None = None
        self._zero = 0.0
        # True after changes were dropped, until all objects are recorded again.
        self._lost = False
        # File that was saved last.
        self._saved: Path | None = None
        self._next_save = 0.0
        # Relists of the current step: an informer publishes one in several batches.
        self._relists: dict[int, Relist] = {}
        # Times of the latest failures, by code and key.
        self._failures: dict[tuple[str, str, str], deque[float]] = {}
        self._passed = 0
        self.changes: int = 0
        """Number of changes that were recorded, or are about to be."""
        self.dropped: int = 0
        """Number of times that changes were dropped, because the disk was too slow."""

    def __repr__(self) -> str:
        return f"<Recorder {self.path} informers={len(self._observers)}>"

    @property
    def path(self) -> Path:
        """Path of the file that is written; with `last=`, of the one saved last."""
        return self._saved or self._sink.path

    @property
    def continues(self) -> bool:
        """True if the file had a recording before, which this one continues."""
        return self._sink.continues

    @property
    def failure(self) -> Exception | None:
        """Error that has ended the recording, or None."""
        return None if self._thread is None else self._thread.failure

    async def failed(self) -> Exception:
        """Wait until the recording has ended by an error, and return it.

        Raises:
            OptionsError: If it was not started.

        Cancellation:
            Safe.
        """
        thread = self._thread
        if thread is None:
            raise OptionsError("a recorder fails while it is entered: async with")

        await thread.failed.wait()
        assert thread.failure is not None
        return thread.failure

    async def start(self) -> None:
        """Open the file, and begin.

        Raises:
            OptionsError: If it was started before, or an informer has its store on disk.
            RecordingError: If the file cannot be opened, is no recording, another user
                owns it, or another recorder writes it.
            InformerStopped: If an informer has ended.

        Cancellation:
            It is not started, and an empty recording may be left.
        """
        if self._loop is not None:
            raise OptionsError("a recorder runs only once: call record() again")

        self._loop = asyncio.get_running_loop()
        started = datetime.now(UTC)
        try:
            await in_thread(lambda: self._sink.begin(started))
        except OSError as exc:
            raise RecordingError(
                f"cannot record to {self.path}: {_reason(exc)}"
            ) from exc

        self._zero = self._loop.time()
        self._thread = _Writer(self._sink, self._loop, self._rotate)
        self._thread.start()
        chosen = self._chosen
        try:
            for informer in chosen if isinstance(chosen, tuple) else chosen.informers:
                self.add(informer)
        except BaseException:
            await self.shutdown()
            raise

    def add(self, informer: SharedInformer) -> None:
        """Record another informer, too. One that is recorded already is ignored.

        Raises:
            OptionsError: If the recorder does not run, or the informer has its store on
                disk.
            InformerStopped: If the informer has ended.
            WrongLoop: If the informer runs in another event loop.
        """
        if self._thread is None or self._thread.ended:
            raise OptionsError("a recorder records while it is entered: async with")

        if all(it.informer is not informer for it in self._observers):
            number = len(self._observers)
            name, count = informer.name, 1
            while any(it.name == name for it in self._observers):
                count += 1
                name = f"{informer.name} #{count}"

            observer = _Observer(informer, number, name, self._put, self._redaction)
            observer.begin()
            self._observers.append(observer)

    async def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write everything up to now, and return the path of the file.

        With `last=`, the file has the changes that are kept in memory, and the objects
        before them. Otherwise, what is recorded is passed to the operating system.

        Args:
            path: Path of a new file, with `last=` only. None for that of `record`, with
                the time in the name.

        Raises:
            RecordingError: If it cannot be written.
            OptionsError: If the recorder does not run, or has a path but not `last=`.

        Cancellation:
            The file is written nevertheless.
        """
        target, saved = self._begin_save(None if path is None else Path(path))
        await asyncio.wait({saved})
        error = self.failure or saved.exception()
        if isinstance(error, Exception):
            raise RecordingError(f"cannot write {target}: {_reason(error)}") from error

        return target

    def _begin_save(self, path: Path | None) -> tuple[Path, asyncio.Future[None]]:
        """Pass everything on, and return the file and the future of its end."""
        thread = self._thread
        if thread is None or thread.ended:
            raise OptionsError("a recorder saves while it is entered: async with")

        keeps = isinstance(self._sink, RingSink)
        if path is not None and not keeps:
            raise OptionsError("save() has a path only with last=")

        self._pass_on()
        now = {}
        if keeps:
            now = {it.number: it.whole() for it in self._observers if it.has_objects}

        wanted = stamped(self._sink.path, datetime.now(UTC)) if keeps else self.path
        target, t = path or wanted, self._t()
        saved = thread.call(lambda: self._sink.save(target, t, now))
        saved.add_done_callback(lambda done: self._note_saved(done, target))
        return target, saved

    def _note_saved(self, done: asyncio.Future[None], path: Path) -> None:
        if done.exception() is None:
            self._saved = path

    def save_soon(self) -> None:
        """Begin to `save()`, unless that was begun within the last minute.

        For signal handlers and callbacks: it does not wait, and the log has the path, or
        why it failed. ::

            loop.add_signal_handler(signal.SIGUSR2, recorder.save_soon)
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or thread.ended:
            return

        if loop.time() >= self._next_save:
            self._next_save = loop.time() + SAVE_SECONDS
            path, saved = self._begin_save(None)
            saved.add_done_callback(lambda done: _log_saved(done, path))

    def on_error(self, failure: HandlerError) -> None:
        """Count a failure of the program, and save if its object keeps failing.

        Pass it to what may fail, with `last=`::

            Controller("sites", reconcile, on_error=recorder.on_error)

        The fifth failure for one object within the time that is kept begins a
        `save_soon()`.
        """
        if self._loop is None:
            return

        subject: Any = failure.subject
        if isinstance(subject, Added | Updated | Deleted):
            subject = object_of(subject)

        now = self._loop.time()
        place = (failure.where, failure.name, str(getattr(subject, "key", "")))
        times = self._failures.setdefault(place, deque(maxlen=FAILURES))
        times.append(now)
        if len(times) == FAILURES and now - times[0] <= self._sink.seconds:
            del self._failures[place]
            self.save_soon()

        if len(self._failures) > _MOST_FAILING:
            self._failures.pop(next(iter(self._failures)))

    async def shutdown(self) -> None:
        """End the recording, and wait until everything is written. Idempotent.

        Raises:
            RecordingError: If the file could not be written, at any time.

        Cancellation:
            Deferred until everything is written.
        """
        thread = self._thread
        if thread is None:
            return

        if thread.ended:  # by another call
            await thread.closed.wait()
            return

        if self._lost:
            self._begin_again()

        for observer in self._observers:
            observer.end()

        if self._timer is not None:
            self._timer.cancel()

        self._pass_on()
        t = self._t()
        await thread.end(lambda: self._sink.close(t))
        if thread.failure is not None:
            raise RecordingError(
                f"cannot record to {self.path}: {_reason(thread.failure)}"
            ) from thread.failure

    async def run(self) -> None:
        """Record until cancelled: `manager.add(recorder, leader_only=False)`.

        Raises:
            RecordingError: If the file cannot be opened.

        Cancellation:
            Ends the recording.
        """
        async with self:
            await wait_until_cancelled()

    # ------------------------------------------------------------ in the loop

    def _t(self) -> float:
        assert self._loop is not None
        return self._loop.time() - self._zero

    def _put(self, number: int, what: Any) -> None:
        """Take an entry; called in the steps that change a store."""
        if self._lost and not isinstance(what, InformerLine):
            return

        if isinstance(what, list | Relist):
            self.changes += len(what if isinstance(what, list) else what.batch)

        if isinstance(what, Relist):
            open_one = self._relists.get(number)
            if open_one is not None:  # of the same step
                open_one.batch.extend(what.batch)
                return

            self._relists[number] = what
            assert self._loop is not None
            self._loop.call_soon(self._relists.clear)

        self._pending.append(Entry(self._t(), number, what))
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(FLUSH_SECONDS, self._due)

    def _due(self) -> None:
        self._timer = None
        thread = self._thread
        assert thread is not None
        if thread.ended:
            return

        if thread.behind <= MOST_BEHIND:
            self._begin_again() if self._lost else self._pass_on()
            return

        assert self._loop is not None
        if not self._lost:
            self._lost = True
            self.dropped += 1
            pending = self._pending
            self._pending = [it for it in pending if isinstance(it.what, InformerLine)]
            self._passed = self.changes
            logger.warning("recording to %s: the disk is too slow, dropping", self.path)

        self._timer = self._loop.call_later(FLUSH_SECONDS, self._due)

    def _begin_again(self) -> None:
        """Record all objects, after changes were dropped."""
        self._lost = False
        if self._sink.full:
            self._rotate()

        for observer in self._observers:
            observer.put_whole("changes before it were dropped: the disk was too slow")

        self._pass_on()

    def _pass_on(self) -> None:
        """Pass the entries to the thread."""
        if self._pending and self._thread is not None:
            portion, self._pending = self._pending, []
            self._thread.put(portion, self.changes - self._passed)
            self._passed = self.changes

    def _rotate(self) -> None:
        """Begin a new file with all objects; called when the current one is full."""
        thread = self._thread
        if thread is None or thread.ended or self._lost:
            return

        self._pass_on()
        thread.put(self._t())
        for observer in self._observers:
            observer.put_whole()

        self._pass_on()


class _Observer:
    """Observer of one informer, which passes on what happens.

    Args:
        informer: The informer.
        number: Its number in the recording.
        name: Its name in the recording, unlike that of any other.
        put: Function that takes the number and what has happened.
        redaction: Rules for names and texts.
    """

    def __init__(
        self,
        informer: SharedInformer,
        number: int,
        name: str,
        put: Callable[[int, Any], None],
        redaction: Redaction,
    ) -> None:
        self.informer = informer
        self.number = number
        self.name = name
        self._put = put
        self._redaction = redaction
        self._remove: Callable[[], None] = lambda: None
        self._state: tuple[str, int, str] = ("", 0, "")
        self._line: InformerLine | None = None
        self._ended = False
        # The objects that are stored already are put while it begins.
        self._beginning = False

    def begin(self) -> None:
        """Put the informer and its objects, and observe it."""
        self._line = self._described()
        self._put(self.number, self._line)
        self._beginning = True
        try:
            if self.informer.has_synced and not len(self.informer.indexer):
                self._put(self.number, self.whole())

            self._remove = self.informer.observe(self)
        finally:
            self._beginning = False

        self.state_changed()

    def end(self) -> None:
        """Observe it no more."""
        self._remove()

    def whole(self) -> Whole:
        """Return all objects of the informer."""
        indexer = self.informer.indexer
        return Whole(indexer.list(), indexer.resource_version)

    @property
    def has_objects(self) -> bool:
        """True once the informer knows what there is, or a part of it."""
        return self.informer.has_synced or bool(len(self.informer.indexer))

    def put_whole(self, text: str = "") -> None:
        """Put all objects, as far as the informer has them."""
        if self.has_objects:
            whole = self.whole()
            self._put(self.number, Whole(whole.objects, whole.version, text))

        if self.informer.has_synced:
            self.mark_synced()

    def put(self, batch: Batch) -> None:
        """Receive changes; see `Observer`."""
        what: Any = batch
        if isinstance(batch, Snapshot):
            version = self.informer.indexer.resource_version
            what = self.whole() if self._beginning else Listed(batch, version)
        elif isinstance(batch, Relisted):
            what = Relist(list(batch), self.informer.indexer.resource_version)

        self._put(self.number, what)

    def mark_synced(self) -> None:
        """Receive that the first list is complete; see `Observer`."""
        described = self._described()
        if described != self._line:  # it has found its resource
            self._line = described
            self._put(self.number, described)

        self._put(self.number, Note("SYNCED"))

    def state_changed(self) -> None:
        """Receive a change of the state; see `Observer`."""
        status = self.informer.status
        error = "" if status.last_error is None else text_of(status.last_error, str)
        if self._redaction.hash_names and error:
            error = type(status.last_error).__name__

        state = (status.phase, status.failures, error)
        if state != self._state:
            self._state = state
            phase, failures, text = state
            fields = {"phase": phase, "failures": failures, "text": text}
            self._put(self.number, Note("STATUS", fields))

    def _described(self) -> InformerLine:
        informer, name = self.informer, self._redaction.name
        resource = informer.resource
        selection = informer.selection
        known: dict[str, Any] = {}
        if resource is not None:
            known = {
                "api_version": resource.api_version,
                "plural": resource.plural,
                "kind": resource.kind,
                "namespaced": resource.namespaced,
            }

        return InformerLine(
            t=0.0,
            e="INFORMER",
            s=self.number,
            name=name(self.name),
            namespaces=[*map(name, informer.status.namespaces)],
            label_selector=name(selection.label_selector),
            field_selector=name(selection.field_selector),
            **known,
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """Function to call in the thread, and the future of its end."""

    action: Callable[[], None]
    done: asyncio.Future[None]


class _Writer(threading.Thread):
    """Thread that writes portions to a sink, in order.

    Args:
        sink: The sink.
        loop: Loop of the recorder.
        on_full: Function called in the loop when the sink is full.
    """

    def __init__(
        self, sink: Sink, loop: asyncio.AbstractEventLoop, on_full: Callable[[], None]
    ) -> None:
        super().__init__(name="aioinformer recorder", daemon=True)
        self._sink = sink
        self._loop = loop
        self._on_full = on_full
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._put = 0
        self._done = 0
        self.ended = False
        """True once nothing more is accepted; set by the loop."""
        self.closed = asyncio.Event()
        """Set once everything is written after `ended`."""
        self.failed = asyncio.Event()
        """Set once there is a failure."""
        self.failure: Exception | None = None
        """First error of the sink, after which nothing is written."""

    @property
    def behind(self) -> int:
        """Number of changes that are not written yet."""
        return self._put - self._done

    def put(self, what: Any, changes: int = 0) -> None:
        """Queue a portion with a number of changes, or the time of a new file."""
        self._put += changes
        self._queue.put((what, changes))

    def call(self, action: Callable[[], None]) -> asyncio.Future[None]:
        """Call a function of the sink after what was put; return the future of its end."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(_Call(action, done))
        return done

    async def end(self, close: Callable[[], None]) -> None:
        """Write what was put, close the sink, and end.

        Cancellation:
            Deferred until it has ended.
        """
        self.ended = True
        done = self.call(close)
        self._queue.put(None)
        interrupted = await wait_through_cancellation(done)
        self.closed.set()
        if isinstance(error := done.exception(), Exception):
            self.failure = self.failure or error

        if interrupted is not None:
            raise interrupted

    def run(self) -> None:
        """Write until the end."""
        while (what := self._queue.get()) is not None:
            if isinstance(what, _Call):
                self._settle(what.done, self._tried(what.action))
                continue

            portion, changes = what
            if self.failure is None:
                self._write(portion)

            self._done += changes

    def _write(self, what: Any) -> None:
        was_full = self._sink.full
        if isinstance(what, float):
            error = self._tried(lambda: self._sink.rotate(what))
        else:
            error = self._tried(lambda: self._sink.write(what))

        if error is not None:
            self.failure = error
            self._loop.call_soon_threadsafe(self.failed.set)
            logger.error("recording to %s ended: %s", self._sink.path, _reason(error))
        elif self._sink.full and not was_full:
            self._loop.call_soon_threadsafe(self._on_full)

    def _tried(self, action: Callable[[], None]) -> Exception | None:
        try:
            action()
        except Exception as exc:  # noqa: BLE001 - a bug ends only the recording, too
            return exc

        return None

    def _settle(self, done: asyncio.Future[None], error: Exception | None) -> None:
        def settle() -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        self._loop.call_soon_threadsafe(settle)


def _log_saved(done: asyncio.Future[None], path: Path) -> None:
    error = done.exception()
    if isinstance(error, Exception):
        logger.error("recording was not saved to %s: %s", path, _reason(error))
    else:
        logger.warning("recording saved to %s", path)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or repr(error)
