"""What handlers are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = ["Added", "Deleted", "Notification", "Updated", "object_of"]


class Added(msgspec.Struct, gc=False, frozen=True):
    """An object came into the informer's selection.

    Attributes:
        obj: Its state.
        initial: True if it was there when the informer, or this handler, began.
    """

    obj: KubeObject
    initial: bool = False


class Updated(msgspec.Struct, gc=False, frozen=True):
    """An object changed.

    Attributes:
        old: The state notified before.
        new: The state now.
        resync: True if nothing changed and this is a periodic reminder.
    """

    old: KubeObject
    new: KubeObject
    resync: bool = False


class Deleted(msgspec.Struct, gc=False, frozen=True):
    """An object left the informer's selection; under a selector it may live on.

    Attributes:
        obj: Its last state.
        final_state_unknown: True if its end was not seen, only that it is gone: then
            `obj` is the last state that was seen.
    """

    obj: KubeObject
    final_state_unknown: bool = False


Notification: TypeAlias = Added | Updated | Deleted


def object_of(event: Notification) -> KubeObject:
    """The object that it is about, in its newest state."""
    return event.new if isinstance(event, Updated) else event.obj
