"""`StoreWaiters`: each change wakes its waiters and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_source import thing

from aioinformer.informer import Added, Deleted, Updated
from aioinformer.informer.store.waiters import StoreWaiters

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioinformer.informer.store.waiters import KeyWaiter
    from aioinformer.model import KubeObject

A = "default/a"


def states(waiter: KeyWaiter) -> list[str | None]:
    return [None if obj is None else obj.resource_version for obj in waiter.states]


def by_key(*objects: KubeObject) -> dict[str, KubeObject]:
    return {obj.key: obj for obj in objects}


def at(version: str) -> Callable[[str | None], str]:
    return lambda namespace: version


# ---------------------------------------------------------------- by key


async def test_waiters_for_a_key_get_each_of_its_changes_in_order() -> None:
    waiting = StoreWaiters()

    with waiting.for_key(A) as one, waiting.for_key(A) as other:
        waiting.changed([Added(thing("a", 1)), Updated(thing("a", 1), thing("a", 2))])
        waiting.changed([Deleted(thing("a", 3)), Added(thing("a", 4))])

        assert states(one) == states(other) == ["1", "2", None, "4"]
        assert one.wakeup.is_set()


async def test_changes_of_other_keys_wake_no_waiter() -> None:
    waiting = StoreWaiters()

    with waiting.for_key(A) as waiter:
        waiting.changed([Added(thing("b"))])
        waiting.replaced({}, by_key(thing("b")))

        assert not waiter.wakeup.is_set()
        assert states(waiter) == []


async def test_waiter_that_left_gets_nothing() -> None:
    waiting = StoreWaiters()
    with waiting.for_key(A) as waiter:
        assert len(waiting) == 1

    waiting.changed([Added(thing("a"))])

    assert (len(waiting), states(waiter)) == (0, [])


@pytest.mark.parametrize(
    ("before", "now", "received"),
    [
        pytest.param([], [thing("a", 5)], ["5"], id="came"),
        pytest.param([thing("a", 1)], [thing("a", 5)], ["5"], id="changed"),
        pytest.param([thing("a", 1)], [], [None], id="went"),
        pytest.param(
            [thing("a", 1)], [thing("a", 5, uid="u2")], [None, "5"], id="another-one"
        ),
        pytest.param([], [], [], id="neither"),
    ],
)
async def test_waiters_get_the_changes_of_a_list(
    before: list[KubeObject], now: list[KubeObject], received: list[str | None]
) -> None:
    waiting = StoreWaiters()

    with waiting.for_key(A) as waiter:
        waiting.replaced(by_key(*before), by_key(*now))

        assert states(waiter) == received


async def test_waiters_get_nothing_for_an_object_kept_by_a_list() -> None:
    waiting = StoreWaiters()
    same = by_key(thing("a", 5))

    with waiting.for_key(A) as waiter:
        waiting.replaced(same, dict(same))

        assert not waiter.wakeup.is_set()


# ---------------------------------------------------------------- by version


async def test_waiters_wake_up_when_their_version_is_reached() -> None:
    waiting = StoreWaiters()

    with (
        waiting.for_version(7, None) as seven,
        waiting.for_version(5, None) as five,
        waiting.for_version(6, None) as six,
    ):
        waiting.applied(at("4"))
        woken = [waiter.is_set() for waiter in (five, six, seven)]
        waiting.applied(at("6"))

        assert woken == [False] * 3
        assert [it.is_set() for it in (five, six, seven)] == [True, True, False]
        assert len(waiting) == 1

    assert len(waiting) == 0


async def test_versions_of_a_namespace_have_their_own_waiters() -> None:
    versions = {None: "3", "shop": "9"}
    waiting = StoreWaiters()

    with waiting.for_version(5, None) as whole, waiting.for_version(5, "shop") as shop:
        waiting.applied(lambda namespace: versions[namespace])

        assert (whole.is_set(), shop.is_set()) == (False, True)


@pytest.mark.parametrize("version", ["", "v5"], ids=["none", "not-decimal"])
async def test_incomparable_version_wakes_all_version_waiters(
    version: str,
) -> None:
    waiting = StoreWaiters()

    with waiting.for_version(5, None) as news:
        waiting.applied(at(version))

        assert news.is_set() == bool(version)


async def test_waiter_added_after_a_wake_up_is_not_lost() -> None:
    waiting = StoreWaiters()
    late: list[asyncio.Event] = []

    with waiting.for_version(5, None):
        waiting.applied(at("5"))

    with waiting.for_version(6, None) as one:
        with waiting.for_version(7, None) as two:
            waiting.wake_versions()

        with waiting.for_version(8, None) as news:
            late.append(news)
            assert (one.is_set(), two.is_set()) == (True, True)
            waiting.applied(at("8"))

    assert late[0].is_set()
    assert len(waiting) == 0


async def test_several_waiters_can_wait_for_the_same_version() -> None:
    waiting = StoreWaiters()

    with waiting.for_version(5, None) as one, waiting.for_version(5, None) as other:
        waiting.applied(at("5"))

        assert one.is_set()
        assert other.is_set()


# ---------------------------------------------------------------- all waiters


async def test_waiter_for_any_step_wakes_up_at_each() -> None:
    waiting = StoreWaiters()

    with waiting.for_steps() as news:
        waiting.applied(at("1"))
        woken = news.is_set()
        news.clear()
        waiting.changed([Added(thing("a"))])

        assert (woken, news.is_set()) == (True, False), "woken at the end of a step"

    assert len(waiting) == 0


async def test_wake_all_wakes_every_waiter() -> None:
    waiting = StoreWaiters()

    with (
        waiting.for_key(A) as key,
        waiting.for_steps() as steps,
        waiting.for_version(5, "shop") as version,
    ):
        assert repr(waiting) == "<StoreWaiters 3>"
        waiting.wake_all()

        assert key.wakeup.is_set()
        assert steps.is_set()
        assert version.is_set()
        assert states(key) == []
