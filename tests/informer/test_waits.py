"""`SharedInformer.wait_until` with predicates of an object and of the store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    Page,
    Silence,
    Stream,
    added,
    deleted,
    error_event,
    modified,
    thing,
)
from informer_helpers import pods_of, running, settle
from queue_helpers import error_in_thread

from aioinformer.errors import (
    Forbidden,
    InformerStopped,
    NotSynced,
    OptionsError,
    ServerError,
    WrongLoop,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioinformer.cache import Indexer
    from aioinformer.model import KubeObject

BUSY = ServerError("busy", status=503)
A = "default/a"


class RecordingPredicate:
    """A predicate that records versions, and is true for one of them."""

    def __init__(self, until: str | None) -> None:
        self.until = until
        self.checked: list[str | None] = []

    def __call__(self, obj: KubeObject | None) -> bool:
        version = None if obj is None else obj.resource_version
        self.checked.append(version)
        return version == self.until


def never(subject: object) -> bool:
    return False


# ---------------------------------------------------------------- one object


async def test_wait_until_returns_at_once_if_the_predicate_is_true(
    looptime: float,
) -> None:
    pods = pods_of()

    async with running(pods.run()):
        await pods.wait_synced()
        await pods.wait_until(lambda obj: obj is not None, A)
        await pods.wait_until(lambda obj: obj is None, key="default/none", timeout=0)

    assert looptime == 0


async def test_wait_until_returns_the_state_that_satisfied_the_predicate() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    async with running(pods.run()):
        await pods.wait_synced()
        waiter = asyncio.create_task(pods.wait_until(RecordingPredicate("8"), A))
        await settle()
        stream.send(modified(thing("a", 8)), modified(thing("a", 9)))
        found = await waiter
        assert found is not None
        assert found.resource_version == "8"
        assert await pods.wait_until(lambda obj: obj is None, "default/none") is None


async def test_wait_until_checks_each_state_in_order() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    predicate = RecordingPredicate("9")

    async with running(pods.run()):
        await pods.wait_synced()
        waiter = asyncio.create_task(pods.wait_until(predicate, A))
        await settle()
        stream.send(modified(thing("a", 6)), modified(thing("b", 7)))
        await settle()
        stream.send(modified(thing("a", 8)), modified(thing("a", 9)))
        await waiter

    assert predicate.checked == ["1", "6", "8", "9"]


async def test_wait_until_sees_a_state_that_was_replaced_in_the_same_batch() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))

    async with running(pods.run()):
        await pods.wait_synced()
        removed = asyncio.create_task(pods.wait_until(lambda obj: obj is None, A))
        await settle()
        stream.send(deleted(thing("a", 6)), added(thing("a", 7, uid="u2")))
        await removed

        assert A in pods.store, "the replacement is stored already"


async def test_wait_until_sees_a_replacement_found_by_a_relist() -> None:
    pods = pods_of(
        Page([thing("a")], version=5),
        Page([thing("a", 8, uid="u2")], version=9),
        watches=(Stream(5.0, [error_event(410)]),),
    )
    predicate = RecordingPredicate("8")

    async with running(pods.run()):
        await pods.wait_until(predicate, A)

    assert predicate.checked == ["1", None, "8"]


async def test_store_is_never_older_than_the_state_being_checked() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    stale: list[str] = []

    def look(obj: KubeObject | None) -> bool:
        stored = pods.store.get_by_key(A)
        assert obj is not None
        assert stored is not None
        if int(stored.resource_version) < int(obj.resource_version):
            stale.append(obj.resource_version)

        return obj.resource_version == "99"

    async with running(pods.run()):
        waiter = asyncio.create_task(pods.wait_until(look, A))
        for version in range(6, 100, 3):
            await asyncio.sleep(0)
            states = [modified(thing("a", version + more)) for more in range(3)]
            stream.send(*states)

        await waiter

    assert stale == []


async def test_wait_until_does_not_take_an_unsynced_cache_for_absence(
    looptime: float,
) -> None:
    pods = pods_of(Page([thing("a")], version=5, seconds=3))
    predicate = RecordingPredicate("1")

    async with running(pods.run()):
        await pods.wait_until(predicate, A)

    assert predicate.checked == ["1"]
    assert looptime == 3


async def test_wait_until_can_start_before_the_informer() -> None:
    pods = pods_of()
    waiter = asyncio.create_task(pods.wait_until(lambda obj: obj is not None, A))
    await settle()

    async with running(pods.run()):
        await waiter


async def test_thousands_of_waiters_check_only_their_own_object() -> None:
    names = [f"p{number}" for number in range(3000)]
    stream = Stream()
    pods = pods_of(Page([thing(name) for name in names], 5), watches=(stream,))
    predicates = {name: RecordingPredicate("6") for name in names}

    async with running(pods.run()):
        await pods.wait_synced()
        async with asyncio.TaskGroup() as group:
            for name, predicate in predicates.items():
                group.create_task(pods.wait_until(predicate, f"default/{name}"))

            await settle()
            stream.send(*(modified(thing("p7", 10 + more)) for more in range(100)))
            await settle()
            busy = sum(len(predicate.checked) for predicate in predicates.values())
            for predicate in predicates.values():
                predicate.until = None

            await pods.wait_for_version("109")
            stream.send(
                *(deleted(thing(name, 200 + at)) for at, name in enumerate(names))
            )

    assert busy == 3000 + 100


# ---------------------------------------------------------------- the store


async def test_store_predicate_is_checked_after_each_batch() -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))
    sizes: list[int] = []

    def enough(store: Indexer[KubeObject]) -> bool:
        sizes.append(len(store))
        return len(store) >= 5

    async with running(pods.run()):
        waiter = asyncio.create_task(pods.wait_until(enough))
        await settle()
        stream.send(added(thing("c", 6)))
        await settle()
        stream.send(added(thing("d", 7)), added(thing("e", 8)))
        await waiter

    assert sizes == [2, 3, 5]


async def test_store_predicate_sees_a_list_that_empties_the_store() -> None:
    pods = pods_of(
        Page([thing("a")], version=5),
        Page([], version=9),
        watches=(Stream(5.0, [error_event(410)]),),
    )

    async with running(pods.run()):
        await pods.wait_until(lambda store: not len(store), timeout=60)


# ---------------------------------------------------------------- timeouts and errors


@pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param(A, "pods has object default/a at version 6", id="there"),
        pytest.param("default/x", "pods has no object default/x", id="absent"),
        pytest.param(
            "a",
            "pods has no object a, keys are namespace/name, such as default/a",
            id="no-namespace",
        ),
        pytest.param(None, "pods has 2 objects at version 6", id="store"),
    ],
)
async def test_timeout_error_names_the_last_state(
    key: str | None, text: str, looptime: float
) -> None:
    pods = pods_of(watches=(Stream(3.0, [modified(thing("a", 6))]),))

    async with running(pods.run()):
        with pytest.raises(TimeoutError) as raised:
            await pods.wait_until(never, key, timeout=9)

    assert str(raised.value) == (f"condition was not met within 9 s: {text} (watching)")
    assert raised.value.__cause__ is None
    assert looptime == 9


async def test_timeout_error_names_the_last_error() -> None:
    pods = pods_of(watches=(Stream([error_event(503)]), *(BUSY,) * 50))

    async with running(pods.run()):
        with pytest.raises(
            TimeoutError,
            match=r"at version 5 .backing off, 4 attempts failed: 503",
        ):
            await pods.wait_until(never, timeout=timedelta(seconds=9))


async def test_wait_until_can_time_out_before_the_first_list() -> None:
    pods = pods_of(Silence())

    async with running(pods.run()):
        with pytest.raises(
            TimeoutError, match=r"pods has not listed yet .listing, no error"
        ):
            await pods.wait_until(never, A, timeout=9)


async def test_wait_until_fails_at_once_when_the_first_list_is_refused(
    looptime: float,
) -> None:
    pods = pods_of(Forbidden("no", status=403))

    async with running(pods.run()):
        with pytest.raises(NotSynced, match="403"):
            await pods.wait_until(never, A, timeout=1000)

    assert looptime < 10


@pytest.mark.parametrize("key", [A, None], ids=["key", "store"])
async def test_wait_until_raises_the_error_of_its_predicate(key: str | None) -> None:
    stream = Stream()
    pods = pods_of(watches=(stream,))

    def fails(subject: object) -> bool:
        raise LookupError("mine")

    async with running(pods.run()):
        with pytest.raises(LookupError, match="mine"):
            await pods.wait_until(fails, key)

        stream.send(modified(thing("a", 6)))
        await pods.wait_for_version("6")


async def test_timeout_error_of_a_predicate_is_passed_on() -> None:
    pods = pods_of()

    def fails(subject: object) -> bool:
        raise TimeoutError("mine")

    async with running(pods.run()):
        with pytest.raises(TimeoutError, match="mine"):
            await pods.wait_until(fails, timeout=5)


@pytest.mark.parametrize("key", [A, None], ids=["key", "store"])
async def test_wait_until_fails_when_the_informer_ends(key: str | None) -> None:
    pods = pods_of()
    waiter = asyncio.create_task(pods.wait_until(never, key))

    async with running(pods.run()):
        await settle()
        assert not waiter.done()

    with pytest.raises(InformerStopped):
        await waiter

    with pytest.raises(InformerStopped, match="pods has ended"):
        await pods.wait_until(never, A)


async def test_handler_in_wait_until_does_not_delay_the_stop(looptime: float) -> None:
    pods = pods_of(Page([thing("a")], version=5))
    ended: list[type] = []

    @pods.on_add
    async def wait(obj: KubeObject) -> None:
        try:
            await pods.wait_until(never, obj.key)
        except InformerStopped as exc:
            ended.append(type(exc))

    async with running(pods.run()):
        await asyncio.sleep(1)

    assert ended == [InformerStopped]
    assert looptime == 1


@pytest.mark.parametrize("key", [A, None], ids=["key", "store"])
async def test_cancelled_wait_until_leaves_no_waiter(key: str | None) -> None:
    pods = pods_of()

    async with running(pods.run()):
        waiter = asyncio.create_task(pods.wait_until(never, key))
        await settle()
        waiting = len(pods._waiters)
        waiter.cancel()
        await asyncio.wait({waiter})

        assert (waiting, len(pods._waiters)) == (1, 0)
        assert waiter.cancelled()


# ---------------------------------------------------------------- invalid calls


async def asks(subject: object) -> bool:
    return True


class Asks:
    async def __call__(self, subject: object) -> bool:
        return True


class Answer:
    def __await__(self) -> Generator[None, None, bool]:
        yield
        return True


@pytest.mark.parametrize(
    "predicate",
    [
        pytest.param(asks, id="coroutine-function"),
        pytest.param(Asks(), id="object-with-one"),
        pytest.param(lambda subject: asks(subject), id="returns-a-coroutine"),
        pytest.param(lambda subject: Answer(), id="returns-an-awaitable"),
        pytest.param("ready", id="no-function"),
    ],
)
async def test_predicate_must_be_a_plain_function(
    predicate: Callable[[object], object],
) -> None:
    pods = pods_of()

    async with running(pods.run()):
        await pods.wait_synced()
        with pytest.raises(OptionsError, match="must be a plain function"):
            await pods.wait_until(predicate, A)


async def test_wait_until_refuses_another_loop() -> None:
    pods = pods_of()

    async with running(pods.run()):
        await settle()
        error = error_in_thread(lambda: asyncio.run(pods.wait_until(never, A)))

    assert isinstance(error, WrongLoop)
