"""Faults that could never strike are rejected on creation, with a hint."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case

from aioinformer.errors import OptionsError
from aioinformer.model.resources import PODS
from aioinformer.testing import faults
from aioinformer_apiserver.faults import (
    BlankBookmarks,
    Chaos,
    Compact,
    Cut,
    Delay,
    Drop,
    Duplicate,
    End,
    ErrorEvent,
    Fault,
    Faults,
    Garble,
    Gone,
    Occasion,
    Page,
    Refuse,
    Slow,
    Stall,
    UnknownType,
)

# Errors list all verbs, so that nobody has to remember them.
VERBS = "get, list, watch, create, update, patch, delete, deletecollection"


@each_case(
    "kind, options, text",
    [
        (
            Refuse,
            {"verb": "lst", "status": 500},
            "unknown verb 'lst'. Did you mean 'list'?",
        ),
        (Refuse, {"verb": "read", "status": 500}, "unknown verb 'read'. Verbs are"),
        (Refuse, {"verb": "WATCH", "status": 500}, "Did you mean 'watch'?"),
        (Cut, {"verb": "lists", "after_bytes": 1}, "Did you mean 'list'?"),
        (Stall, {"verb": "x"}, f"unknown verb 'x'. Verbs are {VERBS}"),
        (Gone, {"verb": None}, "unknown verb None"),
        (Chaos, {"seed": 1, "verbs": ["lst"]}, "Chaos: unknown verb 'lst'. Did"),
        (Chaos, {"seed": 1, "verbs": "lst"}, "unknown verb 'lst'"),
        (Chaos, {"seed": 1, "verbs": []}, "verbs must contain at least one verb"),
        (Gone, {"resource": "Pod"}, "Gone(resource='Pod'): resource must be the"),
        (Gone, {"resource": "Pod"}, "the plural, 'pods'"),
        (Gone, {"resource": "pod"}, "the plural, 'pods'"),
        (Gone, {"resource": "Widgets"}, "a plural in lower case"),
        (Gone, {"resource": "jobs.batch"}, "without group or subresource"),
        (Gone, {"resource": "pods/status"}, "without group or subresource"),
        (Gone, {"resource": PODS}, "the plural alone, 'pods'"),
        (Gone, {"resource": 7}, "a plural, such as 'pods'"),
        (Gone, {"namespace": "Shop"}, "namespace must be a name, in lower case"),
        (Gone, {"times": 0}, "times must be a whole number of at least 1"),
        (Gone, {"times": 1.5}, "times must be a whole number of at least 1"),
        (Gone, {"skip": -1}, "skip must be a whole number of at least 0"),
        (Cut, {}, "Cut(): pass after_bytes, or head=False"),
        (Cut, {"after_bytes": "1"}, "after_bytes must be a whole number"),
        (End, {}, "End(): pass either after_events or after_bytes"),
        (Delay, {"seconds": 0}, "seconds must be a number above 0"),
        (Stall, {"seconds": float("nan")}, "seconds must be a number above 0"),
        (Slow, {"bytes_per_second": 0}, "bytes_per_second must be a number above 0"),
        (Refuse, {"status": "503"}, "status must be from 400 to 599"),
        (Page, {"status": 100}, "status must be from 200 to 599"),
        (Refuse, {"status": 429, "retry_date": True}, "retry_date needs retry_after"),
    ],
)
def test_fault_that_never_strikes_is_rejected_with_hint(
    kind: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        kind(**options)

    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@each_case(
    "kind, options, verbs",
    [
        (Duplicate, {}, "list and watch"),
        (Drop, {}, "list and watch"),
        (Garble, {}, "list and watch"),
        (Compact, {}, "list and watch"),
        (BlankBookmarks, {}, "watch"),
        (UnknownType, {}, "watch"),
        (ErrorEvent, {"status": 500}, "watch"),
    ],
)
def test_fault_without_effect_on_verb_is_rejected(
    kind: type[Fault], options: dict[str, Any], verbs: str
) -> None:
    with pytest.raises(OptionsError, match=f"{kind.__name__} applies to {verbs} only$"):
        kind(verb="get", **options)

    with pytest.raises(OptionsError, match="after_events applies to watch only"):
        End(verb="list", after_events=1)


def test_fault_accepts_verbs_that_it_affects() -> None:
    needs = {"Refuse": {"status": 500}, "ErrorEvent": {"status": 500}}
    needs |= {"Slow": {"bytes_per_second": 1}, "Delay": {"seconds": 1}}
    needs |= {"Cut": {"after_bytes": 1}, "End": {"after_bytes": 1}}
    for name in faults.__all__:
        kind = getattr(faults, name)
        if issubclass(kind, Fault) and kind not in {Fault, faults.EventFault}:
            for verb in kind.acts_on or VERBS.split(", "):
                assert kind(verb=verb, **needs.get(name, {})).verb == verb


@each_case(
    "fault, expected",
    [
        (Refuse(verb="", status=500), {"get", "list", "watch", "create"}),
        (Garble(verb=""), {"list", "watch"}),
        (BlankBookmarks(verb=""), {"watch"}),
        (End(verb="", after_events=1), {"watch"}),
        (End(verb="", after_bytes=1), {"get", "list", "watch", "create"}),
    ],
)
def test_fault_with_empty_verb_matches_affected_verbs_only(
    fault: Fault, expected: set[str]
) -> None:
    requested = [Occasion(verb=it, resource="pods") for it in VERBS.split(", ")[:4]]

    assert {it.verb for it in requested if fault.matches(it)} == expected


def test_fault_accepts_plural_of_custom_resource() -> None:
    for plural in ("pods", "endpoints", "widgets", "selfsubjectaccessreviews", "x-1"):
        assert Gone(resource=plural).resource == plural


def test_cut_before_head_needs_no_bytes() -> None:
    assert repr(Cut(head=False)) == "Cut(head=False)"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (Gone, "takes a Gone, not the class: Gone(...)"),
        (Chaos, "takes a Chaos, not the class: Chaos(...)"),
        ("gone", "takes faults, such as Gone(), not 'gone'"),
        ([Gone()], "Gone(), not [Gone()]"),
    ],
)
def test_faults_add_rejects_other_objects(wrong: Any, text: str) -> None:
    script = Faults()
    with pytest.raises(OptionsError) as caught:
        script.add(Gone(), wrong)

    assert text in str(caught.value)
    assert list(script) == []
