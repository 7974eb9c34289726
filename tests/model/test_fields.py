"""Field selectors: grammar, meaning, and text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.errors import OptionsError, SelectorSyntaxError
from aioinformer.model.selectors import FieldRequirement, FieldSelector


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="empty"),
        pytest.param(",,", [], id="only-commas"),
        pytest.param("a=b", [("a", "=", "b")], id="equals"),
        pytest.param("a==b", [("a", "=", "b")], id="double-equals"),
        pytest.param("a!=b", [("a", "!=", "b")], id="not-equals"),
        pytest.param("a=", [("a", "=", "")], id="empty-value"),
        pytest.param("a!=", [("a", "!=", "")], id="not-empty"),
        pytest.param(
            "spec.nodeName=n,metadata.name!=x",
            [("metadata.name", "!=", "x"), ("spec.nodeName", "=", "n")],
            id="sorted",
        ),
        pytest.param("a=b,,a==b,", [("a", "=", "b")], id="once"),
        pytest.param("a= b ", [("a", "=", " b ")], id="blanks-in-the-value"),
        pytest.param(r"a=\,\=\\", [("a", "=", r",=" + "\\")], id="escapes"),
        pytest.param(r"a=b\\,c=d", [("a", "=", "b\\"), ("c", "=", "d")], id="escape"),
        pytest.param("a=b!c", [("a", "=", "b!c")], id="mark-in-the-value"),
        pytest.param(".spec['x']=é", [(".spec['x']", "=", "é")], id="any-name"),
    ],
)
def test_parses_field_selectors(text: str, expected: list[Any]) -> None:
    selector = FieldSelector.parse(text)

    assert selector.requirements == tuple(FieldRequirement(*it) for it in expected)
    assert selector.empty is (not expected)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        pytest.param("a", 1, id="no-operator"),
        pytest.param("a=b,c", 5, id="no-operator-in-the-second"),
        pytest.param("a>1", 3, id="unknown-operator"),
        pytest.param("=b", 0, id="no-field"),
        pytest.param("a=b, c=d", 4, id="blank-before-a-field"),
        pytest.param("a =b", 1, id="blank-after-a-field"),
        pytest.param(r"a\,b=c", 1, id="escape-in-a-field"),
        pytest.param("a=b=c", 3, id="equals-in-a-value"),
        pytest.param("a===b", 3, id="three-equals"),
        pytest.param(r"x=y,a=\b", 6, id="unknown-escape"),
        pytest.param("a=b\\", 3, id="escape-at-the-end"),
    ],
)
def test_says_where_a_field_selector_is_wrong(text: str, position: int) -> None:
    with pytest.raises(SelectorSyntaxError) as caught:
        FieldSelector.parse(text)

    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", True, id="empty"),
        pytest.param("spec.nodeName=n1", True, id="equal"),
        pytest.param("spec.nodeName=n2", False, id="not-equal"),
        pytest.param("spec.nodeName!=n2", True, id="differs"),
        pytest.param("spec.nodeName!=n1", False, id="does-not-differ"),
        pytest.param("status.phase=", True, id="missing-is-empty"),
        pytest.param("status.phase!=", False, id="missing-does-not-differ-from-empty"),
        pytest.param("spec.nodeName=n1,status.phase=Running", False, id="only-one"),
    ],
)
def test_selects_by_fields(text: str, expected: bool) -> None:
    fields = {"spec.nodeName": "n1"}

    assert (
        FieldSelector.parse(text).matches(lambda path: fields.get(path, "")) is expected
    )


def test_equal_field_selectors_are_equal() -> None:
    one, other = FieldSelector.parse("a=b,c!=d"), FieldSelector.parse("c!=d,a==b")

    assert one == other
    assert hash(one) == hash(other)
    assert one != FieldSelector.parse("a=b")


@pytest.mark.parametrize("field", ["", "a b", "a=b", "a,b", "a!", "a\\"])
def test_refuses_an_impossible_field(field: str) -> None:
    with pytest.raises(OptionsError):
        FieldRequirement(field, "=", "x")


@pytest.mark.parametrize("operator", ["==", "in", ""])
def test_refuses_an_unknown_operator(operator: Any) -> None:
    with pytest.raises(OptionsError, match="no operator"):
        FieldRequirement("spec.nodeName", operator, "x")


field_requirements = st.builds(
    FieldRequirement,
    st.from_regex(r"[a-z.]{1,8}", fullmatch=True),
    st.sampled_from(["=", "!="]),
    st.text(max_size=6) | st.text(alphabet="\\,=!a", max_size=6),
)


@given(st.lists(field_requirements, max_size=4).map(tuple))
def test_parsing_the_text_gives_the_field_selector(
    requirements: tuple[FieldRequirement, ...],
) -> None:
    selector = FieldSelector(requirements)

    assert FieldSelector.parse(str(selector)) == selector
