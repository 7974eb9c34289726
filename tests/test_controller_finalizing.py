"""`finalizer`: an object that is deleted waits until its controller has cleaned up."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Lagging, Notes, informed, informer_of, named
from informer_helpers import running

from aioinformer import Client, Controller, KubeObject, Result
from aioinformer.controller import Context, finalizer, with_object
from aioinformer.errors import OptionsError
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer import ReconcileRequest

OURS = "example.com/record"
THEIRS = "example.com/theirs"
LAG = 2.0


class Recorded(Notes):
    """A reconcile that notes which finalizers it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.finalizers: list[list[str] | None] = []

    async def act(self, request: ReconcileRequest, ctx: Context) -> None:
        obj = ctx.lister.get(request.key)
        self.finalizers.append(None if obj is None else obj.finalizers)


class Cleanup(Notes):
    """A cleanup that answers, or raises, what it is told to, and then that it is done."""

    def __init__(self, *answers: Result | Exception) -> None:
        super().__init__()
        self.answers = list(answers)

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        obj = ctx.lister.get(request.key)
        assert obj is not None
        assert obj.deletion_timestamp is not None
        assert OURS in obj.finalizers
        if not self.answers:
            return None

        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer

        return answer


class Site:
    """A server with a pod, whose controller learns of changes some seconds late."""

    def __init__(self, server: APIServer, client: Client) -> None:
        self.server = server
        self.client = client
        self.pods = informer_of(Lagging(server.list_watch(PODS), LAG))
        self.reconcile = Recorded()

    @asynccontextmanager
    async def controlled(self, cleanup: Notes) -> AsyncIterator[None]:
        reconcile = finalizer(PODS, OURS, cleanup=cleanup)(self.reconcile)
        controller = Controller("pods", reconcile, for_=self.pods, client=self.client)
        async with running(controller.run()):
            yield

    def finalizers(self, name: str = "web") -> list[str]:
        metadata = self.server.get(PODS, name, namespace="default")["metadata"]
        return list(metadata.get("finalizers", ()))

    def names(self) -> list[str]:
        return [it["metadata"]["name"] for it in self.server.objects(PODS)]

    def writes(self) -> list[str]:
        return [it.verb for it in self.server.requests if it.verb in {"patch", "get"}]

    def let_go(self, name: str, finalizer: str) -> None:
        """Take somebody's finalizer away."""
        kept = [it for it in self.finalizers() if it != finalizer]
        self.server.patch(
            PODS, name, {"metadata": {"finalizers": kept}}, namespace="default"
        )


@asynccontextmanager
async def site(**metadata: Any) -> AsyncIterator[Site]:
    async with APIServer() as server, server.client() as client:
        server.create(PODS, named("web", **metadata))
        it = Site(server, client)
        async with informed(it.pods):
            yield it


# ---------------------------------------------------------------- while it lives


async def test_it_is_there_before_the_first_reconcile_which_sees_it() -> None:
    async with site(finalizers=[THEIRS]) as it, it.controlled(Cleanup()):
        await asyncio.sleep(10)
        assert it.finalizers() == [THEIRS, OURS]
        assert it.reconcile.finalizers[0] == [THEIRS, OURS]
        assert [ctx.stale for ctx in it.reconcile.contexts] == [False] * 2
        assert it.writes() == ["patch"]


async def test_one_that_has_it_is_left_as_it_is() -> None:
    async with site(finalizers=[OURS]) as it, it.controlled(Cleanup()):
        await asyncio.sleep(10)
        assert it.reconcile.finalizers == [[OURS]]
        assert it.writes() == []


async def test_what_others_change_meanwhile_is_not_lost() -> None:
    async with site() as it:
        change = {"metadata": {"finalizers": [THEIRS], "labels": {"a": "b"}}}
        it.server.patch(PODS, "web", change, namespace="default")  # not shown yet
        async with it.controlled(Cleanup()):
            await asyncio.sleep(10)
            assert it.finalizers() == [THEIRS, OURS]
            assert it.reconcile.finalizers[0] == [THEIRS, OURS]
            assert it.writes() == ["patch", "get", "patch"]


async def test_a_conflict_each_time_is_raised_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site() as it:
        it.server.faults.add(Refuse(verb="patch", status=409, times=7))
        async with it.controlled(Cleanup()):
            await asyncio.sleep(10)
            assert it.finalizers() == [OURS]
            assert it.writes().count("patch") == 8
            assert it.reconcile.contexts[0].attempt == 2

    (failed,) = caplog.records
    assert "default/web failed (attempt 1, to be retried): Conflict" in failed.message


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
async def test_one_that_goes_meanwhile_is_not_reconciled(
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


async def test_one_that_is_gone_is_reconciled_as_without() -> None:
    async with site() as it, it.controlled(Cleanup()):
        await asyncio.sleep(10)
        it.let_go("web", OURS)  # by hand
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.names() == []
        assert it.reconcile.finalizers[-1] is None


# ---------------------------------------------------------------- when it is deleted


async def test_it_is_cleaned_up_once_and_goes() -> None:
    cleanup = Cleanup()
    async with site() as it, it.controlled(cleanup):
        await asyncio.sleep(10)
        reconciled = len(it.reconcile.names)
        it.server.delete(PODS, "web", namespace="default")
        assert it.finalizers() == [OURS]
        await asyncio.sleep(20)
        assert it.names() == []
        assert cleanup.names == ["web"]
        # Of the deletion itself it is told, as without.
        assert it.reconcile.finalizers[reconciled:] == [None]


async def test_a_cleanup_that_fails_is_retried_and_the_object_waits() -> None:
    cleanup = Cleanup(ValueError("boom"), ValueError("boom"))
    async with site(finalizers=[OURS]) as it, it.controlled(cleanup):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert [ctx.attempt for ctx in cleanup.contexts] == [1, 2, 3]
        assert it.names() == []


async def test_a_cleanup_that_is_not_done_is_called_again() -> None:
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


async def test_it_waits_for_the_finalizers_of_others() -> None:
    cleanup = Cleanup()
    async with site(finalizers=[THEIRS, OURS]) as it, it.controlled(cleanup):
        await asyncio.sleep(5)
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.finalizers() == [THEIRS]
        assert cleanup.names == ["web"]
        assert it.reconcile.finalizers == [[THEIRS, OURS]]
        it.let_go("web", THEIRS)
        await asyncio.sleep(10)
        assert it.names() == []
        assert cleanup.names == ["web"]


async def test_one_that_goes_while_it_is_cleaned_up_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class ByHand(Cleanup):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None:
            await super().act(request, ctx)
            it.let_go("web", OURS)

    async with site(finalizers=[OURS]) as it, it.controlled(ByHand()):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.names() == []

    assert not caplog.records


async def test_of_two_changes_at_once_none_is_lost_when_it_is_taken_away() -> None:
    class WhileOthersWrite(Cleanup):
        async def act(self, request: ReconcileRequest, ctx: Context) -> None:
            await super().act(request, ctx)
            it.let_go("web", THEIRS)

    cleanup = WhileOthersWrite()
    async with site(finalizers=[THEIRS, OURS]) as it, it.controlled(cleanup):
        it.server.delete(PODS, "web", namespace="default")
        await asyncio.sleep(20)
        assert it.names() == []
        assert cleanup.names == ["web"]


# ---------------------------------------------------------------- how it is written


async def test_both_may_take_the_object() -> None:
    told: list[str] = []

    @with_object(KubeObject)
    async def cleanup(pod: KubeObject, ctx: Context) -> None:
        told.append(f"{pod.name} is cleaned up")

    @finalizer(PODS, OURS, cleanup=cleanup)
    @with_object(KubeObject)
    async def reconcile(pod: KubeObject, ctx: Context) -> None:
        told.append(f"{pod.name} has {pod.finalizers}")

    assert reconcile.__name__ == "reconcile"
    async with site() as it:
        controller = Controller("pods", reconcile, for_=it.pods, client=it.client)
        async with running(controller.run()):
            await asyncio.sleep(10)
            it.server.delete(PODS, "web", namespace="default")
            await asyncio.sleep(20)

    assert sorted(set(told)) == [f"web has ['{OURS}']", "web is cleaned up"]


async def test_without_a_client_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with site() as it:
        reconcile = finalizer(PODS, OURS, cleanup=Cleanup())(it.reconcile)
        controller = Controller("pods", reconcile, for_=it.pods)
        async with running(controller.run()):
            await asyncio.sleep(1)

    assert "this controller has no client" in caplog.text
    assert it.reconcile.names == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("record", "needs a domain: 'example.com/record'"),
        ("Example.com/record", "prefix must be a DNS subdomain, unlike 'Example.com'"),
        ("example.com/", "'' cannot be a finalizer: at most 63 letters"),
        ("", "'' cannot be a finalizer"),
        ("a/b/c", "unlike 'a/b'"),
    ],
)
def test_a_name_that_no_finalizer_can_have(name: str, problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        finalizer(PODS, name, cleanup=Cleanup())


def test_what_can_be_no_reconcile_is_refused() -> None:
    plain: Any = print
    with pytest.raises(OptionsError, match="a reconcile is a coroutine function"):
        finalizer(PODS, OURS, cleanup=plain)

    with pytest.raises(OptionsError, match="a reconcile is a coroutine function"):
        finalizer(PODS, OURS, cleanup=Cleanup())(plain)
