"""`DecodedSweep`: drops the decoded bodies of objects that left the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model.objects import KubeObject
    from aioinformer.model.views import DecodedBodies

__all__ = ["SWEEP_SECONDS", "DecodedSweep"]

SWEEP_SECONDS = 0.5
"""Seconds after a change until decoded bodies of removed objects are dropped. A drop
after each change would take 5 microseconds each time."""


class DecodedSweep:
    """Timer that drops decoded bodies that nothing refers to.

    Args:
        busy: Function that returns True while queued notifications refer to old states,
            which handlers may read.
    """

    __slots__ = ("_busy", "_timer", "bodies")

    def __init__(self, busy: Callable[[], bool]) -> None:
        self.bodies: DecodedBodies | None = None
        """Decoded bodies, which all objects of a list share; None before any object."""
        self._busy = busy
        # Set while there may be unused bodies.
        self._timer: asyncio.TimerHandle | None = None

    def note(self, obj: KubeObject) -> None:
        """Record the decoded bodies of a stored object."""
        self.bodies = obj.context.decoded_bodies

    def begin(self) -> None:
        """Drop unused bodies later; without effect if that is due."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SWEEP_SECONDS, self._drop)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self) -> None:
        self._timer = None
        if self.bodies is not None:
            self.bodies.drop_unused()

        if self._busy():
            self.begin()
