"""`finalizer`: written before the first reconcile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import informed, informer_of, named
from finalizer_helpers import OURS, THEIRS, Cleanup, Recorded, Site, site
from informer_helpers import running

from aioinformer import Controller, KubeObject, Resource
from aioinformer.controller import Context, finalizer, with_object
from aioinformer.errors import OptionsError
from aioinformer.model.resources import NODES, PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_finalizer_is_added_before_first_reconcile() -> None:
    async with site(finalizers=[THEIRS]) as it, it.controlled(Cleanup()):
        await asyncio.sleep(10)
        assert it.finalizers() == [THEIRS, OURS]
        assert it.reconcile.finalizers[0] == [THEIRS, OURS]
        assert [ctx.stale for ctx in it.reconcile.contexts] == [False] * 2
        assert it.writes() == ["patch"]


async def test_object_with_finalizer_is_not_written() -> None:
    async with site(finalizers=[OURS]) as it, it.controlled(Cleanup()):
        await asyncio.sleep(10)
        assert it.reconcile.finalizers == [[OURS]]
        assert it.writes() == []


async def test_concurrent_changes_of_object_are_kept() -> None:
    async with site() as it:
        change = {"metadata": {"finalizers": [THEIRS], "labels": {"a": "b"}}}
        it.server.patch(PODS, "web", change, namespace="default")  # not shown yet
        async with it.controlled(Cleanup()):
            await asyncio.sleep(10)
            assert it.finalizers() == [THEIRS, OURS]
            assert it.reconcile.finalizers[0] == [THEIRS, OURS]
            assert it.writes() == ["patch", "get", "patch"]


@pytest.mark.parametrize(("conflicts", "attempts"), [(4, 1), (5, 2), (9, 2), (10, 3)])
async def test_after_five_conflicts_the_last_is_raised_and_retried(
    conflicts: int, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with site() as it:
        it.server.faults.add(Refuse(verb="patch", status=409, times=conflicts))
        async with it.controlled(Cleanup()):
            await asyncio.sleep(10)
            assert it.finalizers() == [OURS]
            assert it.writes().count("patch") == conflicts + 1
            assert it.reconcile.contexts[0].attempt == attempts

    assert len(caplog.records) == attempts - 1
    if attempts == 1:
        return

    failed = caplog.records[0]
    assert "(key=default/web attempt=1, will be retried): Conflict" in failed.message


async def test_finalizer_added_concurrently_is_not_added_twice() -> None:
    """A response was lost, or another leader was faster."""
    async with site() as it:
        change = {"metadata": {"finalizers": [OURS]}}
        it.server.patch(PODS, "web", change, namespace="default")
        async with it.controlled(Cleanup()):
            await asyncio.sleep(1)  # before the notification
            assert it.reconcile.names == ["web"]
            await asyncio.sleep(20)
            assert it.finalizers() == [OURS]
            assert it.writes() == ["patch", "get"]


async def test_finalizer_works_for_cluster_scoped_objects() -> None:
    cleanup, reconcile = Cleanup(), Recorded()
    async with APIServer() as server, server.client() as client:
        server.create(NODES, {"metadata": {"name": "web"}})
        nodes = informer_of(server.list_watch(NODES), "nodes")
        finalized = finalizer(NODES, OURS, cleanup=cleanup)(reconcile)
        controller = Controller("nodes", finalized, for_=nodes, client=client)
        async with informed(nodes), running(controller.run()):
            await asyncio.sleep(5)
            assert reconcile.finalizers == [[OURS]] * 2
            server.delete(NODES, "web")
            await asyncio.sleep(5)
            assert server.objects(NODES) == []
            assert cleanup.names == ["web"]


@pytest.mark.parametrize("deleted", [False, True])
async def test_finalizer_with_other_resource_fails_reconcile(
    deleted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Resource("", "v1", "podz", "Pod")
    finalizers = [OURS] if deleted else []
    async with site(finalizers=finalizers) as it:
        if deleted:
            it.server.delete(PODS, "web", namespace="default")
            await asyncio.sleep(5)

        reconcile = finalizer(wrong, OURS, cleanup=Cleanup())(it.reconcile)
        controller = Controller("pods", reconcile, for_=it.pods, client=it.client)
        async with running(controller.run()):
            await asyncio.sleep(1)

    assert it.reconcile.names == []
    assert "(key=default/web attempt=1, will be retried): NotFound" in caplog.text


def is_gone(it: Site) -> None:
    it.server.delete(PODS, "web", namespace="default")


def is_another_one(it: Site) -> None:
    it.server.delete(PODS, "web", namespace="default")
    it.server.create(PODS, named("web", finalizers=[THEIRS]))


def is_going(it: Site) -> None:
    change = {"metadata": {"finalizers": [THEIRS]}}
    it.server.patch(PODS, "web", change, namespace="default")
    it.server.delete(PODS, "web", namespace="default")


@pytest.mark.parametrize(
    ("meanwhile", "seen"),
    [(is_gone, [None]), (is_another_one, [[THEIRS, OURS]] * 2), (is_going, [])],
)
async def test_object_deleted_during_add_is_not_reconciled(
    meanwhile: Callable[[Site], None],
    seen: list[list[str] | None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site() as it:
        meanwhile(it)
        async with it.controlled(Cleanup()):
            await asyncio.sleep(20)

        assert it.reconcile.finalizers == seen
        assert not caplog.records


def is_replaced(it: Site) -> None:
    it.remove_finalizer("web", OURS)
    is_another_one(it)


@pytest.mark.parametrize(
    ("happens", "seen", "cleaned"),
    [
        (is_replaced, [[THEIRS, OURS]] * 2, []),
        (is_gone, [None], ["web"]),
    ],
)
async def test_change_during_first_write_is_reconciled(
    happens: Callable[[Site], None], seen: list[list[str] | None], cleaned: list[str]
) -> None:
    cleanup = Cleanup()
    async with site() as it:
        # Notifications that follow are delivered during this request.
        it.server.create(PODS, named("other", finalizers=[OURS]))
        async with it.controlled(cleanup):
            while OURS not in it.finalizers():
                await asyncio.sleep(0.01)

            happens(it)
            await asyncio.sleep(30)

        calls = zip(it.reconcile.names, it.reconcile.finalizers, strict=True)
        assert [finalizers for name, finalizers in calls if name == "web"] == seen
        assert cleanup.names == cleaned


async def test_deleted_object_is_reconciled_as_without_finalizer() -> None:
    async with site() as it, it.controlled(Cleanup()):
        await asyncio.sleep(10)
        it.remove_finalizer("web", OURS)  # by hand
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.names() == []
        assert it.reconcile.finalizers[-1] is None


# ---------------------------------------------------------------- how it is written


async def test_reconcile_and_cleanup_can_take_object() -> None:
    calls: list[str] = []

    @with_object(KubeObject)
    async def cleanup(pod: KubeObject, ctx: Context) -> None:
        calls.append(f"{pod.name} is cleaned up")

    @finalizer(PODS, OURS, cleanup=cleanup)
    @with_object(KubeObject)
    async def reconcile(pod: KubeObject, ctx: Context) -> None:
        calls.append(f"{pod.name} has {pod.finalizers}")

    async with site() as it:
        controller = Controller("pods", reconcile, for_=it.pods, client=it.client)
        async with running(controller.run()):
            await asyncio.sleep(10)
            it.server.delete(PODS, "web", namespace="default")
            await asyncio.sleep(20)

    assert sorted(set(calls)) == [f"web has ['{OURS}']", "web is cleaned up"]


async def test_two_finalizers_clean_up_in_order() -> None:
    inner, outer = Cleanup(), Cleanup()
    calls: list[str] = []

    @finalizer(PODS, THEIRS, cleanup=outer)
    @finalizer(PODS, OURS, cleanup=inner)
    @with_object(KubeObject)
    async def reconcile(pod: KubeObject, ctx: Context) -> None:
        assert pod.finalizers == [THEIRS, OURS]
        calls.append(pod.name)

    async with site() as it:
        controller = Controller("pods", reconcile, for_=it.pods, client=it.client)
        async with running(controller.run()):
            await asyncio.sleep(10)
            assert set(calls) == {"web"}
            it.server.delete(PODS, "web", namespace="default")
            await asyncio.sleep(20)
            assert it.names() == []

    assert (outer.names, inner.names) == (["web"], ["web"])


@pytest.mark.parametrize("deleted", [False, True])
async def test_finalizer_without_client_raises_options_error(
    deleted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cleanup = Cleanup()
    async with site(finalizers=[OURS] if deleted else []) as it:
        if deleted:
            it.server.delete(PODS, "web", namespace="default")
            await asyncio.sleep(5)

        reconcile = finalizer(PODS, OURS, cleanup=cleanup)(it.reconcile)
        controller = Controller("pods", reconcile, for_=it.pods)
        async with running(controller.run()):
            await asyncio.sleep(1)

    assert "this controller has no client" in caplog.text
    assert it.reconcile.names == cleanup.names == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("record", "needs a domain, such as 'example.com/record'"),
        (
            "Example.com/record",
            "prefix of a finalizer must be a DNS subdomain, not 'Example.com'",
        ),
        ("example.com/", "'' cannot be a finalizer: at most 63 letters"),
        ("", "'' cannot be a finalizer"),
        ("a/b/c", "not 'a/b'"),
        ("a.b-/c", "not 'a.b-'"),
        (None, "a finalizer must be a string, not None"),
    ],
)
def test_invalid_finalizer_name_is_refused(name: Any, problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        finalizer(PODS, name, cleanup=Cleanup())


def test_finalizer_refuses_invalid_reconcile_and_resource() -> None:
    other: Any = 7
    with pytest.raises(OptionsError, match="not a Resource: 'pods'"):
        finalizer("pods", OURS, cleanup=Cleanup())  # type: ignore[arg-type]

    with pytest.raises(OptionsError, match="a reconcile must be a coroutine function"):
        finalizer(PODS, OURS, cleanup=other)

    with pytest.raises(OptionsError, match="a reconcile must be a coroutine function"):
        finalizer(PODS, OURS, cleanup=Cleanup())(other)
