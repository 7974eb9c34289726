"""`Fleet`: informers that run side by side, each in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

from aioinformer._tasks import Notifier, unexpected_cancellation, wait_for_end
from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.errors import InformerStopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.informer.shared_informer import SharedInformer

__all__ = ["Fleet"]

logger = guarded_logger(__name__)


class Fleet:
    """Runs informers side by side. One that dies of a bug of ours ends alone.

    It owns one task for each. It runs once: what comes behind its end is never run.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """What the first of those died of that have died."""
        self.ended = False
        """Nothing is started any more."""
        self._tasks: dict[SharedInformer, asyncio.Task[None]] = {}
        self._ending: set[SharedInformer] = set()
        self._dead: set[SharedInformer] = set()
        self._group: asyncio.TaskGroup | None = None
        self._context = contextvars.Context()
        self._news = Notifier()

    def __repr__(self) -> str:
        return f"<Fleet of {len(self._tasks)}>"

    @property
    def running(self) -> bool:
        """True while it can start informers at once."""
        return self._group is not None and not self.ended

    async def run(
        self, informers: Iterable[SharedInformer], ready: Callable[[], None]
    ) -> None:
        """Run these informers, and those that are started later, until cancelled.

        Args:
            informers: Whom to begin with.
            ready: Called when they have been started.

        Cancellation:
            The way to stop it. It ends when the last of them has; a second one cuts
            their handlers short.
        """
        # What is started later, perhaps by a request of somebody's web app, is part of
        # this life, and not of that request's.
        self._context = contextvars.copy_context()
        async with asyncio.TaskGroup() as group:
            self._group = group
            for informer in informers:
                self.start(informer)

            try:
                ready()
                await asyncio.Event().wait()  # until cancelled
            finally:
                self._group = None
                self.end()
                await self._end_all()

    def start(self, informer: SharedInformer) -> None:
        """Start an informer, at once if this runs; else it is one for `run()`."""
        if self._group is None:
            return

        # At once: its handlers may go on for a while, and the fleet be ended meanwhile.
        informer.set_death_handler(
            lambda exc: self._note_death(informer, exc),
            why_ending=lambda: self._why_astray(informer),
        )
        task = self._group.create_task(
            self._run(informer),
            name=f"informer {informer.name}",
            context=self._context.copy(),
        )
        self._tasks[informer] = task
        task.add_done_callback(lambda task: self._forget(informer, task))

    async def stop(
        self,
        informer: SharedInformer,
        *,
        wait: bool = True,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Stop one informer before the others, as its own `run()` says. Idempotent.

        Args:
            informer: Whom.
            wait: False to ask for it only.
            then: Called when it has ended.

        Cancellation:
            Deferred until it has ended.
        """
        task = self._tasks.get(informer)
        if task is None:
            informer.abandon()
            then()
            return

        task.add_done_callback(lambda _: then())
        self._ask_to_end(informer)
        if wait:
            await wait_for_end(task)

    def end(self) -> None:
        """Start nothing any more; whoever waits for a failure that cannot come knows."""
        self.ended = True
        self._news.notify()

    async def failed(self) -> BaseException:
        """Wait until an informer dies of a bug of ours; returns its error.

        Raises:
            InformerStopped: It has ended, and none had died.

        Cancellation:
            Safe.
        """
        while self.failure is None:
            if self.ended and not self._tasks:
                raise InformerStopped("the factory was left; no informer has died")

            await self._news.wait()

        return self.failure

    async def _end_all(self) -> None:
        """End them before the group does, which would ask again who is ending already."""
        tasks = list(self._tasks.values())
        for informer in self._tasks:
            self._ask_to_end(informer)

        if tasks:
            await asyncio.wait(tasks)

    def _ask_to_end(self, informer: SharedInformer) -> None:
        if informer not in self._ending:
            # Once, whoever asks: a second cancellation would cut its handlers short.
            self._ending.add(informer)
            self._tasks[informer].cancel()

    def _forget(self, informer: SharedInformer, task: asyncio.Task[None]) -> None:
        """Its task is over; one that was cancelled unbegun has told nobody so far."""
        informer.abandon(self._why_astray(informer) if task.cancelled() else None)
        del self._tasks[informer]
        self._ending.discard(informer)
        self._dead.discard(informer)
        self._news.notify()

    def _why_astray(self, informer: SharedInformer) -> BaseException | None:
        """What an informer that is cancelled dies of; None if it was asked to end."""
        if self.ended or informer in self._ending:
            return None

        return unexpected_cancellation(repr(self._tasks[informer].get_name()))

    async def _run(self, informer: SharedInformer) -> None:
        try:
            await informer.run()
        except asyncio.CancelledError:
            raise
        except user_errors() as exc:  # it ends alone
            self._note_death(informer, exc)

    def _note_death(self, informer: SharedInformer, failure: BaseException) -> None:
        """Tell everybody who waits, and the log, once."""
        if informer in self._dead:
            return

        self._dead.add(informer)
        self._ending.add(informer)  # by itself, when its handlers have had their time
        if self.failure is None:
            self.failure = failure
            self._news.notify()

        # Last: a log handler may take long.
        logger.critical("informer %s died", informer.name, exc_info=failure)
