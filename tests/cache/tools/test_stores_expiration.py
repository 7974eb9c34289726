"""`ExpirationStore`: objects expire by age."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from queue_helpers import error_in_thread
from store_helpers import ManualClock, Thing

from aioinformer.cache import DeletedFinalStateUnknown, ExpirationStore, TTLPolicy
from aioinformer.errors import NoKey, OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ExpirationStore[Thing]:
    """Provide a store whose objects expire after ten seconds."""
    return ExpirationStore(TTLPolicy(10), clock=clock)


# ---------------------------------------------------------------- the policy


@each_case(
    "ttl, age, expired",
    [
        pytest.param(10, 9.9, False, id="younger"),
        pytest.param(10, 10.0, False, id="exactly"),
        pytest.param(10, 10.1, True, id="older"),
        pytest.param(timedelta(seconds=10), 10.1, True, id="timedelta"),
        pytest.param(0, 1e9, False, id="zero-is-never"),
        pytest.param(-1, 1e9, False, id="negative-is-never"),
        pytest.param(timedelta(seconds=-1), 1e9, False, id="negative-timedelta"),
    ],
)
def test_ttl_policy_expires_objects_above_ttl(
    ttl: Any, age: float, expired: bool
) -> None:
    assert TTLPolicy(ttl).is_expired(Thing("a"), age) is expired


@pytest.mark.parametrize("ttl", [float("inf"), float("nan")])
def test_ttl_policy_rejects_infinite_ttl(ttl: float) -> None:
    with pytest.raises(OptionsError):
        TTLPolicy(ttl)


def test_policy_may_read_object(clock: ManualClock) -> None:
    class Policy:
        def is_expired(self, obj: Thing, age: float) -> bool:
            return age > obj.version

    store = ExpirationStore(Policy(), clock=clock)
    for version in (1, 5):
        store.add(Thing(f"v{version}", version=version))

    clock.now += 3

    assert store.list() == [Thing("v5", version=5)]


# ---------------------------------------------------------------- reads


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda it: it.get_by_key("a"), id="get_by_key"),
        pytest.param(lambda it: it.get(Thing("a", version=7)), id="get"),
        pytest.param(lambda it: (it.list() or [None])[0], id="list"),
        pytest.param(lambda it: Thing("a") if "a" in it else None, id="contains"),
    ],
)
def test_read_removes_the_expired_object_it_meets(
    store: ExpirationStore[Thing],
    clock: ManualClock,
    read: Callable[[ExpirationStore[Thing]], Thing | None],
) -> None:
    store.add(Thing("a"))

    clock.now += 10
    in_time = read(store)
    clock.now += 0.1
    unnoticed = store.list_keys()
    late = read(store)

    assert (in_time, unnoticed, late) == (Thing("a"), ["a"], None)
    assert store.list_keys() == []


def test_list_removes_only_expired_objects(
    store: ExpirationStore[Thing], clock: ManualClock
) -> None:
    for name in ("a", "b", "c"):
        store.add(Thing(name))
        clock.now += 4

    listed = store.list()

    assert listed == [Thing("b"), Thing("c")]
    assert store.list_keys() == ["b", "c"]
    assert repr(store) == "<ExpirationStore 2 objects>"


def test_reads_of_missing_objects_return_none(store: ExpirationStore[Thing]) -> None:
    assert store.get_by_key("a") is None
    assert store.get(Thing("a")) is None
    assert "a" not in store
    assert 7 not in store
    assert store.list() == []
    assert len(store) == 0


def test_policy_that_reads_store_expires_each_object_once(clock: ManualClock) -> None:
    class Group:
        """If one of them has expired, all have."""

        depth = 0

        def is_expired(self, obj: Thing, age: float) -> bool:
            if self.depth:
                return age > 10

            self.depth = 1
            expired = group.get_by_key("first") is None
            self.depth = 0
            return expired

    group: ExpirationStore[Thing] = ExpirationStore(Group(), clock=clock)
    group.add(Thing("first"))
    clock.now += 5
    group.add(Thing("second"))

    before = group.list()
    clock.now += 6

    assert before == [Thing("first"), Thing("second")]
    assert group.list() == []
    assert group.list_keys() == []


def test_object_written_by_the_policy_has_not_expired(clock: ManualClock) -> None:
    class Renew:
        """Puts a new object in the place of one that is too old."""

        def is_expired(self, obj: Thing, age: float) -> bool:
            if age > 10:
                renewed.add(Thing(obj.key, version=obj.version + 1))

            return age > 10

    renewed: ExpirationStore[Thing] = ExpirationStore(Renew(), clock=clock)
    renewed.add(Thing("a", version=1))
    clock.now += 11

    assert renewed.get_by_key("a") is None
    assert renewed.get_by_key("a") == Thing("a", version=2)


def test_error_of_policy_is_raised_to_reader(clock: ManualClock) -> None:
    class Broken:
        def is_expired(self, obj: Thing, age: float) -> bool:
            raise ZeroDivisionError

    store = ExpirationStore(Broken(), clock=clock)
    store.add(Thing("a"))

    for read in (store.list, lambda: store.get_by_key("a")):
        with pytest.raises(ZeroDivisionError):
            read()

    assert store.list_keys() == ["a"]


# ---------------------------------------------------------------- writes


@pytest.mark.parametrize("write", ["add", "update"])
def test_writing_an_object_again_resets_its_age(
    store: ExpirationStore[Thing], clock: ManualClock, write: str
) -> None:
    store.add(Thing("a", version=1))
    clock.now += 8
    getattr(store, write)(Thing("a", version=2))
    clock.now += 8

    assert store.list() == [Thing("a", version=2)]


def test_expired_object_can_be_written_again(
    store: ExpirationStore[Thing], clock: ManualClock
) -> None:
    store.add(Thing("a", version=1))
    clock.now += 11
    expired = store.get_by_key("a")
    store.add(Thing("a", version=2))

    assert expired is None
    assert store.get_by_key("a") == Thing("a", version=2)


def test_replace_writes_all_objects_at_one_time(
    store: ExpirationStore[Thing], clock: ManualClock
) -> None:
    store.add(Thing("old"))

    def listing() -> Any:
        for name in ("a", "b", "a"):
            yield Thing(name, version=int(clock.now))
            clock.now += 1

    began = clock.now
    store.replace(listing(), "12")
    clock.now = began + 10
    in_time = store.list()
    clock.now += 0.1

    assert in_time == [
        Thing("a", version=int(began) + 2),
        Thing("b", version=int(began) + 1),
    ]
    assert store.list() == []
    assert store.resource_version == "12"


@pytest.mark.parametrize(
    "deleted", [Thing("a", version=5), DeletedFinalStateUnknown("a", None), "a"]
)
def test_delete_removes_the_object_with_the_key(deleted: Any) -> None:
    store = ExpirationStore[Any](TTLPolicy(10), clock=ManualClock())
    store.add(Thing("a"))
    store.add(Thing("b"))

    store.delete(deleted)
    store.delete(deleted)

    assert store.list_keys() == ["b"]


def test_expiration_store_uses_key_function() -> None:
    store = ExpirationStore[Thing](
        TTLPolicy(10), key_func=lambda it: f"v{it.version}", clock=ManualClock()
    )

    store.add(Thing("a", version=3))

    assert store.list_keys() == ["v3"]


def test_expiration_store_rejects_object_without_key() -> None:
    store = ExpirationStore[Any](TTLPolicy(10), clock=ManualClock())
    store.add(Thing("a"))
    store.applied("7")

    for write in (store.add, store.update, store.delete, store.get):
        with pytest.raises(NoKey):
            write(object())

    with pytest.raises(NoKey):
        store.replace([Thing("b"), object()], "8")

    store.resync()
    assert store.list() == [Thing("a")]
    assert store.resource_version == "7"


# ---------------------------------------------------------------- time


async def test_default_clock_is_that_of_the_loop() -> None:
    store = ExpirationStore[Thing](TTLPolicy(10))
    store.add(Thing("a"))

    await asyncio.sleep(10)
    in_time = store.list()
    await asyncio.sleep(0.1)

    assert in_time == [Thing("a")]
    assert store.list() == []


async def test_threads_use_clock_of_loop_that_wrote() -> None:
    store = ExpirationStore[Thing](TTLPolicy(10))
    empty = error_in_thread(store.list)
    store.add(Thing("a"))

    assert empty is None
    assert error_in_thread(lambda: store.get_by_key("a")) is None
    assert error_in_thread(store.list) is None


def test_expiration_store_needs_a_clock_without_a_loop() -> None:
    store = ExpirationStore[Thing](TTLPolicy(10))

    with pytest.raises(OptionsError, match="clock="):
        store.add(Thing("a"))

    assert len(store) == 0
