"""`InitialEvents`: what a stream of initial events adds up to, and how long it may take.

Pure and synchronous: events and times are handed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer.errors import DecodeError
from aioinformer.watch.events import EventType

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject
    from aioinformer.watch.events import WatchEvent

__all__ = ["PATIENCE_SECONDS", "InitialEvents", "Portion"]

PATIENCE_SECONDS = 30.0
"""How long the end may take once nothing gets on. Servers send what they have without a
pause; then they wait for their cache to catch up, which takes them a second or two."""

END = ("metadata", "annotations", "k8s.io/initial-events-end")


@dataclass(slots=True)
class Portion:
    """What a batch of initial events says, in the end, of each object in it."""

    present: list[KubeObject] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Keys of objects that were there before, and are gone."""

    rest: list[WatchEvent] = field(default_factory=list)
    """Behind the end: changes, as in any watch."""


class InitialEvents:
    """The beginning of a watch that was asked to begin with the current objects.

    ADDED, MODIFIED and DELETED all count: things change while the server sends what
    there is. Their versions are in no order and are not compared. The end is a bookmark
    with the annotation `k8s.io/initial-events-end: "true"`; any other one is none. All
    of that as in client-go.

    client-go waits for the end without a limit. A server that does not know the request
    takes it for a common watch, in which the end never comes; in a busy cluster there is
    always something else to read. So there is a limit: 30 s without an event while
    nothing but ADDED came, which is how the objects themselves arrive, and 30 s in all
    once something else did.

    Attributes:
        version: The version of the whole, once it is complete.
        complete: The end has come.
        count: Events so far.
    """

    def __init__(self) -> None:
        self.version = ""
        self.complete = False
        self.count = 0
        # When patience is over, once something else than ADDED came.
        self._limit: float | None = None

    def __repr__(self) -> str:
        return f"<InitialEvents {self.count} complete={self.complete}>"

    def deadline(self, now: float) -> float:
        """When to give up if more is waited for from now on; on the clock of `now`."""
        return now + PATIENCE_SECONDS if self._limit is None else self._limit

    def take(self, events: list[WatchEvent], now: float) -> Portion:
        """Take the next events, in the order they came.

        Raises:
            ApiError: If one of them is an ERROR event; the stream is over.
            DecodeError: If that cannot be read, or the end has no version, from which
                one could go on.
        """
        # The last word on each object in this batch.
        told: dict[str, KubeObject | None] = {}
        portion = Portion()
        for at, event in enumerate(events):
            obj = event.object
            match event.type:
                case EventType.ADDED | EventType.MODIFIED:
                    told[obj.key] = obj
                case EventType.DELETED:
                    told[obj.key] = None
                case EventType.ERROR:
                    raise event.error()
                case EventType.BOOKMARK if obj.at(END) == "true":
                    self._end(obj.resource_version)
                    portion.rest = events[at + 1 :]
                    break
                case EventType.BOOKMARK:
                    pass

            if event.type is not EventType.ADDED and self._limit is None:
                self._limit = now + PATIENCE_SECONDS

        self.count += len(events) - len(portion.rest)
        portion.present = [obj for obj in told.values() if obj is not None]
        portion.deleted = [key for key, obj in told.items() if obj is None]
        return portion

    def _end(self, version: str) -> None:
        if not version:
            raise DecodeError("the initial events end at no version")

        self.version = version
        self.complete = True
