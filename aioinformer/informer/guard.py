"""`Guard`: the timer that ends a watch which has fallen silent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from aioinformer.errors import TransportError

if TYPE_CHECKING:
    from aioinformer.informer.watchdog import Watchdog
    from aioinformer.watch.interface import Watch

__all__ = ["Guard"]


class Guard:
    """The timer that ends one watch when the watchdog says that it is dead.

    Enter it while the watch is read. An event costs it nothing, a batch of them the
    noting of a time: the timer is set once, and when it fires it is set again for the
    deadline of then.

    Args:
        watch: Stopped when it is dead; whoever reads it gets its end.
        watchdog: Says when; one for all watches of a reflector.

    Attributes:
        failure: Why the watch was ended, if it was.
        reading: False while nobody waits for the watch, whose silence says nothing then.
    """

    def __init__(self, watch: Watch, watchdog: Watchdog) -> None:
        self.failure: TransportError | None = None
        self.reading = True
        self._watch = watch
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._watchdog.begin(self._heard)
        self._set()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def heard(self, now: float, *, bookmark: bool) -> None:
        """Events came, perhaps a bookmark among them."""
        self._heard = now
        if bookmark:
            self._watchdog.bookmark(now)
            self._set()
        else:
            self._watchdog.heard(now)

    def _set(self) -> None:
        """Have the timer fire at the deadline, or before it."""
        deadline = self._watchdog.deadline()
        if deadline is None:
            return

        if self._timer is not None:
            if self._timer.when() <= deadline:
                return

            self._timer.cancel()

        self._timer = self._loop.call_at(deadline, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        if not self.reading:
            # What has come since lies unread, and this may have taken long.
            self.heard(now, bookmark=False)

        deadline = self._watchdog.deadline()
        if deadline is not None and deadline <= now:
            self._bite(now)
        else:
            self._set()

    def _bite(self, now: float) -> None:
        gap = self._watchdog.longest_gap
        self.failure = TransportError(
            f"nothing came for {now - self._heard:.0f} s, though bookmarks came every "
            f"{gap:.0f} s"
        )
        self._watchdog.bitten()
        self._watch.stop()
