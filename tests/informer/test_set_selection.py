"""`SharedInformer.set_selection`: selections that change while an informer runs."""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import FakeSource
from informer_helpers import Even, running, text_of
from metrics_helpers import PlainSink
from sharding_source import ShardingServer

from aioinformer import Deleted, SharedInformer, SharedInformerFactory
from aioinformer.errors import (
    InformerStopped,
    InternalError,
    OptionsError,
    SelectorSyntaxError,
    ServerError,
)
from aioinformer.model.objects import KubeObject
from aioinformer.model.shards import ShardSelector, ranges_of
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.watch import Selectors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer.informer.notifications import Notification

FIRST, SECOND = (ShardSelector((it,)) for it in ranges_of(2))
ALL = ShardSelector(ranges_of(1))
NONE = ShardSelector(())
UNAVAILABLE = ServerError("try later", status=503)


def named(name: str, **labels: str) -> dict[str, Any]:
    """Make a pod whose uid follows from its name."""
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    return {"metadata": {"name": name, "uid": uid, "labels": labels}}


NAMES = [f"pod-{number}" for number in range(20)]
FIRSTS = sorted(it for it in NAMES if FIRST.selects(KubeObject.of(named(it))))
SECONDS = sorted(set(NAMES) - set(FIRSTS))


class Pods:
    """An informer of 20 pods, in the first half of all hashes unless told otherwise."""

    def __init__(
        self, selectors: Selectors, *, honours: bool = True, **options: Any
    ) -> None:
        self.fake = FakeListerWatcher(
            *(named(it, app="web" if it in NAMES[:5] else "db") for it in NAMES)
        )
        self.server = ShardingServer(self.fake, lambda: honours)
        self.events: list[str] = []
        self.reasons: set[tuple[str, bool]] = set()
        selected = self.server.source(selectors)
        self.informer = SharedInformer(selected, name="pods", rng=Even(), **options)
        self.informer.add_event_handler(on_event=self.note)

    def note(self, event: Notification) -> None:
        self.events.append(text_of(event))
        if isinstance(event, Deleted):
            self.reasons.add((event.reason, event.final_state_unknown))

    @property
    def stored(self) -> list[str]:
        return sorted(it.name for it in self.informer.store.list())

    async def change(self, **selection: Any) -> list[str]:
        """Change the selection, and return the events until the store follows."""
        await asyncio.sleep(0.01)
        self.events.clear()
        self.informer.set_selection(**selection)
        await self.informer.wait_selection(timeout=30)
        await asyncio.sleep(0.01)
        return list(self.events)


@asynccontextmanager
async def first_half(**options: Any) -> AsyncIterator[Pods]:
    """Run an informer of the first half, whose watch runs before the block starts."""
    pods = Pods(Selectors(shards=FIRST), **options)
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        await asyncio.sleep(1)
        yield pods


# ---------------------------------------------------------------- shards


async def test_informer_stores_only_objects_of_its_shards() -> None:
    async with first_half() as pods:
        assert pods.stored == FIRSTS

        for name in ("new-1", "new-2", "new-3", "new-4"):
            pods.fake.add(named(name))

        await asyncio.sleep(1)
        new = sorted(set(pods.stored) - set(FIRSTS))
        assert new
        assert all(FIRST.selects(KubeObject.of(named(it))) for it in new)


async def test_added_shards_are_listed_alone_and_reported_as_added() -> None:
    async with first_half() as pods:
        assert await pods.change(shards=ALL) == [f"added {it}" for it in SECONDS]

        assert pods.stored == sorted(NAMES)
        assert [selectors.shards for selectors, _ in pods.server.lists] == [
            FIRST,
            SECOND,
        ]
        assert [selectors.shards for selectors, _ in pods.server.watches] == [
            FIRST,
            ALL,
        ]


@pytest.mark.parametrize(
    ("selection", "counted"),
    [
        pytest.param({"shards": ALL}, "watch_restarts", id="widened"),
        pytest.param({"shards": NONE}, "watch_restarts", id="narrowed"),
        pytest.param({"label_selector": "app=db"}, "relists", id="labels"),
    ],
)
async def test_change_of_the_selection_is_counted_once(
    selection: dict[str, Any], counted: str
) -> None:
    sink = PlainSink()
    async with first_half(metrics=sink) as pods:
        before = sink.counts.copy()
        await pods.change(**selection)
        await asyncio.sleep(1)
        new = sink.counts - before

    again = {
        name: number
        for name, number in new.items()
        if "relists" in name[0] or "restarts" in name[0]
    }
    assert again == {
        (f"aioinformer_reflector_{counted}_total", ("pods", "Selection")): 1
    }
    assert new["reflector_watches_total", ("pods",)] == 1


async def test_removed_shards_leave_the_store_as_moved() -> None:
    async with first_half() as pods:
        assert sorted(await pods.change(shards=NONE)) == [
            f"deleted {it}" for it in FIRSTS
        ]

        assert pods.stored == []
        assert pods.reasons == {("moved", False)}
        assert len(pods.server.lists) == 1


async def test_staying_objects_give_no_events_when_others_come_and_leave() -> None:
    async with first_half() as pods:
        quarters = ranges_of(4)
        overlapping = ShardSelector((quarters[1], quarters[2]))

        events = await pods.change(shards=overlapping)

        staying = [it for it in FIRSTS if it in pods.stored]
        assert staying
        assert not {it.partition(" ")[2] for it in events} & set(staying)


async def test_removed_shards_that_return_are_added_again() -> None:
    async with first_half() as pods:
        await pods.change(shards=NONE)

        assert await pods.change(shards=FIRST) == [f"added {it}" for it in FIRSTS]


async def test_several_changes_within_a_moment_are_one() -> None:
    async with first_half() as pods:
        pods.informer.set_selection(shards=NONE)
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(0.05)

        events = await pods.change(shards=SECOND)

        assert len(events) == len(NAMES)
        assert [it.shards for it, _ in pods.server.lists] == [FIRST, SECOND]


async def test_change_that_is_taken_back_at_once_ends_no_watch() -> None:
    async with first_half() as pods:
        pods.informer.set_selection(shards=ALL)
        assert await pods.change(shards=FIRST) == []

        await asyncio.sleep(1)
        assert len(pods.server.watches) == 1


async def test_selection_changes_when_the_added_shards_are_in_the_store() -> None:
    async with first_half() as pods:
        pods.server.list_seconds = lambda: 5.0
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(4)
        assert pods.informer.selection == Selectors(shards=FIRST)
        assert pods.stored == FIRSTS

        await pods.informer.wait_selection(timeout=5)
        assert pods.informer.selection == Selectors(shards=ALL)
        assert pods.stored == sorted(NAMES)


async def test_watch_continues_while_added_shards_are_listed() -> None:
    async with first_half() as pods:
        pods.server.list_seconds = lambda: 60.0
        await asyncio.sleep(1)
        pods.events.clear()
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(10)

        pods.fake.modify(named(FIRSTS[0], changed="yes"))
        await asyncio.sleep(0.1)
        assert pods.events == [f"updated {FIRSTS[0]}"]
        assert pods.informer.status.age == pytest.approx(0.1, abs=0.01)


async def test_list_of_added_shards_is_repeated_until_it_succeeds() -> None:
    async with first_half() as pods:
        pods.fake.refuse(UNAVAILABLE, times=4)
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(1)
        assert pods.informer.status.last_error is UNAVAILABLE
        assert pods.informer.status.phase == "watching"

        await pods.informer.wait_selection(timeout=60)
        assert pods.stored == sorted(NAMES)
        assert pods.informer.status.last_error is None


async def test_change_is_given_up_if_its_list_fails_and_another_one_follows() -> None:
    async with first_half() as pods:
        pods.fake.refuse(UNAVAILABLE, times=4)
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(1)

        assert await pods.change(shards=FIRST) == []
        assert pods.informer.selection == Selectors(shards=FIRST)


async def test_needed_list_is_not_repeated_when_more_shards_follow() -> None:
    async with first_half() as pods:
        quarters = [ShardSelector((it,)) for it in ranges_of(4)]
        pods.server.list_seconds = lambda: 5.0
        pods.informer.set_selection(shards=ShardSelector(ranges_of(4)[:3]))
        await asyncio.sleep(4)
        pods.informer.set_selection(shards=ALL)

        await pods.informer.wait_selection(timeout=7)
        listed = [it.shards for it, _ in pods.server.lists]
        assert listed == [FIRST, quarters[2], quarters[3]]


async def test_list_continues_when_a_part_of_its_shards_is_not_wanted_any_more() -> (
    None
):
    async with first_half() as pods:
        three = ShardSelector(ranges_of(4)[:3])
        pods.server.list_seconds = lambda: 5.0
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(4)
        pods.informer.set_selection(shards=three)

        await pods.informer.wait_selection(timeout=2)
        assert [it.shards for it, _ in pods.server.lists] == [FIRST, SECOND]
        wanted = [it for it in NAMES if three.selects(KubeObject.of(named(it)))]
        assert pods.stored == sorted(wanted)


async def test_expired_version_during_a_change_leads_to_one_list_of_all() -> None:
    async with first_half() as pods:
        pods.server.list_seconds = lambda: 5.0
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(1)
        pods.events.clear()
        pods.fake.gone()

        await pods.informer.wait_selection(timeout=30)
        await asyncio.sleep(1)
        assert [it.shards for it, _ in pods.server.lists] == [FIRST, SECOND, ALL]
        assert pods.events == [f"added {it}" for it in SECONDS]


async def test_history_reset_found_by_the_list_leads_to_one_list_of_all() -> None:
    async with first_half() as pods:
        await asyncio.sleep(1)
        pods.server.fake = FakeListerWatcher(named("other-1"), named("other-2"))

        await pods.change(shards=ALL)

        assert pods.stored == ["other-1", "other-2"]
        # The first list of the added shards is refused: its version is too large.
        listed = [it.shards for it, _ in pods.server.lists]
        assert listed == [FIRST, SECOND, SECOND, ALL]
        assert pods.informer.status.history_resets == 1


async def test_list_of_added_shards_survives_errors_that_no_source_should_raise() -> (
    None
):
    async with first_half() as pods:
        errors = [OSError("the disk")] * 2

        def honours() -> bool:
            if errors:
                raise errors.pop()

            return True

        await asyncio.sleep(1)
        pods.server.honours = honours
        await pods.change(shards=ALL)

        assert pods.stored == sorted(NAMES)
        assert pods.informer.status.restarts == 2


async def test_bug_in_the_list_of_added_shards_ends_the_informer() -> None:
    def honours() -> bool:
        raise InternalError("a bug")

    pods = Pods(Selectors(shards=FIRST))
    run = asyncio.create_task(pods.informer.run())
    await pods.informer.wait_synced()
    await asyncio.sleep(1)
    pods.server.honours = honours
    pods.informer.set_selection(shards=ALL)

    with pytest.raises(InformerStopped):
        await pods.informer.wait_selection(timeout=5)

    with pytest.raises(InternalError, match="a bug"):
        await run


async def test_change_while_the_watch_is_opened_takes_effect_at_once() -> None:
    async with first_half() as pods:
        await asyncio.sleep(1)
        pods.server.watch_seconds = 10.0
        pods.fake.end()
        await asyncio.sleep(6)
        assert len(pods.server.watches) == 2

        pods.informer.set_selection(shards=NONE)
        await pods.informer.wait_selection(timeout=11)
        assert pods.stored == []


async def test_objects_of_removed_shards_are_moved_by_a_relist() -> None:
    async with first_half() as pods:
        pods.fake.refuse(UNAVAILABLE, times=3)
        pods.fake.gone()
        await asyncio.sleep(1.2)
        gone = FIRSTS[0]
        pods.fake.delete(named(gone))

        events = await pods.change(shards=SECOND)

        assert sorted(events) == sorted(
            [f"deleted {it}" for it in FIRSTS] + [f"added {it}" for it in SECONDS]
        )


async def test_changes_during_the_list_are_neither_lost_nor_repeated() -> None:
    async with first_half() as pods:
        pods.server.list_seconds = lambda: 1.0
        pods.events.clear()
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(0.5)
        pods.fake.modify(named(FIRSTS[0], changed="yes"))
        pods.fake.delete(named(FIRSTS[1]))
        pods.fake.modify(named(SECONDS[0], changed="yes"))
        pods.fake.delete(named(SECONDS[1]))
        await asyncio.sleep(0.1)
        assert pods.informer.selection == Selectors(shards=FIRST)

        await pods.informer.wait_selection(timeout=5)
        await pods.informer.wait_for_version(pods.fake.resource_version, timeout=5)
        await asyncio.sleep(0.01)
        assert pods.stored == sorted(set(NAMES) - {FIRSTS[1], SECONDS[1]})
        changed = [f"updated {FIRSTS[0]}", f"deleted {FIRSTS[1]}"]
        later = [f"updated {SECONDS[0]}", f"deleted {SECONDS[1]}"]
        assert pods.events == [*changed, *(f"added {it}" for it in SECONDS), *later]


async def test_write_of_another_shard_is_not_waited_for() -> None:
    async with first_half() as pods:
        foreign = KubeObject.of(pods.fake.modify(named(SECONDS[0])))
        own = KubeObject.of(pods.fake.modify(named(FIRSTS[0])))

        assert not pods.informer.selects(foreign)
        assert pods.informer.selects(own)
        await pods.informer.has_seen(foreign, timeout=0)

        await pods.change(shards=ALL)
        assert pods.informer.selects(foreign)


async def test_store_reaches_versions_of_other_shards_without_a_filtering_server() -> (
    None
):
    pods = Pods(Selectors(shards=FIRST), honours=False)
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        await asyncio.sleep(1)
        pods.fake.modify(named(SECONDS[0]))

        await pods.informer.wait_for_version(pods.fake.resource_version, timeout=1)
        assert pods.stored == FIRSTS


async def test_shards_by_namespace_are_filtered_by_namespace() -> None:
    spaces = {f"space-{number}" for number in range(12)}
    expected = {
        it
        for it in spaces
        if ShardSelector(FIRST.ranges, "namespace").selects(
            KubeObject.of({"metadata": {"name": "a", "namespace": it}})
        )
    }
    pods = Pods(
        Selectors(shards=ShardSelector(FIRST.ranges, "namespace")), honours=False
    )
    for space in spaces:
        pods.fake.add({"metadata": {"name": "a", "namespace": space}})

    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        found = {it.namespace for it in pods.informer.store.list() if it.name == "a"}
        assert found == expected
        assert 0 < len(expected) < len(spaces)


@pytest.mark.parametrize("reason", ["field", "labels"])
async def test_change_of_the_field_lists_the_new_selection(reason: str) -> None:
    async with first_half() as pods:
        namespaces = ShardSelector(ALL.ranges[:1], "namespace")
        change: dict[str, Any] = (
            {"shards": namespaces}
            if reason == "field"
            else {"label_selector": "app=web"}
        )

        await pods.change(**change)

        selectors = pods.server.lists[-1][0]
        assert len(pods.server.lists) == 2
        assert selectors == pods.informer.selection


# ---------------------------------------------------------------- labels


async def test_objects_that_new_labels_do_not_select_are_moved() -> None:
    pods = Pods(Selectors())
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        events = await pods.change(label_selector="app=web")

        assert sorted(events) == sorted(f"deleted {it}" for it in NAMES[5:])
        assert pods.reasons == {("moved", False)}
        assert pods.stored == NAMES[:5]

        assert sorted(await pods.change(label_selector="app!=web")) == sorted(
            [f"deleted {it}" for it in NAMES[:5]] + [f"added {it}" for it in NAMES[5:]]
        )


async def test_deletion_during_the_list_of_new_labels_is_a_deletion() -> None:
    pods = Pods(Selectors())
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        pods.server.list_seconds = lambda: 0.0
        await asyncio.sleep(1)
        pods.informer.set_selection(label_selector="app=web")
        pods.fake.cut()
        pods.fake.refuse(UNAVAILABLE)
        pods.fake.delete(named(NAMES[0]))
        await pods.informer.wait_selection(timeout=30)
        await asyncio.sleep(1)

        assert f"missed {NAMES[0]}" in pods.events
        assert pods.reasons == {("moved", False), ("", True)}


async def test_selectors_that_are_not_passed_stay() -> None:
    async with first_half() as pods:
        await pods.change(label_selector="app=web")

        assert pods.informer.selection == Selectors(
            label_selector="app=web", shards=FIRST
        )
        assert pods.stored == sorted(set(FIRSTS) & set(NAMES[:5]))


# ---------------------------------------------------------------- life


async def test_selection_set_before_the_start_is_listed_at_once() -> None:
    pods = Pods(Selectors())
    pods.informer.set_selection(shards=FIRST)
    async with running(pods.informer.run()):
        await pods.informer.wait_selection(timeout=1)
        assert pods.stored == FIRSTS
        assert len(pods.server.lists) == 1


async def test_transformed_and_left_out_objects_follow_the_selection() -> None:
    def only_web(obj: KubeObject) -> KubeObject | None:
        return obj if obj.label_set.get("app") == "web" else None

    pods = Pods(Selectors(shards=FIRST), transform=only_web)
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        await pods.change(shards=ALL)
        assert pods.stored == NAMES[:5]

        await pods.change(shards=SECOND)
        assert pods.stored == sorted(set(SECONDS) & set(NAMES[:5]))

        await pods.change(shards=ALL)
        assert pods.stored == NAMES[:5]


async def test_wait_raises_when_the_list_does_not_succeed_in_time() -> None:
    async with first_half() as pods:
        pods.fake.refuse(UNAVAILABLE, times=100)
        pods.informer.set_selection(shards=ALL)

        with pytest.raises(
            TimeoutError, match=r"pods does not have its .* 503: try later"
        ):
            await pods.informer.wait_selection(timeout=5)


async def test_wait_raises_when_the_informer_ends() -> None:
    pods = Pods(Selectors(shards=FIRST))
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        pods.server.list_seconds = lambda: 600.0
        pods.informer.set_selection(shards=ALL)
        waiting = asyncio.create_task(pods.informer.wait_selection())
        await asyncio.sleep(1)

    with pytest.raises(InformerStopped):
        await waiting

    with pytest.raises(InformerStopped):
        pods.informer.set_selection(shards=FIRST)


async def test_informer_that_ends_just_after_a_change_leaves_no_timer() -> None:
    pods = Pods(Selectors(shards=FIRST))
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        pods.informer.set_selection(shards=ALL)
        await asyncio.sleep(0.05)

    await asyncio.sleep(1)
    assert pods.stored == FIRSTS


# ---------------------------------------------------------------- the server


async def test_status_shows_whether_the_server_filters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    honours = True
    pods = Pods(Selectors(shards=FIRST))
    pods.server.honours = lambda: honours
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        assert pods.informer.status.sharded_by_server is True

        await asyncio.sleep(1)
        for honours in (False, False, True):
            pods.fake.gone()
            await asyncio.sleep(5)
            assert pods.informer.status.sharded_by_server is honours

        assert pods.stored == FIRSTS

    told = [it.getMessage() for it in caplog.records if "by shard" in it.getMessage()]
    assert told == [
        "pods: server does not filter by shard, dropping objects of other shards",
        "pods: server filters by shard now",
    ]


async def test_server_that_has_never_filtered_is_no_reason_for_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with first_half(honours=False):
        pass

    (level,) = [it.levelname for it in caplog.records if "by shard" in it.getMessage()]
    assert level == "INFO"


async def test_status_is_unknown_without_shards() -> None:
    pods = Pods(Selectors())
    async with running(pods.informer.run()):
        await pods.informer.wait_synced()
        assert pods.informer.status.sharded_by_server is None


# ---------------------------------------------------------------- refusals


def test_invalid_selector_is_refused() -> None:
    pods = Pods(Selectors())

    with pytest.raises(SelectorSyntaxError):
        pods.informer.set_selection(label_selector="a in")


def test_ranges_without_a_selector_are_refused() -> None:
    ranges: Any = ranges_of(2)

    with pytest.raises(OptionsError, match="must be a ShardSelector, not"):
        Pods(Selectors()).informer.set_selection(shards=ranges)


async def test_informer_of_several_namespaces_refuses() -> None:
    sources = {it: FakeListerWatcher() for it in ("shop", "bank")}
    informer = SharedInformer(sources, name="pods")

    with pytest.raises(OptionsError, match="request one informer for each"):
        informer.set_selection(label_selector="app=web")


async def test_informer_of_a_source_without_selectors_refuses() -> None:
    with pytest.raises(OptionsError, match=r"has no with_selectors\(\)"):
        SharedInformer(FakeSource()).set_selection(label_selector="app=web")


async def test_informer_with_a_store_on_disk_refuses(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    server = APIServer()
    await server.start()
    factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
    informer = factory.informer("v1", "pods")

    with pytest.raises(OptionsError, match="request it with cached=False"):
        informer.set_selection(label_selector="app=web")

    await server.stop()
