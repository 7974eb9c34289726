"""Names: rules of each kind, and their error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from each_case import each_case

from aioinformer.model.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRON_JOBS,
    EVENTS,
    NAMESPACES,
    SERVICES,
)
from aioinformer_apiserver.errors.names import (
    generate_name,
    validate_label_value,
    validate_name,
    validate_qualified_name,
)

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource


@each_case(
    "resource, name, words",
    [
        (CONFIG_MAPS, "a-b.c-1", []),
        (CONFIG_MAPS, "-a", ["RFC 1123 subdomain"]),
        (CONFIG_MAPS, "A" * 254, ["253 characters", "RFC 1123 subdomain"]),
        (NAMESPACES, "a" * 63, []),
        (SERVICES, "a.b", ["must not contain dots"]),
        (SERVICES, "a_b", ["RFC 1123 label"]),
        (SERVICES, "a" * 64, ["63 characters"]),
        (CRON_JOBS, "a" * 52, []),
        (CRON_JOBS, "a" * 53, ["52 characters"]),
        (CLUSTER_ROLES, "system:a_B", []),
        (CLUSTER_ROLES, "..", ["may not be '..'"]),
        (CLUSTER_ROLES, "a/b%", ["may not contain '/'", "may not contain '%'"]),
        (EVENTS, "A_b", []),
    ],
)
def test_validate_name_applies_rules_of_kind(
    resource: Resource, name: str, words: list[str]
) -> None:
    found = validate_name(resource, name)

    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_name_prefix_may_end_with_dash() -> None:
    assert validate_name(CONFIG_MAPS, "web-", prefix=True) == []
    assert validate_name(CONFIG_MAPS, "web-") != []
    assert validate_name(CONFIG_MAPS, "-", prefix=True) == []


@each_case(
    "key, words",
    [
        ("a.b/C_d-1", []),
        ("x", []),
        ("a/b/c", ["a valid label key"]),
        ("/x", ["prefix part must be non-empty"]),
        ("A/x", ["prefix part a lowercase"]),
        (f"{'a' * 254}/x", ["253 bytes"]),
        ("ä" * 40, ["63 bytes", "name part must consist"]),
        ("a/", ["name part must be non-empty", "name part must consist"]),
        ("x" * 64, ["63 bytes"]),
        ("x y", ["name part must consist"]),
    ],
)
def test_qualified_name_may_have_domain(key: str, words: list[str]) -> None:
    found = validate_qualified_name(key)

    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("value", "count"), [("", 0), ("A.b", 0), ("-", 1), ("-" + "x" * 63, 2)]
)
def test_label_value_has_maximum_length(value: str, count: int) -> None:
    assert len(validate_label_value(value)) == count


def test_generated_name_uses_unambiguous_letters() -> None:
    found = "".join(generate_name("")[:5] for _ in range(500))

    assert not set(found) & set("aeiou013")
    assert len({generate_name("a-") for _ in range(50)}) > 45
