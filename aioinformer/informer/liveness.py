"""`Liveness`: whether an informer lives, in which loop, and who waits for it to change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioinformer._tasks import Notifier
from aioinformer.errors import InformerStopped, OptionsError, WrongLoop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Liveness", "running_loop"]


class Liveness:
    """The state of one informer's life: it begins once, and ends once.

    Attributes:
        loop: The loop it lives in; None before it has begun.
        stopping: Nothing new comes any more; handlers may still be at work.
        stopped: It has ended, or will never begin.
        over: And its handlers have, too.
        failure: What it died of, if it did.
        followers: Called when any of these has changed; they must neither wait nor
            raise.
        on_death: Called with what it died of, once, when it does; nor must it.
        why_ending: Returns what it dies of when it is cancelled; None if it was stopped.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopping = False
        self.stopped = False
        self.over = False
        self.failure: BaseException | None = None
        self.followers: list[Callable[[], None]] = []
        self.on_death: Callable[[BaseException], None] | None = None
        self.why_ending: Callable[[], BaseException | None] = lambda: None
        self._changed = Notifier()

    def __repr__(self) -> str:
        begun = "idle" if self.loop is None else "running"
        return f"<Liveness {self._name} {'stopped' if self.stopped else begun}>"

    def begin(self) -> None:
        """It begins, in the running loop.

        Raises:
            OptionsError: If it has begun already.
            InformerStopped: If it has been given up before.
        """
        if self.loop is not None:
            raise OptionsError(f"{self._name} has been run already")

        self.check_not_stopped()
        self.loop = asyncio.get_running_loop()

    def wind_down(self, *, cancelled: bool = False) -> None:
        """Nothing new comes from here on, perhaps as it was cancelled. Idempotent."""
        self.stopping = True
        failure = self.why_ending() if cancelled and not self.stopped else None
        if failure is not None:
            self.die(failure)
        else:
            self._tell_followers()

    def die(self, failure: BaseException) -> None:
        """It is dead, though its handlers may go on for a while."""
        self.stopped = True
        self._note(failure)
        self._tell_followers()

    def end(self, failure: BaseException | None = None) -> None:
        """It has ended, perhaps by a failure; whoever waits is told. Idempotent."""
        self.stopped = True
        self.over = True
        if failure is not None:
            self._note(failure)

        self._tell_followers()

    def tell(self) -> None:
        """Wake everybody who waits for a change."""
        self._changed.notify()

    async def wait_for_change(self) -> None:
        """Wait until something has changed since this was called. Cancellation: safe."""
        await self._changed.wait()

    def check_not_stopped(self) -> None:
        """Raise `InformerStopped`, caused by the failure, if it has ended."""
        if self.stopped:
            raise InformerStopped(f"{self._name} has ended") from self.failure

    def check_not_stopping(self) -> None:
        """Raise `InformerStopped`, caused by the failure, if nothing new will come."""
        self.check_not_stopped()
        if self.stopping:
            raise InformerStopped(f"{self._name} is ending")

    def check_loop(self) -> None:
        """Raise `WrongLoop` unless this is the loop it lives in, or it has none yet."""
        if self.loop is not None and self.loop is not running_loop():
            raise WrongLoop(f"{self._name} belongs to another event loop")

    def _note(self, failure: BaseException) -> None:
        if self.failure is None:
            self.failure = failure
            if self.on_death is not None:
                self.on_death(failure)

    def _tell_followers(self) -> None:
        self.tell()
        for follower in list(self.followers):
            follower()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the calling thread; None if none runs there."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
