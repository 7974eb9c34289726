"""Resource versions as numbers."""

from __future__ import annotations

import pytest

from aioinformer.model.versions import version_number


@pytest.mark.parametrize(
    ("version", "number"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("812", 812, id="decimal"),
        pytest.param("18446744073709551615", 2**64 - 1, id="the-greatest"),
        pytest.param("", -1, id="none"),
        pytest.param("v8", -1, id="a-word"),
        pytest.param("-8", -1, id="signed"),
        pytest.param("8.0", -1, id="a-fraction"),
        pytest.param("²", -1, id="superscript"),
        pytest.param("1" * 21, -1, id="longer-than-any"),
        pytest.param("1" * 100_000, -1, id="longer-than-int-reads"),
    ],
)
def test_only_a_decimal_version_is_a_number(version: str, number: int) -> None:
    assert version_number(version) == number
