"""Deltas, replacements and tombstones."""

from __future__ import annotations

import gc

import pytest
from each_case import each_case

from aioinformer.cache.deltas import (
    DeletedFinalStateUnknown,
    Delta,
    DeltaType,
    Replacement,
)
from aioinformer.cache.memory import MemoryContents
from aioinformer.model.keys import meta_namespace_key


@each_case(
    "kind, value",
    [
        (DeltaType.ADDED, "Added"),
        (DeltaType.UPDATED, "Updated"),
        (DeltaType.DELETED, "Deleted"),
        (DeltaType.REPLACED, "Replaced"),
        (DeltaType.SYNC, "Sync"),
    ],
)
def test_delta_types_have_values_of_client_go(kind: DeltaType, value: str) -> None:
    assert f"{kind}" == value


def test_delta_is_not_tracked_by_garbage_collector() -> None:
    assert not gc.is_tracked(Delta(DeltaType.ADDED, "a"))


def test_replacement_has_list_and_version() -> None:
    contents = MemoryContents[str]({}, print)

    replacement = Replacement(contents, "7")

    assert replacement.contents is contents
    assert replacement.resource_version == "7"


def test_tombstone_has_key_of_object() -> None:
    tombstone = DeletedFinalStateUnknown[str]("shop/web", None)

    assert meta_namespace_key(tombstone) == "shop/web"


@pytest.mark.parametrize(
    ("frozen", "name"),
    [
        (Replacement(MemoryContents[str]({}, print), "7"), "resource_version"),
        (DeletedFinalStateUnknown("shop/web", "x"), "key"),
    ],
    ids=["replacement", "tombstone"],
)
def test_public_delta_types_are_immutable(frozen: object, name: str) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        setattr(frozen, name, "8")
