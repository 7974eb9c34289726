"""`StateHistory`: timelines, the bound of their bytes, and rates."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
import time_machine
from dashboard_helpers import followed, named
from informer_helpers import running

from aioinformer import SharedInformer, SharedInformerFactory
from aioinformer.informer.notifications import object_of
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.web.dashboard.states import (
    RECORD_BYTES,
    STATE_BYTES,
    Details,
    StateHistory,
)

if TYPE_CHECKING:
    from pathlib import Path

    from aioinformer import KubeObject
    from aioinformer.informer.notifications import Notification


def now() -> float:
    return asyncio.get_running_loop().time()


def labelled(name: str, label: str, **more: Any) -> dict[str, Any]:
    return named(name, metadata={"labels": {"x": label}}, **more)


# ---------------------------------------------------------------- timelines


async def test_timeline_has_every_state_of_a_name() -> None:
    async with followed() as one:
        source = one.source
        with time_machine.travel(1000, tick=False) as clock:
            source.add(labelled("a", "1"))
            await one.settled()
            clock.move_to(1001)
            source.modify(labelled("a", "2"))
            await one.settled()
            clock.move_to(1002)
            source.delete(named("a"))
            await one.settled()
            assert one.informer.indexer.get_by_key("shop/a") is None
            clock.move_to(1003)
            source.add(labelled("a", "3"))
            await one.settled()

        states = one.history.timeline(one.informer, "shop/a").states
        assert [(it.number, it.change, it.time) for it in states] == [
            (1, "added", 1000),
            (2, "updated", 1001),
            (3, "deleted", 1002),
            (4, "added", 1003),
        ]
        assert [it.obj.labels["x"] for it in states] == ["1", "2", "2", "3"]
        uids = [it.obj.uid for it in states]
        assert uids[0] == uids[2] != uids[3]


async def test_listed_object_has_its_current_state_only() -> None:
    async with followed(named("a"), named("b")) as one:
        assert one.changes("a") == ["1 listed"]
        assert one.changes("missing") == []
        assert (len(one.history), one.history.bytes) == (0, 0)


async def test_replaced_state_of_first_list_is_kept_without_time() -> None:
    async with followed(labelled("a", "1")) as one:
        one.source.modify(labelled("a", "2"))
        await one.settled()
        first, second = one.history.timeline(one.informer, "shop/a").states
        assert (first.change, first.time, first.obj.labels) == (
            "listed",
            None,
            {"x": "1"},
        )
        assert (second.change, second.obj.labels) == ("updated", {"x": "2"})
        assert second.time is not None


async def test_deleted_object_of_first_list_counts_its_listed_state() -> None:
    async with followed(named("a")) as one:
        one.source.delete(named("a"))
        await one.settled()
        assert one.changes("a") == ["...", "2 deleted"]


async def test_relist_tells_that_states_may_have_been_missed() -> None:
    async with followed(*(labelled(it, "1") for it in "abc")) as one:
        source = one.source
        source.modify(labelled("a", "2"))
        await one.settled()
        source.cut()
        source.modify(labelled("a", "3"))
        source.modify(labelled("a", "4"))
        source.delete(named("b"))
        source.add(labelled("d", "1"))
        source.delete(named("c"))
        source.add(labelled("c", "2"))
        source.gone()
        await one.settled()

        assert one.changes("a") == ["1 listed", "2 updated", "3 listed"]
        last = one.history.timeline(one.informer, "shop/a").states[-1]
        assert last.obj.labels == {"x": "4"}
        assert last.time is not None
        assert one.changes("b") == ["...", "2 deleted"]
        assert one.changes("c") == ["...", "2 deleted", "3 listed"]
        assert one.changes("d") == ["1 listed"]


async def test_changes_after_a_large_relist_stay_in_order() -> None:
    names = [f"pod-{number}" for number in range(2000)]
    async with followed(*(labelled(it, "1") for it in names)) as one:
        one.source.cut()
        for name in names:
            one.source.modify(labelled(name, "2"))

        one.source.gone()
        woken = asyncio.Event()
        one.history.watch(one.informer, "shop/pod-1999", woken.set)
        await one.informer.wait_until(
            lambda pod: pod is not None and pod.labels["x"] == "2", "shop/pod-0", 60
        )
        assert not woken.is_set()  # the changes are recorded in several turns
        for name in names:
            one.source.modify(labelled(name, "3"))

        await one.settled()
        assert woken.is_set()
        for name in names:
            states = one.history.timeline(one.informer, f"shop/{name}").states
            assert [it.obj.labels["x"] for it in states] == ["1", "2", "3"]


async def test_list_into_emptied_store_continues_the_timeline() -> None:
    async with followed(labelled("a", "1")) as one:
        source = one.source
        source.delete(named("a"))
        await one.settled()
        source.cut()
        source.add(labelled("a", "2"))
        source.gone()
        await one.settled()
        assert one.changes("a") == ["...", "2 deleted", "3 listed"]
        source.modify(labelled("a", "3"))
        await one.settled()
        assert one.changes("a") == ["...", "2 deleted", "3 listed", "4 updated"]


async def test_timeline_is_limited_to_the_last_states() -> None:
    async with followed(named("a")) as one:
        for number in range(5):
            one.source.modify(labelled("a", str(number)))

        await one.settled()
        timeline = one.history.timeline(one.informer, "shop/a", limit=2)
        assert [it.number for it in timeline.states] == [5, 6]
        assert (timeline.earlier, timeline.forgotten) == (4, 0)
        first = one.history.state(one.informer, "shop/a", 1)
        assert first is not None
        assert not first.labels
        current = one.history.state(one.informer, "shop/a", 6)
        assert current is one.informer.indexer.get_by_key("shop/a")
        assert one.history.state(one.informer, "shop/a", 7) is None


async def test_late_follower_begins_with_the_stored_objects() -> None:
    source = FakeListerWatcher(labelled("a", "1"))
    informer = SharedInformer(source)
    history = StateHistory()
    async with running(informer.run()):
        await informer.wait_synced(timeout=30)
        history.follow(informer)
        history.follow(informer)
        source.modify(labelled("a", "2"))
        await informer.wait_for_version(source.resource_version, timeout=30)
        changes = [it.change for it in history.timeline(informer, "shop/a").states]
        assert changes == ["listed", "updated"]
        history.close()
        assert informer._processor.observers == ()


async def test_states_of_a_store_on_disk_are_kept(tmp_path: Path) -> None:
    async with APIServer(auto_namespaces=True) as server:
        server.create(PODS, labelled("a", "1", spec={"containers": [CONTAINER]}))
        factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
        pods = factory.informer("v1", "pods")
        history = StateHistory()
        history.follow(pods)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            change = {"metadata": {"labels": {"x": "2"}}}
            server.patch(PODS, "a", change, namespace="shop")
            await pods.wait_for_version(server.resource_version, timeout=30)
            await asyncio.sleep(1)
            states = history.timeline(pods, "shop/a").states
            assert [it.change for it in states] == ["listed", "updated"]
            assert [it.obj.labels["x"] for it in states] == ["1", "2"]
            assert sum(history.rates(pods, now() + 10)) > 0
            history.close()


async def test_compressed_states_are_read() -> None:
    text = "text " * 1000
    async with followed(named("a", text=text), compression="zstd") as one:
        one.source.modify(named("a", text=text, n=1))
        await one.settled()
        states = one.history.timeline(one.informer, "shop/a").states
        assert [it.obj.get("n") for it in states] == [None, 1]
        assert all(it.obj["text"] == text for it in states)
        assert one.history.bytes < 3000


CONTAINER = {"name": "main", "image": "registry.example/app:1"}


# ---------------------------------------------------------------- the bound


class Model:
    """Kept states in a list, with the text of the state or None for no body."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.states: list[tuple[str, int, str | None, bool]] = []
        self.stored: dict[str, KubeObject] = {}

    def change(self, name: str, obj: KubeObject | None, final: KubeObject) -> None:
        """Add or replace an object, or delete it if it is None."""
        mine = [it for it in self.states if it[0] == name]
        number = mine[-1][1] if mine else 0
        old = self.stored.get(name)
        if old is not None and not (mine and mine[-1][2]):
            # Its last state is in the store only.
            place = self.states.index(mine[-1]) if mine else len(self.states)
            number = number or 1
            self.states[place : place + 1] = (
                [] if obj is None else [(name, number, old.raw.decode(), False)]
            )

        self.states.append((name, number + 1, final.raw.decode(), obj is None))
        self.stored.pop(name) if obj is None else self.stored.update({name: obj})
        while self.bytes > self.limit and self.states:
            first = self.states.pop(0)
            others = [it for it in self.states if it[0] == first[0]]
            if first[2] and not others and not first[3]:
                self.states.append((*first[:2], None, False))

    @property
    def bytes(self) -> int:
        names = {it[0] for it in self.states}
        bodies = sum(len(it[2] or "") for it in self.states)
        return len(names) * RECORD_BYTES + len(self.states) * STATE_BYTES + bodies

    def shown(self, name: str) -> tuple[int, list[tuple[int, str]]]:
        """Return the number of forgotten states, and the others."""
        mine = [it for it in self.states if it[0] == name]
        current = self.stored.get(name)
        body = "" if current is None else current.raw.decode()
        states = [(it[1], it[2] or body) for it in mine]
        if current is not None and not mine:
            states.append((1, body))

        return mine[0][1] - 1 if mine else 0, states


@pytest.mark.parametrize("seed", range(8))
async def test_random_histories_are_those_of_a_model(seed: int) -> None:
    rng = random.Random(seed)
    model = Model(rng.choice([3_000, 10_000, 20_000, 60_000]))
    async with followed(max_bytes=model.limit) as one:
        source, history, informer = one.source, one.history, one.informer
        events: list[Notification] = []
        informer.add_event_handler(on_event=events.append)
        for number in range(300):
            name = f"pod-{rng.randrange(6)}"
            body = labelled(name, str(number), text="x" * rng.randrange(3000))
            if name not in model.stored:
                source.add(body)
            elif rng.random() < 0.2:
                source.delete(body)
            else:
                source.modify(body)

            await one.settled()
            obj = informer.indexer.get_by_key(f"shop/{name}")
            model.change(name, obj, object_of(events[-1]))
            assert history.bytes == model.bytes <= model.limit
            assert len(history) == len(model.states)
            for each in range(6):
                timeline = history.timeline(informer, f"shop/pod-{each}")
                shown = [(it.number, it.obj.raw.decode()) for it in timeline.states]
                assert (timeline.forgotten, shown) == model.shown(f"pod-{each}")


async def test_oldest_states_of_all_objects_are_forgotten_first() -> None:
    text = "x" * 5000
    async with followed(max_bytes=31_000) as one:
        for name in ("a", "b", "a", "b", "c", "a"):
            labels = one.changes(name)
            body = named(name, text=text, n=len(labels))
            one.source.modify(body) if labels else one.source.add(body)
            await one.settled()

        # Five states fit. The first one of a is the oldest.
        assert one.changes("a") == ["...", "2 updated", "3 updated"]
        assert one.changes("b") == ["1 added", "2 updated"]
        assert one.changes("c") == ["1 added"]
        one.source.modify(named("c", text=text))
        await one.settled()
        assert one.changes("a") == ["...", "2 updated", "3 updated"]
        assert one.changes("b") == ["...", "2 updated"]
        assert one.changes("c") == ["1 added", "2 updated"]


async def test_current_state_keeps_its_time_and_count_without_a_body() -> None:
    async with followed(max_bytes=12_000) as one:
        one.source.add(named("a"))
        await one.settled()
        one.source.modify(named("a"))
        await one.settled()
        before = one.history.timeline(one.informer, "shop/a").states[-1]
        for number in range(4):
            one.source.add(named(f"other-{number}", text="x" * 3000))

        await one.settled()
        assert one.changes("a") == ["...", "2 updated"]
        after = one.history.timeline(one.informer, "shop/a").states[-1]
        assert (after.time, after.obj) == (before.time, before.obj)
        one.source.modify(named("a", n=1))
        await one.settled()
        assert one.changes("a") == ["...", "2 updated", "3 updated"]
        for number in range(4):
            one.source.modify(named(f"other-{number}", text="y" * 3000))

        await one.settled()
        one.source.delete(named("a"))
        await one.settled()
        assert one.changes("a") == ["..."] * 3 + ["4 deleted"]


async def test_millions_of_names_leave_nothing_behind() -> None:
    async with followed(max_bytes=20_000) as one:
        for number in range(500):
            one.source.add(named(f"pod-{number}"))
            await one.settled()
            one.source.delete(named(f"pod-{number}"))

        await one.settled()
        records = one.history._feeds[one.informer].records
        assert len(records) <= 20_000 / (RECORD_BYTES + STATE_BYTES)
        assert one.history.bytes <= 20_000


async def test_forgotten_informer_frees_its_states() -> None:
    async with followed(named("a")) as one, followed(named("a")) as two:
        history = one.history
        history.follow(two.informer)
        one.source.modify(named("a", n=1))
        await one.settled()
        before = history.bytes
        two.source.modify(named("a", n=1))
        await two.settled()
        assert (len(history), history.bytes) == (4, 2 * before)
        history.forget(two.informer)
        history.forget(two.informer)
        assert (len(history), history.bytes) == (2, before)
        assert history.timeline(two.informer, "shop/a").states[0].change == "listed"
        history.forget(one.informer)
        assert (len(history), history.bytes) == (0, 0)
        assert one.informer._processor.observers == ()


async def test_ended_informer_is_not_followed() -> None:
    informer = SharedInformer(FakeListerWatcher())
    informer.abandon()
    history = StateHistory()
    history.follow(informer)
    assert history.rates(informer, 0.0) == [0.0] * 60
    assert history.timeline(informer, "shop/a").states == []


async def test_details_are_kept_with_their_state() -> None:
    async with followed(named("a")) as one:
        history, informer = one.history, one.informer
        one.source.modify(named("a", n=1))
        await one.settled()
        first = history.timeline(informer, "shop/a").states[0]
        before = history.bytes
        history.keep_details(informer, "shop/a", first, Details(3, ["abc", "d"], 0))
        assert history.bytes == before + 4
        again = history.timeline(informer, "shop/a").states[0]
        assert again.details == Details(3, ["abc", "d"], 0)
        history.forget(informer)
        assert history.bytes == 0
        history.keep_details(informer, "shop/a", first, Details(3, [], 0))
        assert history.bytes == 0


# ---------------------------------------------------------------- rates and watchers


async def test_rates_count_changes_but_not_first_lists() -> None:
    async with followed(named("a"), named("b")) as one:
        history, informer = one.history, one.informer
        start = int(now()) // 5 * 5 + 5
        await asyncio.sleep(start + 0.5 - now())
        for number in range(10):
            one.source.modify(named("a", n=number))

        await asyncio.sleep(5)
        one.source.delete(named("b"))
        await asyncio.sleep(0.1)
        assert history.rates(informer, now()) == [0.0] * 59 + [2.0]
        assert history.per_second(informer, now()) == pytest.approx(11 / 5.6)
        await asyncio.sleep(start + 300.1 - now())
        assert history.rates(informer, now()) == [2.0, 0.2] + [0.0] * 58
        await asyncio.sleep(1000)
        assert history.rates(informer, now()) == [0.0] * 60
        one.source.modify(named("a"))
        await asyncio.sleep(5)
        assert history.rates(informer, now()) == [0.0] * 59 + [0.2]


async def test_watcher_is_called_for_its_key_until_removed() -> None:
    async with followed(named("a"), named("b")) as one:
        calls: list[int] = []
        remove = one.history.watch(one.informer, "shop/a", lambda: calls.append(1))
        other = one.history.watch(one.informer, "shop/a", lambda: calls.append(2))
        one.source.modify(named("a", n=1))
        one.source.modify(named("b", n=1))
        await one.settled()
        assert calls == [1, 2]
        remove()
        remove()
        one.source.delete(named("a"))
        await one.settled()
        assert calls == [1, 2, 2]
        other()
        assert one.history._feeds[one.informer].watchers == {}
