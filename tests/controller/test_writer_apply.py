"""`Context.apply`: owner references, skipped writes, and their memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from contract_servers import WIDGETS
from widget_helpers import bench, widget

from aioinformer.errors import AlreadyOwned, OptionsError
from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from aioinformer.controller import Context
    from aioinformer.model.objects import KubeObject


def settings(colour: str = "blue", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "web"} | metadata,
        "data": {"colour": colour},
    }


async def apply_settings(obj: KubeObject, ctx: Context) -> None:
    await ctx.apply(settings())


async def test_apply_creates_child_with_controller_reference() -> None:
    async with bench(apply_settings) as it:
        metadata = it.map()["metadata"]
        uid = it.widget()["metadata"]["uid"]

    assert metadata["namespace"] == "default"
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "name": "web",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert {it["manager"] for it in metadata["managedFields"]} == {"gadgets"}


async def test_apply_of_unchanged_child_sends_nothing() -> None:
    shown: list[KubeObject] = []

    async def act(obj: KubeObject, ctx: Context) -> None:
        shown.append(await ctx.apply(settings()))

    async with bench(act) as it:
        for _ in range(3):
            await it.again()

        assert it.writes("configmaps") == ["patch"]
        assert shown[-1] is it.maps.lister.get("default/web")


async def test_apply_mends_foreign_changes() -> None:
    async with bench(apply_settings) as it:
        foreign: dict[str, Any] = {"data": {"colour": "red"}}
        it.server.patch(CONFIG_MAPS, "web", foreign, namespace="default")
        await asyncio.sleep(5)
        assert it.map()["data"] == {"colour": "blue"}
        assert it.writes("configmaps") == ["patch", "patch"]


async def test_apply_creates_deleted_child_again() -> None:
    async with bench(apply_settings) as it:
        it.server.delete(CONFIG_MAPS, "web", namespace="default")
        await asyncio.sleep(5)
        assert it.map()["data"] == {"colour": "blue"}


async def test_apply_removes_fields_that_the_body_lacks() -> None:
    body = settings()
    body["data"]["size"] = "7"

    async def act(obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(body)

    async with bench(act) as it:
        assert it.map()["data"] == {"colour": "blue", "size": "7"}
        del body["data"]["size"]
        await it.again()
        assert it.map()["data"] == {"colour": "blue"}


async def test_apply_refuses_child_of_another_controller() -> None:
    async with bench(apply_settings) as it:
        owner = it.map()["metadata"]["ownerReferences"][0]
        other = owner | {"name": "other", "uid": "x"}
        it.server.delete(CONFIG_MAPS, "web", namespace="default")
        it.server.create(
            CONFIG_MAPS, settings(namespace="default", ownerReferences=[other])
        )
        await it.again()
        assert it.map()["metadata"]["ownerReferences"] == [other]
        assert it.writes("configmaps") == ["patch"]

    failure = it.failures[-1]
    assert isinstance(failure, AlreadyOwned)
    assert str(failure) == (
        "ConfigMap default/web is controlled by Widget other, not by Widget web: delete it, "
        "or choose another name"
    )
    assert failure.owner["name"] == "other"


async def test_apply_refuses_cluster_scoped_child_of_namespaced_owner() -> None:
    async def act(obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web"}}
        )

    async with bench(act) as it:
        pass

    assert isinstance(it.failures[0], OptionsError)
    assert "it is cluster-scoped, and its owner is namespaced" in str(it.failures[0])


async def test_memory_of_children_ends_with_their_owner() -> None:
    async def act(obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(settings(name=obj.name))

    async with bench(act) as it:
        memory = it.controller._workers._writers.children
        it.server.create(WIDGETS, widget("other"))
        await asyncio.sleep(5)
        assert len(memory) == 2
        it.server.delete(WIDGETS, "other", namespace="default")
        await asyncio.sleep(5)
        assert len(memory) == 1
