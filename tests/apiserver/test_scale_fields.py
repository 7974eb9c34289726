"""Managed fields of a scale: there and back, with what a real server loses."""

from __future__ import annotations

from typing import Any

import pytest
from patching_helpers import NOW, entry

from aioinformer_apiserver.patches.managed_fields import (
    SCALE_VERSION,
    from_scale,
    to_scale,
    update_managed_fields,
)
from aioinformer_apiserver.schema.openapi_schema import definition

SCALE = definition("io.k8s.api.autoscaling.v1.Scale")
REPLICAS = ("spec", "replicas")
OWNED: dict[str, Any] = {"f:spec": {"f:paused": {}, "f:replicas": {}}}
ONLY: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


def owner(name: str, owned: dict[str, Any], **options: Any) -> dict[str, Any]:
    return entry(name, owned, version="apps/v1", **options)


def scaled(
    managed: list[dict[str, Any]], manager: str, *, old: int = 1, new: int = 2
) -> list[dict[str, Any]]:
    """Write another number through the scale; returns what its owner has then."""
    shown = to_scale(managed, REPLICAS, {"apps/v1"})
    before = {"metadata": {"managedFields": shown}, "spec": {"replicas": old}}
    after = update_managed_fields(
        SCALE,
        before,
        {"metadata": {}, "spec": {"replicas": new}},
        manager=manager,
        api_version=SCALE_VERSION,
        now=NOW,
        subresource="scale",
    )
    return from_scale(managed, after, REPLICAS, api_version="apps/v1")


def test_a_scale_has_the_entries_of_those_who_own_the_number() -> None:
    managed = [owner("a", OWNED), owner("b", {"f:spec": {"f:paused": {}}})]

    assert to_scale(managed, REPLICAS, {"apps/v1"}) == [
        entry("a", ONLY, version=SCALE_VERSION)
    ]
    assert to_scale(managed, REPLICAS, {"apps/v2"}) == []


def test_the_number_is_shown_wherever_its_owner_keeps_it() -> None:
    managed = [owner("a", {"f:spec": {"f:size": {}}})]

    found = to_scale(managed, ("spec", "size"), {"apps/v1"})

    assert found == [entry("a", ONLY, version=SCALE_VERSION)]
    assert from_scale(managed, [], ("spec", "size"), api_version="apps/v1") == []


def test_who_scales_owns_the_number_without_a_time() -> None:
    found = scaled([owner("a", OWNED)], "sc")

    assert found == [
        owner("sc", ONLY, time="", subresource="scale"),
        owner("a", {"f:spec": {"f:paused": {}}}),
    ]


def test_nobody_owns_the_number_that_nobody_owned_before() -> None:
    managed = [owner("a", {"f:spec": {"f:paused": {}}})]

    assert scaled(managed, "sc") == managed


def test_an_applier_keeps_its_entry_if_the_number_stays() -> None:
    managed = [owner("a", OWNED, operation="Apply")]

    assert scaled(managed, "sc", new=1) == managed


def test_an_update_is_split_even_if_the_number_stays() -> None:
    found = scaled([owner("a", OWNED)], "sc", new=1)

    assert found == [
        owner("a", ONLY, time=""),
        owner("a", {"f:spec": {"f:paused": {}}}),
    ]


def test_who_owned_nothing_else_is_gone() -> None:
    found = scaled([owner("a", ONLY, operation="Apply")], "sc")

    assert [it["manager"] for it in found] == ["sc"]


def test_entries_of_unknown_versions_go() -> None:
    managed = [owner("a", OWNED), entry("b", OWNED, version="apps/v0")]
    kept = [owner("a", OWNED, operation="Apply"), entry("b", OWNED, version="apps/v2")]
    options: dict[str, Any] = {"api_version": "apps/v1", "versions": ["apps/v2"]}

    found = from_scale(managed, to_scale(managed, REPLICAS, {"x"}), REPLICAS, **options)

    assert found == [owner("a", {"f:spec": {"f:paused": {}}})]
    assert len(from_scale(kept, [], REPLICAS, **options)) == 2


def test_a_scale_entry_without_the_number_says_nothing() -> None:
    shown = [entry("a", {"f:metadata": {"f:labels": {}}}, version=SCALE_VERSION)]

    assert from_scale([], shown, REPLICAS, api_version="apps/v1") == []


def test_malformed_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="expected an entry"):
        to_scale(["x"], REPLICAS, {"apps/v1"})
