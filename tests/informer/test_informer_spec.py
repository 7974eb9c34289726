"""`InformerSpec`: identity of an informer, conflicting options, and calling places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from factory_helpers import FakeClient

from aioinformer.errors import OptionsError
from aioinformer.informer import ReflectorOptions, SharedInformerFactory
from aioinformer.informer.informer_spec import InformerSpec, calling_place
from aioinformer.model import (
    ShardSelector,
    drop,
    ranges_of,
    strip_managed_fields,
    transform_dict,
)
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.model import KubeObject
    from aioinformer.model.transforms import Transform

FIRST = InformerSpec(
    resource=PODS,
    namespaces=(),
    label_selector="",
    field_selector="",
    metadata_only=False,
    name=None,
    options=ReflectorOptions(),
    transform=None,
    resync_period=0.0,
    place="a.py:1",
)


def identity(obj: KubeObject) -> KubeObject:
    return obj


def same(content: dict[str, Any]) -> dict[str, Any]:
    return content


# ---------------------------------------------------------------- identity


@pytest.mark.parametrize(
    "change",
    [
        {"namespaces": ("shop",)},
        {"namespaces": ("shop", "test")},
        {"label_selector": "app=web"},
        {"field_selector": "spec.nodeName=n"},
        {"metadata_only": True},
        {"shards": ShardSelector(ranges_of(2)[:1])},
        {"name": "mine"},
    ],
    ids=str,
)
def test_another_selection_or_name_gives_another_informer(
    change: dict[str, Any],
) -> None:
    other = replace(FIRST, **change)

    assert other.identity != FIRST.identity
    assert other.describe() != FIRST.describe()


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "options=ReflectorOptions(page_size=10": {
        "options": ReflectorOptions(page_size=10)
    },
    "options=ReflectorOptions(": {"options": ReflectorOptions(streaming_list=True)},
    "transform=strip_managed_fields": {"transform": strip_managed_fields},
    "resync_period=60.0": {"resync_period": 60.0},
    "kind='Pot'": {"resource": replace(PODS, kind="Pot")},
    "namespaced=False": {"resource": replace(PODS, namespaced=False)},
}


@pytest.mark.parametrize(
    ("received", "change"), CONTRADICTIONS.items(), ids=CONTRADICTIONS
)
def test_conflicting_options_of_one_informer_are_refused(
    received: str, change: dict[str, Any]
) -> None:
    again = replace(FIRST, place="b.py:2", **change)

    assert again.identity == FIRST.identity
    with pytest.raises(OptionsError) as raised:
        FIRST.check_same(again, FIRST.transform)

    text = str(raised.value)
    name = received.partition("=")[0]
    assert f"'pods' exists, requested at a.py:1 with {name}=" in text
    assert f"is requested at b.py:2 with {received}" in text
    assert text.endswith("pass name= for a second informer")


def test_another_calling_place_is_no_conflict() -> None:
    FIRST.check_same(replace(FIRST, place="b.py:2"), None)


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (strip_managed_fields, "transform=strip_managed_fields"),
        (drop("status.images"), "transform=drop('status.images')"),
        (identity, "transform=identity"),
    ],
    ids=["ours", "drop", "function"],
)
def test_conflict_error_names_the_transforms(transform: Any, text: str) -> None:
    with pytest.raises(OptionsError) as raised:
        FIRST.check_same(replace(FIRST, transform=transform), None)

    assert text in str(raised.value)


# ---------------------------------------------------------------- calling places


def test_calling_place_is_outside_the_package() -> None:
    place = calling_place()  # here

    line = (
        Path(__file__)
        .read_text(encoding="utf-8")
        .splitlines()
        .index("    place = calling_place()  # here")
    )
    assert place == f"{__file__}:{line + 1}"


def test_calling_place_in_executed_text_is_found() -> None:
    names: dict[str, Any] = {"__name__": "aioinformer_of_mine", "ask": calling_place}

    exec(compile("\n\nplace = ask()", "theirs.py", "exec"), names)

    assert names["place"] == "theirs.py:3"


def test_calling_place_skips_modules_of_the_package() -> None:
    names: dict[str, Any] = {"__name__": "aioinformer.x", "ask": calling_place}

    exec(compile("place = ask()", "ours.py", "exec"), names)

    assert names["place"].startswith(__file__), "the code that ran it"


# ---------------------------------------------------------------- the factory


def first_place(factory: SharedInformerFactory, **options: Any) -> str:
    factory.informer("v1", "pods", **options)
    return calling_place()


def test_factory_conflict_error_names_both_calling_places() -> None:
    factory = SharedInformerFactory(FakeClient())
    place = first_place(factory, transform=strip_managed_fields)

    with pytest.raises(OptionsError) as raised:
        factory.informer("v1", "pods")

    file, _, number = place.rpartition(":")
    assert f"requested at {file}:{int(number) - 1} with" in str(raised.value)
    assert f"is requested at {__file__}:" in str(raised.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"transform": strip_managed_fields}, {"transform": drop("status.images")}),
        ({"transform": drop("status.images")}, {"transform": drop("status")}),
        ({}, {"transform": strip_managed_fields}),
        ({"streaming_list": True}, {}),
        ({"page_size": 10}, {"page_size": 20}),
    ],
    ids=["functions", "paths", "none", "streaming_list", "page_size"],
)
def test_factory_refuses_conflicting_options(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    factory = SharedInformerFactory(FakeClient())
    pods = factory.informer("v1", "pods", **one)

    with pytest.raises(OptionsError, match="pass name= for a second informer"):
        factory.informer("v1", "pods", **other)

    assert factory.informer("v1", "pods", **one) is pods
    second = factory.informer("v1", "pods", **other, name="second")
    assert second.transform == other.get("transform")
    assert factory.informers == (pods, second)


@pytest.mark.parametrize(
    "make",
    [
        lambda: drop("status.images", ("metadata", "annotations", "a.b")),
        lambda: transform_dict(same),
    ],
    ids=["drop", "transform_dict"],
)
def test_transforms_made_from_equal_arguments_are_equal(
    make: Callable[[], Transform],
) -> None:
    factory = SharedInformerFactory(FakeClient())

    pods = factory.informer("v1", "pods", transform=make())

    assert factory.informer("v1", "pods", transform=make()) is pods


def test_transform_set_later_is_compared() -> None:
    factory = SharedInformerFactory(FakeClient())
    pods = factory.informer("v1", "pods")
    pods.set_transform(strip_managed_fields)

    assert factory.informer("v1", "pods", transform=strip_managed_fields) is pods
    with pytest.raises(OptionsError):
        factory.informer("v1", "pods")


def test_factory_refuses_an_invalid_transform() -> None:
    factory = SharedInformerFactory(FakeClient())

    with pytest.raises(OptionsError, match="a transform must be a plain function"):
        factory.informer("v1", "pods", transform="strip")  # type: ignore[arg-type]

    assert factory.informers == ()
