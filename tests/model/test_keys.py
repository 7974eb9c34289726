"""Keys of objects, and numeric resource versions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from each_case import each_case
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinformer.errors import OptionsError
from aioinformer.model.keys import meta_namespace_key, split_key
from aioinformer.model.object_meta import version_number
from aioinformer.model.objects import KubeObject

names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)


def named(name: object, namespace: object = None) -> SimpleNamespace:
    return SimpleNamespace(name=name, namespace=namespace)


@each_case(
    "obj, key",
    [
        pytest.param(named("web", "shop"), "shop/web", id="attributes"),
        pytest.param(named("node-1", ""), "node-1", id="empty-namespace"),
        pytest.param(named("node-1"), "node-1", id="null-namespace"),
        pytest.param(SimpleNamespace(name="node-1"), "node-1", id="without-namespace"),
        pytest.param(
            {"metadata": {"name": "web", "namespace": "shop"}}, "shop/web", id="json"
        ),
        pytest.param({"metadata": {"name": "n"}}, "n", id="json-cluster-scoped"),
        pytest.param(
            {"metadata": {"name": "n", "namespace": None}}, "n", id="json-null"
        ),
        pytest.param(
            SimpleNamespace(metadata=named("web", "shop")), "shop/web", id="model"
        ),
        pytest.param(
            SimpleNamespace(metadata={"name": "web"}), "web", id="model-with-mapping"
        ),
        pytest.param(
            SimpleNamespace(key="a/b", name="c", namespace="d"), "a/b", id="own-key"
        ),
        pytest.param(
            SimpleNamespace(key=7, name="web", namespace="d"), "d/web", id="other-key"
        ),
        pytest.param("shop/web", "shop/web", id="explicit-key"),
    ],
)
def test_meta_namespace_key_of_object(obj: Any, key: str) -> None:
    assert meta_namespace_key(obj) == key


@each_case(
    "obj",
    [
        pytest.param({}, id="no-metadata"),
        pytest.param(KubeObject.of({}), id="object-without-name"),
        pytest.param(
            KubeObject.of({"metadata": {"namespace": "x", "generateName": "a-"}}),
            id="object-to-be-named",
        ),
        pytest.param({"metadata": None}, id="null-metadata"),
        pytest.param({"metadata": {}}, id="no-name"),
        pytest.param({"metadata": {"name": ""}}, id="empty-name"),
        pytest.param({"metadata": {"name": 7}}, id="name-is-a-number"),
        pytest.param(named(None, "shop"), id="null-name"),
        pytest.param(SimpleNamespace(metadata=SimpleNamespace()), id="empty-model"),
        pytest.param(7, id="not-an-object"),
    ],
)
def test_meta_namespace_key_without_name_raises_no_key(obj: Any) -> None:
    with pytest.raises(OptionsError, match=type(obj).__name__):
        meta_namespace_key(obj)


@each_case(
    "key, parts",
    [
        pytest.param("shop/web", ("shop", "web"), id="namespaced"),
        pytest.param("node-1", ("", "node-1"), id="cluster-scoped"),
        pytest.param("", ("", ""), id="empty"),
        pytest.param("shop/", ("shop", ""), id="empty-name"),
        pytest.param("/web", ("", "web"), id="empty-namespace"),
    ],
)
def test_split_key_returns_namespace_and_name(key: str, parts: tuple[str, str]) -> None:
    assert split_key(key) == parts


@pytest.mark.parametrize("key", ["a/b/c", "//", "a//b", "/a/b/"])
def test_split_key_rejects_more_than_two_parts(key: str) -> None:
    with pytest.raises(OptionsError, match="more than two parts"):
        split_key(key)


@given(namespace=st.just("") | names, name=names)
@settings(max_examples=30)
def test_split_key_is_inverse_of_meta_namespace_key(namespace: str, name: str) -> None:
    key = meta_namespace_key(named(name, namespace))

    assert split_key(key) == (namespace, name)


@each_case(
    "version, number",
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
def test_version_number_of_non_decimal_is_minus_one(version: str, number: int) -> None:
    assert version_number(version) == number
