"""`Lister.into`: typed reads; mypy checks the asserted types."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
import pytest
from fake_source import Page, thing
from informer_helpers import pods_of, running
from kubernetes_asyncio.client import V1Pod
from pydantic import BaseModel, Field

from aioinformer.cache import index_by
from aioinformer.errors import (
    DecodeError,
    InformerStopped,
    NotSynced,
    OptionsError,
    SelectorSyntaxError,
    Stale,
)
from aioinformer.informer.lister import TypedLister


class SpecStruct(msgspec.Struct, rename="camel"):
    node_name: str


class PodStruct(msgspec.Struct):
    spec: SpecStruct


@dataclass
class SpecData:
    nodeName: str  # noqa: N815 - the name on the wire


@dataclass
class PodData:
    spec: SpecData


class PodDict(TypedDict):
    spec: dict[str, Any]


class SpecModel(BaseModel):
    node_name: str = Field(alias="nodeName")


class PodModel(BaseModel):
    spec: SpecModel


class Unfitting(msgspec.Struct):
    spec: int


PODS = [
    thing("a", labels={"app": "web"}),
    thing("b", spec={"nodeName": "node-2"}),
    thing("a", namespace="shop", labels={"app": "web"}, spec={"nodeName": "node-2"}),
]


def pods() -> Any:
    return pods_of(Page(PODS, version=5), indexers={"node": index_by("spec.nodeName")})


async def test_reads_return_structs() -> None:
    informer = pods()

    async with running(informer.run()):
        await informer.wait_synced()
        lister = informer.lister.into(PodStruct)
        one = lister.get("default/a")

        assert one.spec.node_name == "node-1"
        assert [it.spec.node_name for it in lister.list("app=web")] == [
            *("node-1", "node-2"),
        ]
        assert len(lister.by_index("node", "node-2")) == 2
        assert len(lister.list(limit=1)) == 1


async def test_static_types_are_known_end_to_end() -> None:
    informer = pods_of(
        Page(PODS, version=5), indexers={"node": index_by("spec.nodeName")}
    )

    async with running(informer.run()):
        await informer.wait_synced()
        structs = informer.lister.into(PodStruct)
        assert_type(structs, TypedLister[PodStruct])
        assert_type(structs.namespace("shop"), TypedLister[PodStruct])
        assert_type(structs.get("default/a"), PodStruct | None)
        assert_type(structs.list(), list[PodStruct])
        assert_type(structs.by_index("node", "node-1"), list[PodStruct])
        assert_type(informer.lister.into(PodData).list(), list[PodData])
        assert_type(informer.lister.into(PodDict).list(), list[PodDict])
        assert_type(informer.lister.into(PodModel).list(), list[PodModel])

        assert isinstance(structs.list()[0], PodStruct)


@pytest.mark.parametrize(
    ("kind", "node"),
    [
        pytest.param(PodStruct, lambda it: it.spec.node_name, id="struct"),
        pytest.param(PodData, lambda it: it.spec.nodeName, id="dataclass"),
        pytest.param(PodDict, lambda it: it["spec"]["nodeName"], id="TypedDict"),
        pytest.param(PodModel, lambda it: it.spec.node_name, id="Pydantic"),
        pytest.param(V1Pod, lambda it: it.spec.node_name, id="kubernetes_asyncio"),
    ],
)
async def test_objects_can_be_read_into_any_supported_type(
    kind: Any, node: Any
) -> None:
    informer = pods()

    async with running(informer.run()):
        await informer.wait_synced()
        shop = informer.lister.into(kind).namespace("shop")

        assert node(shop.get("a")) == "node-2"
        assert shop.get("b") is None
        assert list(map(node, shop.list("app=web"))) == ["node-2"]
        assert list(map(node, shop.by_index("node", "node-2"))) == ["node-2"]
        assert isinstance(shop.get("a"), dict if kind is PodDict else kind)


async def test_each_reader_gets_its_own_copy() -> None:
    informer = pods()

    async with running(informer.run()):
        await informer.wait_synced()
        lister = informer.lister.into(PodStruct)
        lister.get("default/a").spec.node_name = "changed"
        lister.list().clear()

        assert lister.get("default/a").spec.node_name == "node-1"
        assert len(lister.list()) == 3


async def test_object_that_does_not_fit_raises_an_error_that_names_it() -> None:
    informer = pods()

    async with running(informer.run()):
        await informer.wait_synced()
        lister = informer.lister.into(Unfitting)
        for read in (
            lambda: lister.get("default/a"),
            lister.list,
            lambda: lister.by_index("node", "node-1"),
        ):
            with pytest.raises(DecodeError, match="'default/a' does not fit Unfitting"):
                read()

        assert lister.get("default/none") is None


async def test_typed_reads_refuse_what_the_lister_refuses() -> None:
    informer = pods()
    lister = informer.lister.into(PodStruct)
    with pytest.raises(NotSynced):
        lister.list()

    assert lister.list(allow_unsynced=True) == []
    async with running(informer.run()):
        await informer.wait_synced()
        with pytest.raises(SelectorSyntaxError):
            lister.list("app in web")

        with pytest.raises(OptionsError):
            lister.by_index("owner", "x")

        with pytest.raises(OptionsError, match="negative"):
            lister.get("default/a", max_staleness=-1)

    with pytest.raises(InformerStopped):
        lister.get("default/a")

    await asyncio.sleep(1)
    with pytest.raises(Stale):
        lister.by_index("node", "node-1", max_staleness=0, allow_unsynced=True)


def test_repr_names_the_type() -> None:
    lister = pods().lister.into(PodStruct).namespace("shop")

    assert repr(lister) == "<TypedLister of PodStruct, <Lister of shop>>"
