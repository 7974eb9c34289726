"""In-memory events of a server, and event recorders."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioinformer import EventRecorder, KubeObject
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.errors import AlreadyExists, NotFound, ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer import Resource

POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-0"}


def now() -> float:
    return asyncio.get_running_loop().time()


class Events:
    """In-memory events of a server; a request takes `delay`, and `fault` may raise."""

    def __init__(self) -> None:
        self.bodies: dict[str, Any] = {}
        self.sent: list[tuple[float, str]] = []
        self.delay = 0.0
        self.broken: set[str] = set()
        """Reasons of events that the server fails to create."""
        self.fault: Callable[[str], BaseException | None] = lambda _: None
        self.lost: Callable[[str], BaseException | None] = lambda _: None
        """Raised when it is done already."""

    async def create(
        self, resource: Resource, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        await self._asked(resource, "create", namespace)
        if body["reason"] in self.broken:
            raise ServerError("a webhook failed", status=500)

        name = body["metadata"]["name"]
        if name in self.bodies:
            raise AlreadyExists(name, status=409)

        self.bodies[name] = body
        return self._answer("create", body)

    async def patch(
        self, resource: Resource, name: str, body: Any, *, namespace: str | None = None
    ) -> KubeObject:
        await self._asked(resource, "patch", namespace)
        if name not in self.bodies:
            raise NotFound(name, status=404)

        self.bodies[name] |= body
        return self._answer("patch", self.bodies[name])

    async def _asked(
        self, resource: Resource, verb: str, namespace: str | None
    ) -> None:
        assert (resource, namespace) == (EVENTS, "shop")
        self.sent.append((now(), verb))
        await asyncio.sleep(self.delay)
        if (failure := self.fault(verb)) is not None:
            raise failure

    def _answer(self, verb: str, body: Any) -> KubeObject:
        if (failure := self.lost(verb)) is not None:
            raise failure

        return KubeObject.of(body)

    @property
    def verbs(self) -> list[str]:
        return [verb for _, verb in self.sent]

    @property
    def counts(self) -> dict[str, int]:
        """Return the count of each reason."""
        return {
            body["reason"]: body.get("series", {"count": 1})["count"]
            for body in self.bodies.values()
        }


def recorder_of(events: Events, **options: Any) -> EventRecorder:
    return EventRecorder(events, "mounter", rng=random.Random(1), **options)


@asynccontextmanager
async def recording() -> AsyncIterator[tuple[Events, EventRecorder]]:
    events = Events()
    async with recorder_of(events) as recorder:
        yield events, recorder


def record(
    recorder: EventRecorder, reason: str = "FailedMount", **options: Any
) -> None:
    recorder.event(POD, "Warning", reason, "no such volume", **options)


def failing(
    times: int, failure: BaseException
) -> Callable[[str], BaseException | None]:
    """Make a fault that raises the given number of times."""
    left = times

    def fault(_: str) -> BaseException | None:
        nonlocal left
        left -= 1
        return failure if left >= 0 else None

    return fault
