"""`Crew`: what a manager runs side by side, and asks to end together.

It decides nothing: a part that fails is told of, and whoever runs the crew ends it.
"""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer._tasks import unwrap_group
from aioinformer._user_code import guarded_logger
from aioinformer.errors import AioInformerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Crew", "Part"]

logger = guarded_logger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """Something that runs until it is cancelled, or is done.

    Attributes:
        name: In the log.
        run: Its life.
        hurry: What has it end at once when it is being ended; None for a second
            cancellation.
    """

    name: str
    run: Callable[[], Awaitable[object]]
    hurry: Callable[[], None] | None = None


class Crew:
    """Parts that run side by side. It runs once.

    Args:
        drain_seconds: How long they may take to end.
        fail: Told the name of a part that has failed, and its error.
    """

    def __init__(
        self, drain_seconds: float, fail: Callable[[str, BaseException], None]
    ) -> None:
        self._drain_seconds = drain_seconds
        self._fail = fail
        self._waiting: list[Part] = []
        self._tasks: dict[asyncio.Task[None], Part] = {}
        self._group: asyncio.TaskGroup | None = None
        self._context = contextvars.Context()
        self._wanted = asyncio.Event()
        self._ending = False
        self._hurried = False

    def __repr__(self) -> str:
        return f"<Crew of {len(self._waiting) + len(self._tasks)}>"

    def add(self, part: Part) -> None:
        """One more, which is started at once if the others are."""
        if self._group is None:
            self._waiting.append(part)
        else:
            self._start(part, self._group)

        self._wanted.set()

    async def wanted(self) -> None:
        """Wait until there is a part to run. Cancellation: safe."""
        await self._wanted.wait()

    async def run(self) -> None:
        """Run the parts, and those that are added later, until cancelled.

        Cancellation:
            The way to stop it: each part is cancelled, and a second time if it has not
            ended in time, or if this is. Ends when the last of them has.
        """
        # Who is added later, perhaps by a request of a web app, is part of this life.
        self._context = contextvars.copy_context()
        async with asyncio.TaskGroup() as group:
            self._group = group
            for part in self._waiting:
                self._start(part, group)

            self._waiting.clear()
            try:
                await asyncio.Event().wait()  # until cancelled
            finally:
                self._group = None
                await self._end()

    def hurry(self) -> None:
        """Have those end at once that are being ended, or will be."""
        self._hurried = True
        if not (self._ending and self._tasks):
            return

        names = ", ".join(part.name for part in self._tasks.values())
        logger.warning("cut short before they had ended: %s", names)
        for task, part in self._tasks.items():
            if part.hurry is None:
                task.cancel()
            else:
                part.hurry()

    def _start(self, part: Part, group: asyncio.TaskGroup) -> None:
        task = group.create_task(
            self._run(part), name=part.name, context=self._context.copy()
        )
        self._tasks[task] = part
        task.add_done_callback(self._tasks.pop)

    async def _run(self, part: Part) -> None:
        try:
            await part.run()
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

            died = AioInformerError(f"{part.name} has cancelled itself")
            died.__cause__ = exc
            self._fail(part.name, died)
        except BaseExceptionGroup as group:
            self._fail(part.name, unwrap_group(group))
        except Exception as exc:  # noqa: BLE001 - told of
            self._fail(part.name, exc)

    async def _end(self) -> None:
        self._ending = True
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()

        if not tasks:
            return

        loop = asyncio.get_running_loop()
        # Never in this turn: who is cancelled twice in one is cancelled once.
        patience = 0.0 if self._hurried else self._drain_seconds
        timer = loop.call_later(patience, self.hurry)
        try:
            await asyncio.wait(tasks)
        finally:
            timer.cancel()
            self.hurry()
