"""Predicates: filters of changes."""

from __future__ import annotations

from typing import Any

import pytest
from fake_source import thing

from aioinformer import Added, Deleted, KubeObject, LabelSelector, Updated
from aioinformer.controller import (
    Predicate,
    annotations_changed,
    generation_changed,
    labels_changed,
    matches_labels,
    resource_version_changed,
)
from aioinformer.errors import OptionsError, SelectorSyntaxError


def state(version: int = 1, **metadata: Any) -> KubeObject:
    metadata["resourceVersion"] = str(version)
    return KubeObject.of({"metadata": {"name": "web", "namespace": "shop", **metadata}})


PASSES = [
    pytest.param(resource_version_changed, {}, {"version": 2}, True, id="version"),
    pytest.param(resource_version_changed, {}, {}, False, id="same-version"),
    pytest.param(
        generation_changed, {"generation": 1}, {"generation": 2}, True, id="generation"
    ),
    pytest.param(
        generation_changed,
        {"generation": 2},
        {"generation": 2, "version": 2},
        False,
        id="same-generation",
    ),
    pytest.param(generation_changed, {}, {"version": 2}, True, id="no-generation"),
    pytest.param(labels_changed, {"labels": {"a": "1"}}, {}, True, id="label-gone"),
    pytest.param(
        labels_changed,
        {"labels": {"a": "1"}},
        {"labels": {"a": "1"}, "version": 2},
        False,
        id="same-labels",
    ),
    pytest.param(
        annotations_changed,
        {"annotations": {"a": "1"}},
        {"annotations": {"a": "2"}},
        True,
        id="annotation",
    ),
    pytest.param(
        annotations_changed,
        {"annotations": {"a": "1"}},
        {"annotations": {"a": "1"}, "version": 2},
        False,
        id="same-annotations",
    ),
    pytest.param(annotations_changed, {}, {"version": 2}, False, id="no-annotations"),
    pytest.param(
        matches_labels("app=web"), {"labels": {"app": "web"}}, {}, True, id="left"
    ),
    pytest.param(
        matches_labels("app=web"), {}, {"labels": {"app": "web"}}, True, id="joined"
    ),
    pytest.param(matches_labels("app=web"), {}, {"version": 2}, False, id="never"),
]


@pytest.mark.parametrize(("predicate", "old", "new", "passes"), PASSES)
def test_predicates_filter_updates(
    predicate: Predicate, old: dict[str, Any], new: dict[str, Any], passes: bool
) -> None:
    assert predicate(Updated(state(**old), state(**new))) is passes


@pytest.mark.parametrize(
    "event", [Added(state()), Deleted(state())], ids=["add", "del"]
)
@pytest.mark.parametrize(
    "predicate",
    [resource_version_changed, generation_changed, labels_changed, annotations_changed],
    ids=["version", "generation", "labels", "annotations"],
)
def test_additions_and_deletions_pass(
    predicate: Predicate, event: Added | Deleted
) -> None:
    assert predicate(event)


def test_matches_labels_checks_labels_of_object() -> None:
    ours = matches_labels(LabelSelector.parse("app in (web,api)"))

    assert ours(Added(state(labels={"app": "api"})))
    assert not ours(Deleted(state(labels={"app": "db"})))


def test_invalid_selector_is_refused() -> None:
    with pytest.raises(SelectorSyntaxError):
        matches_labels("app in web")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_predicates_combine_by_boolean_logic(first: bool, second: bool) -> None:
    one, two = Predicate(lambda _: first), Predicate(lambda _: second)
    event = Added(thing("web"))

    assert (one & two)(event) is (first and second)
    assert (one | two)(event) is (first or second)
    assert (~one)(event) is (not first)


def test_coroutine_function_as_predicate_is_refused() -> None:
    async def late(event: object) -> bool:
        return True

    with pytest.raises(OptionsError, match="plain function"):
        Predicate(late)
