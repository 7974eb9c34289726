"""String formats and Go patterns."""

from __future__ import annotations

from each_case import each_case

from aioinformer_apiserver.schema.string_formats import fits_format, go_pattern


def test_go_pattern_end_does_not_match_before_newline() -> None:
    pattern = go_pattern("^[a-z$]+$")

    assert pattern is not None
    assert pattern.search("a$")
    assert not pattern.search("a\n")


def test_go_pattern_supports_named_classes() -> None:
    pattern = go_pattern(r"^[[:upper:]]\d\z")

    assert pattern is not None
    assert pattern.search("A1")
    assert not pattern.search("a1")


def test_go_pattern_rejects_unicode_classes() -> None:
    assert go_pattern(r"\p{Greek}") is None


@each_case(
    "format_, good, bad",
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
def test_known_formats_are_validated(format_: str, good: str, bad: str) -> None:
    assert fits_format(format_, good)
    assert not fits_format(format_, bad)


def test_unknown_formats_fit_any_text() -> None:
    assert fits_format("telephone", "x")
