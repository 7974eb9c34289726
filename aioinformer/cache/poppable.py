"""`Poppable`: what all queues here have for whoever takes things out of them.

State changes are plain methods, and each of them wakes who waits. Whoever waits looks
again when woken, and takes without a wait in between: nothing is lost to one that was
cancelled, and nothing handed out twice.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from time import perf_counter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Generic, TypeVar

from aioinformer._tasks import Bell
from aioinformer._user_code import guarded_logger
from aioinformer.cache.deltas import Requeue
from aioinformer.errors import OptionsError, QueueShutDown, WrongLoop
from aioinformer.metrics import NULL_SINK, GuardedSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioinformer.metrics import MetricsSink

__all__ = ["Poppable", "slow_after"]

E = TypeVar("E")

logger = guarded_logger(__name__)

# client-go's figures: below them a slow call is nobody's trouble.
DEPTH_TO_COMPLAIN = 10
SLOW_SECONDS = 0.1
SLOWEST_SECONDS = 1.0


def slow_after(entries: int) -> float:
    """For how many seconds processing so many entries may go on unmentioned."""
    return min(SLOW_SECONDS * entries, SLOWEST_SECONDS)


class Poppable(ABC, Generic[E]):
    """A queue from which entries are popped.

    It belongs to the event loop in which it is waited for, and owns no task. From
    elsewhere nobody could be woken: while somebody waits, every change raises
    `WrongLoop` there, and so does another wait.

    Args:
        name: Names it in log, metrics and `repr()`.
        metrics: Takes `informer_queued_items`, a gauge, and for what `pop` processes
            `informer_processing_latency_seconds`; both with the label `name`.
    """

    def __init__(self, name: str = "", metrics: MetricsSink = NULL_SINK) -> None:
        self.name = name
        self._metrics = GuardedSink(metrics, name, name=name)
        self._closed = False
        self._bell = Bell()
        # Invariant: None => whoever waits has been woken.
        self._asleep_in: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        name = f"{self.name} " if self.name else ""
        return f"<{type(self).__name__} {name}{state} waiting={len(self)}>"

    @property
    def closed(self) -> bool:
        """True once it was closed; what is queued can still be taken."""
        return self._closed

    # ------------------------------------------------------------ what a queue has

    @abstractmethod
    def __len__(self) -> int:
        """How many entries can be taken."""

    @property
    @abstractmethod
    def has_synced(self) -> bool:
        """True once the consumer has all that the queue was first filled with."""

    @abstractmethod
    def _head_key(self) -> str | None:
        """The key of the first entry; None for one that is about all of them."""

    @abstractmethod
    def _take_first(self) -> E:
        """Take the first entry out; it is not done yet."""

    @abstractmethod
    def _finish(self, keys: Iterable[str | None]) -> None:
        """Entries that were taken out are done."""

    @abstractmethod
    def _put_back(self, entries: Mapping[str | None, E]) -> None:
        """Entries that were taken out come again, where nothing newer does."""

    # ------------------------------------------------------------ taking

    def pop_nowait(self) -> E:
        """Take the next entry.

        Raises:
            asyncio.QueueEmpty: There is nothing now.
            QueueShutDown: There is nothing, and nothing will come: it is closed.
        """
        self._check_filled()
        key = self._head_key()
        entry = self._take_first()
        self._finish((key,))
        self._measure_depth()
        return entry

    async def pop(self, process: Callable[[E, bool], None]) -> None:
        """Wait for the next entry, take it, and hand it to `process`.

        It is done, and counts for `has_synced`, when `process` returns or raises. (In
        client-go that differs between its queues.) When entries pile up and one took
        long, that is logged. As long as there are entries it does not wait: who pops
        very many gives the loop a turn in between.

        Args:
            process: A plain function, called with the entry and whether the queue had
                not synced before. If it raises `Requeue` the entry comes again, and
                the loop has a turn before this ends.

        Raises:
            QueueShutDown: It is closed, and everything has been taken.
            OptionsError: `process` is a coroutine function or a generator; the entry
                comes again.
            WrongLoop: It would wait, and somebody waits in another event loop.
            Exception: Whatever `process` raised, or the cause of its `Requeue`.

        Cancellation:
            Safe: nothing is taken, or the entry has been dealt with.
        """
        await self._until(self.__len__)
        initial = not self.has_synced
        key = self._head_key()
        entry = self._take_first()
        await self._settle(self._run({key: entry}, lambda: process(entry, initial)))

    async def close(self) -> None:
        """Let nobody wait any longer. Idempotent.

        What is queued can still be taken. More can be added, as in client-go, and then
        be taken as well: only waiting is over.

        Raises:
            WrongLoop: Somebody waits in another event loop or thread.

        Cancellation:
            Safe: it does not wait.
        """
        self._check_loop()
        self._closed = True
        self._wake()

    # ------------------------------------------------------------ helpers

    def _run(
        self, entries: Mapping[str | None, E], process: Callable[[], object]
    ) -> Requeue | None:
        """Let entries that were taken be processed; answers what asked for them again."""
        depth = len(self)
        before = perf_counter()
        requeue: Requeue | None = None
        try:
            _refuse_unrun(process())
        except Requeue as exc:
            requeue = exc
        finally:
            if requeue is None:
                self._finish(entries)
            else:
                # Nobody sleeps who could take them: there was an entry until just now.
                self._put_back(entries)

            self._note_duration(entries, depth, perf_counter() - before)

        return requeue

    async def _settle(self, requeue: Requeue | None) -> None:
        """Say what a `Requeue` has to say, after one turn of the loop.

        Without that turn a consumer that always fails would keep the loop for itself.
        """
        if requeue is None:
            return

        await asyncio.sleep(0)
        if requeue.__cause__ is not None:
            raise requeue.__cause__

    def _note_duration(
        self, entries: Mapping[str | None, E], depth: int, seconds: float
    ) -> None:
        name = self.name or type(self).__name__
        if depth > DEPTH_TO_COMPLAIN and seconds > slow_after(len(entries)):
            logger.warning(
                "%s: processing %s took %.3f s (%d at once) while %d entries waited",
                name,
                next(iter(entries)) or "a whole list",
                seconds,
                len(entries),
                depth,
            )

        self._measure_depth()
        self._metrics.observe("informer_processing_latency_seconds", seconds)

    def _measure_depth(self) -> None:
        self._metrics.gauge("informer_queued_items", len(self))

    def _check_filled(self) -> None:
        if not len(self):
            raise QueueShutDown("closed") if self._closed else asyncio.QueueEmpty

    def _check_loop(self) -> None:
        """Fail before anything is changed: who waits elsewhere would not be woken."""
        if self._asleep_in is None:
            return

        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        # In a loop that is closed nobody waits any more.
        if self._asleep_in is not running and not self._asleep_in.is_closed():
            raise WrongLoop(f"{self!r} belongs to another event loop or thread")

    def _wake(self) -> None:
        """Wake everybody who waits, and say how much there is."""
        if self._asleep_in is not None:
            self._asleep_in = None
            self._bell.ring()

        if self._metrics.enabled:
            self._measure_depth()

    async def _until(self, there_is: Callable[[], object]) -> None:
        """Wait until it is true; nothing comes between that and what follows."""
        while not there_is():
            if self._closed:
                raise QueueShutDown("closed")

            self._check_loop()
            self._asleep_in = asyncio.get_running_loop()
            await self._bell.wait()


def _refuse_unrun(answer: object) -> None:
    """Have coroutine and generator functions refused, and their entry come again.

    By its answer, as to ask each function what it is takes as long as a whole `pop`.
    """
    if isinstance(answer, CoroutineType | GeneratorType | AsyncGeneratorType):
        if not isinstance(answer, AsyncGeneratorType):
            answer.close()

        name = answer.__qualname__
        reason = f"what processes entries must be a plain function, unlike {name}"
        raise Requeue from OptionsError(reason)
