"""`StreamSelection`: filters of streams and queries."""

from __future__ import annotations

import pytest
from fake_source import thing

from aioinformer.errors import OptionsError, SelectorSyntaxError
from aioinformer.model import KubeObject
from aioinformer.web.selection import StreamSelection

WEB = thing("a", labels={"app": "web", "tier": "one"}, namespace="shop")
DB = thing("b", labels={"app": "db"}, namespace="shop")
ELSEWHERE = thing("c", labels={"app": "web"}, namespace="other")
NODE = KubeObject.of({"kind": "Node", "metadata": {"name": "n", "uid": "1"}})


def chosen(selection: StreamSelection) -> str:
    return "".join(it.name for it in (WEB, DB, ELSEWHERE, NODE) if selection(it))


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        pytest.param(StreamSelection.of(), "abcn", id="all"),
        pytest.param(StreamSelection.of("", ""), "abcn", id="all"),
        pytest.param(StreamSelection.of("shop"), "ab", id="namespace"),
        pytest.param(StreamSelection.of(["shop", "other"]), "abc", id="namespaces"),
        pytest.param(StreamSelection.of(None, "app=web"), "ac", id="labels"),
        pytest.param(StreamSelection.of("shop", "app=web"), "a", id="both"),
        pytest.param(StreamSelection.of(None, "!app"), "n", id="without-a-label"),
    ],
)
def test_selection_filters_by_namespace_and_labels(
    selection: StreamSelection, names: str
) -> None:
    assert chosen(selection) == names


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ([], "ac"),
        ([("namespace", "shop")], "a"),
        ([("namespace", "shop"), ("namespace", "other")], "ac"),
        ([("labelSelector", "tier")], "a"),
        ([("labelSelector", "tier"), ("labelSelector", "!tier")], ""),
        ([("labelSelector", "app=db")], ""),
        ([("namespace", ""), ("labelSelector", ""), ("else", "x")], "ac"),
    ],
    ids=str,
)
def test_query_narrows_selection(query: list[tuple[str, str]], names: str) -> None:
    assert chosen(StreamSelection.of(None, "app=web").narrowed(query)) == names


def test_query_for_other_namespace_is_refused() -> None:
    with pytest.raises(
        OptionsError, match="namespace 'kube-system' is not available here"
    ):
        StreamSelection.of("shop").narrowed([("namespace", "kube-system")])


def test_too_long_selector_is_refused() -> None:
    half = "ab," * 166 + "ab"
    fits = [("labelSelector", half)] * 2
    StreamSelection.of().narrowed(fits)

    with pytest.raises(OptionsError, match="longer than 1000 characters"):
        StreamSelection.of().narrowed([*fits, ("labelSelector", "c")])


@pytest.mark.parametrize("several", [False, True])
def test_selectors_with_too_many_requirements_are_refused(several: bool) -> None:
    texts = [f"k{number} in (a,b)" for number in range(33)]
    most, more = texts[:32], texts
    if not several:
        most, more = [",".join(most)], [",".join(more)]

    StreamSelection.of().narrowed([("labelSelector", it) for it in most])
    with pytest.raises(OptionsError, match="33 requirements, more than 32"):
        StreamSelection.of().narrowed([("labelSelector", it) for it in more])


def test_too_long_namespaces_are_refused() -> None:
    names = [("namespace", f"{number:04}") for number in range(1025)]
    StreamSelection.of().narrowed(names[1:])

    with pytest.raises(OptionsError, match="longer than 4096 characters"):
        StreamSelection.of("shop").narrowed(names)


def test_invalid_selector_is_refused() -> None:
    with pytest.raises(SelectorSyntaxError):
        StreamSelection.of().narrowed([("labelSelector", "app in")])


def test_tokens_of_selections_differ() -> None:
    one, same, other = (StreamSelection.of(it) for it in ("shop", ["shop"], "other"))

    assert one.token == same.token == "1451013b", "in every process"
    assert other.token != one.token != StreamSelection.of("shop", "app").token
