"""`Ledger`: random writes to a server, and every state of every object."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from informers import plain

from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    import random

    from aioinformer.testing import APIServer

__all__ = ["Ledger"]

WRITE_SECONDS = 0.25
"""Pause between two writes, in seconds."""

FEWEST_PODS, MOST_PODS = 6, 16

WRITES = [*["update"] * 5, *["create"] * 2, *["again"] * 2, "delete"]
"""Names to draw from."""


class Ledger:
    """A writer of pods by a seed that knows every state of each.

    Attributes:
        states: Versions of an object by uid, including that of its deletion.
        order: Order of creation by uid.
        ended: Uids of deleted objects.
    """

    def __init__(self, server: APIServer, rng: random.Random, pods: int = 8) -> None:
        self._server = server
        self._rng = rng
        self._living: dict[str, str] = {}
        self._plan: deque[str] = deque()
        self._writes = 0
        self.states: dict[str, list[int]] = {}
        self.order: dict[str, int] = {}
        self.ended: set[str] = set()
        for number in range(pods):
            self.create(f"first-{number}")

        # So that the first list has a history.
        for _ in range(pods):
            self.write()

    def plan(self, *writes: str) -> None:
        """Set the next writes; further ones are random."""
        self._plan.extend(writes)

    def create(self, name: str) -> None:
        metadata = self._server.create(PODS, plain(name))["metadata"]
        self._living[name] = uid = metadata["uid"]
        self.order[uid] = len(self.order)
        self.states[uid] = [int(metadata["resourceVersion"])]

    def update(self, name: str) -> None:
        self._writes += 1
        change = {"metadata": {"annotations": {"write": str(self._writes)}}}
        metadata = self._server.patch(PODS, name, change)["metadata"]
        self.states[metadata["uid"]].append(int(metadata["resourceVersion"]))

    def delete(self, name: str) -> None:
        self._server.delete(PODS, name)
        uid = self._living.pop(name)
        self.ended.add(uid)
        self.states[uid].append(int(self._server.resource_version))

    def write(self) -> None:
        """Do one random write: an update, a deletion, a new name, or a reused name."""
        name = self._rng.choice(list(self._living))
        match self._plan.popleft() if self._plan else self._rng.choice(WRITES):
            case "delete" if len(self._living) > FEWEST_PODS:
                self.delete(name)
            case "again":
                self.delete(name)
                self.create(name)
            case "create" if len(self._living) < MOST_PODS:
                self.create(f"later-{len(self.order)}")
            case _:
                self.update(name)

    async def keep_writing(
        self, writes: int, *, seconds: float = WRITE_SECONDS
    ) -> None:
        for _ in range(writes):
            self.write()
            await asyncio.sleep(seconds)
