"""Errors of label selectors: parts that contract tests do not cover.

The parser of the server also agrees with that of clients.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioinformer.errors import ApiError, SelectorSyntaxError
from aioinformer.model.selectors import LabelSelector
from aioinformer_apiserver.errors.statuses import quote
from aioinformer_apiserver.requests.selectors import label_selector_of

TEXTS = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            "in",
            "notin",
            "=",
            "==",
            "!=",
            "!",
            "(",
            ")",
            ",",
            ">",
            "<",
            " ",
            "1",
        ]
    ),
    max_size=12,
).map("".join)


def problem_of(text: str) -> str:
    """Return the error of a selector; empty if it is valid."""
    try:
        label_selector_of(text)
    except ApiError as exc:
        return exc.message

    return ""


SETS = st.lists(st.sampled_from(["b", "c", ",", " "]), max_size=8).map(
    lambda tokens: f"a in ({''.join(tokens)})"
)


@given(TEXTS | SETS)
@example("a in (b,,c)")
def test_label_selector_agrees_with_client_parser(text: str) -> None:
    try:
        meant = LabelSelector.parse(text)
    except SelectorSyntaxError:
        # Only newer servers accept this.
        assert problem_of(text) or ",," in text.replace(" ", "")
    else:
        assert label_selector_of(text) == meant


@pytest.mark.parametrize("text", ["a in (b,,)", "a in (b,,,)", "a in (b, ,)"])
def test_label_selector_accepts_trailing_commas_in_set(text: str) -> None:
    assert label_selector_of(text) == LabelSelector.parse("a in (b,)")


def test_label_selector_rejects_bound_with_too_many_digits() -> None:
    assert "the value must be an integer" in problem_of(f"a>{'9' * 5000}")


def test_label_selector_checks_all_values_of_set() -> None:
    long = "z" * 64

    problem = problem_of(f"a in ({long},-)")

    assert problem.startswith(
        'unable to parse requirement: [values[0][a]: Invalid value: "-": a valid label'
    )
    assert problem.endswith(
        f', values[1][a]: Invalid value: "{long}": must be no more than 63 bytes]'
    )


def test_label_selector_reports_both_errors_of_bound() -> None:
    problem = problem_of(f"a<{'9' * 64}")

    assert "for 'Gt', 'Lt' operators, the value must be an integer, values[0][a]" in (
        problem
    )


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (f"{'a' * 254}/b", "prefix part must be no more than 253 bytes"),
        ("a/", "name part must be non-empty; name part must consist of"),
        ("A/b", "prefix part a lowercase RFC 1123 subdomain must consist of"),
        ("a" * 64, "name part must be no more than 63 bytes"),
    ],
)
def test_label_selector_checks_parts_of_keys(key: str, why: str) -> None:
    assert f'<nil>: Invalid value: "{key}": {why}' in problem_of(key)


def test_label_selector_quotes_as_go() -> None:
    assert quote('a"b\\c') == r'"a\"b\\c"'
