"""`RunState`: begins once, ends once, and wakes waiters."""

from __future__ import annotations

import asyncio

import pytest
from informer_helpers import settle
from queue_helpers import error_in_thread

from aioinformer.errors import InformerStopped, OptionsError, WrongLoop
from aioinformer.informer.lifecycle import RunState, running_loop


async def test_run_state_begins_once() -> None:
    live = RunState("pods")
    idle = repr(live)
    live.begin()

    with pytest.raises(OptionsError, match="pods runs only once"):
        live.begin()

    assert live.loop is asyncio.get_running_loop()
    assert (idle, repr(live)) == ("<RunState pods idle>", "<RunState pods running>")


async def test_run_state_does_not_begin_after_its_end() -> None:
    live = RunState("pods")
    live.end()

    with pytest.raises(InformerStopped, match="pods has ended"):
        live.begin()

    assert live.loop is None
    assert repr(live) == "<RunState pods stopped>"


def test_first_failure_is_the_cause_of_informer_stopped() -> None:
    live = RunState("pods")
    live.check_not_stopped()
    failure = ValueError("first")

    live.end(failure)
    live.end(ValueError("second"))
    live.end()

    with pytest.raises(InformerStopped) as raised:
        live.check_not_stopped()

    assert raised.value.__cause__ is failure


async def test_change_wakes_every_waiter() -> None:
    live = RunState("pods")
    waiters = [asyncio.create_task(live.wait_for_change()) for _ in range(3)]
    await settle()
    before = [waiter.done() for waiter in waiters]

    live.notify()
    await settle()

    assert (before, [waiter.done() for waiter in waiters]) == ([False] * 3, [True] * 3)


async def test_change_wakes_only_earlier_waiters() -> None:
    live = RunState("pods")
    live.notify()
    waiter = asyncio.create_task(live.wait_for_change())
    await settle()

    assert not waiter.done()

    live.end()
    await waiter


async def test_run_state_belongs_to_the_loop_in_which_it_began() -> None:
    live = RunState("pods")
    before = error_in_thread(live.check_loop)
    live.begin()
    live.check_loop()

    assert before is None
    assert isinstance(error_in_thread(live.check_loop), WrongLoop)


def test_running_loop_is_none_outside_of_coroutines() -> None:
    assert running_loop() is None


def test_on_death_is_called_once_and_at_once() -> None:
    live = RunState("pods")
    received: list[tuple[BaseException, bool, bool]] = []
    live.on_death = lambda exc: received.append((exc, live.stopped, live.over))
    first = ValueError("first")

    live.wind_down()
    live.die(first)
    live.die(ValueError("second"))
    live.end(ValueError("third"))

    assert received == [(first, True, False)]


def test_end_without_a_failure_is_no_death() -> None:
    live = RunState("pods")
    received: list[BaseException] = []
    live.on_death = received.append

    live.end()

    assert received == []
