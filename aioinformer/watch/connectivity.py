"""`Connectivity`: one probe at a time of an unreachable server."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from aioinformer._condition import LoopCondition
from aioinformer.backoff import (
    PROBE_JITTER_SECONDS,
    PROBE_SECONDS,
    Failure,
    failure_of,
    probe_gap,
)
from aioinformer.errors import ApiError, DecodeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Connectivity"]

SPREAD_SECONDS = 2.0
"""Time within which all watches of a client resume after the first connected."""


class Connectivity:
    """Reachability of a server, shared by all watches of one client.

    While the server cannot be reached, the watches take turns. One of them probes the
    server with its own attempt, at most once a second, and the others wait. The first
    attempt that succeeds wakes them, spread over 2 s.

    client-go has no counterpart. Each of its reflectors backs off alone, so after an
    outage of minutes each needs up to another minute to find the server.

    Owns no task. It belongs to one event loop at a time.

    Args:
        rng: Source of jitter; seed it for a reproducible sequence.
    """

    # Invariant: while the server is down, at most one `turn()` is the probe. After a
    # response it is no longer the probe, even if its attempt continues.

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._down = False
        self._probe: object | None = None
        self._next_probe = -math.inf
        self._changed = LoopCondition("connectivity")

    def __repr__(self) -> str:
        return f"<Connectivity {'down' if self._down else 'up'}>"

    @staticmethod
    def of(client: object) -> Connectivity:
        """Return the instance of a client, always the same one."""
        try:
            return _OF_CLIENTS.setdefault(client, Connectivity())
        except TypeError:  # a class with slots, or one that cannot be hashed
            return Connectivity()

    @property
    def down(self) -> bool:
        """True while the server cannot be reached."""
        return self._down

    def lost(self) -> None:
        """Record that an attempt could not connect."""
        self._down = True

    def failed(self, error: Exception) -> None:
        """Record the error of an attempt. Refusals show that the server is reachable."""
        if failure_of(error) is Failure.UNREACHABLE:
            self.lost()
        elif isinstance(error, ApiError | DecodeError):
            self.reached()

    def reached(self) -> None:
        """Record that the server responded, with any result. Idempotent."""
        if self._down:
            self._down = False
            self._probe = None
            self._changed.notify_all()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until an attempt is due, and make it in the block.

        Does not wait while the server can be reached. In the block, call `reached()` as
        soon as the head of a response has arrived, or `failed()` with the error.

        Cancellation:
            Safe: another watch probes instead.
        """
        probe = object()
        await self._wait(probe)
        try:
            yield
        finally:
            self._end(probe)

    async def _wait(self, probe: object) -> None:
        """Wait until an attempt is due: as the probe, or after one that succeeded."""
        while self._down:
            if self._probe is None:
                self._probe = probe
                await self._wait_to_probe(probe)
                return

            await self._changed.wait_for(lambda: not (self._down and self._probe))
            await self._spread()

    async def _spread(self) -> None:
        if not self._down:
            await asyncio.sleep(SPREAD_SECONDS * self._rng.random())

    async def _wait_to_probe(self, probe: object) -> None:
        due = False
        try:
            # A client that is entered again may have the clock of another loop.
            longest = PROBE_SECONDS + PROBE_JITTER_SECONDS
            await asyncio.sleep(min(max(self._next_probe - _now(), 0.0), longest))
            due = True
        finally:
            if not due:
                self._end(probe)

        self._next_probe = _now() + probe_gap(self._rng)

    def _end(self, probe: object) -> None:
        if self._probe is probe:
            self._probe = None
            self._changed.notify_all()  # one of the waiting watches probes next


_OF_CLIENTS: WeakKeyDictionary[object, Connectivity] = WeakKeyDictionary()


def _now() -> float:
    return asyncio.get_running_loop().time()
