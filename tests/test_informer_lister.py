"""`Lister`: reads from memory, and refusals to read what is not to be trusted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from fake_source import thing
from queue_helpers import error_in_thread

from aioinformer.cache import Indexer, index_by
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.errors import NotSynced, OptionsError, SelectorSyntaxError
from aioinformer.informer import Lister
from aioinformer.model import KubeObject, LabelSelector

if TYPE_CHECKING:
    from collections.abc import Callable

WEB = {"app": "web", "tier": "a"}
OBJECTS = [
    thing("web-0", namespace="shop", labels=WEB),
    thing("web-1", namespace="shop", labels=WEB, spec={"nodeName": "node-2"}),
    thing("db-0", namespace="shop", labels={"app": "db"}),
    thing("web-0", namespace="test", labels=WEB, spec={"nodeName": "node-2"}),
]
NODE = KubeObject.of({"kind": "Node", "metadata": {"name": "node-1"}})


class Trust:
    """Raises what it is told to."""

    error: Exception | None = None

    def __call__(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def trust() -> Trust:
    return Trust()


@pytest.fixture
def lister(trust: Trust) -> Lister:
    return lister_of(*OBJECTS, trust=trust)


def lister_of(*objects: KubeObject, trust: Trust | None = None) -> Lister:
    indexer: Indexer[KubeObject] = Indexer(
        {NAMESPACE_INDEX: by_namespace, "node": index_by("spec.nodeName")}
    )
    indexer.replace(objects, "17")
    return Lister(indexer, trust or Trust())


def keys(objects: list[KubeObject]) -> list[str]:
    return [obj.key for obj in objects]


# ---------------------------------------------------------------- get


@pytest.mark.parametrize(
    ("namespace", "key", "found"),
    [
        pytest.param(None, "shop/web-0", "shop/web-0", id="full-key"),
        pytest.param(None, "web-0", None, id="bare-name-of-a-namespaced-object"),
        pytest.param(None, "shop/none", None, id="unknown"),
        pytest.param("shop", "web-0", "shop/web-0", id="bare-name-in-a-namespace"),
        pytest.param("test", "web-0", "test/web-0", id="in-another-namespace"),
        pytest.param("shop", "shop/web-0", "shop/web-0", id="full-key-in-a-namespace"),
        pytest.param("shop", "test/web-0", None, id="full-key-of-another-namespace"),
        pytest.param("none", "web-0", None, id="unknown-namespace"),
        pytest.param("", "shop/web-0", None, id="no-namespace"),
    ],
)
def test_get(
    lister: Lister, namespace: str | None, key: str, found: str | None
) -> None:
    narrowed = lister if namespace is None else lister.namespace(namespace)

    obj = narrowed.get(key)

    assert (obj.key if obj is not None else None) == found


def test_cluster_scoped_objects_have_a_bare_name_and_no_namespace() -> None:
    lister = lister_of(NODE)

    assert lister.get("node-1") is NODE
    assert lister.namespace("").get("node-1") is NODE
    assert lister.namespace("").list() == [NODE]
    assert lister.namespace("shop").get("node-1") is None


# ---------------------------------------------------------------- list


@pytest.mark.parametrize(
    ("namespace", "options", "found"),
    [
        pytest.param(
            None, {}, ["shop/web-0", "shop/web-1", "shop/db-0", "test/web-0"], id="all"
        ),
        pytest.param(
            "shop", {}, ["shop/web-0", "shop/web-1", "shop/db-0"], id="namespace"
        ),
        pytest.param("none", {}, [], id="unknown-namespace"),
        pytest.param(
            None,
            {"selector": "app=web,tier in (a,b)"},
            ["shop/web-0", "shop/web-1", "test/web-0"],
            id="selector",
        ),
        pytest.param(
            "shop",
            {"selector": LabelSelector.parse("app!=web")},
            ["shop/db-0"],
            id="parsed-selector",
        ),
        pytest.param(None, {"limit": 0}, [], id="limit-0"),
        pytest.param(
            None,
            {"limit": 2, "selector": "app=web"},
            ["shop/web-0", "shop/web-1"],
            id="limit-counts-what-matches",
        ),
        pytest.param("test", {"limit": 9}, ["test/web-0"], id="limit-not-reached"),
    ],
)
def test_list(
    lister: Lister, namespace: str | None, options: dict[str, Any], found: list[str]
) -> None:
    narrowed = lister if namespace is None else lister.namespace(namespace)

    assert sorted(keys(narrowed.list(**options))) == sorted(found)
    body = orjson.loads(narrowed.json(**options))
    assert sorted(
        f"{it['metadata']['namespace']}/{it['metadata']['name']}"
        for it in body["items"]
    ) == sorted(found)


def test_a_list_is_fresh(lister: Lister) -> None:
    lister.list().clear()

    assert len(lister.list()) == 4


def test_a_selector_that_cannot_be_parsed_is_the_callers_mistake(
    lister: Lister, trust: Trust
) -> None:
    trust.error = NotSynced("not yet")

    with pytest.raises(SelectorSyntaxError):
        lister.list("app in web")


# ---------------------------------------------------------------- by_index, json


@pytest.mark.parametrize(
    ("namespace", "found"),
    [
        (None, ["shop/web-1", "test/web-0"]),
        ("shop", ["shop/web-1"]),
        ("none", []),
    ],
)
def test_by_index(lister: Lister, namespace: str | None, found: list[str]) -> None:
    narrowed = lister if namespace is None else lister.namespace(namespace)

    assert keys(narrowed.by_index("node", "node-2")) == found


def test_an_unknown_index_is_the_callers_mistake(lister: Lister) -> None:
    with pytest.raises(OptionsError, match="owner"):
        lister.by_index("owner", "x")


def test_json_is_a_list_of_the_stored_bodies(lister: Lister) -> None:
    text = lister.namespace("test").json()

    assert json.loads(text) == {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": "17"},
        "items": [OBJECTS[3].to_dict()],
    }
    assert OBJECTS[3].raw in text


def test_json_of_nothing_is_a_list() -> None:
    assert json.loads(lister_of().json())["items"] == []


def test_json_of_any_version_is_json() -> None:
    indexer: Indexer[KubeObject] = Indexer({NAMESPACE_INDEX: by_namespace})
    indexer.replace([], 'a"b\\')

    body = json.loads(Lister(indexer, Trust()).json())

    assert body["metadata"]["resourceVersion"] == 'a"b\\'


# ---------------------------------------------------------------- trust

READS: dict[str, Callable[..., object]] = {
    "get": lambda lister, **options: lister.get("shop/web-0", **options),
    "list": lambda lister, **options: lister.list(**options),
    "by_index": lambda lister, **options: lister.by_index("node", "node-2", **options),
    "json": lambda lister, **options: lister.json(**options),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_no_read_answers_from_a_cache_that_is_not_to_be_trusted(
    lister: Lister, trust: Trust, read: Callable[..., object]
) -> None:
    trust.error = NotSynced("not yet")

    for narrowed in (lister, lister.namespace("shop")):
        with pytest.raises(NotSynced, match="not yet"):
            read(narrowed)

        assert read(narrowed, allow_unsynced=True)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reads_may_come_from_any_thread(
    lister: Lister, read: Callable[..., object]
) -> None:
    assert error_in_thread(lambda: read(lister)) is None


def test_repr_tells_the_namespace(lister: Lister) -> None:
    assert repr(lister) == "<Lister of all namespaces>"
    assert repr(lister.namespace("shop")) == "<Lister of shop>"
