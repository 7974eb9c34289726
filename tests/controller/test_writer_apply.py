"""`Context.apply`: owner references, skipped writes, and their memory."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from contract_servers import WIDGETS
from controller_helpers import controlled
from widget_helpers import Bench, bench, widget

from aioinformer import ReconcileRequest
from aioinformer.errors import AlreadyOwned, NotFound, OptionsError, TransportError
from aioinformer.model.resources import CONFIG_MAPS, DEPLOYMENTS
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.testing.faults import Cut

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


def deployment() -> dict[str, Any]:
    labels = {"app": "web"}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
    }


async def apply_settings(it: Bench, obj: KubeObject, ctx: Context) -> None:
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


async def test_apply_without_response_is_sent_again() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if it.reconciles == 2:
            it.server.faults.add(Cut(verb="patch", after_bytes=0))
            with pytest.raises(TransportError):
                await ctx.apply(settings("red"))

        await ctx.apply(settings("blue"))
        assert it.map()["data"] == {"colour": "blue"}

    async with bench(act) as it:
        await it.again()
        assert it.reconciles > 1
        assert it.failures == []


@pytest.mark.parametrize("hidden", ["", "metadata.managedFields"])
async def test_apply_of_unchanged_child_sends_nothing(hidden: str) -> None:
    shown: list[KubeObject] = []

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        shown.append(await ctx.apply(settings()))

    async with bench(act, hidden=hidden) as it:
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

    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
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
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web"}}
        )

    async with bench(act) as it:
        pass

    assert isinstance(it.failures[0], OptionsError)
    assert "it is cluster-scoped, and its owner is namespaced" in str(it.failures[0])


async def test_apply_refuses_the_object_itself_as_its_own_child() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.apply({"metadata": {"name": obj.name}}, resource=WIDGETS)

    async with bench(act) as it:
        assert "ownerReferences" not in it.widget()["metadata"]

    assert isinstance(it.failures[0], OptionsError)
    assert "not the object itself: use ctx.client.apply()" in str(it.failures[0])


async def test_apply_refuses_name_of_resource() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(settings(), resource="configmaps")  # type: ignore[arg-type]

    async with bench(act) as it:
        pass

    assert isinstance(it.failures[0], OptionsError)
    assert "not a Resource: 'configmaps'" in str(it.failures[0])


async def test_memory_of_children_ends_with_their_owner() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(settings(name=obj.name))

    async with bench(act) as it:
        memory = it.controller._workers._writers.children
        it.server.create(WIDGETS, widget("other"))
        await asyncio.sleep(5)
        assert len(memory) == 2
        it.server.delete(WIDGETS, "other", namespace="default")
        await asyncio.sleep(5)
        assert len(memory) == 1


async def test_apply_after_restart_is_sent_once() -> None:
    async with bench(apply_settings) as it:
        version = it.map()["metadata"]["resourceVersion"]
        again = Bench(it.server, apply_settings)
        await it.manager.shutdown()
        async with again.manager:
            await asyncio.sleep(5)
            assert it.writes("configmaps") == ["patch", "patch"]
            await again.again()
            await again.again()

        assert it.writes("configmaps") == ["patch", "patch"]
        assert it.map()["metadata"]["resourceVersion"] == version


async def test_apply_ignores_changes_of_status_only() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(deployment(), resource=DEPLOYMENTS)

    async with bench(act, owned=DEPLOYMENTS) as it:
        before = it.reconciles
        status = {"status": {"replicas": 1, "updatedReplicas": 1}}
        it.server.patch(DEPLOYMENTS, "web", status, namespace="default")
        await asyncio.sleep(5)
        assert it.reconciles > before
        assert it.writes("deployments") == ["patch"]


async def test_apply_without_informer_of_the_child_is_always_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aioinformer.controller.writer")
    async with bench(apply_settings, owned=DEPLOYMENTS) as it:
        await it.again()
        assert it.writes("configmaps") == ["patch", "patch"]
        assert len(it.controller._workers._writers.children) == 0

    (line,) = [it for it in caplog.messages if "applies" in it]
    assert "applies configmaps, but owns= has no informer of them" in line


async def test_child_that_the_informer_does_not_select_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(settings(labels={"app": "web"}))
        await ctx.apply(settings(labels={"app": "db"}, name="other"))
        await ctx.apply(settings(labels={"app": "db"}, name="third"))

    async with bench(act, label_selector="app=web"):
        pass

    (line,) = caplog.messages
    assert line == (
        "controller gadgets: applies configmaps default/other, but the informer in owns= "
        "selects 'app=web': it does not notice when others change or delete the object"
    )


async def test_apply_mends_fields_that_a_transform_hides() -> None:
    async with bench(apply_settings, hidden="data") as it:
        await it.again()
        assert it.writes("configmaps") == ["patch"]
        foreign: dict[str, Any] = {"data": {"colour": "red"}}
        it.server.patch(CONFIG_MAPS, "web", foreign, namespace="default")
        await asyncio.sleep(5)
        assert it.map()["data"] == {"colour": "blue"}


async def test_apply_without_object_of_the_reconcile_is_refused() -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        with pytest.raises(NotFound) as caught:
            await ctx.apply(settings())

        refused.append(str(caught.value))

    refused: list[str] = []
    async with APIServer() as server, server.client() as client:
        pods = FakeListerWatcher()
        async with controlled(reconcile, pods, client=client) as (_, controller):
            controller.queue.add(ReconcileRequest("default", "x"))
            await asyncio.sleep(1)

    assert refused == ["no object default/x was in the cache when the reconcile began"]


async def test_child_of_object_deleted_meanwhile_is_applied() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(settings(name="first"))
        it.server.delete(WIDGETS, "web", namespace="default")
        await asyncio.sleep(1)
        await ctx.apply(settings(name="second"))

    async with bench(act) as it:
        assert it.failures == []
        assert it.map("second")["metadata"]["ownerReferences"][0]["name"] == "web"


async def test_apply_writes_no_children_of_recreated_object() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        if it.reconciles == 1:
            it.server.delete(WIDGETS, "web", namespace="default")
            it.server.create(WIDGETS, widget())
            await asyncio.sleep(1)

        await ctx.apply(settings("red" if it.reconciles == 1 else "blue"))

    async with bench(act) as it:
        (failure,) = it.failures
        assert str(failure) == (
            "object default/web was deleted and created again since the reconcile "
            "began: ctx.apply() writes no children of the old one"
        )
        child, owner = it.map(), it.widget()
        assert child["data"] == {"colour": "blue"}
        assert (
            child["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
        )
        assert it.writes("configmaps") == ["patch"]


async def test_memory_drops_children_that_vanished() -> None:
    async def act(it: Bench, obj: KubeObject, ctx: Context) -> None:
        await ctx.apply(settings(name=f"web-{obj.generation}"))

    async with bench(act) as it:
        await it.again()
        memory = it.controller._workers._writers.children
        assert len(memory) == 2, "both exist"
        it.server.delete(CONFIG_MAPS, "web-1", namespace="default")
        await asyncio.sleep(5)
        assert len(memory) == 1
