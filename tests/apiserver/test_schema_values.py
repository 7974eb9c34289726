"""Values in built-in objects: their one form, and what is said of others."""

from __future__ import annotations

import re

import pytest

from aioinformer_apiserver.schema.defaults import pull_policy
from aioinformer_apiserver.schema.go_types import canonical_time, path_of, type_mismatch
from aioinformer_apiserver.schema.quantities import (
    canonical_quantity,
    is_multiple,
    quantity,
)
from aioinformer_apiserver.schema.string_formats import fits_format, go_pattern

# As a real server has stored them.
QUANTITIES = [
    ("1", "1"),
    ("1000m", "1"),
    ("0.5", "500m"),
    ("1500m", "1500m"),
    ("1.5Gi", "1536Mi"),
    ("1024Mi", "1Gi"),
    ("1000", "1k"),
    ("1200", "1200"),
    ("1e3", "1e3"),
    ("1E3", "1E3"),
    ("1000E3", "1e6"),
    ("100E", "100E"),
    ("12e2", "1200"),
    ("0", "0"),
    ("0Gi", "0"),
    ("512Ki", "512Ki"),
    ("0.5Ki", "512"),
    ("1.1Ki", "1126400m"),
    ("1n", "1n"),
    ("0.1n", "1n"),
    ("-1Gi", "-1Gi"),
    ("+1", "+1"),
    ("01", "01"),
    ("+1.50", "1500m"),
    (".5", "500m"),
    ("1.", "1."),
    ("1.0", "1"),
    ("01Gi", "01Gi"),
    ("2048Ki", "2Mi"),
    ("128974848000m", "128974848"),
]


@pytest.mark.parametrize(("text", "stored"), QUANTITIES)
def test_a_quantity_has_one_form(text: str, stored: str) -> None:
    assert canonical_quantity(text) == stored
    assert canonical_quantity(stored) == stored


@pytest.mark.parametrize("text", ["", "a", "1..2", "1Q", "Gi", "1 Gi", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantit"):
        canonical_quantity(text)

    with pytest.raises(ValueError, match="quantit"):
        quantity(text)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("99999999999999999999999999999", "99999999999999999999999999999"),
        ("-1180591620717411303424", "-1180591620717411303424"),
        ("12345678901234567890Ei", "9223372036854775807"),
        ("1E19", "10e18"),
    ],
)
def test_quantities_may_be_huge(text: str, stored: str) -> None:
    assert canonical_quantity(text) == stored
    assert is_multiple(quantity(text))


@pytest.mark.parametrize("text", ["1e1000", "1e-1000", "1e99999999999", "9" * 3000])
def test_quantities_that_nobody_can_calculate_with_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unable to parse quantity's suffix"):
        canonical_quantity(text)


def test_quantities_compare_whatever_their_form() -> None:
    assert quantity("1Gi") == quantity("1073741824") == quantity("1048576Ki")
    assert quantity("100m") < quantity("1") < quantity("1e1")


def test_times_are_stored_in_utc() -> None:
    assert canonical_time("2020-01-01T01:00:00+01:00") == "2020-01-01T00:00:00Z"
    assert canonical_time("2020-01-01T00:00:00.9Z") == "2020-01-01T00:00:00Z"


def test_times_of_leases_have_microseconds() -> None:
    given = "2020-01-01T01:00:00.000001+01:00"

    assert canonical_time(given, micro=True) == "2020-01-01T00:00:00.000001Z"


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_what_is_no_time_is_told_as_go_does(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        canonical_time(text)


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("localhost:5000/app", "Always"),
        ("localhost:5000/app:1", "IfNotPresent"),
        (f"app@sha256:{'a' * 64}", "IfNotPresent"),
        (f"app:latest@sha256:{'a' * 64}", "Always"),
        ("App", "IfNotPresent"),
    ],
)
def test_the_tag_says_when_an_image_is_pulled(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def test_the_end_is_the_end_in_a_pattern_of_go() -> None:
    pattern = go_pattern("^[a-z$]+$")

    assert pattern is not None
    assert pattern.search("a$")
    assert not pattern.search("a\n")


def test_named_classes_are_understood() -> None:
    pattern = go_pattern(r"^[[:upper:]]\d\z")

    assert pattern is not None
    assert pattern.search("A1")
    assert not pattern.search("a1")


def test_classes_of_unicode_are_not() -> None:
    assert go_pattern(r"\p{Greek}") is None


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("mac", "01:23:45:67:89:ab", "01:23:45:67:89"),
        ("hexcolor", "#fff", "#ff"),
        ("rgbcolor", "rgb(1,2,3)", "rgb(1,2)"),
        ("ipv6", "::1", "1.2.3.4"),
        ("bsonobjectid", "a" * 24, "a" * 23),
        ("ssn", "123-45-6789", "123-45-678"),
        ("k8s-long-name", "a.b", "A.b"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567"),
    ],
)
def test_formats_are_checked(format_: str, good: str, bad: str) -> None:
    assert fits_format(format_, good)
    assert not fits_format(format_, bad)


def test_unknown_formats_are_not() -> None:
    assert fits_format("telephone", "x")


def test_places_are_written_as_kubernetes_does() -> None:
    at = (((None, "spec", "Pod"), "containers", "PodSpec"), 0, "")

    assert path_of((at, "name", "Container")) == "spec.containers[0].name"
    assert path_of(None) == ""


def test_a_mismatch_names_included_structs() -> None:
    at = ((None, "volumes", "PodSpec"), "emptyDir", "Volume.VolumeSource")

    told = str(type_mismatch(1, at, "v1.EmptyDirVolumeSource"))

    assert told == (
        "json: cannot unmarshal number into Go struct field "
        "Volume.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource"
    )
