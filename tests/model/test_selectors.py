"""Label and field selectors: grammar and matching."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from each_case import each_case
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinformer.errors import OptionsError, SelectorSyntaxError
from aioinformer.model.objects import KubeObject
from aioinformer.model.selectors import (
    FieldRequirement,
    FieldSelector,
    LabelRequirement,
    LabelSelector,
)

LONG = "z" * 63


TOO_LONG = "z" * 64


# ------------------------------------------------------------ labels: grammar


@each_case(
    "text, normal",
    [
        pytest.param("", "", id="empty"),
        pytest.param(" \t\r\n", "", id="blank"),
        pytest.param("a=b", "a=b", id="equals"),
        pytest.param("a==b", "a=b", id="double-equals"),
        pytest.param("a!=b", "a!=b", id="not-equals"),
        pytest.param("a=", "a=", id="empty-value"),
        pytest.param("a=,b", "a=,b", id="empty-value-in-front"),
        pytest.param("a", "a", id="exists"),
        pytest.param("!a", "!a", id="absent"),
        pytest.param("! a", "!a", id="absent-with-blank"),
        pytest.param("a>1", "a>1", id="greater"),
        pytest.param("a < 007", "a<007", id="less"),
        pytest.param("a in (b)", "a in (b)", id="in"),
        pytest.param("a in(c,b,c)", "a in (b,c)", id="in-sorted-once"),
        pytest.param("a notin ( b , c )", "a notin (b,c)", id="notin"),
        pytest.param("a in ()", "a in ()", id="in-the-empty-value"),
        pytest.param("a in (,)", "a in ()", id="in-one-comma"),
        pytest.param("a in (,b)", "a in (,b)", id="in-leading-comma"),
        pytest.param("a in (b,)", "a in (,b)", id="in-trailing-comma"),
        pytest.param("a in (b,,c)", "a in (,b,c)", id="in-two-commas"),
        pytest.param("a in (b,,,)", "a in (,b)", id="in-three-commas"),
        pytest.param("in in (in,notin)", "in in (in,notin)", id="operators-as-words"),
        pytest.param("notin", "notin", id="operator-as-key"),
        pytest.param("a=in", "a=in", id="operator-as-value"),
        pytest.param("b=1,a=2", "a=2,b=1", id="sorted"),
        pytest.param("a=b,a==b", "a=b", id="once"),
        pytest.param("  a = b  ,  !c  ", "a=b,!c", id="blanks"),
        pytest.param("example.com/a.B_c-d=E.f_g-h", None, id="all-characters"),
        pytest.param(f"{LONG}={LONG}", None, id="longest"),
        pytest.param(f"{'p' * 253}/a", None, id="longest-prefix"),
    ],
)
def test_label_selector_parses_kubectl_syntax(text: str, normal: str | None) -> None:
    selector = LabelSelector.parse(text)

    assert str(selector) == (text if normal is None else normal)
    assert selector.empty is (not normal and normal is not None)


@each_case(
    "text, position",
    [
        pytest.param(",", 0, id="only-a-comma"),
        pytest.param("a,", 2, id="comma-at-the-end"),
        pytest.param("a,,b", 2, id="nothing-between-commas"),
        pytest.param("=b", 0, id="no-key"),
        pytest.param("!", 1, id="nothing-absent"),
        pytest.param("!!a", 1, id="absent-twice"),
        pytest.param("!a=b", 2, id="absent-with-value"),
        pytest.param("a b", 2, id="two-words"),
        pytest.param("a=b c", 4, id="two-values"),
        pytest.param("a=b=c", 3, id="two-comparisons"),
        pytest.param("a===b", 3, id="three-equals"),
        pytest.param("a=(b)", 2, id="comparison-with-a-set"),
        pytest.param("a=!", 2, id="comparison-with-a-symbol"),
        pytest.param("a in b", 5, id="set-without-parenthesis"),
        pytest.param("a in", 4, id="set-missing"),
        pytest.param("a in (b", 7, id="set-not-closed"),
        pytest.param("a in (b c)", 8, id="set-without-comma"),
        pytest.param("a in (b,=)", 8, id="symbol-in-a-set"),
        pytest.param("a in (b,,)", 9, id="two-commas-before-the-end"),
        pytest.param("a in (,,)", 8, id="only-two-commas"),
        pytest.param("a in (b) c", 9, id="word-after-a-set"),
        pytest.param("a)", 1, id="closed-without-opening"),
        pytest.param("a not in (b)", 2, id="not-in"),
        pytest.param("a > ", 4, id="bound-missing"),
        pytest.param("a>b", 2, id="bound-not-a-number"),
        pytest.param("a>-1", 2, id="bound-not-a-value"),
        pytest.param("a<9223372036854775808", 2, id="bound-of-65-bits"),
        pytest.param("a/b/c", 0, id="two-slashes"),
        pytest.param("/a", 0, id="empty-prefix"),
        pytest.param("a/", 0, id="empty-name"),
        pytest.param("A.com/a", 0, id="upper-case-prefix"),
        pytest.param("-a", 0, id="key-begins-with-dash"),
        pytest.param("x,a-=b", 2, id="key-ends-with-dash"),
        pytest.param("é", 0, id="key-not-ascii"),
        pytest.param("a\n\x00", 2, id="null-character"),
        pytest.param("a\xa0", 0, id="other-blank"),
        pytest.param(TOO_LONG, 0, id="key-too-long"),
        pytest.param(f"{'p' * 254}/a", 0, id="prefix-too-long"),
        pytest.param(f"a={TOO_LONG}", 2, id="value-too-long"),
        pytest.param("a=b/c", 2, id="slash-in-a-value"),
        pytest.param("a in (b, .c)", 9, id="value-in-a-set-begins-with-dot"),
    ],
)
def test_label_selector_error_has_position(text: str, position: int) -> None:
    with pytest.raises(SelectorSyntaxError) as caught:
        LabelSelector.parse(text)

    assert caught.value.position == position
    assert caught.value.text == text


# ------------------------------------------------------------ labels: meaning


@each_case(
    "text, labels, expected",
    [
        pytest.param("", {}, True, id="empty-matches-everything"),
        pytest.param("a=b", {"a": "b"}, True, id="equal"),
        pytest.param("a=b", {"a": "c"}, False, id="not-equal"),
        pytest.param("a=b", {}, False, id="equal-without-label"),
        pytest.param("a=", {}, False, id="empty-is-not-absent"),
        pytest.param("a=", {"a": ""}, True, id="equals-empty"),
        pytest.param("a!=b", {"a": "c"}, True, id="differs"),
        pytest.param("a!=b", {"a": "b"}, False, id="does-not-differ"),
        pytest.param("a!=b", {}, True, id="differs-without-label"),
        pytest.param("a in (b,c)", {"a": "c"}, True, id="in"),
        pytest.param("a in (b,c)", {"a": "d"}, False, id="in-other"),
        pytest.param("a in (b,c)", {}, False, id="in-without-label"),
        pytest.param("a in ()", {"a": ""}, True, id="in-empty"),
        pytest.param("a notin (b,c)", {"a": "c"}, False, id="notin"),
        pytest.param("a notin (b,c)", {"a": "d"}, True, id="notin-other"),
        pytest.param("a notin (b,c)", {}, True, id="notin-without-label"),
        pytest.param("a", {"a": ""}, True, id="exists"),
        pytest.param("a", {"b": ""}, False, id="exists-not"),
        pytest.param("!a", {"b": ""}, True, id="absent"),
        pytest.param("!a", {"a": ""}, False, id="absent-not"),
        pytest.param("a>5", {"a": "6"}, True, id="greater"),
        pytest.param("a>5", {"a": "5"}, False, id="greater-equal"),
        pytest.param("a>5", {"a": "+06"}, True, id="greater-with-sign"),
        pytest.param("a>5", {}, False, id="greater-without-label"),
        pytest.param("a>5", {"a": "six"}, False, id="greater-than-a-word"),
        pytest.param("a>5", {"a": "1_000"}, False, id="greater-than-underscores"),
        pytest.param("a>5", {"a": "٩"}, False, id="greater-than-other-digits"),
        pytest.param("a>5", {"a": "9" * 19}, False, id="greater-than-64-bits"),
        pytest.param("a<5", {"a": "-9223372036854775808"}, True, id="least-integer"),
        pytest.param("a<5", {"a": "5"}, False, id="less-equal"),
        pytest.param("a>1,a<5", {"a": "3"}, True, id="between"),
        pytest.param("a=b,c", {"a": "b", "c": "d"}, True, id="both"),
        pytest.param("a=b,c", {"a": "b"}, False, id="only-one"),
        pytest.param("a=b,a=c", {"a": "b"}, False, id="contradiction"),
    ],
)
def test_label_selector_matches_labels(
    text: str, labels: dict[str, str], expected: bool
) -> None:
    selector = LabelSelector.parse(text)

    assert selector.matches(labels) is expected
    assert bool(selected(selector, [labels])) is expected


def selected(
    selector: LabelSelector, label_sets: list[dict[str, str]]
) -> list[dict[str, str]]:
    """Return the result of select() for objects with these labels."""
    objects = [SimpleNamespace(label_set=labels) for labels in label_sets]
    found = selector.select(cast("list[KubeObject]", objects))
    return [it.label_set for it in found]


def test_select_keeps_order() -> None:
    label_sets = [{"n": str(n), "even": str(n % 2 == 0)} for n in range(10)]

    found = selected(LabelSelector.parse("even=True,n>3"), label_sets)

    assert [labels["n"] for labels in found] == ["4", "6", "8"]


def test_select_with_empty_selector_returns_new_list() -> None:
    objects = cast("list[KubeObject]", [SimpleNamespace(label_set={})])

    found = LabelSelector().select(objects)

    assert found == objects
    assert found is not objects


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("a=b,c", "c , a==b", id="order-and-spelling"),
        pytest.param("a in (b,c)", "a in (c,b,b)", id="order-of-values"),
        pytest.param("a!=b,a!=c", "a!=c,a!=b", id="order-under-one-key"),
    ],
)
def test_label_selectors_with_equal_requirements_are_equal(
    one: str, other: str
) -> None:
    first, second = LabelSelector.parse(one), LabelSelector.parse(other)

    assert first == second
    assert hash(first) == hash(second)
    assert str(first) == str(second)


def test_label_selectors_with_different_requirements_differ() -> None:
    texts = ["", "a", "!a", "a=b", "a!=b", "a in (b)", "a notin (b)", "a=c", "a>1"]

    assert len({LabelSelector.parse(text) for text in texts}) == len(texts)
    assert LabelSelector.parse("a") != "a"


def test_label_selector_repr_can_be_evaluated() -> None:
    assert repr(LabelSelector.parse("b,a=c")) == "LabelSelector.parse('a=c,b')"


# --------------------------------------------------- labels: requirements, specs


def test_label_selector_of_requirements() -> None:
    selector = LabelSelector.parse("b in (d,c),a>1")

    assert selector.requirements == (
        LabelRequirement("a", ">", ("1",)),
        LabelRequirement("b", "in", ("c", "d")),
    )
    assert LabelSelector(reversed(selector.requirements)) == selector


@each_case(
    "arguments",
    [
        pytest.param(("a", "=", ()), id="equals-nothing"),
        pytest.param(("a", "!=", ("b", "c")), id="differs-from-two"),
        pytest.param(("a", "in", ()), id="in-nothing"),
        pytest.param(("a", "exists", ("b",)), id="exists-with-value"),
        pytest.param(("a", "!", ("b",)), id="absent-with-value"),
        pytest.param(("a", ">", ("b",)), id="bound-not-a-number"),
        pytest.param(("a b", "exists"), id="key"),
        pytest.param(("a", "in", ("b", "c d")), id="value"),
        pytest.param(("a", "=", (1,)), id="value-is-a-number"),
        pytest.param((1, "exists"), id="key-is-a-number"),
        pytest.param(("a", "==", ("b",)), id="operator"),
    ],
)
def test_label_requirement_rejects_invalid_arguments(
    arguments: tuple[Any, ...],
) -> None:
    with pytest.raises(OptionsError):
        LabelRequirement(*arguments)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({}, "", id="empty"),
        pytest.param({"matchLabels": None, "matchExpressions": None}, "", id="null"),
        pytest.param({"matchLabels": {"b": "c", "a": ""}}, "a=,b=c", id="labels"),
        pytest.param(
            {
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["c", "b"]},
                    {"key": "b", "operator": "NotIn", "values": ["d"]},
                    {"key": "c", "operator": "Exists"},
                    {"key": "d", "operator": "DoesNotExist", "values": None},
                ]
            },
            "a in (b,c),b notin (d),c,!d",
            id="expressions",
        ),
    ],
)
def test_label_selector_of_spec(spec: dict[str, Any], text: str) -> None:
    assert str(LabelSelector.of(spec)) == text


@each_case(
    "expression",
    [
        pytest.param({"key": "a", "operator": "Gt", "values": ["1"]}, id="operator"),
        pytest.param({"key": "a"}, id="no-operator"),
        pytest.param({"operator": "Exists"}, id="no-key"),
        pytest.param({"key": "a", "operator": "In", "values": []}, id="no-values"),
        pytest.param({"key": "a", "operator": "In", "values": [1]}, id="number"),
    ],
)
def test_label_selector_rejects_invalid_expression_of_spec(
    expression: dict[str, Any],
) -> None:
    with pytest.raises(OptionsError):
        LabelSelector.of({"matchExpressions": [expression]})


# ------------------------------------------------------------ labels: properties

words = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)


prefixes = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)


keys = st.one_of(
    st.sampled_from(["a", "b", "in", "notin"]),
    words,
    st.builds("{}/{}".format, prefixes, words),
)


values = st.one_of(st.sampled_from(["", "1", "2", "in"]), words)


value_sets = st.lists(values, min_size=1, max_size=4).map(tuple)


numbers = st.integers(0, 2**63 - 1).map(lambda number: (str(number),))


requirements = st.one_of(
    st.builds(
        LabelRequirement, keys, st.sampled_from(["=", "!="]), values.map(lambda v: (v,))
    ),
    st.builds(LabelRequirement, keys, st.sampled_from(["in", "notin"]), value_sets),
    st.builds(LabelRequirement, keys, st.sampled_from(["exists", "!"])),
    st.builds(LabelRequirement, keys, st.sampled_from([">", "<"]), numbers),
)


selectors = st.lists(requirements, max_size=5).map(LabelSelector)


@given(selectors)
@settings(max_examples=60)
def test_label_selector_equals_its_parsed_text(selector: LabelSelector) -> None:
    assert LabelSelector.parse(str(selector)) == selector


@given(selectors, st.dictionaries(keys, values, max_size=6))
@settings(max_examples=60)
def test_label_selector_is_conjunction_of_requirements(
    selector: LabelSelector, labels: dict[str, str]
) -> None:
    expected = all(holds(it, labels) for it in selector.requirements)

    assert selector.matches(labels) is expected
    assert bool(selected(selector, [labels])) is expected


def holds(requirement: LabelRequirement, labels: dict[str, str]) -> bool:
    """Return the meaning of one requirement, case by case."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "=" | "in":
            return value in requirement.values
        case "!=" | "notin":
            return value is None or value not in requirement.values
        case "exists":
            return value is not None
        case "!":
            return value is None
        case ">" | "<" as operator:
            if value is None or not value.isdigit() or int(value) >= 2**63:
                return False

            bound = int(requirement.values[0])
            return int(value) > bound if operator == ">" else int(value) < bound


@given(st.text(alphabet="ab1-/=!<>(), \tin", max_size=12))
def test_any_text_is_parsed_or_rejected_with_position(text: str) -> None:
    position = 0
    selector = LabelSelector()
    try:
        selector = LabelSelector.parse(text)
    except SelectorSyntaxError as error:
        position = error.position

    assert 0 <= position <= len(text)
    assert LabelSelector.parse(str(selector)) == selector


@each_case(
    "text, expected",
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
def test_field_selector_parses_kubectl_syntax(text: str, expected: list[Any]) -> None:
    selector = FieldSelector.parse(text)

    assert selector.requirements == tuple(FieldRequirement(*it) for it in expected)
    assert selector.empty is (not expected)


@each_case(
    "text, position",
    [
        pytest.param("a", 1, id="no-operator"),
        pytest.param("a=b,c", 5, id="no-operator-in-the-second"),
        pytest.param("a>1", 3, id="unknown-operator"),
        pytest.param("a in (b,c)", 1, id="set"),
        pytest.param("x=y,a in (b)", 5, id="set-in-the-second"),
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
def test_field_selector_error_has_position(text: str, position: int) -> None:
    with pytest.raises(SelectorSyntaxError) as caught:
        FieldSelector.parse(text)

    assert caught.value.position == position


@each_case(
    "text, expected",
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
def test_field_selector_matches_fields(text: str, expected: bool) -> None:
    fields = {"spec.nodeName": "n1"}

    assert (
        FieldSelector.parse(text).matches(lambda path: fields.get(path, "")) is expected
    )


@each_case(
    "text, expected",
    [
        ("metadata.name=web,spec.hostNetwork=true,spec.priority=7", True),
        ("spec.hostNetwork!=true", False),
        ("spec.nodeName=", True),
        ("metadata.name=db", False),
    ],
)
def test_field_selector_matches_object(text: str, expected: bool) -> None:
    spec = {"hostNetwork": True, "priority": 7}
    obj = KubeObject.of({"metadata": {"name": "web"}, "spec": spec})

    assert FieldSelector.parse(text).matches(obj) is expected


def test_label_selector_matches_object() -> None:
    obj = KubeObject.of({"metadata": {"name": "web", "labels": {"app": "web"}}})

    assert LabelSelector.parse("app=web").matches(obj)
    assert not LabelSelector.parse("app=db").matches(obj)
    assert not LabelSelector.parse("metadata").matches(obj)


@each_case("parse", [LabelSelector.parse, FieldSelector.parse])
@each_case(
    "given, write",
    [
        ({"app": "web", "tier": "db"}, "Write 'app=web,tier=db'"),
        (LabelSelector.parse("app=web"), "Write str(selector), which is 'app=web'"),
        (["app=web"], "must be a string such as 'app=web', not ['app=web']"),
    ],
)
def test_selector_that_is_no_text_says_what_to_write(
    parse: Any, given: Any, write: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        parse(given)

    assert write in str(caught.value)


@each_case("kind", [LabelSelector, FieldSelector])
def test_constructor_of_selector_refuses_text(kind: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        kind("app=web")

    assert f"write {kind.__name__}.parse('app=web')" in str(caught.value)


def test_label_selector_of_flat_spec_is_refused() -> None:
    with pytest.raises(OptionsError, match="no field 'app': write a flat selector"):
        LabelSelector.of({"app": "web"})


def test_field_selectors_with_equal_requirements_are_equal() -> None:
    one, other = FieldSelector.parse("a=b,c!=d"), FieldSelector.parse("c!=d,a==b")

    assert one == other
    assert hash(one) == hash(other)
    assert one != FieldSelector.parse("a=b")


@each_case("field", ["", "a b", "a=b", "a,b", "a!", "a\\"])
def test_field_requirement_rejects_invalid_field(field: str) -> None:
    with pytest.raises(OptionsError):
        FieldRequirement(field, "=", "x")


@pytest.mark.parametrize("operator", ["==", "in", ""])
def test_field_requirement_rejects_unknown_operator(operator: Any) -> None:
    with pytest.raises(OptionsError, match="not an operator"):
        FieldRequirement("spec.nodeName", operator, "x")


field_requirements = st.builds(
    FieldRequirement,
    st.from_regex(r"[a-z.]{1,8}", fullmatch=True),
    st.sampled_from(["=", "!="]),
    st.text(max_size=6) | st.text(alphabet="\\,=!a", max_size=6),
)


@given(st.lists(field_requirements, max_size=4).map(tuple))
@settings(max_examples=60)
def test_field_selector_equals_its_parsed_text(
    requirements: tuple[FieldRequirement, ...],
) -> None:
    selector = FieldSelector(requirements)

    assert FieldSelector.parse(str(selector)) == selector


@pytest.mark.parametrize("spec", [None, "app=web", ["app"]], ids=str)
def test_selector_of_no_object_is_refused(spec: Any) -> None:
    with pytest.raises(OptionsError, match="a label selector is an object, such as"):
        LabelSelector.of(spec)
