"""`Connectivity`: one probe at a time of a server that cannot be reached."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from aioinformer._tasks import Notifier
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
"""The watches of one client resume within that time of the first that got through."""


class Connectivity:
    """Whether a server can be reached, as known to all watches of one client.

    While it cannot, they take turns: one of them probes the server by its own attempt,
    at most one a second, and the others wait. The first attempt that gets through wakes
    them, spread over 2 s.

    client-go has no counterpart: each of its reflectors backs off by itself, so that a
    server that is back after minutes is found by each up to a minute later.

    Owns no task. It belongs to one event loop at a time.

    Args:
        rng: Source of jitter; seed it for a reproducible sequence.
    """

    # Invariant: while the server is down, one `turn()` at most is the probe. Once an
    # answer came it is not any more, however long its attempt goes on.

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._down = False
        self._probe: object | None = None
        self._next_probe = -math.inf
        self._bell = Notifier()

    def __repr__(self) -> str:
        return f"<Connectivity {'down' if self._down else 'up'}>"

    @staticmethod
    def of(client: object) -> Connectivity:
        """Return the one of a client, the same for all who ask."""
        try:
            return _OF_CLIENTS.setdefault(client, Connectivity())
        except TypeError:  # a class with slots, or one that cannot be hashed
            return Connectivity()

    @property
    def down(self) -> bool:
        """True while the server cannot be reached."""
        return self._down

    def lost(self) -> None:
        """Note that an attempt could not connect."""
        self._down = True

    def failed(self, error: Exception) -> None:
        """Note the error of an attempt: a refusal shows that the server can be reached."""
        if failure_of(error) is Failure.UNREACHABLE:
            self.lost()
        elif isinstance(error, ApiError | DecodeError):
            self.reached()

    def reached(self) -> None:
        """Note that the server answered, whatever it said. Idempotent."""
        if self._down:
            self._down = False
            self._probe = None
            self._bell.notify()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the time of an attempt, which is made in the block.

        At once while the server can be reached. Say by `reached()` that the head of an
        answer is there, as soon as it is, or by `failed()` why the attempt failed.

        Cancellation:
            Safe: another one probes instead.
        """
        probe = object()
        await self._wait(probe)
        try:
            yield
        finally:
            self._end(probe)

    async def _wait(self, probe: object) -> None:
        """Wait until an attempt may be made: as the probe, or because there was one."""
        while self._down:
            if self._probe is None:
                self._probe = probe
                await self._wait_to_probe(probe)
                return

            await self._bell.wait()
            await self._spread()

    async def _spread(self) -> None:
        if not self._down:
            await asyncio.sleep(SPREAD_SECONDS * self._rng.random())

    async def _wait_to_probe(self, probe: object) -> None:
        due = False
        try:
            # A client that is entered again may tell the time of another loop.
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
            self._bell.notify()  # one of those who wait probes next


_OF_CLIENTS: WeakKeyDictionary[object, Connectivity] = WeakKeyDictionary()


def _now() -> float:
    return asyncio.get_running_loop().time()
