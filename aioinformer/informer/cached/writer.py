"""`CacheWriter`: becomes the writer of a store on disk, and keeps it up to date."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from aioinformer._tasks import fail_when_any_ends, in_next_turn
from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget
from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.disk.contents import DiskContents
from aioinformer.cache.disk.failures import is_shortage
from aioinformer.cache.disk.header import WriterState, same_identity
from aioinformer.cache.disk.readers import Readers
from aioinformer.cache.store import Indexer
from aioinformer.errors import ApiError, CacheError, TransportError
from aioinformer.informer.listwatch.interface import Resume
from aioinformer.informer.store.compressor import BodyCompressor
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.metrics import GuardedSink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.header import Header
    from aioinformer.cache.disk.records import Records
    from aioinformer.cache.index import IndexFunction
    from aioinformer.informer.cached.journal import Journal
    from aioinformer.informer.handlers.error_reporter import ErrorReporter
    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.listwatch.reflector import Reflector
    from aioinformer.informer.notifications import Notification
    from aioinformer.informer.store.transformer import Transformer
    from aioinformer.metrics import ScopedSink
    from aioinformer.model.objects import KubeObject

__all__ = ["CacheWriter", "JournalPublisher", "cache_error_in", "error_in"]

logger: Final = guarded_logger(__name__)

LOCK_SECONDS: Final = 0.25
"""Seconds between two attempts to become the writer."""

UNREACHABLE: Final = "unreachable"
"""`WriterState.error_reason` of a server that cannot be reached."""

SAMPLES_OF_FIT: Final = 50
"""Stored objects that tell how well the stored dictionary fits."""

HEARTBEAT_SECONDS: Final = 1.0
"""Seconds between two records of the writer's state, if it does not change."""

STALLED_SECONDS: Final = 30.0
"""Seconds after which a read that has not ended is reported: each change adds pages."""

TRIM_SECONDS: Final = 0.01
"""Seconds between two trims of the journal while it is too long."""


class CacheWriter:
    """Loop that waits for the lock of the writer, and then runs reflector and pipeline.

    The pipeline writes into a `DiskContents`; its notifications go into the journal, and
    every follower, that of this process too, reads them there.

    Args:
        name: Name of the informer in the log.
        env: Environment of the store.
        records: Records of the store.
        journal: Journal of the store.
        claims: Header with the identity of the objects that it writes: selection,
            endpoint and transform.
        functions: Function that returns the index functions of the informer, by name.
        transformer: Caller of the user's transform.
        reporter: Reporter of errors of index functions.
        reflector: Function that returns the reflector of a pipeline.
        metrics: Sink of the informer.
    """

    def __init__(
        self,
        name: str,
        env: Environment,
        records: Records,
        journal: Journal,
        claims: Header,
        *,
        functions: Callable[[], Mapping[str, IndexFunction[KubeObject]]],
        transformer: Transformer,
        reporter: ErrorReporter,
        reflector: Callable[[Pipeline, Resume], Reflector],
        metrics: ScopedSink,
    ) -> None:
        self._name = name
        self._env = env
        self._records = records
        self._journal = journal
        self._claims = claims
        self._functions = functions
        self._transformer = transformer
        self._reporter = reporter
        self._new_reflector = reflector
        self._metrics = metrics
        self._now = asyncio.get_running_loop().time
        self._readers = Readers(env.path / "readers")
        self._changed = asyncio.Event()
        self._lacks = False  # True while the system lacks descriptors or memory
        self._before = WriterState()  # state of the writer before this one
        self._pipeline: Pipeline | None = None
        self.reflector: Reflector | None = None
        """Reflector of this writer; None until it has the lock."""
        # Time at which each snapshot that is being read was first seen.
        self._snapshots: dict[tuple[int, str, int], float] = {}
        self._stalled: tuple[int, ...] = ()
        self.readers: int = 0
        """Number of informers that follow the store, as of the last heartbeat."""

    def __repr__(self) -> str:
        return f"<CacheWriter {self._name} {'writes' if self.reflector else 'waits'}>"

    async def run(self) -> NoReturn:
        """Try to become the writer every quarter of a second, then write until cancelled.

        Raises:
            CacheError: If the store cannot be written.

        Cancellation:
            Stops it. Another process can become the writer at once.
        """
        try:
            while True:
                while not self._acquire():  # noqa: ASYNC110 - another process frees it
                    await asyncio.sleep(LOCK_SECONDS)

                try:
                    await self._write()
                except (CacheError, BaseExceptionGroup) as exc:
                    self._note_shortage(cache_error_in(exc))

                # As after a takeover: another process may be faster.
                self.reflector = self._pipeline = None
                self._env.release(self)
                await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            self._env.release(self)
            self._readers.close()

    def _acquire(self) -> bool:
        """Try to become the writer; False also while the system lacks resources."""
        try:
            return self._env.acquire(self)
        except CacheError as exc:
            self._note_shortage(exc)
            return False

    def _count_readers(self) -> None:
        """Count the readers; keep the last number while no file can be opened."""
        try:
            self.readers = len(self._readers.positions())
        except CacheError as exc:
            self._note_shortage(exc)
        else:
            self._lacks = False

    def _find_stalled_readers(self) -> None:
        """Find reads that do not end; LMDB keeps all pages that were replaced since."""
        now, seen = self._now(), self._snapshots
        self._snapshots = {
            (process, thread, snapshot): seen.get((process, thread, snapshot), now)
            for (process, thread), snapshot in self._env.snapshots().items()
        }
        # The state of the writer is written each second, so no other read lasts.
        stalled = sorted(
            {
                process
                for (process, _, _), since in self._snapshots.items()
                if now - since >= STALLED_SECONDS
            }
        )
        for process in stalled:
            if process not in self._stalled:
                logger.warning(
                    "%s: process %d has not ended a read of the cache for %.0f s, so "
                    "its file grows: continue or end that process (path=%s)",
                    self._name,
                    process,
                    STALLED_SECONDS,
                    self._env.path,
                )

        self._stalled = tuple(stalled)

    def _note_shortage(self, exc: CacheError) -> None:
        """Log that the system lacks resources, once, or raise any other error."""
        if not is_shortage(exc):
            raise exc

        if not self._lacks:
            self._lacks = True
            logger.warning(
                "%s: cannot write the cache now, and tries again: %s", self._name, exc
            )

    def state_changed(self) -> None:
        """Write the state soon: the reflector has changed its own."""
        self._changed.set()

    # ------------------------------------------------------------ writing

    async def _write(self) -> NoReturn:
        resume = self._begin()
        functions = self._functions()
        publisher = JournalPublisher(self._env, self._journal, self._readers.wake)
        indexer: Indexer[KubeObject] = Indexer(
            key_func=attrgetter("key"), on_error=self._reporter.report
        )
        contents = DiskContents(
            self._env, self._records, functions, indexer.report, writer=True
        )
        indexer.use(contents)
        compressor = BodyCompressor("zstd", self._name)
        self._resume_compression(compressor, indexer)
        pipeline = self._pipeline = Pipeline(
            indexer,
            publisher,
            self.state_changed,
            self._transformer,
            compressor=compressor,
            queue=DeltaFIFO(
                key_func=attrgetter("key"), name=self._name, metrics=self._metrics
            ),
            metrics=GuardedSink(self._metrics, self._name, name=self._name),
            name=self._name,
        )
        if resume.version:
            deletions = self._journal.deletions(resume.version)
            pipeline.resume(resume.version, deletions)

        reflector = self.reflector = self._new_reflector(pipeline, resume)
        try:
            await self._recover()
            async with asyncio.TaskGroup() as group:
                parts = {
                    "pipeline": pipeline.run,
                    "reflector": reflector.run,
                    "heartbeat": self._report,
                }
                name = reflector.name
                tasks = [
                    group.create_task(in_next_turn(run), name=f"{name} {part}")
                    for part, run in parts.items()
                ]
                if resume.version and contents.missing:
                    group.create_task(_build(contents), name=f"{name} indexes")

                await fail_when_any_ends(tasks)
        except asyncio.CancelledError:
            self._end()
            raise

    async def _recover(self) -> None:
        """Remove what a writer that died in a list has left in the journal."""
        budget = LoopBudget.current()
        await budget.start()
        while not self._journal.recover(budget.over):
            await budget.start()

        budget.end()

    def _resume_compression(
        self, compressor: BodyCompressor, indexer: Indexer[KubeObject]
    ) -> None:
        """Compress with the dictionary of the writer before this one."""
        with self._env.read():
            dictionary = self._records.newest_dictionary()
            if dictionary:
                some = islice(indexer.contents.objects.values(), SAMPLES_OF_FIT)
                compressor.resume(dictionary, list(some))

    def _begin(self) -> Resume:
        """Make the store that of this writer; return where its reflector continues."""
        env, claims = self._env, self._claims
        with env.write():
            header = env.header
            adopted = replace(header, endpoint=claims.endpoint)
            # The reflector checks the uid of the cluster before it resumes. Until then,
            # the header has the other endpoint.
            verifiable = header.cluster and same_identity(adopted, claims)
            if not same_identity(header, claims) and not verifiable:
                # Without a version, this writer and any later one lists and compares.
                header = replace(
                    adopted,
                    selection=claims.selection,
                    transform=claims.transform,
                    version="",
                )
                env.set_header(header)

            before = self._before = env.writer_state
            env.set_writer_state(self.state())

        took_over = bool(before.pid) and not before.ended
        logger.log(
            logging.WARNING if took_over else logging.INFO,
            "%s: this process writes the cache now (path=%s, writer before=%s)",
            self._name,
            env.path,
            before.pid or "none",
        )
        resumes = header.listed and bool(header.version)
        return Resume(
            version=header.version if resumes else "",
            comparable=resumes or not header.listed,
            cluster=header.cluster,
            in_step=before.in_step if resumes else None,
            on_cluster=self._note_cluster,
            on_confirmed=self._confirm,
        )

    def _note_cluster(self, uid: str) -> None:
        """Record the cluster of the list that follows."""
        env = self._env
        header, endpoint = env.header, self._claims.endpoint
        if (uid, endpoint) == (header.cluster, header.endpoint):
            return

        with env.write():
            # The stored objects may be of another cluster. So the writer after this one
            # compares them, or checks their history, unless the list is complete then.
            kept = endpoint == header.endpoint and not uid
            env.set_header(
                replace(
                    header,
                    cluster=uid,
                    endpoint=endpoint,
                    version=header.version if kept else "",
                )
            )

    def _note_endpoint(self, *, confirmed: bool) -> None:
        """Record the endpoint once its cluster has turned out to be the stored one."""
        env, endpoint = self._env, self._claims.endpoint
        if confirmed and env.header.endpoint != endpoint:
            env.set_header(replace(env.header, endpoint=endpoint))

    def _confirm(self) -> None:
        assert self._pipeline is not None
        self._pipeline.confirm()

    async def _report(self) -> NoReturn:
        """Write the state each second, and when it has changed."""
        env, journal = self._env, self._journal
        budget = LoopBudget.current()
        while True:
            env.check()
            env.reader_check()  # a killed reader may have left a snapshot
            self._count_readers()
            self._find_stalled_readers()
            state = self.state()
            await budget.start()
            with env.write():
                env.set_writer_state(state)
                self._note_endpoint(confirmed=state.confirmed)
                more = journal.trim(self._readers.positions, budget.over)

            budget.end()
            self._readers.wake()
            seconds = TRIM_SECONDS if more else HEARTBEAT_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self.state().without_times() == state.without_times():
                        self._changed.clear()
                        await self._changed.wait()

    def _end(self) -> None:
        """Tell the other processes that this writer has ended in order."""
        try:
            with self._env.write():
                state = self.state()
                self._env.set_writer_state(replace(state, ended=True))
        except CacheError as exc:
            logger.warning("%s: cannot end the cache in order: %s", self._name, exc)
        else:
            self._readers.wake()

    def state(self) -> WriterState:
        """Return the state of this writer now."""
        before, reflector, pipeline = self._before, self.reflector, self._pipeline
        begun = WriterState(
            pid=os.getpid(),
            epoch=before.epoch + 1,
            heartbeat=self._now(),
            in_step=before.in_step,
            phase="listing",
            history_resets=before.history_resets,
        )
        if reflector is None or pipeline is None:
            return begun

        status, reason, text = _error_of(reflector.last_error)
        return replace(
            begun,
            confirmed=pipeline.synced,
            phase=reflector.phase,
            in_step=reflector.in_step,
            last_contact=reflector.last_contact,
            last_event=reflector.last_event,
            restarts=reflector.restarts,
            duplicates=reflector.duplicates + pipeline.duplicates,
            history_resets=before.history_resets + reflector.history_resets,
            skipped=reflector.skipped,
            transform_failures=self._transformer.failures,
            readers=self.readers,
            stalled_readers=self._stalled,
            not_served=reflector.not_served,
            streamless=reflector.streamless,
            failures=reflector.failures,
            refusals=reflector.refusals,
            error=text,
            error_status=status,
            error_reason=reason,
        )


async def _build(contents: DiskContents) -> None:
    """Build the indexes that the writers before did not keep, beside other tasks."""
    building = contents.build(contents.missing)
    budget = LoopBudget.current()
    await budget.start()
    try:
        for _ in building.steps():
            if budget.over():
                await budget.start()

        building.publish()  # no await after the last step
    finally:
        building.close()
        budget.end()


def cache_error_in(exc: CacheError | BaseExceptionGroup[BaseException]) -> CacheError:
    """Return the first error of the store in the error of a group of tasks.

    Raises:
        BaseException: The error itself, if it has others.
        CancelledError: If the task was cancelled at the same time, which a group does
            not report.
    """
    first: BaseException = exc
    while isinstance(first, BaseExceptionGroup):
        failures, others = first.split(CacheError)
        if failures is None or others is not None:
            raise exc

        first = failures.exceptions[0]

    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from exc

    assert isinstance(first, CacheError)
    return first


def _error_of(error: Exception | None) -> tuple[int, str, str]:
    """Return status, reason and text of an error, for `WriterState`."""
    match error:
        case None:
            return 0, "", ""
        case ApiError():
            return error.status, error.reason, error.message
        case TransportError(unreachable=True):
            return 0, UNREACHABLE, str(error)
        case _:
            return 0, type(error).__name__, str(error)


def error_in(state: WriterState) -> Exception | None:
    """Return the last error of the writer of another process; None after a success."""
    if not state.error:
        return None

    if state.error_status:
        return ApiError.from_status(
            {"reason": state.error_reason, "message": state.error},
            code=state.error_status,
        )

    return TransportError(state.error, unreachable=state.error_reason == UNREACHABLE)


class JournalPublisher:
    """Publisher of the pipeline of a writer: its notifications go into the journal.

    Args:
        env: Environment of the store.
        journal: Journal of the store.
        wake: Function that wakes the followers; must not wait.
    """

    wants_changes: bool = True
    """True: the journal has all changes."""

    busy: bool = False
    """False: the journal has bytes, and refers to no objects."""

    def __init__(
        self, env: Environment, journal: Journal, wake: Callable[[], None]
    ) -> None:
        self._env = env
        self._journal = journal
        self._wake = wake

    def prepare(self, batch: list[Notification]) -> Batch:
        """Write changes of a list in a transaction of their own, to be published later."""
        with self._env.write():
            self._journal.stage(batch)

        return ()

    def publish(self, batch: Batch, arrived: float | None = None) -> None:
        """Append a batch and what was prepared, in a step of the store."""
        self._journal.append(event for event in batch if event is not None)
        self._wake_soon()

    async def prepare_list(
        self, objects: Mapping[str, KubeObject], *, initial: bool
    ) -> list[Batch]:
        """Return nothing: followers read the objects from the store."""
        return []

    def publish_list(
        self, objects: Mapping[str, KubeObject], batches: list[Batch], *, initial: bool
    ) -> None:
        """Append that an empty store has objects now, in a step of the store."""
        if objects:
            self._journal.append_listed(first=initial)

        self._wake_soon()

    def mark_synced(self) -> None:
        """Do nothing: followers read that from the state of the writer."""

    def _wake_soon(self) -> None:
        # After the step: its transaction is committed then.
        asyncio.get_running_loop().call_soon(self._wake)
