"""`CachedSource`: the source of an informer whose objects are in a store on disk."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioinformer._tasks import fail_when_any_ends, in_next_turn, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget
from aioinformer.cache.disk.contents import DiskContents
from aioinformer.cache.disk.failures import lacks_descriptors
from aioinformer.cache.disk.header import Header, WriterState, same_identity
from aioinformer.cache.disk.prints import print_of
from aioinformer.cache.disk.readers import ReaderSlot
from aioinformer.cache.disk.records import Records
from aioinformer.cache.index import Index
from aioinformer.cache.memory import MemoryContents
from aioinformer.errors import CacheError
from aioinformer.informer.cached.ended import ended_contents
from aioinformer.informer.cached.follower import Follower
from aioinformer.informer.cached.journal import Journal
from aioinformer.informer.cached.writer import CacheWriter, cache_error_in, error_in
from aioinformer.informer.handlers.inbox import Snapshot
from aioinformer.informer.listwatch.interface import Resume
from aioinformer.informer.status import CacheStatus, InformerStatus, describe_state
from aioinformer.watch.interface import Identified

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.store import Indexer
    from aioinformer.informer.cached.place import CachePlace
    from aioinformer.informer.handlers.error_reporter import ErrorReporter
    from aioinformer.informer.handlers.processor import Processor
    from aioinformer.informer.lifecycle import RunState
    from aioinformer.informer.listwatch.reflector import Reflector
    from aioinformer.informer.namespace_sources import NamespaceSource
    from aioinformer.informer.store.pipeline import Pipeline
    from aioinformer.informer.store.transformer import Transformer
    from aioinformer.informer.store.waiters import StoreWaiters
    from aioinformer.metrics import ScopedSink
    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.interface import ListerWatcher

__all__ = ["CachedSource", "InformerParts"]

logger: Final = guarded_logger(__name__)

CLEAN_SECONDS: Final = 60.0
"""Seconds between two searches for unused stores of the same selection."""

OPEN_SECONDS: Final = 1.0
"""Seconds between two attempts to open the store without descriptors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerParts:
    """Parts of a `SharedInformer` that its source uses.

    Attributes:
        name: Name of the informer.
        list_watch: Source to list and watch.
        indexer: Store that users read.
        processor: Processor of its handlers.
        waiters: Tasks that wait for states of the store.
        transformer: Caller of the user's transform.
        reporter: Reporter of errors of the user's functions.
        run_state: State of the run.
        metrics: Sink of the informer.
        on_change: Function called after each change of the state.
        reflector: Constructor of a reflector, with the options of the informer.
        in_memory: Function that returns the source of an informer in memory, for such a
            constructor.
    """

    name: str
    list_watch: ListerWatcher
    indexer: Indexer[KubeObject]
    processor: Processor
    waiters: StoreWaiters
    transformer: Transformer
    reporter: ErrorReporter
    run_state: RunState
    metrics: ScopedSink
    on_change: Callable[[], None]
    reflector: Callable[..., Reflector]
    in_memory: Callable[[Callable[..., Reflector]], tuple[NamespaceSource, ...]]


@dataclass(frozen=True, slots=True)
class OpenStore:
    """Store on disk that this process has opened."""

    env: Environment
    records: Records
    journal: Journal
    contents: DiskContents
    slot: ReaderSlot
    follower: Follower
    writer: CacheWriter

    async def close(self) -> None:
        """Close it, for this informer.

        Cancellation:
            Deferred until it is closed.
        """
        self.slot.close()
        await _closed(self.env)


@dataclass(frozen=True, slots=True)
class ToldStore:
    """Objects in memory that handlers were told, as of one moment of the store on disk.

    Attributes:
        contents: The objects, and the version to watch from.
        cluster: Uid of their cluster; empty if unknown.
        deletions: Versions of later deletions that they have, by key.
    """

    contents: MemoryContents[KubeObject]
    cluster: str = ""
    deletions: Mapping[str, int] | None = None


class CachedSource:
    """Source of an informer whose objects are in a store on disk.

    It follows the store, and becomes its writer if no other process is. If the store
    cannot be used, it continues as the source of an informer in memory.

    Args:
        parts: Parts of the informer.
        place: Place of the store.
    """

    namespace: None = None
    """None, as it has all objects of the informer."""

    def __init__(self, parts: InformerParts, place: CachePlace) -> None:
        self._parts = parts
        self._place = place
        self._store: OpenStore | None = None
        # Source in memory, after a fallback; and the cause of that.
        self._memory: NamespaceSource | None = None
        self._failure: CacheError | None = None
        # True if the store in memory began with everything that handlers were told.
        self._kept = False
        self._on_error: Callable[[Exception], None] | None = None
        # Header with the identity of the objects of this informer.
        self._claims = Header()
        self._path = place.root / place.directory  # until the claims are known
        # State when the store was closed.
        self._last = WriterState()
        self._was_synced = False

    def __repr__(self) -> str:
        return f"<CachedSource {self._parts.name} {self._cache_status(None).role}>"

    @property
    def list_watch(self) -> ListerWatcher:
        """List-watch of its objects."""
        return self._parts.list_watch

    # ------------------------------------------------------------ running

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, NoReturn]]]:
        """Return its task by name; it runs until it is cancelled."""
        return {f"{self._parts.name} cache": self._run}

    async def _run(self) -> NoReturn:
        try:
            store = self._store = await self._open_when_possible()
        except CacheError as exc:
            self._fall_back(exc, None)
        else:
            await self._run_on_disk(store)

        assert self._memory is not None
        await _run_together(self._memory.tasks())

    async def _run_on_disk(self, store: OpenStore) -> None:
        """Follow and write the store; return once the informer goes on in memory."""
        name = self._parts.name
        try:
            await _run_together(
                {
                    # First: if no other process writes, the state of the last writer is
                    # replaced before the follower reads it. That may have been killed.
                    f"{name} writer": store.writer.run,
                    f"{name} follower": store.follower.run,
                    f"{name} clean-up": self._remove_unused,
                }
            )
        except BaseExceptionGroup as group:
            failure = cache_error_in(group)

        self._fall_back(failure, await self._load(store))
        await store.close()

    async def _open_when_possible(self) -> OpenStore:
        """Open the store, once the process has descriptors for that."""
        waits = False
        while True:
            try:
                return await self._open()
            except (CacheError, OSError) as exc:
                if not lacks_descriptors(exc):
                    raise

                if not waits:
                    logger.warning("%s: tries again: %s", self._parts.name, exc)
                    waits = True

            await asyncio.sleep(OPEN_SECONDS)

    async def _open(self) -> OpenStore:
        """Open the store, and let users read it."""
        parts, place = self._parts, self._place
        claims = self._claims = await self._identity()
        self._path = place.path(claims)
        env = await _opened(place, self._path)
        slot: ReaderSlot | None = None
        try:
            records = Records(env, place.metadata_of)
            journal = Journal(env, records)
            contents = DiskContents(
                env, records, parts.indexer.indexers, parts.indexer.report
            )
            slot = ReaderSlot(env.path / "readers")
            follower = Follower(
                env,
                records,
                journal,
                contents,
                slot,
                parts.processor,
                parts.waiters,
                parts.on_change,
                claims=claims,
                name=parts.name,
            )
        except BaseException:
            if slot is not None:
                slot.close()

            await _closed(env)
            raise

        writer = CacheWriter(
            parts.name,
            env,
            records,
            journal,
            claims,
            functions=lambda: parts.indexer.indexers,
            transformer=parts.transformer,
            reporter=parts.reporter,
            reflector=self._new_reflector,
            metrics=parts.metrics,
        )
        parts.indexer.use(contents)
        for listener in parts.processor.listeners:
            follower.add(listener)

        return OpenStore(env, records, journal, contents, slot, follower, writer)

    async def _identity(self) -> Header:
        """Return the identity of the objects of this informer."""
        source = self._parts.list_watch
        endpoint = (
            await source.endpoint_print() if isinstance(source, Identified) else ""
        )
        transform = self._parts.transformer.function
        functions = list(self._parts.indexer.indexers.values())

        def call() -> str:
            for function in functions:
                print_of(function)  # may read the versions of packages, here and once

            return print_of(transform)

        return Header(
            selection=self._place.selection,
            endpoint=endpoint,
            transform=await in_thread(call, stop=_do_nothing),
        )

    def _new_reflector(self, pipeline: Pipeline, resume: Resume) -> Reflector:
        parts = self._parts
        reflector = parts.reflector(
            parts.list_watch,
            pipeline,
            name=parts.name,
            metrics=parts.metrics,
            resume=resume,
        )
        reflector.set_watch_error_handler(self._on_error)
        return reflector

    async def _remove_unused(self) -> NoReturn:
        """Remove unused stores of the same selection, while this process writes."""
        store = self._store
        assert store is not None
        while True:
            await asyncio.sleep(CLEAN_SECONDS)
            if store.writer.reflector is not None and store.follower.synced:
                call = partial(self._place.remove_unused, self._path)
                with suppress(OSError):  # no thread, or no file, can be opened now
                    await in_thread(call, stop=_do_nothing)

    async def close(self) -> None:
        """Close the store, after the last handler has ended. Idempotent.

        Cancellation:
            Deferred until it is closed.
        """
        store, indexer = self._store, self._parts.indexer
        if store is not None:
            self._leave(store)
            try:
                count, version = len(indexer), indexer.resource_version
            except CacheError:  # it cannot be read any more
                count, version = 0, ""

            ended = ended_contents(self._parts.name, count)
            ended.resource_version = version
            indexer.use(ended)
            await store.close()

    def _leave(self, store: OpenStore) -> None:
        """Keep the state of the store, before it is closed."""
        self._last, self._was_synced = self._state, store.follower.synced
        self._store = None

    # ------------------------------------------------------------ fallback

    async def _load(self, store: OpenStore) -> ToldStore | None:
        """Return the objects that handlers were told, in memory; None if there are none."""
        if not store.follower.synced:
            return None

        try:
            return await self._copy(store)
        except CacheError as exc:
            logger.warning("%s: cannot read the cache: %s", self._parts.name, exc)

        return None

    async def _copy(self, store: OpenStore) -> ToldStore:
        """Copy the objects, and tell handlers all changes up to that moment."""
        functions = store.contents.functions
        contents: MemoryContents[KubeObject] = MemoryContents(
            {name: Index(function) for name, function in functions.items()},
            self._parts.indexer.report,
        )

        def put(key: str, obj: KubeObject | None) -> None:
            if obj is None:
                contents.remove(key)
            else:
                contents.put(key, obj)

        walk = store.contents.walk(put)
        steps = walk.steps()
        budget = LoopBudget.current()
        try:
            while True:
                await budget.start()
                with store.env.read():
                    if not store.follower.advance(budget.over):
                        continue

                    for _ in steps:
                        if budget.over():
                            break
                    else:
                        header = store.env.header
                        contents.resource_version = header.version
                        deletions = store.journal.deletions(header.version)
                        return ToldStore(contents, header.cluster, deletions)
        finally:
            walk.end()
            budget.end()

    def _fall_back(self, failure: CacheError, told: ToldStore | None) -> None:
        """Go on in memory, from what handlers were told, or from nothing."""
        parts, store = self._parts, self._store
        self._failure = failure
        self._kept = told is not None
        logger.warning(
            "%s: continues in memory, without the cache: %s", parts.name, failure
        )
        functions = (
            parts.indexer.indexers if store is None else store.contents.functions
        )
        if told is None:
            told = ToldStore(MemoryContents({}, parts.indexer.report))
            parts.waiters.note_missed()

        parts.indexer.use(told.contents)
        parts.indexer.add_indexers(functions)  # some came meanwhile
        for listener in parts.processor.listeners:
            listener.on_progress = None
            listener.resync_by(None)

        if self._kept and store is not None:
            now = asyncio.get_running_loop().time()
            for listener, cursor in store.follower.starting.items():
                rest = [
                    obj for key, obj in told.contents.objects.items() if key > cursor
                ]
                if rest:
                    listener.put(Snapshot(rest), now, now)

                listener.mark_synced()

        # A list of any version could be older than what handlers were told.
        version = told.contents.resource_version
        resume = Resume(
            version=version,
            comparable=bool(version) or not self._kept,
            cluster=told.cluster,
            in_step=self._state.in_step if version else None,
        )
        (memory,) = parts.in_memory(partial(parts.reflector, resume=resume))
        self._memory = memory
        memory.set_watch_error_handler(self._on_error)
        memory.pipeline.synced = self._kept
        if version:
            memory.pipeline.resume(version, told.deletions)

        if store is not None:
            self._leave(store)

        parts.waiters.wake_all()
        parts.on_change()

    # ------------------------------------------------------------ handlers

    def state_changed(self) -> None:
        """Record a change of the reflector: other processes are told soon."""
        if self._store is not None:
            self._store.writer.state_changed()

    @property
    def follower(self) -> Follower | None:
        """Follower that tells handlers; None before the start, and in memory."""
        return None if self._store is None else self._store.follower

    def set_watch_error_handler(
        self, handler: Callable[[Exception], None] | None
    ) -> None:
        """Set a function to call with the error of every list or watch that fails.

        It is called in the process that writes the store.
        """
        self._on_error = handler
        reflector = None if self._store is None else self._store.writer.reflector
        for it in (reflector, self._memory):
            if it is not None:
                it.set_watch_error_handler(handler)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Read the store in a block as of the last change that waiting tasks were told.

        Waits until most changes are told. The block must not wait.
        """
        with self._parts.waiters.for_steps() as told:
            while (follower := self.follower) is not None:
                with ExitStack() as block:
                    current = False
                    with suppress(CacheError):  # it is about to continue in memory
                        current = block.enter_context(follower.reading())

                    if current:
                        yield
                        return

                told.clear()
                await told.wait()
                self._parts.run_state.check_not_stopping()

            yield

    # ------------------------------------------------------------ state

    @property
    def synced(self) -> bool:
        """True once a confirmed list is in the store."""
        if self._memory is not None:
            return self._memory.synced

        store = self._store
        return self._was_synced if store is None else store.follower.synced

    @property
    def stored(self) -> bool:
        """True if the store has a complete list, perhaps one that is not confirmed."""
        if self._store is None or self.synced:
            return self.synced

        header = self._store.env.header
        comparable = bool(header.version) and same_identity(header, self._claims)
        return header.listed and comparable

    @property
    def version(self) -> str:
        """Version up to which its objects are in the store; empty if it cannot be read."""
        try:
            return self._parts.indexer.resource_version
        except CacheError:  # the informer is about to continue in memory
            return ""

    @property
    def pipeline(self) -> Pipeline | None:
        """Pipeline into the store in memory, after a fallback; else None."""
        return None if self._memory is None else self._memory.pipeline

    @property
    def failures(self) -> int:
        """Number of attempts that failed in a row."""
        return self._state.failures if self._memory is None else self._memory.failures

    @property
    def refusals(self) -> int:
        """Number of attempts in a row with an error that only a person can correct."""
        return self._state.refusals if self._memory is None else self._memory.refusals

    @property
    def history_resets(self) -> int:
        """Number of times that the server's versions went backwards."""
        before = self._state.history_resets
        return before + (0 if self._memory is None else self._memory.history_resets)

    @property
    def last_error(self) -> Exception | None:
        """Last failure, until the next success."""
        if self._memory is not None:
            return self._memory.last_error

        store = self._store
        if store is not None and store.writer.reflector is not None:
            return store.writer.reflector.last_error

        return self._silence or error_in(self._state)

    @property
    def _state(self) -> WriterState:
        """State of the writer: now if this process writes, else the last one read."""
        store = self._store
        if store is None:
            return self._last

        if store.writer.reflector is not None:
            return store.writer.state()

        return store.follower.writer

    @property
    def _silence(self) -> CacheError | None:
        """Error of a writer that has not written for too long."""
        store, loop = self._store, self._parts.run_state.loop
        if store is None or loop is None or store.writer.reflector is not None:
            return None

        seconds = store.follower.writer.silence(loop.time())
        if not seconds:
            return None

        pid = store.follower.writer.pid
        return CacheError(
            f"the writer of the cache, process {pid}, has not written for {seconds:.0f} s "
            f"({store.env.path})"
        )

    def age(self, now: float) -> float | None:
        """Return the maximum staleness of the store in seconds; None if unknown."""
        if self._memory is not None:
            return self._memory.age(now)

        in_step = self._state.in_step
        # A time after now is of an earlier boot of the machine.
        return None if in_step is None or in_step > now else now - in_step

    def status(self, phase: str, now: float | None) -> InformerStatus:
        """Return the status of this source.

        Args:
            phase: Phase of the whole informer; empty to use that of the source.
            now: Time of the loop; None if the informer does not run.
        """
        cache = self._cache_status(now)
        if self._memory is not None:
            status = self._memory.status(phase, now)
            return replace(status, degraded=status.degraded + 1, cache=cache)

        state = self._state
        # The failures of this process's own transform are counted by the informer.
        foreign = 0 if cache.role == "writer" else state.transform_failures
        return InformerStatus(
            phase=phase or state.phase or "opening",
            synced=self.synced,
            last_contact=state.last_contact,
            last_event=state.last_event,
            age=None if now is None else self.age(now),
            resource_version=self.version,
            restarts=state.restarts,
            duplicates=state.duplicates,
            history_resets=state.history_resets,
            degraded=state.skipped + foreign,
            not_served=state.not_served,
            last_error=self.last_error,
            failures=state.failures,
            sharded_by_server=self._sharded_by_server,
            cache=cache,
        )

    @property
    def _sharded_by_server(self) -> bool | None:
        """True if the server filters by shard, None if this process does not list."""
        reflector = None if self._store is None else self._store.writer.reflector
        return None if reflector is None else reflector.sharded_by_server

    def _cache_status(self, now: float | None) -> CacheStatus:
        store, state = self._store, self._state
        path = self._path
        if store is None:
            why = "" if self._failure is None else str(self._failure)
            role = "memory" if self._failure else "reader"
            return CacheStatus(path=path, role=role, why_in_memory=why)

        writes = store.writer.reflector is not None
        entries = size = 0
        with (
            suppress(CacheError),
            store.env.read(),
        ):  # unless closed meanwhile, or damaged
            header = store.env.header
            entries, size = header.last - header.first + 1, store.env.used

        return CacheStatus(
            path=path,
            role="writer" if writes else "reader",
            writer=state.pid,
            writers_so_far=state.epoch,
            heartbeat_age=(
                max(now - state.heartbeat, 0.0)
                if state.pid and now is not None
                else None
            ),
            behind=store.follower.behind,
            readers=state.readers,
            stalled_readers=state.stalled_readers,
            journal_entries=entries,
            size=size,
        )

    def describe(self, phase: str) -> str:
        """Return the phase and the failures in one line."""
        if self._memory is not None:
            return f"{self._memory.describe(phase)}, without the cache: {self._failure}"

        state = self._state
        return describe_state(
            phase or state.phase or "opening",
            self.last_error,
            state.failures,
            streams_given_up=state.streamless,
        )


async def _run_together(
    tasks: Mapping[str, Callable[[], Coroutine[Any, Any, Any]]],
) -> NoReturn:
    """Run tasks until one fails, or until cancelled."""
    async with asyncio.TaskGroup() as group:
        await fail_when_any_ends(
            [
                group.create_task(in_next_turn(run), name=name)
                for name, run in tasks.items()
            ]
        )


async def _opened(place: CachePlace, path: Path) -> Environment:
    """Open a store, in a thread, as that may wait for another process."""
    opened: list[Environment] = []
    try:
        await in_thread(lambda: opened.append(place.open(path)), stop=_do_nothing)
    except asyncio.CancelledError:
        for env in opened:
            await _closed(env)

        raise

    return opened[0]


async def _closed(env: Environment) -> None:
    """Close an environment, in a thread, as it syncs the file."""
    try:
        await in_thread(env.close, stop=_do_nothing)
    except CacheError as exc:  # its directory has vanished
        logger.info("cache was not closed in order: %s", exc)


def _do_nothing() -> None:
    """Let a call in a thread run to its end: it uses the environment."""
