"""`Context`: object, client and pending writes of a reconcile."""

from __future__ import annotations

import asyncio
import functools
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from controller_helpers import (
    Acts,
    Lagging,
    Notes,
    controlled,
    informed,
    informer_of,
    named,
)
from informer_helpers import running, settle
from metrics_helpers import PlainSink

from aioinformer import Client, Controller, KubeObject, Result, SharedInformer
from aioinformer.controller import Context, with_object
from aioinformer.controller.context import reconcile_of
from aioinformer.errors import LeadershipLost, OptionsError
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioinformer import ReconcileRequest


class Meta(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}


class Pod(msgspec.Struct):
    metadata: Meta
    spec: dict[str, str] = {}


# ---------------------------------------------------------------- the object


async def test_with_object_passes_object_of_type() -> None:
    given: list[Pod] = []

    @with_object(Pod)
    async def reconcile(pod: Pod, ctx: Context) -> Result | None:
        given.append(pod)
        assert ctx.request.name == pod.metadata.name
        return Result(requeue_after=1) if len(given) < 3 else None

    async with controlled(reconcile, FakeListerWatcher(named("a", labels={"x": "y"}))):
        await asyncio.sleep(10)

    assert given == [Pod(Meta("a", {"x": "y"}))] * 3


async def test_with_object_passes_cached_object() -> None:
    given: list[KubeObject] = []

    @with_object(KubeObject)
    async def reconcile(pod: KubeObject, ctx: Context) -> None:
        given.append(pod)
        assert ctx.lister.get(pod.key) is pod

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        pass

    assert [pod.name for pod in given] == ["a"]


async def test_with_object_skips_deleted_object() -> None:
    given: list[str] = []

    @with_object(KubeObject)
    async def reconcile(pod: KubeObject, ctx: Context) -> None:
        given.append(pod.name)

    async with controlled(reconcile, FakeListerWatcher(named("a"))) as (source, _):
        source.delete(named("a"))
        await settle()

    assert given == ["a"]


async def test_object_that_does_not_fit_type_is_not_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given: list[Any] = []

    @with_object(Pod)
    async def reconcile(pod: Pod, ctx: Context) -> None:
        given.append(pod)

    source = FakeListerWatcher(named("a") | {"spec": 7})
    async with controlled(reconcile, source):
        await asyncio.sleep(1000)
        assert given == []
        assert len(caplog.records) == 1
        assert "TerminalError: object 'default/a' does not fit Pod" in caplog.text

        source.modify(named("a"))
        await settle()
        assert len(given) == 1


# ---------------------------------------------------------------- the client


async def test_context_without_client_raises_options_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        with pytest.raises(OptionsError, match="has no client"):
            _ = ctx.client

    async with controlled(reconcile, FakeListerWatcher(named("a"))):
        pass

    assert not caplog.records


class Cluster:
    """Server, client, and delayed informers of pods and config maps."""

    def __init__(self, server: APIServer, client: Client, lag: float) -> None:
        self.server = server
        self.client = client
        self.lagging = [
            Lagging(server.list_watch(resource), lag)
            for resource in (PODS, CONFIG_MAPS)
        ]
        self.pods, self.maps = map(informer_of, self.lagging)

    @asynccontextmanager
    async def controlled(self, reconcile: Any, **options: Any) -> AsyncIterator[None]:
        options.setdefault("owns", [self.maps])
        options.setdefault("client", self.client)
        controller = Controller("pods", reconcile, for_=self.pods, **options)
        async with running(controller.run()):
            yield


@asynccontextmanager
async def cluster(lag: float = 2.0) -> AsyncIterator[Cluster]:
    async with APIServer() as server, server.client() as client:
        server.create(PODS, named("web"))
        it = Cluster(server, client, lag)
        async with informed(it.pods, it.maps):
            yield it


def names_of_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


def seen_in(informer: SharedInformer, name: str) -> bool:
    return informer.store.get_by_key(f"default/{name}") is not None


async def test_next_reconcile_reads_own_writes() -> None:
    async with cluster() as it:
        seen: list[bool] = []

        async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
            seen.append(seen_in(it.maps, "cfg"))
            assert not ctx.stale
            if not seen[-1]:
                await ctx.client.create(CONFIG_MAPS, named("cfg"))
                return Result(requeue_after=0)

            return None

        async with it.controlled(Acts(act)):
            await asyncio.sleep(20)

        assert seen == [False, True]


async def test_wait_for_own_writes_occupies_no_worker() -> None:
    async with cluster() as it:
        times: dict[str, float] = {}

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            times[request.name] = asyncio.get_running_loop().time()
            if request.name == "web":
                await ctx.client.create(CONFIG_MAPS, named("cfg"))

        it.server.create(PODS, named("other"))
        await it.pods.wait_for_version(it.server.resource_version)
        async with it.controlled(Acts(act), concurrency=1):
            await asyncio.sleep(1)
            assert times.keys() == {"web", "other"}


async def test_other_requests_do_not_wait_for_pending_writes() -> None:
    async with cluster() as it:
        notes = Notes()

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            await notes(request, ctx)
            if len(notes.names) == 1:
                await ctx.client.create(CONFIG_MAPS, named("cfg"))

        async with it.controlled(act):
            await asyncio.sleep(0.5)
            it.server.create(PODS, named("other"))
            await asyncio.sleep(2.2)
            assert notes.names == ["web", "other"]


async def test_writes_to_unwatched_resource_are_not_waited_for() -> None:
    async with cluster(lag=8.0) as it:
        notes = Notes()

        async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
            await notes(request, ctx)
            if len(notes.names) > 1:
                return None

            await ctx.client.create(CONFIG_MAPS, named("cfg"))
            return Result(requeue_after=1)

        async with it.controlled(act, owns=[]):
            await asyncio.sleep(2)

        assert len(notes.names) == 2


async def test_reconcile_is_stale_after_10_s_of_pending_writes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    sink = PlainSink()
    async with cluster(lag=15.0) as it:
        notes = Notes()
        times: list[float] = []

        async def act(request: ReconcileRequest, ctx: Context) -> Result | None:
            await notes(request, ctx)
            times.append(asyncio.get_running_loop().time())
            if len(times) == 1:
                await ctx.client.create(CONFIG_MAPS, named("cfg"))

            return Result(requeue_after=3) if len(times) < 5 else None

        async with it.controlled(act, metrics=sink):
            await asyncio.sleep(60)

    stale = [ctx.stale for ctx in notes.contexts]
    assert times[1] - times[0] == pytest.approx(10, abs=0.1)
    assert stale[:2] == [False, True]
    assert stale[-1] is False  # writes that are shown are forgotten
    count = sink.counts["aioinformer_stale_reconciles_total", ("pods",)]
    assert count == stale.count(True)
    assert (
        "informers do not show the writes of an earlier reconcile (key=default/web)"
        in caplog.text
    )


async def test_late_write_is_forgotten_once_shown() -> None:
    async with cluster(lag=15.0) as it:

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            if not seen_in(it.maps, "cfg"):
                await ctx.client.create(CONFIG_MAPS, named("cfg"))

        controller = Controller(
            "pods", act, for_=it.pods, owns=[it.maps], client=it.client
        )
        async with controller:
            await asyncio.sleep(12)
            assert len(controller._workers._unshown) == 1
            await asyncio.sleep(20)
            assert controller._workers._unshown == {}


async def test_settled_waits_within_a_reconcile() -> None:
    async with cluster() as it:
        seen: list[bool] = []

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            await ctx.settled()
            await ctx.client.create(CONFIG_MAPS, named("cfg"))
            seen.append(seen_in(it.maps, "cfg"))
            await ctx.settled()
            seen.append(seen_in(it.maps, "cfg"))
            seen.append(ctx.stale)

        async with it.controlled(act):
            await asyncio.sleep(5)

        assert seen == [False, True, False]


async def test_settled_is_stale_after_10_s() -> None:
    async with cluster(lag=1000.0) as it:
        seen: list[Any] = []

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            began = asyncio.get_running_loop().time()
            await ctx.client.create(CONFIG_MAPS, named("cfg"))
            await ctx.settled()
            seen.append((asyncio.get_running_loop().time() - began, ctx.stale))

        async with it.controlled(act):
            await asyncio.sleep(12)

        assert seen == [(pytest.approx(10, abs=0.1), True)]


@pytest.mark.parametrize("turns", range(6))
async def test_reconcile_with_writes_may_end_during_stop(turns: int) -> None:
    failures: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: failures.append(context))
    async with cluster() as it:
        stop = asyncio.Event()

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            await ctx.client.create(CONFIG_MAPS, named("cfg"))
            await stop.wait()
            for _ in range(turns):
                await asyncio.sleep(0)

        controller = Controller(
            "pods", act, for_=it.pods, owns=[it.maps], client=it.client
        )
        async with running(controller.run()):
            await asyncio.sleep(1)
            stop.set()

        assert "working=0" in repr(controller.queue)

    assert failures == []


async def test_stop_does_not_wait_for_pending_writes() -> None:
    async with cluster(lag=8.0) as it:

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            await ctx.client.create(CONFIG_MAPS, named("cfg"))

        async with it.controlled(act):
            await asyncio.sleep(1)
            began = asyncio.get_running_loop().time()
            assert "pods default/web shown" in names_of_tasks()

        assert asyncio.get_running_loop().time() == pytest.approx(began, abs=0.1)
        assert "pods default/web shown" not in names_of_tasks()


async def test_history_reset_ends_wait_for_writes() -> None:
    async with APIServer() as server, server.client() as client:
        server.create(PODS, named("web"))
        before = server.snapshot()
        for number in range(50):
            server.create(CONFIG_MAPS, named(f"other-{number}"))

        lagging = Lagging(server.list_watch(PODS), 8.0)
        pods, notes = informer_of(lagging), Notes()

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            await notes(request, ctx)
            if len(notes.names) == 1:
                body = {"metadata": {"labels": {"a": "b"}}}
                await ctx.client.patch(PODS, "web", body, namespace="default")

        async with (
            informed(pods),
            Controller("pods", act, for_=pods, client=client) as controller,
        ):
            await asyncio.sleep(1)
            await server.restart(snapshot=before)
            server.create(PODS, named("new"))
            await asyncio.sleep(300)
            assert controller._workers._running == {}
            assert "new" in notes.names
            assert "working=0" in repr(controller.queue)


async def test_elector_is_checked_before_each_write() -> None:
    class Term:
        over = False

        def check(self) -> None:
            if self.over:
                raise LeadershipLost("over")

    async with cluster(lag=0.0) as it:
        term, refused = Term(), []

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            await ctx.client.create(CONFIG_MAPS, named("one"))
            term.over = True
            try:
                await ctx.client.create(CONFIG_MAPS, named("two"))
            except LeadershipLost:
                refused.append(request.name)

        async with it.controlled(act, elector=term):
            await asyncio.sleep(1)

        assert refused == ["web"]
        names = [body["metadata"]["name"] for body in it.server.objects(CONFIG_MAPS)]
        assert names == ["one"]


async def test_run_accepts_client_and_elector() -> None:
    async with cluster(lag=0.0) as it:
        made: list[str] = []

        async def act(request: ReconcileRequest, ctx: Context) -> None:
            made.append((await ctx.client.create(CONFIG_MAPS, named("cfg"))).name)

        controller = Controller("pods", act, for_=it.pods)
        async with running(controller.run(client=it.client)):
            await asyncio.sleep(1)

        assert made == ["cfg"]


async def reconcile(request: object, ctx: Context) -> None: ...


class Callee:
    async def __call__(self, request: object, ctx: Context) -> None: ...

    async def method(self, request: object, ctx: Context) -> None: ...

    def plain(self, request: object, ctx: Context) -> None: ...


async def with_more(factory: object, request: object, ctx: Context) -> None: ...


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that returns the coroutine without awaiting it."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(reconcile, id="function"),
        pytest.param(Callee(), id="object"),
        pytest.param(Callee().method, id="method"),
        pytest.param(functools.partial(with_more, None), id="partial"),
        pytest.param(timed(reconcile), id="decorated"),
        pytest.param(with_object(dict)(reconcile), id="with-object"),
        pytest.param(AsyncMock(), id="mock"),
    ],
)
def test_coroutine_functions_are_reconciles(function: object) -> None:
    assert reconcile_of(function) is function  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        pytest.param(None, "async def", id="nothing"),
        pytest.param(Callee, "async def", id="class"),
        pytest.param(with_more, r"reconcile\(request, ctx\)", id="three"),
    ],
)
def test_invalid_reconcile_is_refused(function: object, text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        reconcile_of(function)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["Website", reconcile, PODS, None])
def test_with_object_without_a_type_is_refused(kind: Any) -> None:
    with pytest.raises(OptionsError, match=r"as in @with_object\(KubeObject\), not "):
        with_object(kind)


def test_with_object_above_a_method_is_refused() -> None:
    async def method(self: object, obj: KubeObject, ctx: Context) -> None: ...

    unbound: Any = method
    with pytest.raises(
        OptionsError, match=r"the bound one\) must be callable as recon"
    ):
        with_object(KubeObject)(unbound)
