"""`KubeObject`: its properties, and reading one path."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from conftest import pod

from aioinformer.errors import DecodeError, OptionsError
from aioinformer.model.objects import KubeObject
from aioinformer.model.views import ReadOnlyDict, ReadOnlyList


def sample() -> KubeObject:
    return KubeObject.of(pod("web-0", "shop", {"app": "web"}))


# ---------------------------------------------------------------- properties


def test_properties_of_what_is_absent_are_empty() -> None:
    obj = KubeObject.of(b"{}")

    assert (obj.key, obj.uid, obj.resource_version) == ("", "", "")
    assert (obj.api_version, obj.kind, obj.generation) == ("", "", 0)
    assert (obj.labels, obj.annotations) == ({}, {})
    assert (obj.owner_references, obj.finalizers) == ([], [])
    assert obj.creation_timestamp is None
    assert obj.deletion_timestamp is None


def test_null_reads_as_absent() -> None:
    fields = [
        *("name", "namespace", "uid", "resourceVersion", "labels", "annotations"),
        *("ownerReferences", "finalizers", "generation"),
        *("creationTimestamp", "deletionTimestamp"),
    ]
    obj = KubeObject.of(
        {"apiVersion": None, "kind": None, "metadata": dict.fromkeys(fields)}
    )

    assert (obj.key, obj.uid, obj.resource_version) == ("", "", "")
    assert (obj.api_version, obj.kind, obj.generation) == ("", "", 0)
    assert (obj.labels, obj.annotations) == ({}, {})
    assert (obj.owner_references, obj.finalizers) == ([], [])
    assert obj.creation_timestamp is None
    assert obj.deletion_timestamp is None
    assert obj.at("metadata.labels", "absent") == "absent"


def test_properties_read_the_metadata() -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    obj = KubeObject.of(
        pod(
            "web-0",
            metadata={
                "annotations": {"example.com/note": "x"},
                "ownerReferences": [owner],
                "finalizers": ["example.com/a", "example.com/b"],
                "generation": 3,
            },
        )
    )

    assert obj.annotations == {"example.com/note": "x"}
    assert obj.owner_references == [owner]
    assert obj.finalizers == ["example.com/a", "example.com/b"]
    assert obj.generation == 3
    with pytest.raises(TypeError, match="to_dict"):
        obj.owner_references[0]["name"] = "x"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        pytest.param("2025-03-04T05:06:07Z", (2025, 3, 4, 5, 6, 7), id="seconds"),
        pytest.param(
            "2025-03-04T05:06:07.000008Z", (2025, 3, 4, 5, 6, 7, 8), id="microseconds"
        ),
        pytest.param(
            "2025-03-04T05:06:07.000008999Z", (2025, 3, 4, 5, 6, 7, 8), id="nanoseconds"
        ),
        pytest.param("2025-03-04T01:06:07+02:00", (2025, 3, 3, 23, 6, 7), id="offset"),
        pytest.param("2025-03-04T05:06:07", (2025, 3, 4, 5, 6, 7), id="no-zone"),
    ],
)
def test_timestamps_are_aware_in_utc(text: str, time: tuple[int, ...]) -> None:
    metadata = {"creationTimestamp": text, "deletionTimestamp": text}
    obj = KubeObject.of(pod("web-0", metadata=metadata))
    expected = datetime(*time, tzinfo=UTC)  # type: ignore[arg-type,misc]

    assert obj.creation_timestamp == expected
    assert obj.deletion_timestamp == expected
    assert obj.deletion_timestamp.tzinfo is UTC


@pytest.mark.parametrize("value", ["yesterday", "", 7, {}])
def test_timestamp_that_is_no_time_raises_decode_error(value: object) -> None:
    obj = KubeObject.of(pod("web-0", metadata={"creationTimestamp": value}))

    with pytest.raises(DecodeError, match=r"default/web-0.*creationTimestamp"):
        _ = obj.creation_timestamp


# ---------------------------------------------------------------- one path


def test_at_returns_read_only_views() -> None:
    obj = sample()

    assert isinstance(obj.at("spec"), ReadOnlyDict)
    assert isinstance(obj.at("spec.containers"), ReadOnlyList)
    assert obj.at("spec.containers.0.image") == "registry.example/app:1"
    assert obj.at(("spec", "containers", "0", "name")) == "main"


def test_at_decodes_nothing_into_the_cache() -> None:
    obj = sample()

    obj.at("spec.nodeName")
    obj.at("spec.nodeName.too.far")

    assert len(obj.context.decoded_bodies) == 0


@pytest.mark.parametrize("default", [None, 0, "x", []])
def test_at_of_an_absent_path_gives_the_default_as_it_is(default: object) -> None:
    assert sample().at("spec.other.more", default) is default


@pytest.mark.parametrize("value", [False, 0, "", 0.0])
def test_at_of_an_empty_value_gives_the_value(value: object) -> None:
    assert KubeObject.of({"a": {"b": value}}).at("a.b", "default") == value


@pytest.mark.parametrize("path", ["", (), "a..b", ("a", "")])
def test_at_refuses_an_empty_step(path: Any) -> None:
    with pytest.raises(OptionsError, match="not a path"):
        sample().at(path)
