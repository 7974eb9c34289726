"""`finalizer`: cleanup of deleted objects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controller_helpers import named
from finalizer_helpers import OURS, THEIRS, Cleanup, site

from aioinformer import Result
from aioinformer.controller.predicates import labels_changed, matches_labels
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    import pytest

    from aioinformer import ReconcileRequest
    from aioinformer.controller import Context


async def test_cleanup_runs_once_and_object_is_deleted() -> None:
    cleanup = Cleanup()
    async with site() as it, it.controlled(cleanup):
        await asyncio.sleep(10)
        reconciled = len(it.reconcile.names)
        it.server.delete(PODS, "web", namespace="default")
        assert it.finalizers() == [OURS]
        await asyncio.sleep(20)
        assert it.names() == []
        assert cleanup.names == ["web"]
        # The deletion itself is reconciled, as without a finalizer.
        assert it.reconcile.finalizers[reconciled:] == [None]


async def test_predicates_of_changes_do_not_hide_a_deletion_from_cleanup() -> None:
    cleanup = Cleanup()
    hides = {"predicates": [labels_changed]}
    async with (
        site(finalizers=[THEIRS, OURS]) as it,
        it.controlled(cleanup, THEIRS, **hides),
    ):
        await asyncio.sleep(5)
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.names() == []
        assert cleanup.names == ["web", "web"]


async def test_predicates_of_objects_keep_their_deletion_from_cleanup() -> None:
    cleanup = Cleanup()
    others = {"predicates": [matches_labels("class=other")]}
    async with site(finalizers=[OURS]) as it, it.controlled(cleanup, **others):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.finalizers() == [OURS]
        assert cleanup.names == []


async def test_failed_cleanup_is_retried_and_object_stays() -> None:
    cleanup = Cleanup(ValueError("boom"), ValueError("boom"))
    async with site(finalizers=[OURS]) as it, it.controlled(cleanup):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert [ctx.attempt for ctx in cleanup.contexts] == [1, 2, 3]
        assert it.names() == []


async def test_cleanup_with_requeue_is_called_again() -> None:
    cleanup = Cleanup(Result(requeue_after=60), Result())
    async with site(finalizers=[OURS]) as it, it.controlled(cleanup):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(30)
        assert (len(cleanup.names), it.finalizers()) == (1, [OURS])
        await asyncio.sleep(60)
        assert (len(cleanup.names), it.finalizers()) == (2, [OURS])
        change = {"metadata": {"labels": {"a": "b"}}}
        it.server.patch(PODS, "web", change, namespace="default")
        await asyncio.sleep(10)
        assert (len(cleanup.names), it.names()) == (3, [])


async def test_cleanup_leaves_finalizers_of_others() -> None:
    cleanup = Cleanup()
    async with site(finalizers=[THEIRS, OURS]) as it, it.controlled(cleanup):
        await asyncio.sleep(5)
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.finalizers() == [THEIRS]
        assert cleanup.names == ["web"]
        assert it.reconcile.finalizers == [[THEIRS, OURS]]
        it.remove_finalizer("web", THEIRS)
        await asyncio.sleep(10)
        assert it.names() == []
        assert cleanup.names == ["web"]


async def test_object_deleted_during_cleanup_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class ByHand(Cleanup):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None:
            await super().act(request, ctx)
            it.remove_finalizer("web", OURS)

    async with site(finalizers=[OURS]) as it, it.controlled(ByHand()):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.names() == []

    assert not caplog.records


async def test_finalizer_removed_by_hand_is_not_added_again() -> None:
    class ByHand(Cleanup):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None:
            await super().act(request, ctx)
            it.remove_finalizer("web", OURS)

    async with site(finalizers=[OURS, THEIRS]) as it, it.controlled(ByHand()):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.finalizers() == [THEIRS]
        assert it.writes() == ["patch", "get"]


async def test_recreated_object_keeps_its_finalizer() -> None:
    class Replaced(Cleanup):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None:
            await super().act(request, ctx)
            if len(self.names) == 1:
                it.remove_finalizer("web", OURS)
                it.server.create(PODS, named("web", finalizers=[OURS]))
                it.server.delete(PODS, "web", namespace="default")

    cleanup = Replaced()
    async with site(finalizers=[OURS]) as it, it.controlled(cleanup):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(30)
        assert it.names() == []
        assert cleanup.names == ["web", "web"]


async def test_concurrent_change_is_kept_when_finalizer_is_removed() -> None:
    class WhileOthersWrite(Cleanup):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None:
            await super().act(request, ctx)
            it.remove_finalizer("web", THEIRS)

    cleanup = WhileOthersWrite()
    async with site(finalizers=[THEIRS, OURS]) as it, it.controlled(cleanup):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.names() == []
        assert cleanup.names == ["web"]
