"""`replay()`: plays a recording to informers, as the server did."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.errors import OptionsError, RecordingError, ResourceExpired
from aioinformer.informer.notifications import Deleted, Updated, object_of
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.model.object_meta import version_number
from aioinformer.model.objects import KubeObject
from aioinformer.recording.log_file import TextReader, read_lines
from aioinformer.recording.reading import Reading
from aioinformer.recording.server_order import ServerOrder
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.interface import Watch

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from aioinformer.informer.notifications import Notification
    from aioinformer.model.resource import Resource
    from aioinformer.recording.lines import InformerLine
    from aioinformer.recording.reading import Change, Happening
    from aioinformer.watch.interface import ListOptions, WatchOptions

__all__ = ["Digest", "Replay", "ReplaySource", "ReplayTarget", "replay"]

logger: Final = guarded_logger(__name__)

GONE_SECONDS: Final = 90.0
"""Seconds after which an informer that has not asked for changes again has ended. The
longest delay between two of its requests is 60 s."""

HISTORY: Final = 10_000
"""Number of changes that a source knows, for watches that begin earlier."""

_BATCH: Final = 256
_ENTRIES: Final = 2_000
_PAGE: Final = 500
_INITIAL_EVENTS_END: Final = {"k8s.io/initial-events-end": "true"}


def replay(
    file: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    speed: float | None = None,
) -> Replay:
    """Play a recording to informers.

    ::

        async with replay("incident.alog") as played:
            pods = played.informer("pods")
            pods.add_event_handler(on_event=print)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(pods.run())
                await played.run()
                running.cancel()

    Args:
        file: Path of the recording.
        *more: Paths of its further files, if it was rotated, in their order.
        speed: Factor of time: 1 for the speed of the recording, 60 for a minute in a
            second. None to play as fast as the informers take the changes.

    Raises:
        OptionsError: If the speed is not more than 0, or the package for zstd is not
            installed: `pip install 'aioinformer[zstd]'`.
    """
    if speed is not None and not speed > 0:
        raise OptionsError(f"speed must be more than 0, or None, not {speed!r}")

    return Replay([Path(file), *map(Path, more)], speed)


class ReplayTarget(Protocol):
    """Receiver of what is played."""

    def apply(self, happening: Happening, *, quietly: bool = False) -> bool:
        """Take an entry.

        Args:
            happening: The entry, of any informer.
            quietly: True if `expire()` follows, so that nobody need be told.

        Returns:
            True if readers have to list again before the next entry.
        """

    def expire(self) -> None:
        """Make all readers list again."""

    async def taken(self) -> None:
        """Wait until all readers have taken everything. Cancellation: safe."""


class Replay:
    """Recording that is played, while it is entered. Made by `replay`.

    All informers share one position in the recording. Each source answers lists and
    watches with the state at that position. Where the recorded informer has listed
    again, its watch ends with the error 410, so that the played one does, too.

    Args:
        paths: Paths of the files.
        speed: Factor of time; None for as fast as possible.

    Attributes:
        speed: Factor of time; may be changed.
        time: Position: seconds since the beginning of the recording.
    """

    def __init__(self, paths: list[Path], speed: float | None = None) -> None:
        self._paths = paths
        self.speed = speed
        self.time: float = 0.0
        self._reading = Reading()
        self._order = ServerOrder()
        self._text = TextReader()
        self._portions: Generator[list[bytes], None, None] = self._lines()
        self._next: deque[Happening] = deque()
        self._sources: dict[tuple[str, str], ReplaySource] = {}
        self._targets: list[ReplayTarget] = []
        self._begun = False
        self._ended = False

    def __repr__(self) -> str:
        return f"<Replay {self._paths[0]} time={self.time:.3f}>"

    async def __aenter__(self) -> Self:
        """Open the recording, and read its beginning.

        Raises:
            RecordingError: If a file cannot be read, or is not a recording.

        Cancellation:
            Safe.
        """
        await self._peek()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        self._next.clear()
        await in_thread(self._portions.close)

    # ------------------------------------------------------------ what is in it

    @property
    def started(self) -> datetime:
        """Time of the recording at which `time` is 0."""
        return self._reading.started

    @property
    def informers(self) -> tuple[InformerLine, ...]:
        """Recorded informers, as far as they are known at this position."""
        return tuple(self._reading.informers)

    @property
    def ended(self) -> bool:
        """True if everything was played."""
        return self._ended and not self._next

    @property
    def unreadable(self) -> int:
        """Number of lines so far that could not be read, and are left out."""
        return self._reading.unreadable

    def source(self, name: str | None = None, *, namespace: str = "") -> ReplaySource:
        """Return the source of a recorded informer.

        Args:
            name: Name of the informer, or of its resource: `"pods"`. None for the only
                one.
            namespace: Namespace, if the informer has several; each has its own source.

        Raises:
            OptionsError: If there is no such informer, or more than one.
        """
        line = self._informer(name)
        known = self._sources.get((line.name, namespace))
        if known is None:
            known = ReplaySource(line, namespace)
            self.add(known)
            self._sources[line.name, namespace] = known

        return known

    def add(self, target: ReplayTarget) -> None:
        """Play to another target, such as a server.

        Raises:
            OptionsError: If something was played already, which it would not know.
        """
        if self._begun:
            raise OptionsError("add all targets and sources before playing")

        self._targets.append(target)

    def informer(self, name: str | None = None, **options: Any) -> SharedInformer:
        """Return a new informer of this recording, which has not been run.

        Args:
            name: Name of the recorded informer, or of its resource; None for the only
                one.
            **options: Options of `SharedInformer`.

        Raises:
            OptionsError: If there is no such informer, or more than one, or an option
                is invalid.
        """
        line = self._informer(name)
        options = {"name": line.name} | options
        if not line.namespaces:
            return SharedInformer(self.source(line.name), **options)

        sources = {it: self.source(line.name, namespace=it) for it in line.namespaces}
        return SharedInformer(sources, **options)

    def _informer(self, name: str | None) -> InformerLine:
        named = [it for it in self.informers if name in {None, it.name}]
        if not named:
            named = [it for it in self.informers if name in {it.plural, it.kind}]

        if len(named) == 1:
            return named[0]

        if self._reading.header is None:
            raise OptionsError("enter the replay first: `async with replay(file)`")

        names = ", ".join(repr(it.name) for it in self.informers) or "none"
        what = "no informer" if not named else "more than one informer"
        which = "" if name is None else f" {name!r}"
        raise OptionsError(f"recording has {what}{which}: it has {names}")

    # ------------------------------------------------------------ playing

    async def run(self, until: float | None = None) -> None:
        """Play up to a position, or to the end, once all informers run.

        It returns when the informers have taken the changes. Their handlers may still
        be busy.

        Args:
            until: Seconds since the beginning of the recording; None for its end.

        Raises:
            RecordingError: If the file cannot be read any more.

        Cancellation:
            Safe: call again to continue.
        """
        await self._taken()
        loop = asyncio.get_running_loop()
        due, position = loop.time(), self.time
        while (happening := await self._peek()) is not None:
            if until is not None and happening.t > until:
                break

            if self.speed is not None:
                due += (happening.t - position) / self.speed
                position = happening.t
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
            elif happening.kind == "CHANGE":
                await self._play_changes(happening, until)
                continue

            self._next.popleft()
            if self._apply(happening) or self.speed is None:
                await self._taken()

        await self._taken()
        if until is not None:
            self.time = max(self.time, until)

    async def step(self) -> Happening | None:
        """Play one entry, and wait until informers have taken it. None at the end.

        Raises:
            RecordingError: If the file cannot be read any more.

        Cancellation:
            Safe: the entry was played, or it was not.
        """
        await self._taken()
        happening = await self._peek()
        if happening is not None:
            self._next.popleft()
            self._apply(happening)
            await self._taken()

        return happening

    async def seek(self, seconds: float) -> None:
        """Go to a later position at once. Informers list again there.

        Args:
            seconds: Seconds since the beginning of the recording.

        Raises:
            OptionsError: If it is before the current position: open it again.
            RecordingError: If the file cannot be read any more.

        Cancellation:
            Leaves it at a position between.
        """
        if seconds < self.time:
            raise OptionsError("a replay goes forwards only: open the recording again")

        try:
            while (happening := await self._peek()) is not None:
                if happening.t > seconds:
                    break

                self._next.popleft()
                self._apply(happening, quietly=True)
        finally:
            for target in self._targets:
                target.expire()

        self.time = max(self.time, seconds)

    async def _play_changes(self, first: Happening, until: float | None) -> None:
        """Play the changes of one informer up to the next entry of another kind."""
        count = 0
        while count < _BATCH and (happening := await self._peek()) is not None:
            other = happening.kind != "CHANGE" or happening.informer != first.informer
            if other or (until is not None and happening.t > until):
                break

            self._next.popleft()
            count += 1
            if self._apply(happening):
                break

        await self._taken()

    def _apply(self, happening: Happening, *, quietly: bool = False) -> bool:
        """Play an entry; return True if readers have to list again."""
        self._begun = True
        self.time = max(self.time, happening.t)
        relists = False
        for target in self._targets:
            relists |= target.apply(happening, quietly=quietly)

        return relists

    async def _taken(self) -> None:
        """Wait until every informer has taken what was played."""
        for target in self._targets:
            await target.taken()

    async def _peek(self) -> Happening | None:
        while not self._next and not self._ended:
            stopped = threading.Event()
            await in_thread(partial(self._read, stopped), stop=stopped.set)

        return self._next[0] if self._next else None

    def _read(self, stopped: threading.Event) -> None:
        """Read some entries, as a thread for each line would take longer than that."""
        try:
            while not self._ended and len(self._next) < _ENTRIES:
                if stopped.is_set():
                    return

                lines = next(self._portions, None)
                if lines is None:
                    self._next.extend(self._order.finish())
                    self._ended = True
                    break

                for happening in self._reading.feed(lines):
                    self._next.extend(self._order.feed(happening))
        except OSError as exc:
            raise RecordingError(
                f"cannot read the recording {exc.filename}: {exc.strerror}"
            ) from exc

        if self._ended and self._reading.header is None:
            raise RecordingError(f"{self._paths[0]} is empty")

    def _lines(self) -> Generator[list[bytes], None, None]:
        for path in self._paths:
            yield from read_lines(path, self._text)


class ReplaySource:
    """Source of a recorded informer: a `ListerWatcher` of the state at the position.

    Several informers may use it. It ignores pages, time limits and versions of lists.

    Args:
        informer: Recorded informer.
        namespace: Namespace of the objects; empty for all.
    """

    def __init__(self, informer: InformerLine, namespace: str = "") -> None:
        self._informer = informer
        self._namespace = namespace
        self._objects: dict[str, KubeObject] = {}
        self._version = "0"
        self._listed = asyncio.Event()
        self._watches: set[ReplayWatch] = set()
        # Changes since the last list, each with the version before it.
        self._since_list: deque[tuple[str, WatchEvent]] = deque(maxlen=HISTORY)
        # False once its informer does not come back.
        self._followed = True
        # True once an informer has requested something.
        self._lists = False
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ReplaySource {self._informer.name} objects={len(self._objects)}>"

    @property
    def resource(self) -> Resource:
        """Resource of the objects."""
        return self._informer.resource

    def selects(self, obj: KubeObject) -> bool:
        """Return True: a recording has only objects that were selected."""
        return self._namespace in {"", obj.namespace}

    # ------------------------------------------------------------ ListerWatcher

    def list(self, options: ListOptions) -> AbstractAsyncContextManager[ReplayPage]:
        """List the objects at the position; waits for the first recorded list.

        Cancellation:
            Safe.
        """
        return self._list()

    @asynccontextmanager
    async def _list(self) -> AsyncIterator[ReplayPage]:
        self._begin()
        await self._listed.wait()
        yield ReplayPage(list(self._objects.values()), self._version)

    def watch(self, options: WatchOptions) -> AbstractAsyncContextManager[ReplayWatch]:
        """Watch the changes from the position on.

        It ends with the error 410 if it begins at another position than the source is
        at, and where the recorded informer has listed again.

        Cancellation:
            Safe.
        """
        return self._watch(options)

    @asynccontextmanager
    async def _watch(self, options: WatchOptions) -> AsyncIterator[ReplayWatch]:
        self._begin()
        await self._listed.wait()
        watch = ReplayWatch(self._changed.set)
        if options.send_initial_events or options.resource_version in {"", "0"}:
            for obj in self._objects.values():
                watch.push(WatchEvent(EventType.ADDED, obj))

            if options.send_initial_events:
                watch.push(self._end_of_initial_events())
        elif options.resource_version != self._version:
            for event in _changes_after(self._since_list, options.resource_version):
                watch.push(event)

        self._watches.add(watch)
        try:
            async with watch:
                yield watch
        finally:
            self._watches.discard(watch)
            self._changed.set()

    def _begin(self) -> None:
        self._followed = self._lists = True
        self._changed.set()

    # ------------------------------------------------------------ playing

    def apply(self, happening: Happening, *, quietly: bool = False) -> bool:
        """Change the state, and tell the watches unless they are about to expire."""
        if happening.informer is None or happening.informer.name != self._informer.name:
            return False

        kind = happening.kind
        if kind == "SYNCED":
            self._listed.set()
            return False

        changes = [it for it in happening.changes if self.selects(it.obj)]
        before = _versions(self._objects) if kind == "SNAPSHOT" else {}
        if kind == "SNAPSHOT":
            self._objects.clear()

        for change in changes:
            if change.kind == "DELETED":
                self._objects.pop(change.obj.key, None)
            else:
                self._objects[change.obj.key] = change.obj

        if kind in {"SNAPSHOT", "LIST", "RELIST"}:
            if kind == "SNAPSHOT" and before == _versions(self._objects):
                if not self._namespace:
                    self._listed.set()

                return False  # it only repeats what is known

            self._version = happening.version or self._version
            self._since_list.clear()
            if changes or before or not self._namespace:
                listed = self._listed.is_set()
                self._listed.set()
                if listed and not quietly:
                    self.expire()

                return listed

        elif kind == "CHANGE" and changes:
            return self._change(*changes, quietly=quietly)

        return False

    def _change(self, change: Change, *, quietly: bool) -> bool:
        version = change.obj.resource_version or self._version
        older = version_number(version) < version_number(self._version)
        # Only a list finds a missed deletion. What a changed selection has added or
        # removed was no event either. An object that a transform has left out was: the
        # recording has its last state.
        left = change.kind == "DELETED" and not change.moved
        if change.unknown or (older and not left):
            self._since_list.clear()
            if not quietly:
                self.expire()

            return True

        event = WatchEvent(EventType(change.kind), change.obj)
        self._since_list.append((self._version, event))
        self._version = self._version if older else version
        if not quietly:
            for watch in self._watches:
                watch.push(event)

        return False

    def expire(self) -> None:
        """End all watches with the error 410, so that informers list again."""
        for watch in self._watches:
            watch.push(_expired())

    async def taken(self) -> None:
        """Wait until every informer has taken everything, and waits for more."""
        if self._is_taken() or not self._followed:
            return

        try:
            async with asyncio.timeout(GONE_SECONDS):
                while not self._is_taken():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            logger.warning(
                "%s: its informer takes no more changes", self._informer.name
            )
            self._followed = False

    def _is_taken(self) -> bool:
        if not self._listed.is_set():
            return self._lists

        return bool(self._watches) and all(it.waits for it in self._watches)

    def _end_of_initial_events(self) -> WatchEvent:
        line = self._informer
        metadata = {
            "resourceVersion": self._version,
            "annotations": _INITIAL_EVENTS_END,
        }
        body = {"apiVersion": line.api_version, "kind": line.kind, "metadata": metadata}
        return WatchEvent(EventType.BOOKMARK, KubeObject.of(body))


class ReplayPage:
    """All objects of a source, as a list."""

    def __init__(self, objects: list[KubeObject], version: str) -> None:
        self._objects = objects
        self._version = version

    @property
    def resource_version(self) -> str:
        """Version of the list."""
        return self._version

    @property
    def continue_token(self) -> str:
        """Token of the next page: none."""
        return ""

    @property
    def skipped(self) -> int:
        """Number of objects left out: none."""
        return 0

    @property
    def unreadable(self) -> list[str]:
        """Keys of unreadable objects: none."""
        return []

    async def __aiter__(self) -> AsyncGenerator[list[KubeObject], None]:
        for start in range(0, len(self._objects), _PAGE):
            yield self._objects[start : start + _PAGE]


class ReplayWatch(Watch):
    """Watch of a source.

    Args:
        on_change: Function called when it has taken everything, or has ended.
    """

    def __init__(self, on_change: Any) -> None:
        super().__init__()
        self._queue: list[WatchEvent] = []
        self._filled = asyncio.Event()
        self._on_change = on_change
        self.waits: bool = False
        """True while its reader waits, and has everything."""

    def push(self, event: WatchEvent) -> None:
        """Add an event."""
        self._queue.append(event)
        self.waits = False
        self._filled.set()

    async def _fetch(self) -> list[WatchEvent]:
        while not self._queue:
            if self.stopped:
                return []

            self._filled.clear()
            self.waits = True
            self._on_change()
            try:
                await self._filled.wait()
            finally:
                self.waits = False

        events, self._queue = self._queue, []
        return events

    def _close(self) -> None:
        self._queue = []
        self._filled.set()


class Digest:
    """Digest of what a handler is told: `add_event_handler(on_event=digest)`.

    The order of the notifications of one object counts, but not that of different
    objects, which informers do not promise. Resyncs do not count.
    """

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}
        self.count: int = 0

    def __call__(self, event: Notification) -> None:
        """Add a notification."""
        if isinstance(event, Updated) and event.resync:
            return

        self.count += 1
        obj = object_of(event)
        known = self._hashes.get(obj.key)
        if known is None:
            known = self._hashes[obj.key] = hashlib.blake2b(digest_size=16)

        unknown = isinstance(event, Deleted) and event.final_state_unknown
        known.update(f"{type(event).__name__} {unknown} {obj.uid} ".encode() + obj.raw)

    def hexdigest(self) -> str:
        """Return the digest of all notifications so far."""
        whole = hashlib.blake2b(digest_size=16)
        for key, one in sorted(self._hashes.items()):
            whole.update(key.encode() + one.digest())

        return whole.hexdigest()


def _changes_after(
    since_list: Iterable[tuple[str, WatchEvent]], version: str
) -> list[WatchEvent]:
    """Return the changes after a version, or the error 410 if it is not known."""
    changes = list(since_list)
    for place, (before, _) in enumerate(changes):
        if before == version:
            return [event for _, event in changes[place:]]

    return [_expired()]


def _versions(objects: dict[str, KubeObject]) -> dict[str, tuple[str, str]]:
    return {key: (it.uid, it.resource_version) for key, it in objects.items()}


def _expired() -> WatchEvent:
    message = "the recorded informer has listed again"
    return WatchEvent.of_error(ResourceExpired(message, status=410, reason="Expired"))
