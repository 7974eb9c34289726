"""`Follower`: what handlers of a process are told of a store that another one writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from cached_helpers import Counted, kinds, settle
from disk_helpers import build_indexes
from fake_source import thing
from informer_helpers import Recorder, Slow
from pipeline_helpers import View

from aioinformer.errors import CacheError, InformerStopped
from aioinformer.informer.handlers.resync import Resync

if TYPE_CHECKING:
    from collections.abc import Callable

    from cached_helpers import Followed

    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

    Open = Callable[..., Followed]


def of_name(obj: KubeObject) -> str:
    return obj.name


def things(count: int, start: int = 0) -> list[KubeObject]:
    return [thing(f"p{number:04}") for number in range(start, start + count)]


# ---------------------------------------------------------------- confirmation


async def test_follower_tells_nothing_before_the_store_is_confirmed(
    followed: Open,
) -> None:
    rig = followed(thing("a"), thing("b"))
    events: list[Notification] = []
    listener = rig.listen(events.append)
    async with rig.running():
        rig.put(thing("b", 2), thing("c", 3))
        await asyncio.sleep(3)

        assert (events, listener.synced, rig.follower.synced) == ([], False, False)

        rig.confirm()
        await listener.wait_synced()
        rig.put(thing("a", 4))
        await settle()

    assert rig.follower.synced
    assert kinds(events) == [
        "added a@1 initial",
        "added b@2 initial",
        "added c@3 initial",
        "updated a@4",
    ]


async def test_follower_of_a_store_without_a_list_is_not_synced(followed: Open) -> None:
    rig = followed()
    events: list[Notification] = []
    rig.listen(events.append)
    async with rig.running():
        rig.confirm()
        await settle()
        early = rig.follower.synced
        rig.list_into_empty(thing("a"), first=True)
        await settle()

    assert (early, rig.follower.synced) == (False, True)
    assert kinds(events) == ["added a@1 initial"]


@pytest.mark.parametrize(
    ("age", "ended", "believed"),
    [(4.9, False, True), (5.0, False, False), (0.0, True, False)],
)
async def test_new_process_believes_a_live_writer_only(
    followed: Open, age: float, ended: bool, believed: bool
) -> None:
    rig = followed(thing("a"))
    await asyncio.sleep(10)
    now = asyncio.get_running_loop().time()
    rig.confirm(heartbeat=now - age, ended=ended)
    async with rig.running():
        assert rig.follower.synced is believed


async def test_synced_follower_stays_synced_when_the_writer_dies(
    followed: Open,
) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    async with rig.running():
        await asyncio.sleep(9.5)
        silent_early = rig.follower.writer.silence(asyncio.get_running_loop().time())
        changes = rig.changes
        await asyncio.sleep(2)

        silent = rig.follower.writer.silence(asyncio.get_running_loop().time())
        assert silent_early == 0.0
        assert silent == pytest.approx(11.5, abs=0.1)
        assert rig.follower.synced
        assert rig.changes == changes + 1  # waiters see the silence

        rig.state(epoch=2, confirmed=False)  # another writer takes over
        await asyncio.sleep(1.1)
        assert rig.follower.synced
        assert rig.changes == changes + 2


async def test_writer_that_ended_in_order_is_not_silent(followed: Open) -> None:
    rig = followed(thing("a"))
    rig.confirm(ended=True)
    async with rig.running():
        await asyncio.sleep(60)
        now = asyncio.get_running_loop().time()
        assert rig.follower.writer.silence(now) == 0.0


async def test_follower_does_not_believe_a_writer_of_other_objects(
    followed: Open,
) -> None:
    rig = followed(thing("a"))
    events: list[Notification] = []
    rig.listen(events.append)
    ours = rig.env.header
    with rig.env.write():
        rig.env.set_header(msgspec.structs.replace(ours, transform="another"))

    rig.confirm()
    async with rig.running():
        assert (rig.follower.synced, events) == (False, [])
        with rig.env.write():
            rig.env.set_header(ours)

        rig.confirm()
        await settle()
        assert rig.follower.synced

    assert kinds(events) == ["added a@1 initial"]


async def test_deletions_since_the_opening_are_told_when_the_store_is_confirmed(
    followed: Open,
) -> None:
    rig = followed(thing("a"), thing("b"), thing("c"), thing("d", uid="1"), thing("e"))
    events: list[Notification] = []
    late: list[Notification] = []
    rig.listen(events.append)
    async with rig.running():
        rig.delete("default/a")
        rig.put(thing("new", 5))
        rig.delete("default/new")  # never known to an earlier process
        rig.delete("default/b", missed=True)
        rig.put(thing("b", 6))  # is back
        rig.put(thing("d", 7, uid="2"))  # another object
        rig.delete("default/d")
        rig.put(thing("d", 8, uid="3"))
        rig.delete("default/e")
        rig.put(thing("e", 9))  # the same one
        await settle()
        rig.confirm()
        await settle()
        rig.listen(late.append)
        await settle()

    told = kinds(events)
    assert sorted(told[:2]) == ["deleted a@1 missed", "deleted d@1 missed"]
    assert told[2:] == [
        "added b@6 initial",
        "added c@1 initial",
        "added d@8 initial",
        "added e@9 initial",
    ]
    assert kinds(late) == told[2:]


async def test_deletions_are_told_until_a_first_handler_has_started(
    followed: Open,
) -> None:
    objects = things(1000)
    rig = followed(*objects)
    slow = Slow(0.01)
    rig.listen(slow)
    rig.confirm()
    async with rig.running():
        rig.put(thing("p0999x", 2))
        rig.delete("default/p0999x", "default/p0998")
        await asyncio.sleep(30)

    assert len(slow.record) == 1000
    assert slow.record.count("p0998") == 1
    assert "p0999x" not in slow.record


async def test_objects_of_a_new_list_are_not_gone(followed: Open) -> None:
    rig = followed(thing("a"))
    events: list[Notification] = []
    rig.listen(events.append)
    async with rig.running():
        rig.delete("default/a")
        rig.list_into_empty(thing("b", 2), thing("c", 2))
        rig.delete("default/b")
        rig.confirm()
        await settle()

    assert kinds(events) == ["deleted a@1 missed", "added c@2 initial"]


async def test_deletions_are_told_once_to_a_handler_that_starts(followed: Open) -> None:
    rig = followed(*things(1500))
    rig.confirm()
    told: list[str] = []

    async def slow(event: Notification) -> None:
        await asyncio.sleep(0.001)
        told.extend(kinds([event]))

    listener = rig.listen(slow)
    async with rig.running():
        await asyncio.sleep(0.05)
        rig.put(thing("p1400", 2, uid="other"))
        await settle()
        rig.delete("default/p0001", "default/p1400", "default/p1401")
        await settle()
        rig.delete(*rig.objects)
        rig.list_into_empty(thing("new"))
        await listener.wait_synced()
        await listener.wait_idle()

    gone = [it.removesuffix(" missed") for it in told if it.startswith("deleted")]
    assert len(gone) == len(set(gone))
    assert "deleted p0001@1" in gone
    assert "deleted p1400@2" not in gone
    assert told[-1] == "added new@1 initial"


# ---------------------------------------------------------------- start


async def test_late_handler_gets_every_object_and_then_each_change(
    followed: Open,
) -> None:
    rig = followed(*things(100))
    rig.confirm()
    view = View()
    async with rig.running():
        listener = rig.listen(view)
        rig.put(thing("p0050", 2), thing("p0050x", 2))
        await listener.wait_synced()
        rig.delete("default/p0001")
        await settle()

    assert (view.objects, view.broken) == (rig.states, [])


async def test_slow_handler_gets_initial_objects_as_it_has_room(followed: Open) -> None:
    rig = followed(*things(2000))
    rig.confirm()
    fast, slow = Recorder(), Slow(0.001)
    async with rig.running():
        one, other = rig.listen(fast), rig.listen(slow)
        await asyncio.sleep(0.1)
        assert other.depth < 600
        assert one.synced
        assert not other.synced
        assert list(rig.follower.starting) == [other]
        await other.wait_synced()

    assert len(slow.record) == len(fast.record) == 2000
    assert rig.follower.starting == {}


async def test_changes_up_to_the_cursor_are_told_while_a_handler_starts(
    followed: Open,
) -> None:
    rig = followed(*things(1500))
    rig.confirm()
    view = View()

    async def slow(event: Notification) -> None:
        await asyncio.sleep(0.001)
        view(event)

    async with rig.running():
        listener = rig.listen(slow)
        await asyncio.sleep(0.05)
        (cursor,) = rig.follower.starting.values()
        rig.put(thing(cursor.removeprefix("default/"), 2))
        rig.put(thing("p0001", 2), thing("p1400", 2), thing("p0001x", 2))
        rig.delete("default/p0002", "default/p1401")
        await listener.wait_synced()
        await listener.wait_idle()

    assert (view.objects, view.broken) == (rig.states, [])


async def test_handler_that_is_removed_while_it_starts_gets_no_more(
    followed: Open,
) -> None:
    rig = followed(*things(1500))
    rig.confirm()
    slow = Slow(0.01)
    async with rig.running():
        listener = rig.listen(slow)
        await asyncio.sleep(0.1)
        rig.processor.remove(listener)
        rig.put(thing("p0000", 2))
        with pytest.raises(InformerStopped):
            await listener.wait_synced()

        await asyncio.sleep(1)
        assert rig.follower.starting == {}
        assert len(slow.record) < 20
        assert slow.record.count("p0000") == 1


async def test_handler_of_a_confirmed_empty_store_is_synced(followed: Open) -> None:
    rig = followed(thing("a"))
    rig.delete("default/a")
    rig.confirm()
    view = View()
    async with rig.running():
        listener = rig.listen(view)
        await listener.wait_synced()
        rig.list_into_empty(thing("b"))
        await settle()

    assert view.objects == {"default/b": "1"}


async def test_list_into_the_empty_store_is_new_for_every_handler(
    followed: Open,
) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    events: list[Notification] = []
    rig.listen(events.append)
    async with rig.running():
        rig.delete("default/a", missed=True)
        rig.list_into_empty(*things(100))
        rig.put(thing("p0001", 2))
        await settle()
        rig.put(thing("p0002", 2))
        await settle()

    assert kinds(events[:3]) == [
        "added a@1 initial",
        "deleted a@1 missed",
        "added p0000@1",
    ]
    assert kinds(events[-1:]) == ["updated p0002@2"]
    assert len(events) == 103


async def test_cluster_scoped_objects_are_told(followed: Open) -> None:
    node = thing("n1", namespace=None)
    rig = followed(node)
    rig.confirm()
    view = View()
    async with rig.running():
        rig.listen(view)
        await settle()

    assert view.objects == {node.key: "1"}


async def test_coalescing_handler_starts(followed: Open) -> None:
    rig = followed(*things(3000))
    rig.confirm()
    slow = Slow(0.001)
    async with rig.running():
        listener = rig.listen(slow, coalesce=True)
        await listener.wait_synced()

    assert len(slow.record) == 3000


# ---------------------------------------------------------------- resyncs


async def test_resync_repeats_the_told_states_in_order(followed: Open) -> None:
    rig = followed(thing("a"), thing("b"))
    rig.confirm()
    events: list[Notification] = []
    view = View()
    rig.listen(events.append, resync=Resync(10, None))  # type: ignore[arg-type]
    rig.listen(view)
    async with rig.running():
        await asyncio.sleep(9)
        rig.put(thing("b", 2))
        await asyncio.sleep(2)

    assert kinds(events) == [
        "added a@1 initial",
        "added b@1 initial",
        "updated b@2",
        "updated a@1 resync",
        "updated b@2 resync",
    ]


async def test_list_into_the_empty_store_ends_a_resync(followed: Open) -> None:
    rig = followed(*things(1500))
    rig.confirm()
    told: list[str] = []

    async def slow(event: Notification) -> None:
        await asyncio.sleep(0.001)
        told.extend(kinds([event]))

    async with rig.running():
        rig.listen(slow, resync=Resync(10, None))  # type: ignore[arg-type]
        await asyncio.sleep(10.1)
        rig.delete(*rig.objects)
        rig.list_into_empty(*(thing(f"p{number:04}", 2) for number in range(1500)))
        await asyncio.sleep(8)

    first = next(it for it in told if "p1400@2" in it)
    assert first == "added p1400@2"


# ---------------------------------------------------------------- behind


async def test_follower_that_was_trimmed_past_tells_the_difference(
    followed: Open,
) -> None:
    rig = followed(*things(10))
    rig.confirm()
    events: list[Notification] = []
    view = View()
    rig.listen(events.append)
    rig.listen(view)
    async with rig.running():
        events.clear()
        for version in (2, 3, 4):
            rig.put(thing("p0001", version), thing("new", version))

        rig.delete("default/p0002", "default/new")
        rig.put(thing("p0003", 5, uid="other"))
        rig.put(thing("brief", 5))
        rig.delete("default/brief")
        rig.trim(rig.env.header.last + 1)
        rig.put(thing("p0004", 6), thing("p0001", 7))
        await settle()

    assert sorted(kinds(events)) == [
        "added p0003@5",
        "deleted p0002@1 missed",
        "deleted p0003@1 missed",
        "updated p0001@7",
        "updated p0004@6",
    ]
    assert (view.objects, view.broken) == (rig.states, [])


async def test_follower_waits_for_a_difference_that_is_being_written(
    followed: Open,
) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    view, late = View(), View()
    rig.listen(view)
    async with rig.running():
        rig.put(thing("a", 2))
        rig.raise_first(2)
        rig.listen(late)
        await settle()
        assert view.objects == {"default/a": "1"}
        assert rig.follower.behind == 1

        rig.finish_trim()
        await asyncio.sleep(0.06)
        assert view.objects == late.objects == {"default/a": "2"}
        assert view.broken == late.broken == []


async def test_follower_that_missed_a_first_list_tells_every_object(
    followed: Open,
) -> None:
    rig = followed(thing("a"), thing("b"))
    rig.confirm()
    view = View()
    rig.listen(view)
    async with rig.running():
        rig.delete("default/a", "default/b")
        rig.list_into_empty(thing("b", 2), thing("c", 3))
        rig.put(thing("d", 4))
        rig.trim(rig.env.header.last + 1)
        await settle()

    assert (view.objects, view.broken) == (rig.states, [])


async def test_deletions_are_found_after_a_trim_before_the_confirmation(
    followed: Open,
) -> None:
    rig = followed(*things(3))
    events: list[Notification] = []
    rig.listen(events.append)
    async with rig.running():
        rig.delete("default/p0001")
        rig.put(thing("new", 2), thing("p0002", 2))
        rig.trim(rig.env.header.last + 1)
        rig.delete("default/new")
        await settle()
        rig.confirm()
        await settle()

    assert kinds(events) == [
        "deleted p0001@1 missed",
        "added p0000@1 initial",
        "added p0002@2 initial",
    ]


async def test_deletions_are_found_after_the_trim_of_a_list(followed: Open) -> None:
    rig = followed(*things(2))
    events: list[Notification] = []
    rig.listen(events.append)
    async with rig.running():
        rig.delete("default/p0000")
        rig.delete("default/p0001")
        rig.list_into_empty(thing("b", 2), thing("c", 2))
        rig.trim(rig.env.header.last + 1)
        await settle()
        rig.delete("default/b")
        rig.confirm()
        await settle()

    assert sorted(kinds(events)) == [
        "added c@2 initial",
        "deleted p0000@1 missed",
        "deleted p0001@1 missed",
    ]


async def test_follower_that_is_trimmed_past_twice_tells_one_difference(
    followed: Open,
) -> None:
    rig = followed(*things(10))
    rig.confirm()
    view = View()
    rig.listen(view)
    async with rig.running():
        rig.put(thing("p0001", 2))
        rig.trim(rig.env.header.last + 1)
        before = rig.follower.position
        rig.put(*(thing(f"q{number:04}") for number in range(2000)))
        while rig.follower.position == before:
            await asyncio.sleep(0)

        assert rig.follower.behind > 0  # it tells the rest in further slices
        rig.put(thing("p0001", 3))
        rig.trim(rig.env.header.last + 1)
        await settle()

    assert (view.objects, view.broken) == (rig.states, [])


async def test_large_difference_is_read_in_parts_while_more_is_trimmed(
    followed: Open,
) -> None:
    rig = followed(*things(5000))
    rig.confirm()
    view = View()
    rig.listen(view)
    async with rig.running():
        rig.put(*(thing(f"p{number:04}", 2) for number in range(5000)))
        for version in range(3, 12):
            rig.put(thing("p0001", version), thing(f"new{version}"))
            rig.delete(f"default/p{version:04}")
            rig.trim(rig.env.header.last + 1)
            for _ in range(2 * version):
                await asyncio.sleep(0)

        await settle()

    assert (view.objects, view.broken) == (rig.states, [])


# ---------------------------------------------------------------- effort


async def test_follower_decodes_nothing_that_nobody_is_told(followed: Open) -> None:
    rig = followed(*things(10))
    rig.confirm()
    async with rig.running():
        rig.put(*things(10, start=5))
        await settle()

        assert (rig.decode.calls, rig.follower.behind) == (0, 0)


async def test_idle_follower_looks_once_a_second(followed: Open) -> None:
    rig = followed(*things(10))
    rig.confirm()
    view = View()
    rig.listen(view)
    async with rig.running():
        rig.env.read = reads = Counted(rig.env.read)  # type: ignore[method-assign]
        await asyncio.sleep(60)

        assert 60 <= reads.calls <= 600


async def test_follower_finds_changes_without_a_wake_up(followed: Open) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    view = View()
    rig.listen(view)
    async with rig.running():
        rig.readers.close()
        rig.put(thing("a", 2))
        await asyncio.sleep(1.01)

    assert view.objects == {"default/a": "2"}


async def test_indexes_of_this_process_follow_the_store(followed: Open) -> None:
    rig = followed(*things(100), private=True)
    async with rig.running():
        rig.put(thing("p0001", 2), thing("new", 2))
        rig.delete("default/p0002")
        await settle()
        assert not rig.followed.missing
        assert rig.indexed == rig.states  # unconfirmed, too

        rig.delete(*rig.objects)
        rig.list_into_empty(thing("b", 2), thing("c", 3))
        await settle()

    assert rig.indexed == rig.states


async def test_index_that_a_new_writer_does_not_store_is_kept_in_memory(
    followed: Open,
) -> None:
    rig = followed(*things(100), stored=True)
    async with rig.running():
        before = rig.followed.private
        rig.begin_writing({})
        rig.put(thing("p0001", 2))
        await asyncio.sleep(1.1)
        assert (before, rig.followed.private) == (False, True)
        assert not rig.followed.missing
        assert rig.indexed == rig.states


async def test_follower_is_synced_once_its_own_index_is_built(followed: Open) -> None:
    rig = followed(*things(2000), private=True)
    rig.confirm()
    task = asyncio.create_task(rig.follower.run())
    while not rig.follower.synced:
        await asyncio.sleep(0)

    assert not rig.followed.missing
    assert len(rig.indexed) == 2000
    task.cancel()
    await asyncio.wait([task])


async def test_complete_index_follows_while_another_is_built(followed: Open) -> None:
    """A new writer stores fewer indexes than the one before."""
    rig = followed(*things(2000), private=True)
    by_name = {"name": of_name}
    build_indexes(rig.followed, by_name)
    rig.begin_writing(by_name)
    build_indexes(rig.contents, rig.contents.missing)
    versions = rig.followed.indexes["version"]
    names = rig.followed.indexes["name"]
    async with rig.running():
        rig.put(thing("new", 2))  # the index in memory is dropped: another is stored
        await settle()
        rig.begin_writing({})
        rig.delete("default/p0000", "default/p1999")
        with rig.follower.reading() as current:
            assert current
        assert set(rig.followed.missing) == {"name"}
        assert len(versions.keys_of("1")) == 1998

        await asyncio.sleep(1.1)
        assert not rig.followed.missing
        assert len(names.values()) == 1999


# ---------------------------------------------------------------- failures


async def test_follower_ends_when_its_directory_has_vanished(followed: Open) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    task = asyncio.create_task(rig.follower.run())
    await asyncio.sleep(2)
    moved = rig.env.path.rename(rig.env.path.with_name("moved"))

    with pytest.raises(CacheError, match="removed"):
        await task

    moved.rename(rig.env.path)


async def test_follower_ends_when_entries_are_missing(followed: Open) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    rig.listen(View())
    task = asyncio.create_task(rig.follower.run())
    await settle()
    rig.put(thing("a", 2))
    with rig.env.write() as txn:
        txn.drop(rig.env.database("journal"), delete=False)

    with pytest.raises(CacheError, match="entry 1 of"):
        await task


# ---------------------------------------------------------------- waiting tasks


async def test_waiter_for_a_key_gets_each_state_after_the_one_it_read(
    followed: Open,
) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    async with rig.running():
        rig.put(thing("a", 2), thing("b", 2), thing("a", 3))
        with rig.follower.reading() as current:
            assert current
            assert rig.follower.behind == 0  # the follower has not run since

        with rig.waiters.for_key("default/a") as waiter:
            rig.put(thing("a", 4), thing("b", 4))
            rig.delete("default/a")
            await settle()

            states = [
                None if it is None else it.resource_version for it in waiter.states
            ]
            assert states == ["4", None]
            assert rig.decode.calls == 3  # nothing of b, the old state of the update


async def test_reading_far_behind_tells_a_few_changes_and_leaves_the_rest(
    followed: Open,
) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    view = View()
    rig.listen(view)
    async with rig.running():
        rig.decode.calls = 0
        rig.put(*things(1000))
        with rig.follower.reading() as current:
            assert not current
            assert 0 < rig.decode.calls < 100

        with rig.waiters.for_steps() as told:
            while not current:
                told.clear()
                await told.wait()
                with rig.follower.reading() as current:
                    assert (rig.follower.behind == 0) is current

    assert (view.objects, view.broken) == (rig.states, [])


async def test_walk_copies_the_store_while_it_changes(followed: Open) -> None:
    rig = followed(*things(100))
    rig.confirm()
    copy: dict[str, KubeObject | None] = {}
    walk = rig.followed.walk(copy.__setitem__)
    for number, _ in enumerate(walk.steps()):
        if number == 3:
            rig.put(thing("p0001", 2), thing("p0099", 2), thing("a", 2), thing("z"))
            rig.delete("default/p0002", "default/p0098")

        with rig.follower.reading() as current:
            assert current

    walk.end()
    rig.put(thing("p0001", 3))
    with rig.follower.reading():
        pass

    found = {key: it.resource_version for key, it in copy.items() if it is not None}
    assert found == rig.states | {"default/p0001": "2"}
    assert not rig.followed.private


async def test_waiter_for_a_key_gets_a_list_into_the_empty_store(
    followed: Open,
) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    async with rig.running():
        rig.delete("default/a")
        with rig.waiters.for_key("default/b") as waiter:
            rig.list_into_empty(thing("b", 2), thing("c", 3))
            await settle()

            assert [it and it.resource_version for it in waiter.states] == ["2"]


async def test_waiters_for_versions_and_steps_follow_the_store(followed: Open) -> None:
    rig = followed(thing("a"))
    async with rig.running():
        with rig.waiters.for_version(201, None) as reached:
            rig.write(version=201)
            await settle()
            assert not reached.is_set()  # unconfirmed

            rig.confirm()
            await settle()
            assert reached.is_set()

        with rig.waiters.for_steps() as step:
            rig.state(in_step=1.0)
            await settle()
            assert not step.is_set()

            rig.put(thing("b"))
            await settle()
            assert step.is_set()


async def test_history_reset_wakes_waiters_for_versions(followed: Open) -> None:
    rig = followed(thing("a"))
    rig.confirm()
    async with rig.running():
        with rig.waiters.for_version(1000, None) as wakeup:
            rig.state(history_resets=1)
            await settle()

            assert wakeup.is_set()
