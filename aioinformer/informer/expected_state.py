"""`ExpectedState`: the state of an object that a write leads to. Pure.

A write is identified by the resource version in its response. A deletion has none: it
is identified by the uid of the object, which then is missing or marked as being
deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aioinformer.model.object_meta import version_number

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = ["NOTHING", "ExpectedState", "after_write", "releases_last_finalizer"]


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """State of one object that an informer is to reach.

    Attributes:
        version: Resource version to reach, 0 for none.
        left: True if the object left the informer's selection with that version.
        deleted: Uid of the deleted object, empty for none.
        marked: True if a deletion timestamp on that object is enough.
    """

    version: int = 0
    left: bool = False
    deleted: str = ""
    marked: bool = False

    def is_gone(self, obj: KubeObject | None) -> bool:
        """Return True if a cached object shows the deletion."""
        if obj is None or obj.uid != self.deleted:
            return True

        return self.marked and obj.at("metadata.deletionTimestamp") is not None

    def after_deletion(self, uid: str, *, marked: bool) -> ExpectedState:
        """Return the state after a deletion of the object with this uid."""
        return replace(self, deleted=uid, marked=marked)


NOTHING = ExpectedState()
"""State that every informer has reached."""


def after_write(
    written: KubeObject, expected: ExpectedState, *, selected: bool, cached: bool
) -> ExpectedState:
    """Return the state to expect after a write.

    It is unchanged if the informer reports nothing about the write: if it does not
    select the object, and did not select it before.

    Args:
        written: Object in the response.
        expected: State expected before the write.
        selected: True if the informer selects the object.
        cached: True if the informer has the object.
    """
    version = version_number(written.resource_version)
    if expected is NOTHING:
        # An object that leaves the selection is reported, if it was cached.
        reported = selected or cached
    else:
        reported = selected or not expected.left

    if version > 0 and reported:
        expected = replace(expected, version=version, left=not selected)

    if releases_last_finalizer(written) and (selected or cached):
        expected = expected.after_deletion(written.uid, marked=False)

    return expected


def releases_last_finalizer(written: KubeObject) -> bool:
    """Return True if the write removed the last finalizer of a deleted object.

    The response may then have the version before the write, which informers show
    already.
    """
    return (
        written.deletion_timestamp is not None
        and not written.finalizers
        and not written.at("metadata.deletionGracePeriodSeconds")
    )
