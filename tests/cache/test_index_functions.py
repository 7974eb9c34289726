"""Index functions: by owner, custom ones, and rejected ones."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from conftest import pod
from each_case import each_case
from store_helpers import Thing, by_tag

from aioinformer.cache import Indexer, index_by, index_by_label, index_by_owner
from aioinformer.errors import HandlerError, OptionsError
from aioinformer.model import KubeObject

if TYPE_CHECKING:
    from collections.abc import Iterable


def owner(uid: str | None, **more: Any) -> dict[str, Any]:
    return {"kind": "ReplicaSet", "name": "web", "uid": uid, **more}


# ---------------------------------------------------------------- by owner


@each_case(
    "owners, uids, controllers",
    [
        pytest.param([], [], [], id="none"),
        pytest.param(None, [], [], id="null"),
        pytest.param([owner("u1")], ["u1"], [], id="no-controller"),
        pytest.param([owner("u1", controller=True)], ["u1"], ["u1"], id="controller"),
        pytest.param(
            [owner("u1", controller=False), owner("u2", controller=True)],
            ["u1", "u2"],
            ["u2"],
            id="several",
        ),
        pytest.param([owner(None), owner("")], [], [], id="without-uid"),
        pytest.param(
            [owner("u1", controller=None)], ["u1"], [], id="controller-is-null"
        ),
    ],
)
def test_index_by_owner_returns_uids(
    owners: object, uids: list[str], controllers: list[str]
) -> None:
    obj = KubeObject.of(pod("web", metadata={"ownerReferences": owners}))

    assert list(index_by_owner()(obj)) == uids
    assert list(index_by_owner(controller=True)(obj)) == controllers


@pytest.mark.parametrize(
    "body", [b"{}", b'{"metadata":null}', b'{"metadata":{"name":"a"}}']
)
def test_index_by_owner_without_owner_references_returns_no_value(body: bytes) -> None:
    assert list(index_by_owner()(KubeObject.of(body))) == []


def test_malformed_owner_references_are_reported() -> None:
    failures: list[HandlerError] = []
    indexer = Indexer({"owner": index_by_owner()}, on_error=failures.append)
    wrong = KubeObject.of(pod("web", metadata={"ownerReferences": ["u1"]}))

    indexer.add(wrong)

    assert indexer.list() == [wrong]
    assert indexer.list_index_func_values("owner") == []
    assert isinstance(failures[0].__cause__, msgspec.ValidationError)


@each_case(
    "one, other, same",
    [
        pytest.param(index_by_owner(), index_by_owner(), True, id="owner"),
        pytest.param(
            index_by_owner(), index_by_owner(controller=True), False, id="controller"
        ),
        pytest.param(index_by("spec.a"), index_by("spec.a"), True, id="path"),
        pytest.param(index_by("spec.a"), index_by("spec.b"), False, id="paths"),
        pytest.param(index_by_label("a"), index_by_label("a"), True, id="label"),
        pytest.param(index_by_label("a"), index_by("spec.a"), False, id="kinds"),
    ],
)
def test_same_index_can_be_added_twice(one: Any, other: Any, same: bool) -> None:
    indexer = Indexer[KubeObject]({"name": one})

    if same:
        indexer.add_indexers({"name": other})
    else:
        with pytest.raises(OptionsError):
            indexer.add_indexers({"name": other})

    assert indexer.indexers == {"name": one}


def test_index_function_can_read_items_of_array() -> None:
    def images(obj: KubeObject) -> Iterable[str]:
        return [it["image"] for it in obj.at("spec.containers", ())]

    indexer = Indexer[KubeObject]({"image": images})
    containers = [{"image": "a:1"}, {"image": "b:1"}, {"image": "a:1"}]
    indexer.add(KubeObject.of(pod("web", spec={"containers": containers})))
    indexer.add(KubeObject.of(pod("none", spec={"containers": None})))

    assert indexer.index_keys("image", "a:1") == ["default/web"]
    assert sorted(indexer.list_index_func_values("image")) == ["a:1", "b:1"]


# ---------------------------------------------------------------- kinds of strings


class Name(str):
    """String of a separate class, as in some libraries."""

    __slots__ = ()


class Phase(enum.StrEnum):
    RUNNING = "Running"
    FAILED = "Failed"


@each_case(
    "values, plain",
    [
        pytest.param([Name("a")], ["a"], id="one-of-a-subclass"),
        pytest.param([Name("b"), Name("a")], ["a", "b"], id="several-of-a-subclass"),
        pytest.param([Name("b"), "a", Name("a")], ["a", "b"], id="mixed"),
        pytest.param([Phase.RUNNING], ["Running"], id="one-of-an-enum"),
        pytest.param(list(Phase), ["Failed", "Running"], id="several-of-an-enum"),
    ],
)
def test_index_values_may_be_subclass_of_str(
    values: list[str], plain: list[str]
) -> None:
    failures: list[HandlerError] = []
    indexer = Indexer[Thing]({"name": lambda it: values}, on_error=failures.append)

    for version in range(2):
        indexer.update(Thing("a", version=version))

    found = {value: indexer.index_keys("name", value) for value in plain}
    assert sorted(indexer.list_index_func_values("name")) == plain
    assert found == {value: ["a"] for value in plain}
    indexer.delete(Thing("a"))
    assert indexer.list_index_func_values("name") == []
    assert failures == []


# ---------------------------------------------------------------- what is refused


async def asynchronous(thing: Thing) -> list[str]:
    return []


class Asynchronous:
    async def __call__(self, thing: Thing) -> list[str]:
        return []


@pytest.mark.parametrize("given", [["node"], by_tag], ids=["list", "function"])
async def test_indexers_must_be_a_dict(given: Any) -> None:
    indexer = Indexer[Thing]()

    with pytest.raises(OptionsError, match="must be a dict of functions by name"):
        indexer.add_indexers(given)

    with pytest.raises(OptionsError, match="must be a dict of functions by name"):
        await indexer.build_indexers(given)


def test_index_by_a_text_suggests_index_by() -> None:
    indexers: Any = {"node": "spec.nodeName"}

    with pytest.raises(OptionsError, match=r"write index_by\('spec.nodeName'\)"):
        Indexer[Thing]().add_indexers(indexers)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        pytest.param("bad", None, id="nothing"),
        pytest.param("bad", "spec.nodeName", id="path"),
        pytest.param("bad", asynchronous, id="coroutine-function"),
        pytest.param("bad", Asynchronous(), id="coroutine-method"),
        pytest.param(7, by_tag, id="name-is-a-number"),
    ],
)
async def test_add_indexers_rejects_invalid_index(name: Any, function: Any) -> None:
    failures: list[HandlerError] = []
    indexer = Indexer[Thing](on_error=failures.append)
    indexer.add(Thing("a"))

    with pytest.raises(OptionsError, match=str(name)):
        indexer.add_indexers({"good": by_tag, name: function})

    with pytest.raises(OptionsError, match=str(name)):
        await indexer.build_indexers({"good": by_tag, name: function})

    with pytest.raises(OptionsError, match=str(name)):
        Indexer[Thing]({name: function})

    assert indexer.indexers == {}
    assert failures == []
