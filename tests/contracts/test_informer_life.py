"""G7 to G12: life, failure and end of informers, each guarantee over real HTTP.

tests/informer/listwatch/test_reflector.py has G7's exact times, with a scripted server.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from aioinformer import (
    InformerStopped,
    NotSynced,
    SharedInformerFactory,
)
from aioinformer.errors import (
    Forbidden,
    HandlerError,
    InternalError,
    Invalid,
    NotFound,
    Unauthorized,
)
from aioinformer.model.resource import Resource
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Cut, Gone, Refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer import KubeObject, SharedInformer

from factory_helpers import Bug, break_requests
from informers import cut_running_watch, plain, pods_of, settled


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param([Refuse(verb="watch", status=500, times=3)], id="500"),
        pytest.param([Refuse(verb="watch", status=401, times=2)], id="401"),
        pytest.param([Refuse(verb="watch", status=403, times=2)], id="403"),
        pytest.param([Refuse(verb="watch", status=429, retry_after=7)], id="429"),
        pytest.param([Refuse(status=404, times=3)], id="404"),
        pytest.param([Gone(), Gone(after_events=1)], id="410"),
        pytest.param([Cut(after_bytes=0, head=False)], id="no-answer"),
        pytest.param([Cut(after_bytes=33), Cut(after_bytes=1000)], id="cut"),
        pytest.param(
            [Gone(), Cut(verb="list", after_bytes=3000)], id="cut-in-the-list"
        ),
    ],
)
async def test_G7_informer_watches_again_after_any_end_of_a_watch(
    trouble: list[Any],
) -> None:
    async with APIServer() as server:
        for number in range(20):
            server.create(PODS, plain(f"pod-{number}"))

        async with pods_of(server) as (_, informer):
            server.faults.add(*trouble)
            await cut_running_watch(server, informer)
            for number in range(20):
                server.patch(
                    PODS, f"pod-{number}", {"metadata": {"labels": {"n": "1"}}}
                )
                await asyncio.sleep(0.5)

            await settled(server, informer)
            assert len(server.faults) == 0
            versions = {o.name: o.resource_version for o in informer.store.list()}
            assert versions == {
                body["metadata"]["name"]: body["metadata"]["resourceVersion"]
                for body in server.objects(PODS)
            }


async def test_G8_reads_and_waits_raise_before_sync_and_after_the_end() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        factory = SharedInformerFactory(server.client())
        informer = factory.informer("v1", "pods")
        with pytest.raises(NotSynced, match="idle"):
            informer.lister.list()

        assert informer.status.phase == "idle"
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            assert [obj.name for obj in informer.lister.list()] == ["web"]
            assert informer.status.synced

        assert informer.status.phase == "stopped"
        with pytest.raises(InformerStopped):
            informer.lister.get("default/web")

        with pytest.raises(InformerStopped):
            await informer.wait_for_version("999999", timeout=1)

        assert informer.lister.get("default/web", allow_unsynced=True) is not None
        assert informer.store.get_by_key("default/web") is not None


async def test_G8_informer_that_dies_of_a_bug_reports_it_and_others_continue() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        client = server.client()
        factory = SharedInformerFactory(client)
        dying = factory.informer("v1", "pods")
        living = factory.informer("v1", "configmaps")
        break_requests(client, "pods", after=1.0, watches_only=True)
        await factory.start()
        await factory.wait_for_cache_sync(timeout=30)
        assert factory.not_ready() == {}

        error = await factory.failed()
        assert isinstance(error, Bug)
        assert factory.not_ready() == {"pods": "stopped: Bug('pods')"}
        assert (dying.status.phase, dying.status.last_error) == ("stopped", error)
        assert living.lister.list() == []
        with pytest.raises(InformerStopped):
            dying.lister.list()

        with pytest.raises(InformerStopped) as caught:
            await dying.wait_synced(timeout=30)

        assert caught.value.__cause__ is error
        with pytest.raises(Bug):
            await factory.shutdown()


async def test_G8_informer_with_a_cancelled_task_is_dead_while_its_handlers_drain() -> (
    None
):
    loop = asyncio.get_running_loop()
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        factory = SharedInformerFactory(server.client())
        dying = factory.informer("v1", "pods")
        dying.add_event_handler(on_event=lambda event: asyncio.sleep(4))
        await factory.start()
        await factory.wait_for_cache_sync(timeout=30)

        (task,) = [it for it in asyncio.all_tasks() if it.get_name() == "informer pods"]
        task.cancel()
        began = loop.time()
        error = await factory.failed()

        assert loop.time() - began < 0.1
        assert isinstance(error, InternalError)
        assert not task.done()
        with pytest.raises(InformerStopped):
            dying.lister.list()

        with pytest.raises(InternalError):
            await factory.shutdown()


@pytest.mark.parametrize(
    "part",
    [
        "informer pods",
        "pods reflector",
        "pods pipeline",
        "pods processor",
        "handler pods/greet",
    ],
)
async def test_G8_informer_dies_when_one_of_its_tasks_is_cancelled(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web"))
        factory = SharedInformerFactory(server.client())
        dying = factory.informer("v1", "pods")
        dying.add_event_handler(on_event=lambda event: None, name="greet")
        living = factory.informer("v1", "configmaps")
        await factory.start()
        await factory.wait_for_cache_sync(timeout=30)

        (task,) = [it for it in asyncio.all_tasks() if it.get_name() == part]
        task.cancel()
        async with asyncio.timeout(30):
            error = await factory.failed()

        assert isinstance(error, InternalError)
        assert part in str(error)
        assert factory.not_ready() == {"pods": f"stopped: {error!r}"}
        assert dying.status.last_error is error
        assert living.lister.list() == []
        with pytest.raises(InformerStopped):
            dying.lister.list()

        assert "informer pods failed" in caplog.messages
        with pytest.raises(InternalError):
            await factory.shutdown()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Invalid), (401, Unauthorized), (403, Forbidden), (404, NotFound)],
)
async def test_G8_refused_first_list_fails_waits_and_is_retried(
    status: int, kind: type[Exception]
) -> None:
    async with APIServer() as server:
        # A client renews its credentials once per 401.
        server.faults.add(Refuse(verb="list", status=status, times=6))
        factory = SharedInformerFactory(server.client())
        informer = factory.informer("v1", "pods")
        async with factory:
            with pytest.raises(NotSynced) as caught:
                await factory.wait_for_cache_sync(timeout=600)

            assert str(status) in str(caught.value)
            assert isinstance(caught.value.__cause__, kind)
            assert isinstance(informer.status.last_error, kind)
            assert informer.status.not_served == (status == 404)

            # The informer has kept trying, and the failure is over.
            await informer.wait_synced(timeout=600, fail_fast=False)
            assert informer.status.last_error is None


async def test_G9_factory_exited_in_another_task_leaves_nothing() -> None:
    async with APIServer() as server:
        before = asyncio.all_tasks()
        factory = SharedInformerFactory(server.client())
        factory.informer("v1", "pods").on_add(lambda obj: None)
        factory.informer("v1", "configmaps")
        await asyncio.create_task(factory.start())
        await factory.wait_for_cache_sync(timeout=30)
        await asyncio.create_task(factory.shutdown())

        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() <= before
        loop: Any = asyncio.get_running_loop()
        ours = [timer for timer in loop._scheduled if "aioinformer" in repr(timer)]
        assert [timer for timer in ours if not timer.cancelled()] == []


async def test_G12_failing_handler_is_reported_once_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures: list[HandlerError] = []
    async with (
        APIServer() as server,
        pods_of(server, on_error=failures.append) as (_, informer),
    ):
        seen: list[str] = []

        @informer.on_add
        async def fails(obj: KubeObject) -> None:
            seen.append(obj.name)
            if obj.name == "bad":
                raise ValueError("cannot cope")

        other = watch_names(informer)
        for name in ("one", "bad", "two"):
            server.create(PODS, plain(name))
            await asyncio.sleep(0.1)

        await settled(server, informer)
        assert seen == other == ["one", "bad", "two"]
        assert [str(failure.__cause__) for failure in failures] == ["cannot cope"]
        errors = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert len(errors) == 1


def watch_names(informer: SharedInformer) -> list[str]:
    names: list[str] = []
    informer.add_event_handler(lambda obj: names.append(obj.name))
    return names


async def test_G12_object_is_stored_when_an_index_function_fails() -> None:
    def by_team(obj: KubeObject) -> list[str]:
        return [obj.labels["team"]]

    failures: list[HandlerError] = []
    async with APIServer() as server:
        server.create(PODS, plain("with", team="a"))
        server.create(PODS, plain("without"))
        factory = SharedInformerFactory(server.client(), on_error=failures.append)
        informer = factory.informer("v1", "pods", indexers={"team": by_team})
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)

            assert len(informer.lister.list()) == 2
            assert [o.name for o in informer.lister.by_index("team", "a")] == ["with"]
            assert [failure.where for failure in failures] == ["index function"]


async def test_G12_object_is_stored_untransformed_when_the_transform_fails() -> None:
    def strip(obj: KubeObject) -> KubeObject | None:
        return None if obj.labels["team"] == "unwanted" else obj

    failures: list[HandlerError] = []
    async with APIServer() as server:
        server.create(PODS, plain("with", team="a"))
        server.create(PODS, plain("unwanted", team="unwanted"))
        server.create(PODS, plain("without"))
        factory = SharedInformerFactory(server.client(), on_error=failures.append)
        informer = factory.informer("v1", "pods", transform=strip)
        names = watch_names(informer)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            server.create(PODS, plain("without-either"))
            await settled(server, informer)

            stored = sorted(obj.name for obj in informer.lister.list())
            degraded = informer.status.degraded

    assert stored == sorted(names) == ["with", "without", "without-either"]
    assert [failure.where for failure in failures] == ["transform"] * 2
    assert degraded == 2


@pytest.mark.parametrize("raises", [ValueError, asyncio.CancelledError])
async def test_G12_failing_on_error_callback_stops_nothing(
    raises: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """`on_error` and a watch error handler that raise: logged, and ignored."""

    def fails(_: object) -> None:
        raise raises("even this")

    async with APIServer() as server, pods_of(server, on_error=fails) as (_, informer):
        informer.set_watch_error_handler(fails)
        informer.add_event_handler(fails)
        names = watch_names(informer)
        server.faults.add(Refuse(verb="watch", status=500))
        await cut_running_watch(server, informer)
        server.create(PODS, plain("one"))
        await settled(server, informer)

    assert names == ["one"]
    received = {record.getMessage().rpartition(": ")[2] for record in caplog.records}
    assert {"on_error failed", "the watch error handler failed"} <= received


async def test_G12_base_exception_in_user_code_is_reported_like_any_other() -> None:
    """`pytest.fail()` in a handler raises one. It is reported, and nothing ends."""

    def fails(*_: object) -> NoReturn:
        pytest.fail("not as expected")

    failures: list[HandlerError] = []

    def fails_too(failure: HandlerError) -> None:
        failures.append(failure)
        fails()

    async with APIServer() as server:
        server.create(PODS, plain("one"))
        factory = SharedInformerFactory(server.client(), on_error=fails_too)
        informer = factory.informer(
            "v1", "pods", transform=fails, indexers={"team": fails}
        )
        informer.set_watch_error_handler(fails)
        informer.add_event_handler(on_event=fails)
        informer.add_event_handler(on_event=fails, thread=True)
        seen: list[str] = []
        informer.add_event_handler(lambda obj: seen.append(obj.name), filter=fails)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            await cut_running_watch(server, informer)
            server.create(PODS, plain("two"))
            await settled(server, informer)
            assert factory.not_ready() == {}

    assert seen == ["one", "two"]
    assert {it.where for it in failures} == {
        "transform",
        "index function",
        "handler",
        "filter",
    }
    assert {type(it.__cause__) for it in failures} == {pytest.fail.Exception}


class Broken(logging.Handler):
    """A log handler whose exception `logging` does not catch."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("the log is full")


@pytest.fixture
def broken_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, logger="aioinformer")
    logger, handler = logging.getLogger("aioinformer"), Broken()
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.mark.usefixtures("broken_log")
async def test_G12_raising_log_handler_stops_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(_: object) -> NoReturn:
        raise ValueError

    async with APIServer() as server:
        client = server.client()
        factory = SharedInformerFactory(client)
        pods = factory.informer("v1", "pods", transform=fails)
        names = watch_names(pods)
        pods.add_event_handler(on_event=fails)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            await cut_running_watch(server, pods)
            server.create(PODS, plain("one"))
            await settled(server, pods)
            assert factory.not_ready() == {}

    assert names == ["one"]
    assert "RuntimeError: the log is full" in capsys.readouterr().err


@pytest.mark.usefixtures("broken_log")
async def test_G8_death_is_reported_although_a_log_handler_raises() -> None:
    async with APIServer() as server:
        factory = SharedInformerFactory(server.client())
        pods = factory.informer("v1", "pods")
        await factory.start()
        await factory.wait_for_cache_sync(timeout=30)
        tasks = asyncio.all_tasks()
        (task,) = [it for it in tasks if it.get_name() == "pods reflector"]
        task.cancel()
        async with asyncio.timeout(30):
            error = await factory.failed()

        assert isinstance(error, InternalError)
        assert pods.status.phase == "stopped"
        with pytest.raises(InternalError):
            await factory.shutdown()


async def test_G12_wait_until_raises_the_error_of_its_predicate() -> None:
    def is_ready(obj: KubeObject | None) -> bool:
        assert obj is not None
        return bool(obj.labels["ready"])

    async with APIServer() as server, pods_of(server) as (_, informer):
        server.create(PODS, plain("one"))
        await settled(server, informer)
        with pytest.raises(KeyError, match="ready"):
            await informer.wait_until(is_ready, key="default/one", timeout=30)

        server.create(PODS, plain("two", ready="yes"))
        await informer.wait_until(lambda store: len(store) == 2, timeout=30)
        await informer.wait_until(is_ready, key="default/two", timeout=30)


async def test_custom_resources_are_listed_and_watched_like_built_in_ones() -> None:
    widgets = Resource("example.com", "v1", "widgets", "Widget")
    async with APIServer(resources=[widgets]) as server:
        server.create(widgets, {"metadata": {"name": "one"}, "spec": {"size": 1}})
        factory = SharedInformerFactory(server.client())
        informer = factory.informer(widgets)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            server.create(widgets, {"metadata": {"name": "two"}, "spec": {"size": 2}})
            await informer.wait_for_version(server.resource_version, timeout=30)

            sizes = {o.name: o.at("spec.size") for o in informer.lister.list()}
            assert sizes == {"one": 1, "two": 2}
            assert {o.kind for o in informer.lister.list()} == {"Widget"}


async def test_server_whose_versions_went_backwards_is_trusted() -> None:
    """After a restore from a backup, the watch is silent although there are changes."""
    async with APIServer() as first:
        port = int(first.url.rpartition(":")[2])
        for number in range(50):
            first.create(PODS, plain(f"old-{number}"))

        async with pods_of(first) as (_, informer):
            received = watch_names(informer)
            await first.stop()
            async with APIServer(port=port) as second:
                second.create(PODS, plain("new"))
                async with asyncio.timeout(600):
                    while informer.status.history_resets == 0:
                        await asyncio.sleep(1)

                # Its version is no proof: the old one is higher until the list has
                # arrived.
                async with asyncio.timeout(60):
                    while [obj.name for obj in informer.lister.list()] != ["new"]:
                        await asyncio.sleep(0.1)

            assert received[-1] == "new"
