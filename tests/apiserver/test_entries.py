"""Entries of managed fields: what a client may send, their order, and their number."""

from __future__ import annotations

from typing import Any

import pytest
from patching_helpers import LATER, config_map, entry, owned_by, written

# -------------------------------------------------------------------- what is sent


@pytest.mark.parametrize("sent", [[], [{}]], ids=["no entry", "an empty entry"])
def test_managed_fields_are_reset(sent: list[Any]) -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="2")
    new["metadata"]["managedFields"] = sent

    assert written(old, new)["metadata"]["managedFields"] == []


def test_an_object_without_managed_fields_stays_without() -> None:
    assert (
        written(config_map(x="1"), config_map(x="2"))["metadata"]["managedFields"] == []
    )


def test_managed_fields_that_are_sent_count() -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="1", y="1")
    hour = "2020-01-01T00:00:00+01:00"
    new["metadata"]["managedFields"] = [
        entry("q", {"f:data": {"f:z": {}}}, operation="Apply", time=hour)
    ]

    found = written(old, new)

    assert owned_by(found) == {
        "q!": {"f:data": {"f:z": {}}},
        "me": {"f:data": {"f:y": {}}},
    }
    assert found["metadata"]["managedFields"][0]["time"] == "2019-12-31T23:00:00Z"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(None, id="null"),
        pytest.param("x", id="text"),
        pytest.param(["x"], id="no entry"),
        pytest.param([entry("q", {"data": {}})], id="a malformed path"),
        pytest.param([entry("q", {}, operation="Foo")], id="an unknown operation"),
        pytest.param([entry("q", {}, version="")], id="no version"),
        pytest.param([{**entry("q", {}), "fieldsType": "X"}], id="an unknown type"),
        pytest.param([entry("q", {}, time="now")], id="a malformed time"),
    ],
)
def test_unreadable_managed_fields_count_as_not_sent(sent: object) -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="1")
    new["metadata"]["managedFields"] = sent

    assert written(old, new) == old


def test_managed_fields_sent_through_a_subresource_do_not_count() -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="1")
    new["metadata"]["managedFields"] = []

    assert written(old, new, subresource="status") == old


def test_entries_without_fields_go() -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="1")
    new["metadata"]["managedFields"] = [{**entry("q", {}), "fieldsV1": None}]

    assert written(old, new)["metadata"]["managedFields"] == []


def test_entries_of_unknown_versions_go() -> None:
    old = config_map(x="1")
    owned: dict[str, Any] = {"f:data": {"f:x": {}}}
    old["metadata"]["managedFields"] = [
        entry("new", owned),
        entry("other", owned, version="v2"),
        entry("gone", owned, version="v0"),
    ]

    found = written(old, old, versions=["v1", "v2"])

    assert owned_by(found) == {"new": owned, "other": owned}


# -------------------------------------------------------------------- the list


def test_entries_come_with_appliers_first_then_by_time_and_name() -> None:
    old = config_map(x="1")
    owned: dict[str, Any] = {"f:data": {"f:x": {}}}
    ordered = [
        entry("z", owned, operation="Apply", time=""),
        entry("b", owned, operation="Apply"),
        entry("a", owned, operation="Apply", time=LATER),
        entry("a", owned),
        entry("a", owned, subresource="status"),
        entry("b", owned),
        entry("a", owned, time=LATER, version="v2"),
    ]
    old["metadata"]["managedFields"] = ordered[::-1]

    found = written(old, old, versions=["v2"])

    assert found["metadata"]["managedFields"] == ordered


def test_the_oldest_of_more_than_ten_updates_are_thrown_together() -> None:
    body = written(None, config_map(a="1"), "first", now="2025-01-01T00:00:00Z")
    data = {"a": "1"}
    for day in range(1, 13):
        data[f"k{day}"] = "1"
        now = f"2026-01-{day:02}T00:00:00Z"
        body = written(body, config_map(**data), f"m{day}", now=now)

    entries = body["metadata"]["managedFields"]
    assert [it["manager"] for it in entries] == [
        "ancient-changes",
        *[f"m{day}" for day in range(4, 13)],
    ]
    assert entries[0]["fieldsV1"] == {
        "f:data": {".": {}, "f:a": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}}
    }
    assert entries[0]["time"] == "2026-01-03T00:00:00Z"


def test_updates_of_different_versions_are_not_thrown_together() -> None:
    old = config_map(**{f"k{place}": "1" for place in range(11)})
    old["metadata"]["managedFields"] = [
        entry(f"m{place:02}", {"f:data": {f"f:k{place}": {}}}, version=f"v{place}")
        for place in range(11)
    ]
    versions = [f"v{place}" for place in range(11)]

    found = written(old, old, versions=versions)

    assert found["metadata"]["managedFields"] == old["metadata"]["managedFields"]


def test_appliers_are_not_counted_among_the_ten() -> None:
    old = config_map(x="1")
    owned: dict[str, Any] = {"f:data": {"f:x": {}}}
    old["metadata"]["managedFields"] = [
        entry(f"m{place:02}", owned, operation="Apply") for place in range(12)
    ]

    assert len(written(old, old)["metadata"]["managedFields"]) == 12
