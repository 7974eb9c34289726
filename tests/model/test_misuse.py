"""Advice in the error of a call whose arguments do not fit."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from unittest.mock import create_autospec

import pytest

from aioinformer.model.misuse import (
    keyword_advice,
    methods_with_advice,
    with_advice,
)
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource


@methods_with_advice
class Client:
    """A client with the shape of the real one."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None
    ) -> str:
        """Get it."""
        return f"{resource} {namespace}/{name}"

    def watch(self, resource: Resource, *, label_selector: str = "") -> str:
        """Watch it."""
        return label_selector + resource  # type: ignore[operator]

    def _private(self) -> None: ...


class Factory:
    """A factory with the shape of the real one."""

    @with_advice
    def informer(
        self, api_version: str | Resource, resource: str = "", *, namespace: str = ""
    ) -> str:
        return f"{api_version} {resource} {namespace}"


async def test_correct_calls_pass() -> None:
    assert await Client().get(PODS, "web", namespace="shop") == "pods shop/web"
    assert Factory().informer("v1", "pods", namespace="shop") == "v1 pods shop"


def test_decorated_methods_keep_their_form() -> None:
    assert inspect.iscoroutinefunction(Client.get)
    assert not inspect.iscoroutinefunction(Client.watch)
    assert list(inspect.signature(Client.get).parameters)[1:3] == ["resource", "name"]
    assert Client.get.__doc__ == "Get it."
    assert not hasattr(Client._private, "__wrapped__")


PODS_HERE = (
    "The first argument of get() is a Resource: PODS of aioinformer.model.resources"
)


@pytest.mark.parametrize(
    ("arguments", "options", "advice"),
    [
        (("v1", "pods", "web"), {"namespace": "shop"}, PODS_HERE),
        (("example.com/v1", "widgets", "a"), {}, "Resource.of('example.com/v1', 'wid"),
        (("pods",), {}, PODS_HERE),
        ((), {"kind": "Pod"}, "Write resource= instead of kind=."),
        ((PODS, "web", "shop"), {}, "Pass further arguments by name, such as namesp"),
        ((PODS, "web"), {"namespce": "shop"}, "Write namespace= instead of namespce=."),
        ((PODS, "web"), {"ns": "shop"}, "Write namespace= instead of ns=."),
    ],
    ids=["names", "custom", "word", "kind", "position", "misspelt", "ns"],
)
async def test_error_of_verb_says_what_to_write(
    arguments: tuple[Any, ...], options: dict[str, Any], advice: str
) -> None:
    with pytest.raises(TypeError) as caught:
        await Client().get(*arguments, **options)

    assert advice in str(caught.value)
    assert "Client.get() " in str(caught.value)


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (("apps", "v1", "deployments"), "Write informer('apps/v1', 'deployments')."),
        (("", "v1", "pods"), "Write informer('v1', 'pods')."),
        (
            ("v1", "pods", "shop"),
            "Pass further arguments by name, such as namespace='sh",
        ),
    ],
    ids=["group", "core", "namespace"],
)
def test_error_of_informer_says_what_three_names_are(
    names: tuple[str, str, str], advice: str
) -> None:
    with pytest.raises(TypeError) as caught:
        Factory().informer(*names)  # type: ignore[call-arg]

    assert f"given. {advice}" in str(caught.value)


async def test_decorated_methods_can_be_mocked() -> None:
    mock = create_autospec(Client, instance=True)
    mock.get.return_value = "web"

    assert await mock.get(PODS, "web", namespace="shop") == "web"
    with pytest.raises(TypeError, match="required argument: 'resource'"):
        mock.get(kind="Pod")


def test_error_without_advice_is_unchanged() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzz'$"):
        Factory().informer("v1", "pods", zzz=1)  # type: ignore[call-arg]


def test_type_error_of_the_function_is_unchanged() -> None:
    with pytest.raises(TypeError) as caught:
        Client().watch(PODS, label_selector="app=web")

    assert "first argument" not in str(caught.value)


def test_advice_lists_each_unknown_keyword() -> None:
    advice = keyword_advice(
        ["labels", "xyz", "feild_selector"], ["label_selector", "field_selector"]
    )

    assert advice == (
        "Write label_selector= instead of labels=. "
        "Write field_selector= instead of feild_selector=."
    )
