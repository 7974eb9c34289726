"""Canonical forms and values of quantities."""

from __future__ import annotations

import pytest
from each_case import each_case

from aioinformer_apiserver.schema.quantities import (
    canonical_quantity,
    is_multiple,
    quantity,
)

# Quantities as a real server has stored them.
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


@each_case("text, stored", QUANTITIES)
def test_quantity_has_one_canonical_form(text: str, stored: str) -> None:
    assert canonical_quantity(text) == stored
    assert canonical_quantity(stored) == stored


@each_case("text", ["", "a", "1..2", "1Q", "Gi", "1 Gi", "--1"])
def test_malformed_quantity_is_rejected(text: str) -> None:
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
def test_huge_quantity_is_capped(text: str, stored: str) -> None:
    assert canonical_quantity(text) == stored
    assert is_multiple(quantity(text))


@pytest.mark.parametrize("text", ["1e1000", "1e-1000", "1e99999999999", "9" * 3000])
def test_quantity_with_huge_exponent_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="unable to parse quantity's suffix"):
        canonical_quantity(text)


def test_quantities_compare_by_value() -> None:
    assert quantity("1Gi") == quantity("1073741824") == quantity("1048576Ki")
    assert quantity("100m") < quantity("1") < quantity("1e1")
