"""A handler that checks its events against the earlier ones, with moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer import Added, Deleted, Updated
from aioinformer.informer.notifications import object_of

if TYPE_CHECKING:
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject


class SelectionChecker:
    """Events of one handler: for each key Added, any Updated, Deleted, and again.

    Attributes:
        present: Objects by key that were added and not deleted since.
        newest: Newest version of each uid; clear it if the server's history was reset.
        seen: Objects of all events.
        mistakes: Events that contradict earlier ones.
    """

    def __init__(self) -> None:
        self.present: dict[str, KubeObject] = {}
        self.newest: dict[str, int] = {}
        self.moved: set[str] = set()
        self.seen: list[KubeObject] = []
        self.mistakes: list[str] = []

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of the present objects by key."""
        return {key: it.resource_version for key, it in self.present.items()}

    def __call__(self, event: Notification) -> None:
        self.seen.append(object_of(event))
        match event:
            case Added(obj=obj):
                self._check(obj.key not in self.present, f"added twice: {event}")
                again = obj.uid in self.moved
                self._state(event, obj, again=again)
                self.moved.discard(obj.uid)
                self.present[obj.key] = obj
            case Updated(old=old, new=new):
                before = self.present.get(new.key)
                self._check(before is not None and same_state(before, old), f"{event}")
                self._state(event, new)
                self.present[new.key] = new
            case Deleted(obj=obj):
                before = self.present.pop(obj.key, None)
                self._check(
                    before is not None and before.uid == obj.uid, f"unknown: {event}"
                )
                if event.reason:
                    self._check(not event.final_state_unknown, f"{event}")
                    self.moved.add(obj.uid)

    def _state(self, event: object, obj: KubeObject, *, again: bool = False) -> None:
        version, newest = int(obj.resource_version), self.newest.get(obj.uid, 0)
        self._check(version + again > newest, f"again or too late: {event}")
        self.newest[obj.uid] = version

    def _check(self, holds: bool, text: str) -> None:
        if not holds:
            self.mistakes.append(text)


def same_state(one: KubeObject, other: KubeObject) -> bool:
    return (one.uid, one.resource_version) == (other.uid, other.resource_version)
