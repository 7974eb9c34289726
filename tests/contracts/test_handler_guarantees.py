"""The guarantees for handlers with options, and for many handlers."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from informer_helpers import text_of
from informers import Event, cut_running_watch, plain, pods_of, settled

from aioinformer import Added, Deleted, KubeObject, Updated
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from aioinformer.errors import HandlerError


def label(server: APIServer, name: str, value: str) -> None:
    server.patch(PODS, name, {"metadata": {"labels": {"app": value}}})


class Follower:
    """A handler that keeps a copy by events, and raises on contradictions."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.held: dict[str, KubeObject] = {}
        self.versions: dict[str, list[int]] = {}
        self.resyncs = 0
        self.count = 0

    async def __call__(self, event: Event) -> None:
        self.count += 1
        match event:
            case Added(obj):
                assert obj.key not in self.held
                self._take(obj)
            case Updated(old, new, True):
                self.resyncs += 1
                assert self.held[new.key] == old == new
            case Updated(old, new):
                assert self.held[old.key] == old
                self._take(new)
            case Deleted(obj):
                assert self.held.pop(obj.key).uid == obj.uid

        await asyncio.sleep(self.seconds)

    def _take(self, obj: KubeObject) -> None:
        self.held[obj.key] = obj
        self.versions.setdefault(obj.uid, []).append(int(obj.resource_version))

    @property
    def is_in_order(self) -> bool:
        return all(it == sorted(set(it)) for it in self.versions.values())


async def churn(server: APIServer, steps: int, seed: int) -> None:
    """Create, update and delete pods."""
    chance = random.Random(seed)
    alive: set[str] = set()
    for step in range(steps):
        name = f"pod-{chance.randrange(12)}"
        if name not in alive:
            server.create(PODS, plain(name, app="web"))
            alive.add(name)
        elif chance.random() < 0.3:
            server.delete(PODS, name)
            alive.remove(name)
        else:
            label(server, name, chance.choice(["web", "db", f"other-{step}"]))

        if chance.random() < 0.2:
            await asyncio.sleep(chance.choice([0.01, 0.3, 2.0]))


# ---------------------------------------------------------------- G4


async def test_G4_slow_and_failing_handlers_do_not_delay_others(
    looptime: float,
) -> None:
    """One waits 10 s per event, one raises each time, and 98 are not delayed."""
    loop = asyncio.get_running_loop()
    failures: list[HandlerError] = []
    async with (
        APIServer() as server,
        pods_of(server, on_error=failures.append) as (_, informer),
    ):
        delays: list[list[float]] = [[] for _ in range(98)]
        created: dict[str, float] = {}
        waited: list[str] = []

        async def waits(obj: KubeObject) -> None:
            await asyncio.sleep(10)
            waited.append(obj.name)

        def raises(obj: KubeObject) -> None:
            raise ValueError(obj.name)

        slow = informer.add_event_handler(waits)
        failing = informer.add_event_handler(raises)

        def prompt(own: list[float]) -> None:
            informer.add_event_handler(
                lambda obj: own.append(loop.time() - created[obj.name])
            )

        for own in delays:
            prompt(own)

        for number in range(20):
            created[f"pod-{number}"] = loop.time()
            server.create(PODS, plain(f"pod-{number}"))
            await asyncio.sleep(0.5)

        await informer.wait_for_version(server.resource_version, timeout=60)

        assert [len(own) for own in delays] == [20] * 98
        assert max(max(own) for own in delays) < 0.1
        assert len(failures) == 20
        assert failing.depth == 0
        assert len(waited) == 1
        assert slow.depth == 19
        assert slow.age > 8
        await asyncio.sleep(200)
        assert len(waited) == 20


async def test_G4_hundreds_of_handlers_are_added_and_removed_under_load() -> None:
    failures: list[HandlerError] = []
    async with (
        APIServer() as server,
        pods_of(server, on_error=failures.append) as (_, informer),
    ):
        always = Follower()
        informer.add_event_handler(on_event=always)
        guests: list[Follower] = []
        chance = random.Random(7)

        async def visit() -> None:
            for _ in range(5):
                await asyncio.sleep(chance.random())
                guest = Follower(chance.choice([0, 0, 0.05]))
                guests.append(guest)
                registration = informer.add_event_handler(
                    on_event=guest, coalesce=chance.random() < 0.5
                )
                await asyncio.sleep(chance.random())
                await registration.aclose()

        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(visit())

            group.create_task(churn(server, 1000, seed=1))

        await settled(server, informer)
        assert failures == []
        assert len(guests) == 500
        assert len(informer._processor.listeners) == 1
        assert always.held == {obj.key: obj for obj in informer.store.list()}
        assert all(it.is_in_order for it in (always, *guests))


# ---------------------------------------------------------------- G1, G5, G6


@pytest.mark.parametrize("seconds", [0.0, 0.2, 3.0])
@pytest.mark.parametrize("coalesce", [False, True], ids=["each", "coalesced"])
async def test_G1_every_kind_of_handler_gets_the_last_state(
    seconds: float, coalesce: bool
) -> None:
    def is_web(obj: KubeObject) -> bool:
        return obj.labels["app"] == "web"

    failures: list[HandlerError] = []
    async with (
        APIServer() as server,
        pods_of(server, on_error=failures.append) as (_, informer),
    ):
        everything, some = Follower(seconds), Follower(seconds)
        resynced = Follower(seconds)
        registrations = [
            informer.add_event_handler(on_event=everything, coalesce=coalesce),
            informer.add_event_handler(
                on_event=some, coalesce=coalesce, filter=is_web, resync_period=10
            ),
            informer.add_event_handler(
                on_event=resynced, coalesce=coalesce, resync_period=7
            ),
        ]
        await churn(server, 60, seed=2)
        await cut_running_watch(server, informer)
        await churn_some_more(server)
        await settled(server, informer)
        if seconds == 3.0:
            await asyncio.sleep(900)

        await asyncio.sleep(10)
        stored = {obj.key: obj for obj in informer.store.list()}
        assert failures == []
        assert everything.held == resynced.held == stored
        assert some.held == {k: obj for k, obj in stored.items() if is_web(obj)}
        assert all(it.is_in_order for it in (everything, some, resynced))
        assert resynced.resyncs > 0
        assert everything.resyncs == 0
        assert registrations[0].depth == 0


async def churn_some_more(server: APIServer) -> None:
    for number in range(12, 20):
        server.create(PODS, plain(f"pod-{number}", app="web"))
        label(server, f"pod-{number}", "db")
        await asyncio.sleep(0.01)


async def test_G1_coalescing_handler_may_skip_updates_but_no_deletion() -> None:
    async with APIServer() as server, pods_of(server) as (_, informer):
        received: list[str] = []

        async def slow(event: Event) -> None:
            received.append(text_of(event))
            await asyncio.sleep(5)

        informer.add_event_handler(on_event=slow, coalesce=True)
        server.create(PODS, plain("first"))
        server.create(PODS, plain("second"))
        await settled(server, informer)  # busy with the first event
        for number in range(30):
            label(server, "first", f"value-{number}")
            label(server, "second", f"value-{number}")

        server.delete(PODS, "first")
        server.create(PODS, plain("passing"))
        server.delete(PODS, "passing")
        await settled(server, informer)
        await asyncio.sleep(60)

        assert received == ["added first", "added second", "deleted first"]


async def test_G5_late_filtered_handler_misses_nothing() -> None:
    async with APIServer() as server:
        for number in range(50):
            server.create(
                PODS, plain(f"pod-{number}", app="web" if number % 2 else "db")
            )

        async with pods_of(server) as (_, informer):
            received: list[str] = []
            label(server, "pod-0", "web")
            handler = informer.add_event_handler(
                on_event=lambda event: received.append(text_of(event)),
                filter=lambda obj: obj.labels["app"] == "web",
            )
            label(server, "pod-1", "db")
            label(server, "pod-2", "web")
            await handler.wait_synced()
            await settled(server, informer)

            assert len(received) == len(set(received)) == 25 + 3
            assert set(received[25:]) == {"added pod-0", "deleted pod-1", "added pod-2"}


async def test_G6_deletion_while_disconnected_passes_the_filter() -> None:
    async with APIServer() as server:
        server.create(PODS, plain("web", app="web"))
        server.create(PODS, plain("db", app="db"))
        async with pods_of(server) as (_, informer):
            received: list[str] = []
            informer.add_event_handler(
                on_event=lambda event: received.append(text_of(event)),
                filter=lambda obj: obj.labels["app"] == "web",
            )
            await server.stop()
            server.delete(PODS, "web")
            server.delete(PODS, "db")
            server.compact()
            await server.start()
            await settled(server, informer)

            assert received == ["initial web", "missed web"]


# ---------------------------------------------------------------- G12


async def test_G12_failing_filter_accepts_and_is_reported() -> None:
    failures: list[HandlerError] = []
    async with (
        APIServer() as server,
        pods_of(server, on_error=failures.append) as (_, informer),
    ):
        received: list[str] = []
        informer.add_event_handler(
            on_event=lambda event: received.append(text_of(event)),
            filter=lambda obj: obj.labels["app"] == "web",
            name="picky",
        )
        server.create(PODS, plain("unlabelled"))
        server.create(PODS, plain("web", app="web"))
        server.create(PODS, plain("db", app="db"))
        await settled(server, informer)
        server.delete(PODS, "unlabelled")
        await settled(server, informer)

        assert received == ["added unlabelled", "added web", "deleted unlabelled"]
        (failure,) = failures
        assert (failure.where, failure.name) == ("filter", "pods/picky")
        assert isinstance(failure.__cause__, KeyError)


# ---------------------------------------------------------------- resyncs


async def test_resync_reaches_only_handlers_that_asked_for_it() -> None:
    async with APIServer() as server:
        for name in ("one", "two"):
            server.create(PODS, plain(name))

        async with pods_of(server) as (_, informer):
            quiet, resynced = list[str](), list[str]()
            informer.add_event_handler(
                on_event=lambda event: quiet.append(text_of(event))
            )
            informer.add_event_handler(
                on_event=lambda event: resynced.append(text_of(event)),
                resync_period=600,
            )
            await asyncio.sleep(1)
            quiet.clear()
            resynced.clear()
            await server.stop()
            label(server, "two", "changed")
            server.create(PODS, plain("three"))
            server.compact()
            await server.start()
            await settled(server, informer)

            assert quiet == resynced == ["added three", "updated two"]
            await asyncio.sleep(600)
            assert quiet == ["added three", "updated two"]
            assert sorted(resynced[2:]) == [
                "updated one",
                "updated three",
                "updated two",
            ]
