"""Reconcile storms: which keys a controller slows down, and which it does not."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import informed, informer_of, named, owned
from informer_helpers import running
from metrics_helpers import PlainSink

from aioinformer import (
    Client,
    Controller,
    KubeObject,
    NotFound,
    ReconcileRequest,
    Resource,
    Result,
)
from aioinformer.controller.storm_breaker import StormBreaker
from aioinformer.informer.notifications import Notification, Updated
from aioinformer.model import transform_dict
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioinformer.controller import Context

    Mind = Callable[[KubeObject, Context], Awaitable[Result | None]]

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
GAUGE = "aioinformer_reconcile_storms"
CHILDREN = 20
COUNT = "aioinformer_reconcile_storms_total"


class World:
    """A server, a client, and controllers of config maps whose reconciles are counted.

    Each reconcile takes 20 ms, as over a network.
    """

    def __init__(self, server: APIServer, client: Client, **options: Any) -> None:
        self.server = server
        self.client = client
        self.maps = informer_of(server.list_watch(CONFIG_MAPS), "maps", **options)
        self.pods = informer_of(server.list_watch(PODS), "pods")
        self.sink = PlainSink()
        self.times: dict[str, list[float]] = {}

    def controller(self, mind: Mind, name: str = "maps", **options: Any) -> Controller:
        times = self.times[name] = []

        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
            times.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.02)
            obj = ctx.lister.get(request.key)
            return None if obj is None else await mind(obj, ctx)

        return Controller(
            name,
            reconcile,
            for_=self.maps,
            client=self.client,
            metrics=self.sink,
            **options,
        )

    async def create(self, name: str) -> None:
        await self.client.create(CONFIG_MAPS, {**named(name), **patched(made="yes")})

    def rate(self, since: float, until: float, name: str = "maps") -> float:
        """Return the reconciles per second of a controller."""
        return sum(since <= it < until for it in self.times[name]) / (until - since)

    @property
    def storms(self) -> int:
        return sum(
            count for (name, _), count in self.sink.counts.items() if name == COUNT
        )

    async def annotate(self, ctx: Context, pod: str, step: str) -> None:
        annotations = {"metadata": {"annotations": {"step": step}}}
        await ctx.client.patch(PODS, pod, annotations, namespace="default")

    def report_steps(self, group: asyncio.TaskGroup, delay: float) -> None:
        """Report the step of each annotated pod in its status, some seconds later."""

        async def report(pod: KubeObject) -> None:
            await asyncio.sleep(delay)
            status = {"status": {"message": pod.annotations["step"]}}
            await self.client.patch_status(PODS, pod.name, status, namespace="default")

        @self.pods.on_update
        def changed(old: KubeObject, new: KubeObject) -> None:
            if old.annotations != new.annotations:
                group.create_task(report(new))

    async def patch(self, **data: str) -> None:
        """Change the config map `a` as another client."""
        await self.client.patch(
            CONFIG_MAPS, "a", patched(**data), namespace="default", field_manager="man"
        )


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    async with APIServer() as server, server.client() as client:
        here = World(server, client, **options)
        async with informed(here.maps, here.pods):
            yield here


def now() -> float:
    return asyncio.get_running_loop().time()


def patched(**data: str) -> dict[str, Any]:
    return {"data": data}


def child(name: str, owner: str) -> dict[str, Any]:
    """Make a pod that a config map owns."""
    container = {"name": "main", "image": "busybox"}
    body = owned(name, owner, "ConfigMap", controller=True)
    return {**body, "spec": {"containers": [container]}}


async def write(
    ctx: Context, obj: KubeObject, manager: str = "us", **data: str
) -> None:
    await ctx.client.patch(
        CONFIG_MAPS,
        obj.name,
        patched(**data),
        namespace=obj.namespace,
        field_manager=manager,
    )


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it for it in caplog.messages if "reconcile storm" in it]


# ---------------------------------------------------------------- storms


async def test_key_triggered_by_its_own_writes_is_slowed_down_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stamp(obj: KubeObject, ctx: Context) -> None:
        await write(ctx, obj, seen=str(now()))

    async with world() as here:
        await here.create("a")
        begin = now()
        controller = here.controller(stamp)
        async with running(controller.run()):
            await asyncio.sleep(10)
            assert here.storms == 1
            assert controller.status().storms == 1
            (line,) = warnings_of(caplog)
            await asyncio.sleep(15)

        assert here.rate(begin, begin + 3) > 20
        assert here.rate(begin + 10, begin + 25) <= 1.1

    assert line == (
        "controller maps: reconcile storm, slowed down to one reconcile a second "
        "(key=default/a): PATCH ConfigMap default/a (field manager us) changes "
        "data.seen, which triggers the next reconcile, which does so again. Write only "
        "what differs, or filter own changes by a predicate."
    )


async def test_two_controllers_that_write_one_field_are_both_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def wants(mode: str) -> Mind:
        async def reconcile(obj: KubeObject, ctx: Context) -> None:
            if obj.at("data.mode") != mode:
                await write(ctx, obj, mode, mode=mode)

        return reconcile

    async with world() as here:
        await here.create("a")
        one = here.controller(wants("red"), "one")
        two = here.controller(wants("blue"), "two")
        async with running(one.run()), running(two.run()):
            await asyncio.sleep(10)
            assert here.storms == 2
            begin = now()
            await asyncio.sleep(15)
            assert here.rate(begin, now(), "one") < 2.2
            assert here.rate(begin, now(), "two") < 2.2

    text = (
        "PATCH ConfigMap default/a (field manager {}) changes data.mode, and field "
        "manager {} changes it back each time. Let one of the two own the field."
    )
    one_line, two_line = sorted(warnings_of(caplog))
    assert one_line.endswith(text.format("red", "blue"))
    assert two_line.endswith(text.format("blue", "red"))


async def test_fight_with_another_program_over_a_child_is_a_storm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def deletes() -> None:
        while True:
            await asyncio.sleep(0.1)
            with suppress(NotFound):
                await here.client.delete(
                    PODS, "child", namespace="default", grace_seconds=0
                )

    async def creates(obj: KubeObject, ctx: Context) -> None:
        if here.pods.lister.get("default/child") is None:
            await ctx.client.create(PODS, child("child", obj.name))

    async with world() as here:
        await here.create("a")
        controller = here.controller(creates, owns=[here.pods])
        async with running(controller.run()), running(deletes()):
            await asyncio.sleep(10)

    (line,) = warnings_of(caplog)
    assert "POST Pod default/child creates it, and another client deletes it" in line


async def test_own_loop_of_deletions_and_creations_is_a_storm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def recreate(obj: KubeObject, ctx: Context) -> None:
        if here.pods.lister.get("default/child") is None:
            await ctx.client.create(PODS, child("child", obj.name))
        else:
            await ctx.client.delete(PODS, "child", namespace="default", grace_seconds=0)

    async with world() as here:
        await here.create("a")
        async with running(here.controller(recreate, owns=[here.pods]).run()):
            await asyncio.sleep(10)

    (line,) = warnings_of(caplog)
    assert "Pod default/child" in line
    assert "which triggers the next reconcile" in line


async def test_failing_reconcile_that_writes_each_failure_is_a_storm() -> None:
    async def fail(obj: KubeObject, ctx: Context) -> None:
        await write(ctx, obj, error=f"failed at {now()}")
        raise OSError("no route")

    async with world() as here:
        await here.create("a")
        async with running(here.controller(fail).run()):
            await asyncio.sleep(10)

        assert here.storms == 1


async def test_storm_that_writes_many_children_is_named() -> None:
    async def stamp(obj: KubeObject, ctx: Context) -> None:
        await asyncio.sleep(0.2)
        for pod in here.pods.lister.list():
            await ctx.client.patch(
                PODS,
                pod.name,
                {"metadata": {"annotations": {"seen": str(now())}}},
                namespace="default",
            )

    async with world() as here:
        await here.create("a")
        for number in range(CHILDREN):
            await here.client.create(PODS, child(f"pod-{number}", "a"))

        async with running(here.controller(stamp, owns=[here.pods]).run()):
            await asyncio.sleep(10)

        assert here.storms == 1


async def test_storm_that_takes_no_virtual_time_does_not_stop_the_clock() -> None:
    rounds = 0

    async def count(request: ReconcileRequest, ctx: Context) -> None:
        nonlocal rounds
        rounds += 1
        await ctx.client.patch(
            CONFIG_MAPS, "a", patched(rounds=str(rounds)), namespace="default"
        )

    async with world() as here:
        await here.create("a")
        controller = Controller("maps", count, for_=here.maps, client=here.client)
        async with running(controller.run()):
            await asyncio.sleep(10)
            assert controller.status().storms == 1

    assert rounds < 1100


@pytest.mark.parametrize("reaction", [0.03, 0.1])
async def test_loop_to_which_others_react_is_a_storm(reaction: float) -> None:
    """Another controller reports each write to a child in the status of the child."""

    async def stamp(obj: KubeObject, ctx: Context) -> None:
        await here.annotate(ctx, "child", str(now()))

    async with world() as here, asyncio.TaskGroup() as group:
        await here.create("a")
        await here.client.create(PODS, child("child", "a"))

        here.report_steps(group, reaction)
        async with running(here.controller(stamp, owns=[here.pods]).run()):
            await asyncio.sleep(10)

        assert here.storms == 1


# ---------------------------------------------------------------- the end of a storm


async def test_storm_that_ends_is_logged_and_no_longer_slowed_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    repaired = False

    async def stamp(obj: KubeObject, ctx: Context) -> None:
        if not repaired:
            await write(ctx, obj, seen=str(now()))

    async with world() as here:
        await here.create("a")
        async with running(here.controller(stamp).run()):
            await asyncio.sleep(20)
            repaired = True
            assert here.sink.gauges[GAUGE, ("maps",)] == 1
            await asyncio.sleep(40)
            assert here.sink.gauges[GAUGE, ("maps",)] == 0
            repaired = False
            await here.patch(again="1")
            await asyncio.sleep(10)

        assert here.storms == 2

    lines = warnings_of(caplog)
    assert lines[1] == "controller maps: reconcile storm has ended (key=default/a)"
    assert len(lines) == 3


async def test_end_of_storm_does_not_depend_on_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(obj: KubeObject, ctx: Context) -> None: ...

    async with world() as here:
        due = math.nextafter(now(), math.inf)  # sooner than the clock can show
        breaker = StormBreaker()
        monkeypatch.setattr(
            breaker, "proceed", lambda _, at: None if at >= due else due - at
        )
        workers = here.controller(nothing)._workers
        async with asyncio.timeout(1):
            await workers._end_storm(breaker, ReconcileRequest("default", "a"))


async def test_storm_that_lasts_is_logged_once_and_tried_less_and_less() -> None:
    async def stamp(obj: KubeObject, ctx: Context) -> None:
        await write(ctx, obj, seen=str(now()))

    async with world() as here:
        await here.create("a")
        begin = now()
        async with running(here.controller(stamp).run()):
            await asyncio.sleep(600)

        assert here.storms == 1
        # Trials after 30, 60, 120 and 240 s, of a few reconciles each.
        assert here.rate(begin + 10, begin + 600) < 1.1


async def test_changes_during_a_storm_are_delayed_but_not_dropped() -> None:
    seen: dict[str, float] = {}

    async def stamp(obj: KubeObject, ctx: Context) -> None:
        seen.setdefault(obj.at("data.wish", ""), now())
        await write(ctx, obj, seen=str(now()))

    async with world() as here:
        await here.create("a")
        async with running(here.controller(stamp).run()):
            await asyncio.sleep(10)
            for number in range(5):
                begin = now()
                await here.patch(wish=str(number))
                await asyncio.sleep(1.7)
                assert 0 < seen[str(number)] - begin < 1.1


async def test_other_keys_are_not_slowed_down() -> None:
    async def stamp(obj: KubeObject, ctx: Context) -> None:
        if obj.name == "a":
            await write(ctx, obj, seen=str(now()))

    async with world() as here:
        await here.create("a")
        await here.create("b")
        controller = here.controller(stamp, concurrency=1)
        async with running(controller.run()):
            await asyncio.sleep(10)
            assert here.storms == 1
            before = len(here.times["maps"])
            controller.queue.add(ReconcileRequest("default", "b"))
            await asyncio.sleep(0.1)
            assert len(here.times["maps"]) - before in {1, 2}


@transform_dict
def only_data(body: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": body["metadata"], "data": body.get("data")}


@pytest.mark.parametrize("options", [{}, {"transform": only_data}])
async def test_event_names_the_storm(options: Any) -> None:
    async def stamp(obj: KubeObject, ctx: Context) -> None:
        await write(ctx, obj, seen=str(now()))

    async with world(**options) as here:
        await here.create("a")
        async with running(here.controller(stamp).run()):
            await asyncio.sleep(12)

        (event,) = here.server.objects(EVENTS)
        assert event["reason"] == "ReconcileStorm"
        regarding = event["regarding"]
        assert (regarding["kind"], regarding["name"]) == ("ConfigMap", "a")
        assert "changes data.seen" in event["note"]


async def test_controller_stops_at_once_in_a_storm() -> None:
    async def stamp(obj: KubeObject, ctx: Context) -> None:
        await write(ctx, obj, seen=str(now()))

    async with world() as here:
        await here.create("a")
        async with running(here.controller(stamp).run()):
            await asyncio.sleep(10.5)
            begin = now()

        assert now() - begin < 0.1


async def test_breaker_can_be_switched_off() -> None:
    async def stamp(obj: KubeObject, ctx: Context) -> None:
        await write(ctx, obj, seen=str(now()))

    async with world() as here:
        await here.create("a")
        begin = now()
        async with running(here.controller(stamp, storm_breaker=False).run()):
            await asyncio.sleep(12)

        assert here.storms == 0
        assert here.rate(begin, begin + 12) > 20


# ---------------------------------------------------------------- no storms


async def test_start_of_200_children_is_no_storm() -> None:
    """One child is created in each reconcile; each child is then changed 5 times."""

    async def create(obj: KubeObject, ctx: Context) -> None:
        pods = here.pods.lister.list()
        ready = sum(it.at("status.phase") == "Running" for it in pods)
        await write(ctx, obj, pods=str(len(pods)), ready=str(ready))
        if len(pods) < 200:
            await ctx.client.create(PODS, child(f"pod-{len(pods)}", obj.name))

    async def start() -> None:
        done = dict.fromkeys((f"pod-{number}" for number in range(200)), 0)
        while done:
            await asyncio.sleep(0.01)
            for pod in here.pods.lister.list()[:50]:
                step = done.get(pod.name, 5)
                if step < 5:
                    done[pod.name] += 1
                    phase = "Running" if step == 4 else "Pending"
                    await here.client.patch_status(
                        PODS,
                        pod.name,
                        {"status": {"phase": phase, "message": str(step)}},
                        namespace="default",
                    )
                    if step == 4:
                        del done[pod.name]
                    await asyncio.sleep(0.005)

    async with world() as here:
        await here.create("a")
        controller = here.controller(create, owns=[here.pods])
        async with running(controller.run()), running(start()):
            await asyncio.sleep(30)

        assert len(here.pods.lister.list()) == 200
        assert here.storms == 0


async def test_rollout_is_no_storm() -> None:
    """Each reconcile updates one of 100 children and counts them, for 8 s."""

    async def roll(obj: KubeObject, ctx: Context) -> None:
        await asyncio.sleep(0.06)
        pods = here.pods.lister.list()
        old = [it for it in pods if it.annotations.get("version") != "2"]
        await write(ctx, obj, left=str(len(old)))
        if old:
            await ctx.client.patch(
                PODS,
                old[0].name,
                {"metadata": {"annotations": {"version": "2"}}},
                namespace="default",
            )

    async with world() as here:
        await here.create("a")
        for number in range(100):
            await here.client.create(PODS, child(f"pod-{number}", "a"))

        begin = now()
        async with running(here.controller(roll, owns=[here.pods]).run()):
            await asyncio.sleep(20)

        assert here.times["maps"][-1] - begin > 7
        assert here.storms == 0


@pytest.mark.parametrize("pause", [1, 30])
async def test_second_rollout_is_no_storm(pause: float) -> None:
    """Each reconcile updates one of 100 children; then the version changes again."""

    async def roll(obj: KubeObject, ctx: Context) -> None:
        version = obj.at("data.version", "1")
        pods = here.pods.lister.list()
        old = [it for it in pods if it.annotations.get("version") != version]
        if old:
            left = {"metadata": {"annotations": {"left": str(len(old))}}}
            await ctx.client.patch(CONFIG_MAPS, "a", left, namespace="default")
            await ctx.client.patch(
                PODS,
                old[0].name,
                {"metadata": {"annotations": {"version": version}}},
                namespace="default",
            )

    async with world() as here:
        await here.create("a")
        for number in range(100):
            await here.client.create(PODS, child(f"pod-{number}", "a"))

        async with running(here.controller(roll, owns=[here.pods]).run()):
            await asyncio.sleep(10)
            await here.patch(version="2")
            await asyncio.sleep(pause)
            await here.patch(version="3")
            await asyncio.sleep(20)

        assert here.storms == 0
        assert {it.annotations["version"] for it in here.pods.lister.list()} == {"3"}


@pytest.mark.parametrize("reaction", [0.005, 0.03, 0.1])
async def test_steps_that_follow_reports_of_others_are_no_storm(
    reaction: float,
) -> None:
    """Another controller reports each step of a child, and the next step follows."""

    async def advance(obj: KubeObject, ctx: Context) -> None:
        pod = here.pods.lister.get("default/child")
        assert pod is not None
        step = pod.annotations.get("step", "0")
        if pod.at("status.message", "0") == step:
            await here.annotate(ctx, "child", str(int(step) + 1))

    async with world() as here, asyncio.TaskGroup() as group:
        await here.create("a")
        await here.client.create(PODS, child("child", "a"))

        here.report_steps(group, reaction)
        async with running(here.controller(advance, owns=[here.pods]).run()):
            await asyncio.sleep(20)

        assert here.storms == 0
        pod = here.pods.lister.get("default/child")
        assert pod is not None
        assert int(pod.annotations["step"]) > 100


@pytest.mark.parametrize("idempotent", [True, False])
async def test_object_that_others_change_often_is_no_storm(*, idempotent: bool) -> None:
    """Others change one field 50 times a second; the reconcile reports it in another."""

    async def report(obj: KubeObject, ctx: Context) -> None:
        wish = obj.at("data.wish", "")
        # A patch that changes nothing is answered with the version of another write.
        if idempotent or obj.at("data.seen") != wish:
            await write(ctx, obj, seen=wish[:2])

    async with world() as here:
        await here.create("a")
        async with running(here.controller(report).run()):
            for number in range(500):
                await here.patch(wish=str(number))
                await asyncio.sleep(0.02)

        assert len(here.times["maps"]) > 250
        assert here.storms == 0


async def test_requeue_after_a_tenth_of_a_second_is_no_storm() -> None:
    """The user asked for it; a predicate leaves out the reconcile's own writes."""

    async def poll(obj: KubeObject, ctx: Context) -> Result:
        await write(ctx, obj, polled=str(now()))
        return Result(requeue_after=0.1)

    def of_others(event: Notification) -> bool:
        return not isinstance(event, Updated)

    async with world() as here:
        await here.create("a")
        controller = here.controller(poll, predicates=[of_others])
        begin = now()
        async with running(controller.run()):
            await asyncio.sleep(20)

        assert here.storms == 0
        assert here.rate(begin, begin + 20) > 7


async def test_requeue_that_finds_new_states_outside_is_no_storm() -> None:
    """Each requeue reports an outside state; own writes trigger idle reconciles."""

    async def poll(obj: KubeObject, ctx: Context) -> Result:
        outside = str(int(now() * 5))
        if obj.at("data.outside") != outside:
            await write(ctx, obj, outside=outside)

        return Result(requeue_after=0.1)

    async with world() as here:
        await here.create("a")
        async with running(here.controller(poll).run()):
            await asyncio.sleep(30)

        assert here.storms == 0


async def test_source_outside_of_the_cluster_is_no_storm() -> None:
    async def changes() -> AsyncIterator[str]:
        while True:
            await asyncio.sleep(0.03)
            yield "default/a"

    async def report(obj: KubeObject, ctx: Context) -> None:
        outside = str(int(now() * 100))
        if obj.at("data.outside") != outside:
            await write(ctx, obj, outside=outside)

        await asyncio.sleep(0.05)

    async with world() as here:
        await here.create("a")
        controller = here.controller(report, sources={"outside": changes})
        async with running(controller.run()):
            await asyncio.sleep(20)

        assert len(here.times["maps"]) > 100
        assert here.storms == 0


async def test_retries_with_backoff_are_no_storm() -> None:
    async def fail(obj: KubeObject, ctx: Context) -> None:
        await write(ctx, obj, failed="yes")
        raise OSError("no route")

    async with world() as here:
        await here.create("a")
        async with running(here.controller(fail).run()):
            await asyncio.sleep(30)

        assert here.storms == 0
        assert here.rate(now() - 10, now()) < 1


async def test_phases_that_follow_each_other_are_no_storm() -> None:
    async def advance(obj: KubeObject, ctx: Context) -> None:
        phase = int(obj.at("data.phase", "0"))
        if phase < 12:
            await write(ctx, obj, phase=str(phase + 1))

    async with world() as here:
        await here.create("a")
        async with running(here.controller(advance).run()):
            await asyncio.sleep(20)

        assert here.storms == 0
