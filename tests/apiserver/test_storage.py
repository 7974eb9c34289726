"""Storage: versions, history, snapshots and cursors."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.errors import OptionsError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import CONFIG_MAPS, EVENTS, PODS
from aioinformer_apiserver.reads.watches import Watcher
from aioinformer_apiserver.requests.queries import Scope
from aioinformer_apiserver.serialization.formats import Whole
from aioinformer_apiserver.storage.kinds import built_in_kinds, custom_kind
from aioinformer_apiserver.storage.storage import Change, Storage

if TYPE_CHECKING:
    from aioinformer_apiserver.storage.storage import Collection, StoredObject

KINDS = {kind.resource: kind for kind in built_in_kinds()}


def make(history: int = 1000) -> tuple[Storage, Collection]:
    storage = Storage(history=history)
    return storage, storage.serve(KINDS[PODS])


def put(
    storage: Storage, collection: Collection, name: str, value: int = 0
) -> StoredObject:
    metadata = {"name": name, "namespace": "default"}
    return storage.put(collection, {"metadata": metadata, "spec": {"value": value}})


def drop(storage: Storage, collection: Collection, name: str) -> None:
    stored = collection.get(f"default/{name}")
    assert stored is not None
    storage.drop(collection, stored)


def state(objects: list[StoredObject]) -> dict[str, bytes]:
    return {stored.key: stored.raw for stored in objects}


def test_storage_has_one_version_counter() -> None:
    storage, pods = make()
    maps = storage.serve(KINDS[CONFIG_MAPS])
    start = storage.version

    first = put(storage, pods, "a")
    second = put(storage, maps, "a")
    drop(storage, pods, "a")

    assert (first.version, second.version) == (start + 1, start + 2)
    assert storage.version == start + 3


def test_stored_object_has_its_version() -> None:
    storage, pods = make()

    stored = put(storage, pods, "a", 7)

    assert stored.body() == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "resourceVersion": str(storage.version),
        },
        "spec": {"value": 7},
    }
    assert pods.get("default/a") is stored


def test_storage_copies_body() -> None:
    storage, pods = make()
    body: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"list": [1]}}
    stored = storage.put(pods, body)

    body["spec"]["list"] = [2]
    stored.body()["spec"]["list"].append(3)

    assert stored.body()["spec"] == {"list": [1]}
    assert body["metadata"] == {"name": "a"}


def test_snapshot_shows_earlier_version() -> None:
    storage, pods = make()
    put(storage, pods, "a", 1)
    put(storage, pods, "b", 1)
    past, then = storage.version, state(pods.snapshot())

    put(storage, pods, "a", 2)
    drop(storage, pods, "b")
    put(storage, pods, "c", 1)

    assert state(pods.snapshot(past)) == then
    assert list(state(pods.snapshot())) == ["default/a", "default/c"]


def test_history_is_bounded() -> None:
    storage, pods = make(history=3)
    versions = [put(storage, pods, f"p{number}").version for number in range(6)]

    assert [pods.has_history_since(it) for it in versions] == [
        False,
        False,
        *[True] * 4,
    ]
    assert [it.name for it in pods.snapshot(versions[2])] == ["p0", "p1", "p2"]


def test_storage_without_history_knows_current_version_only() -> None:
    storage, pods = make(history=0)
    put(storage, pods, "a")

    assert pods.has_history_since(storage.version)
    assert not pods.has_history_since(storage.version - 1)
    assert pods.cursor_at(storage.version).next is None


def test_history_is_bounded_for_each_collection() -> None:
    storage, pods = make(history=3)
    maps = storage.serve(KINDS[CONFIG_MAPS])
    version = put(storage, pods, "a").version
    for number in range(10):
        put(storage, maps, f"m{number}")

    assert pods.has_history_since(version)


def test_compaction_discards_all_history() -> None:
    storage, pods = make()
    put(storage, pods, "a")
    maps = storage.serve(KINDS[CONFIG_MAPS])
    put(storage, maps, "a")

    storage.compact()

    assert pods.floor == maps.floor == storage.version
    assert not pods.has_history_since(storage.version - 1)
    assert [it.name for it in pods.snapshot()] == ["a"]


def test_watch_cache_raises_floor_to_first_kept_change() -> None:
    storage, pods = make(history=2)
    maps = storage.serve(KINDS[CONFIG_MAPS])
    for name in ("a", "b"):
        put(storage, pods, name)

    put(storage, maps, "elsewhere")
    between = storage.version
    assert pods.has_changes_since(pods.floor)
    for name in ("c", "d"):
        put(storage, pods, name)

    # The change of "b" has expired. The oldest change is that of "c", so a watch from an
    # older version would miss a change. A list of that version is still known.
    assert pods.has_history_since(between - 1)
    assert not pods.has_changes_since(between - 1)
    assert pods.has_changes_since(between)


def test_events_can_be_watched_from_version_before_compaction() -> None:
    """Etcd keeps the change of the compacted version itself."""
    storage = Storage()
    events, pods = storage.serve(KINDS[EVENTS]), storage.serve(KINDS[PODS])
    put(storage, pods, "a")
    put(storage, events, "a")
    storage.compact()
    version = storage.version

    assert (events.cached, pods.cached) == (False, True)
    assert events.has_changes_since(version - 1)
    assert not events.has_changes_since(version - 2)
    assert not events.has_history_since(version - 1)
    assert not pods.has_changes_since(version - 1)
    following = events.cursor_at(version - 1).next
    assert following is not None
    assert following.version == version


def test_snapshot_is_sorted_by_key() -> None:
    storage, pods = make()
    for name in ("m", "z", "a", "q"):
        put(storage, pods, name)

    drop(storage, pods, "q")
    put(storage, pods, "b")
    put(storage, pods, "m", 2)

    assert [it.name for it in pods.snapshot()] == ["a", "b", "m", "z"]


def test_cursor_outlives_history() -> None:
    storage, pods = make(history=2)
    watcher = Watcher(pods, Scope(), Whole(pods.kind), pods.tail)
    for number in range(100):
        put(storage, pods, f"p{number}")

    storage.compact()

    assert len(watcher.take(1 << 20)) == 100
    assert watcher.take() == []


def test_long_chain_of_changes_is_freed_without_recursion() -> None:
    first = last = Change(KINDS[PODS], 0)
    for number in range(20_000):
        last.next = Change(KINDS[PODS], number)
        last = last.next

    del first

    assert last.next is None


def test_change_line_is_encoded_once() -> None:
    storage, pods = make()
    feeds = [Watcher(pods, Scope(), Whole(pods.kind), pods.tail) for _ in range(3)]
    put(storage, pods, "a")

    lines = [watcher.take()[0] for watcher in feeds]

    assert lines[0].startswith(b'{"type":"ADDED","object":{"kind":"Pod",')
    assert lines[0].endswith(b"}}\n")
    assert lines[0] is lines[1] is lines[2]


def test_watcher_returns_lines_in_portions() -> None:
    storage, pods = make()
    watcher = Watcher(pods, Scope(), Whole(pods.kind), pods.tail)
    for number in range(10):
        put(storage, pods, f"p{number}")

    portions = []
    while lines := watcher.take(limit_bytes=300):
        portions.append(len(lines))

    # An event has about 140 bytes: the third one passes the limit.
    assert portions == [3, 3, 3, 1]


def test_writes_wake_subscribers_until_unsubscribed() -> None:
    storage, pods = make()
    rung: list[str] = []
    one = pods.subscribe(lambda: rung.append("pods"))
    storage.subscribe(lambda: rung.append("all"))

    put(storage, storage.serve(KINDS[CONFIG_MAPS]), "a")
    put(storage, pods, "a")
    one()
    drop(storage, pods, "a")

    assert rung == ["all", "pods", "all", "all"]


def test_retire_ends_watchers() -> None:
    storage = Storage()
    widgets = Resource("example.com", "v1", "widgets", "Widget")
    collection = storage.serve(custom_kind(widgets))
    put(storage, collection, "a")
    watcher = Watcher(collection, Scope(), Whole(collection.kind), collection.tail)

    storage.remove_resource(collection)
    ended_before = watcher.ended
    lines = watcher.take()

    assert storage.find("example.com", "v1", "widgets") is None
    assert b'"type":"DELETED"' in lines[0]
    assert (ended_before, watcher.ended) == (False, True)
    with pytest.raises(OptionsError, match="not served"):
        storage.collection(widgets)


def test_old_objects_are_freed_with_history() -> None:
    storage, pods = make(history=2)
    put(storage, pods, "a")
    paged = storage.version
    pods.snapshot()
    for number in range(3):
        assert pods._snapshots.keys() == {paged}
        put(storage, pods, "a", number)

    # The continue token of that list has expired.
    assert not pods.has_history_since(paged)
    assert not pods._snapshots

    pods.snapshot(storage.version - 1)
    storage.compact()
    assert not pods._snapshots


def test_stored_objects_are_not_tracked_by_gc() -> None:
    storage, pods = make()

    assert not gc.is_tracked(put(storage, pods, "a"))


def test_redefined_collection_cannot_be_watched_from_earlier_version() -> None:
    storage = Storage(history=2)
    widgets = Resource("example.com", "v1", "widgets", "Widget")
    collection = storage.serve(custom_kind(widgets))
    put(storage, collection, "a")
    version = storage.version
    put(storage, collection, "b")
    storage.redefine(collection, custom_kind(widgets))

    assert collection.has_history_since(version)
    assert not collection.has_changes_since(version)
    put(storage, collection, "c")
    # The history drops the change of "a"; the newest version stays.
    assert not collection.has_changes_since(version)
    assert collection.has_changes_since(storage.version - 1)


def test_serve_twice_keeps_objects() -> None:
    storage, pods = make()
    put(storage, pods, "a")

    assert storage.serve(KINDS[PODS]) is pods


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(Resource("example.com", "v1", "widgets"), id="no-kind"),
        pytest.param(Resource("", "v1", "widgets", "Widget"), id="no-group"),
    ],
)
def test_custom_kind_requires_kind_and_group(resource: Resource) -> None:
    with pytest.raises(OptionsError, match="needs a kind and a group"):
        custom_kind(resource)


def test_storage_rejects_negative_history() -> None:
    with pytest.raises(OptionsError, match="history"):
        Storage(history=-1)


STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "drop", "compact"])),
    max_size=40,
)


@given(STEPS, st.integers(0, 10))
def test_snapshot_reproduces_every_kept_version(
    steps: list[tuple[str, str]], history: int
) -> None:
    """Snapshots and cursors agree with a complete log."""
    storage, pods = make(history)
    states: dict[int, dict[str, bytes]] = {storage.version: {}}
    for number, (name, step) in enumerate(steps):
        if step == "put":
            put(storage, pods, name, number)
        elif step == "drop" and pods.get(f"default/{name}") is not None:
            drop(storage, pods, name)
        elif step == "compact":
            storage.compact()

        states[storage.version] = state(pods.snapshot())

    known = [version for version in states if pods.has_history_since(version)]
    assert storage.version in known
    assert len(known) <= history + 1
    for version in known:
        assert state(pods.snapshot(version)) == states[version]
        assert replayed(pods, version, states[version]) == states[storage.version]


def replayed(
    collection: Collection, version: int, start: dict[str, bytes]
) -> dict[str, bytes]:
    """Apply the changes after `version` to the state at `version`."""
    objects = dict(start)
    change = collection.cursor_at(version)
    while (following := change.next) is not None:
        change = following
        assert change.version > version
        if change.new is not None:
            objects[change.new.key] = change.new.raw
        elif change.old is not None:
            del objects[change.old.key]

    return dict(sorted(objects.items()))
