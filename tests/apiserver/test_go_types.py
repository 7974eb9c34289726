"""Times, paths and type errors of built-in objects."""

from __future__ import annotations

import re

import pytest
from each_case import each_case

from aioinformer_apiserver.schema.go_types import canonical_time, path_of, type_mismatch


def test_times_are_stored_in_utc() -> None:
    assert canonical_time("2020-01-01T01:00:00+01:00") == "2020-01-01T00:00:00Z"
    assert canonical_time("2020-01-01T00:00:00.9Z") == "2020-01-01T00:00:00Z"


def test_micro_times_keep_microseconds() -> None:
    given = "2020-01-01T01:00:00.000001+01:00"

    assert canonical_time(given, micro=True) == "2020-01-01T00:00:00.000001Z"


@each_case(
    "text, reported",
    [
        ("a", 'cannot parse "a" as "2006"'),
        ("2020", 'cannot parse "" as "-"'),
        ("2020-13-01T00:00:00Z", "month out of range"),
        ("2020-02-31T00:00:00Z", "day out of range"),
        ("2020-01-01T24:00:00Z", "hour out of range"),
        ("2020-01-01T00:00:00", 'cannot parse "" as "Z07:00"'),
        ("2020-01-01T00:00:00+25:00", "time zone offset hour out of range"),
        ("2020-01-01T00:00:00Zx", 'extra text: "x"'),
    ],
)
def test_malformed_time_is_reported_like_go(text: str, reported: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reported)):
        canonical_time(text)


def test_paths_are_formatted_like_kubernetes() -> None:
    at = (((None, "spec", "Pod"), "containers", "PodSpec"), 0, "")

    assert path_of((at, "name", "Container")) == "spec.containers[0].name"
    assert path_of(None) == ""


def test_type_mismatch_names_embedded_structs() -> None:
    at = ((None, "volumes", "PodSpec"), "emptyDir", "Volume.VolumeSource")

    reported = str(type_mismatch(1, at, "v1.EmptyDirVolumeSource"))

    assert reported == (
        "json: cannot unmarshal number into Go struct field "
        "Volume.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource"
    )
