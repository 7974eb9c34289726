"""Status conditions: set, find and check."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import KubeObject, condition, is_ready, rolled_out
from aioinformer.controller import (
    find_status_condition,
    is_status_condition_true,
    set_status_condition,
)
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable

THEN = datetime(2026, 8, 1, 12, 30, 15, 999_999, tzinfo=UTC)
LATER = THEN + timedelta(hours=1)
READY = {
    "type": "Ready",
    "status": "True",
    "lastTransitionTime": "2026-08-01T12:30:15Z",
    "reason": "Deployed",
    "message": "",
}
PAID = {"type": "example.com/Paid", "status": "False", "reason": "No"}


LONGEST = ".".join(["a" * 50] * 4 + ["a" * 48]) + "/" + "b" * 63
"""The type of 316 characters; a domain may have one more."""


def ready(
    conditions: Any, status: Any = True, reason: Any = "Deployed", **more: Any
) -> list[dict[str, Any]]:
    more.setdefault("now", LATER)
    return set_status_condition(conditions, "Ready", status, reason=reason, **more)


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_first_condition_is_added(nothing: Any) -> None:
    assert ready(nothing, now=THEN) == [READY]


def test_condition_has_observed_generation() -> None:
    (first,) = ready(None, observed_generation=7)
    assert first["observedGeneration"] == 7
    assert ready([first], observed_generation=8)[0]["observedGeneration"] == 8
    assert ready([first], observed_generation=0)[0]["observedGeneration"] == 0
    assert "observedGeneration" not in ready([first])[0]  # removed


def test_unchanged_condition_compares_equal() -> None:
    conditions = [PAID, READY]
    assert ready(conditions) == conditions


def test_transition_time_is_that_of_last_status_change() -> None:
    (condition,) = ready([READY], reason="Scaled", message="3 of 3")
    assert condition == READY | {"reason": "Scaled", "message": "3 of 3"}

    (condition,) = ready([READY], status=False, reason="Gone")
    assert condition["lastTransitionTime"] == "2026-08-01T13:30:15Z"
    assert condition["status"] == "False"


def test_missing_transition_time_is_added() -> None:
    (condition,) = ready([{"type": "Ready", "status": "True"}])
    assert condition == READY | {"lastTransitionTime": "2026-08-01T13:30:15Z"}


def test_transition_times_are_written_in_utc() -> None:
    (condition,) = ready(None, now=THEN.astimezone(timezone(timedelta(hours=-7))))
    assert condition == READY


def test_transition_time_defaults_to_current_time() -> None:
    (condition,) = set_status_condition(None, "Ready", True, reason="Deployed")
    age = datetime.now(UTC) - datetime.fromisoformat(condition["lastTransitionTime"])
    assert timedelta() <= age < timedelta(minutes=1)


@pytest.mark.parametrize("status", ["True", "False", "Unknown", True, False])
def test_condition_has_all_fields(status: Any) -> None:
    (condition,) = ready(None, status=status)
    assert condition["status"] == str(status)
    assert is_status_condition_true([condition], "Ready") is (str(status) == "True")


def test_order_and_other_conditions_are_kept() -> None:
    other = PAID | {"extra": {"deep": 1}}
    conditions = ready([READY | {"extra": 2}, other], status=False, reason="Gone")
    assert [it["type"] for it in conditions] == ["Ready", "example.com/Paid"]
    assert conditions[0]["extra"] == 2
    assert conditions[1] == other


def test_new_condition_is_appended() -> None:
    assert ready([PAID], now=THEN) == [PAID, READY]


@pytest.mark.parametrize("reason", ["A", "a_", "A,b:C", "A1", "a" * 1024])
def test_valid_reasons_are_accepted(reason: str) -> None:
    assert ready(None, reason=reason)[0]["reason"] == reason


def test_long_types_and_messages_are_accepted() -> None:
    (condition,) = set_status_condition(None, LONGEST, True, reason="A")
    assert condition["type"] == LONGEST
    assert ready(None, message="é" * 32_768)[0]["message"] == "é" * 32_768


def test_first_of_duplicate_conditions_is_used() -> None:
    second = READY | {"status": "Unknown"}
    assert ready([READY, second]) == [READY, second]
    assert find_status_condition([READY, second], "Ready") == READY


def test_cached_conditions_are_not_modified() -> None:
    site = KubeObject.of({"metadata": {"name": "a"}, "status": {"conditions": [READY]}})
    conditions = ready(site.at("status.conditions"), status=False, reason="Gone")
    assert conditions != site.at("status.conditions")
    assert site.at("status.conditions") == [READY]
    assert ready(site.at("status.conditions")) == site.at("status.conditions")
    assert is_status_condition_true(site.at("status.conditions"), "Ready")


@pytest.mark.parametrize("conditions", [None, [], [PAID]])
def test_missing_condition_is_not_found_and_not_true(conditions: Any) -> None:
    assert find_status_condition(conditions, "Ready") is None
    assert not is_status_condition_true(conditions, "Ready")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: ready(None, status="true"), "a bool, 'True', 'False' or 'Unknown'"),
        (lambda: ready(None, status=1), "not 1"),
        (lambda: ready(None, status=None), "not None"),
        (lambda: ready(None, status=[]), r"not \[\]"),
        (lambda: ready(None, reason=""), "reason must be one word"),
        (lambda: ready(None, reason="two words"), "not 'two words'"),
        (lambda: ready(None, reason="1a"), "not '1a'"),
        (lambda: ready(None, reason="_a"), "not '_a'"),
        (lambda: ready(None, reason="a,"), "not 'a,'"),
        (lambda: ready(None, reason="a:"), "not 'a:'"),
        (
            lambda: ready(None, reason="a" * 1025),
            "reason must have at most 1,024 characters, not 1,025",
        ),
        (lambda: ready(None, reason=None), "reason must be a string, not None"),
        (lambda: ready(None, message=None), "message must be a string, not None"),
        (
            lambda: ready(None, observed_generation=-1),
            "observed_generation must not be negative",
        ),
        (
            lambda: ready(None, message="a" * 32_769),
            "message must have at most 32,768 characters, not 32,769",
        ),
        (
            lambda: set_status_condition(None, "", True, reason="A"),
            "'' cannot be the type of a condition",
        ),
        (
            lambda: set_status_condition(None, "a" + LONGEST, True, reason="A"),
            "type must have at most 316 characters, not 317",
        ),
    ],
)
def test_invalid_condition_is_refused(call: Callable[[], object], problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        call()


# ------------------------------------------------------------ conditions of an object


@pytest.mark.parametrize("form", [dict, KubeObject.of], ids=["dict", "KubeObject"])
def test_condition_of_object_is_found_by_type(form: Callable[..., Any]) -> None:
    obj = form({"metadata": {"name": "a"}, "status": {"conditions": [PAID, READY]}})

    assert condition(obj, "Ready") == READY
    assert condition(obj, "Available") is None


@pytest.mark.parametrize(
    "obj",
    [
        None,
        {},
        {"status": None},
        {"status": {"conditions": None}},
        KubeObject.of({"metadata": {"name": "a"}}),
        {"status": "x"},
        {"status": {"conditions": "x"}},
        {"status": {"conditions": 1}},
        {"status": {"conditions": [None, "Ready", ["Ready"]]}},
        KubeObject.of({"status": {"conditions": [None, "Ready", ["Ready"]]}}),
    ],
    ids=[
        "none",
        "empty",
        "null-status",
        "null-conditions",
        "KubeObject",
        "text-status",
        "text-conditions",
        "number-conditions",
        "malformed-entries",
        "malformed-KubeObject",
    ],
)
def test_object_without_conditions_is_not_ready(obj: Any) -> None:
    assert condition(obj, "Ready") is None
    assert is_ready(obj) is False


@pytest.mark.parametrize(
    ("status", "expected"), [("True", True), ("False", False), ("Unknown", False)]
)
def test_object_is_ready_by_its_condition(status: str, expected: bool) -> None:
    obj = KubeObject.of({"status": {"conditions": [READY | {"status": status}]}})

    assert is_ready(obj) is expected


def test_malformed_conditions_are_replaced() -> None:
    broken: Any = [None, "Ready", READY]

    new = set_status_condition(broken, "Paid", "True", reason="Paid")

    assert [it["type"] for it in new] == ["Ready", "Paid"]


# ---------------------------------------------------------------- rolled_out

COUNTS = {"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"observedGeneration": 1}, False),
        ({"updatedReplicas": 2, "availableReplicas": 2}, False),
        ({"replicas": 4}, False),
        ({"availableReplicas": 2}, False),
    ],
    ids=["done", "not observed", "not updated", "old replicas", "not available"],
)
@pytest.mark.parametrize("of", [dict, KubeObject.of])
def test_deployment_is_rolled_out_like_kubectl_says(
    of: Callable[[Any], Any], change: dict[str, int], expected: bool
) -> None:
    deployment = {
        "metadata": {"name": "web", "generation": 2},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 2, **COUNTS, **change},
    }
    assert rolled_out(of(deployment)) is expected


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        (None, False),
        ({"metadata": {"name": "web"}}, False),
        ({"metadata": {"generation": 1}, "spec": {"replicas": 0}, "status": {}}, False),
        ({"spec": {"replicas": 0}, "status": {"observedGeneration": 1}}, True),
        ({"spec": {}, "status": {"replicas": 1, "updatedReplicas": 1}}, False),
    ],
    ids=["absent", "new", "not observed", "scaled to 0", "default of 1"],
)
def test_deployment_with_missing_fields(deployment: Any, expected: bool) -> None:
    assert rolled_out(deployment) is expected
