"""Decisions about deletions: marks, grace periods, finalizers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case

from aioinformer.model.resources import CONFIG_MAPS, EVENTS, JOBS, PODS, SERVICES
from aioinformer_apiserver.registry.deletion import (
    decide_deletion,
    returns_deleted_object,
    should_remove_on_update,
    warn_of_deletion,
)
from aioinformer_apiserver.requests.options import DeleteOptions
from aioinformer_apiserver.storage.kinds import Kind

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

NOW = datetime(2025, 1, 1, 12, 0, 0, tzinfo=UTC)
LATER = datetime(2025, 1, 1, 12, 5, 0, tzinfo=UTC)


def kind(resource: Resource) -> Kind:
    return Kind(resource=resource)


def body(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": "u", **metadata}}


def pod(grace: int | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a running pod; with a grace period one that is terminating since `NOW`."""
    found = {
        **body(generation=1, **metadata),
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running"},
    }
    if grace is not None:
        marks = {
            "deletionTimestamp": f"2025-01-01T12:00:{grace:02}Z",
            "deletionGracePeriodSeconds": grace,
        }
        found["metadata"].update(marks)

    return found


def test_object_without_finalizers_is_deleted_unchanged() -> None:
    given = body()

    outcome = decide_deletion(kind(CONFIG_MAPS), given, DeleteOptions(), NOW)

    assert outcome.removed
    assert outcome.body["metadata"].keys() - {"finalizers"} == given["metadata"].keys()


def test_object_with_finalizers_is_marked_once() -> None:
    given = body(finalizers=["a/b"], generation=3)

    first = decide_deletion(kind(CONFIG_MAPS), given, DeleteOptions(), NOW)
    again = decide_deletion(kind(CONFIG_MAPS), first.body, DeleteOptions(), LATER)

    assert not first.removed
    assert first.body["metadata"]["deletionTimestamp"] == "2025-01-01T12:00:00Z"
    assert first.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert first.body["metadata"]["generation"] == 4
    assert again == first
    assert "deletionTimestamp" not in given["metadata"]


@pytest.mark.parametrize(
    ("resource", "given", "propagation", "found"),
    [
        (CONFIG_MAPS, [], "", []),
        (CONFIG_MAPS, [], "Orphan", ["orphan"]),
        (CONFIG_MAPS, [], "Foreground", ["foregroundDeletion"]),
        (CONFIG_MAPS, ["orphan"], "", ["orphan"]),
        (CONFIG_MAPS, ["foregroundDeletion"], "", ["foregroundDeletion"]),
        (CONFIG_MAPS, ["orphan"], "Background", []),
        (CONFIG_MAPS, ["orphan", "a/b"], "Foreground", ["a/b", "foregroundDeletion"]),
        (CONFIG_MAPS, ["orphan", "a/b"], "Orphan", ["orphan", "a/b"]),
        (JOBS, [], "", ["orphan"]),
        (JOBS, ["foregroundDeletion"], "", ["foregroundDeletion"]),
        (JOBS, [], "Background", []),
        (EVENTS, [], "Orphan", []),
        (EVENTS, ["a/b"], "Orphan", ["a/b"]),
    ],
)
def test_propagation_policy_decides_finalizers(
    resource: Resource, given: list[str], propagation: Any, found: list[str]
) -> None:
    options = DeleteOptions(propagation=propagation)

    outcome = decide_deletion(kind(resource), body(finalizers=given), options, NOW)

    assert outcome.removed == (not found)
    if found:
        assert outcome.body["metadata"]["finalizers"] == found


@pytest.mark.parametrize(
    ("given", "seconds", "grace", "removed"),
    [
        pytest.param(pod(), None, 30, False, id="its-own"),
        pytest.param(pod(), 5, 5, False, id="asked"),
        pytest.param(pod(), 0, 0, True, id="none"),
        pytest.param(pod(), -1, 1, False, id="negative"),
        pytest.param({**pod(), "spec": {}}, 5, 0, True, id="on-no-node"),
        pytest.param({**pod(), "spec": {"nodeName": "n"}}, None, 0, True, id="unsaid"),
        pytest.param({**pod(), "status": {"phase": "Failed"}}, 5, 0, True, id="ended"),
        pytest.param(pod(finalizers=["a/b"]), 0, 0, False, id="held"),
    ],
)
def test_pod_gets_grace_period(
    given: dict[str, Any], seconds: int | None, grace: int, removed: bool
) -> None:
    options = DeleteOptions(grace_seconds=seconds)

    outcome = decide_deletion(kind(PODS), given, options, NOW)

    metadata = outcome.body["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == grace
    assert metadata["deletionTimestamp"] == f"2025-01-01T12:00:{grace:02}Z"
    assert metadata["generation"] == 2
    assert outcome.removed == removed


@pytest.mark.parametrize("seconds", [None, 30, 99])
def test_terminating_pod_does_not_get_longer_grace_period(seconds: int | None) -> None:
    given = pod(grace=30)

    outcome = decide_deletion(
        kind(PODS), given, DeleteOptions(grace_seconds=seconds), LATER
    )

    assert outcome.body is given
    assert not outcome.removed


@pytest.mark.parametrize(("seconds", "removed"), [(10, False), (0, True), (-3, True)])
def test_shorter_grace_period_starts_at_first_deletion(
    seconds: int, removed: bool
) -> None:
    options = DeleteOptions(grace_seconds=seconds)

    outcome = decide_deletion(kind(PODS), pod(grace=30), options, LATER)

    metadata, left = outcome.body["metadata"], max(seconds, 0)
    assert metadata["deletionGracePeriodSeconds"] == left
    assert metadata["deletionTimestamp"] == f"2025-01-01T12:00:{left:02}Z"
    assert metadata["generation"] == 1
    assert outcome.removed == removed


@each_case(
    "metadata, released",
    [
        ({}, False),
        ({"deletionTimestamp": "t"}, True),
        ({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0}, True),
        ({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 3}, False),
        ({"deletionTimestamp": "t", "finalizers": ["a/b"]}, False),
        ({"finalizers": []}, False),
    ],
)
def test_object_is_removed_on_update_without_finalizers_and_grace_period(
    metadata: dict[str, Any], released: bool
) -> None:
    assert should_remove_on_update(metadata) == released


def test_some_kinds_return_deleted_object() -> None:
    assert returns_deleted_object(kind(SERVICES))
    assert not returns_deleted_object(kind(CONFIG_MAPS))


def test_job_deletion_without_propagation_policy_warns() -> None:
    warned: list[str] = []
    silent = DeleteOptions(warn=warned.append)
    reported = DeleteOptions(propagation="Background", warn=warned.append)

    warn_of_deletion(kind(JOBS), reported)
    warn_of_deletion(kind(CONFIG_MAPS), silent)
    assert warned == []

    warn_of_deletion(kind(JOBS), silent)
    assert len(warned) == 1
