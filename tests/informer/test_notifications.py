"""`Added`, `Updated` and `Deleted`: immutable values."""

from __future__ import annotations

import gc

import pytest
from fake_source import thing

from aioinformer.informer import Added, Deleted, Updated

OBJ = thing("a")


@pytest.mark.parametrize(
    ("event", "flag"),
    [
        (Added(OBJ), "initial"),
        (Updated(OBJ, OBJ), "resync"),
        (Deleted(OBJ), "final_state_unknown"),
    ],
    ids=["added", "updated", "deleted"],
)
def test_flags_are_false_by_default(event: object, flag: str) -> None:
    assert getattr(event, flag) is False


@pytest.mark.parametrize(
    "event", [Added(OBJ), Updated(OBJ, OBJ), Deleted(OBJ)], ids=["add", "update", "del"]
)
def test_notifications_are_immutable(event: object) -> None:
    with pytest.raises(AttributeError):
        setattr(event, "obj" if hasattr(event, "obj") else "new", thing("b"))

    assert not gc.is_tracked(event)


def test_notifications_support_pattern_matching() -> None:
    match Updated(thing("a", 1), thing("a", 2)):
        case Updated(old=old, new=new, resync=False):
            assert (old.resource_version, new.resource_version) == ("1", "2")
        case other:
            raise AssertionError(other)
