"""`Reflector`: cancellation in any turn of the loop leaves nothing open or running."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    END,
    FakeStore,
    Page,
    ServedSource,
    Stream,
    added,
    deleted,
    error_event,
    initial_events_end,
    modified,
    thing,
)
from informer_helpers import reflector_of, running, settle
from task_helpers import cancelled_after

from aioinformer.errors import DecodeError, NotFound, OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable

GONE = NotFound("?", status=404)


def scripted() -> ServedSource:
    """Make a source whose streams break and succeed, and whose resource is removed."""
    return ServedSource(
        [
            Page([thing("a"), thing("b"), thing("c")], version=7, token="t1"),
            Page([thing("d")], version=7, token="t2"),
            Page([thing("e")], version=7),
            GONE,
        ],
        [
            Stream([added(thing("a"))], END),
            Stream([added(thing("a")), modified(thing("b"))], [error_event(500)]),
            Stream([deleted(thing("a"))], DecodeError("garbled")),
            Stream([modified(thing("a", 9))], 2.0, DecodeError("garbled")),
        ],
    )


def streaming() -> ServedSource:
    stream = Stream(
        [added(thing("a")), added(thing("b"))],
        [modified(thing("a", 3)), deleted(thing("b", 4))],
        [initial_events_end(5), added(thing("c", 6))],
        [modified(thing("c", 7))],
        2.0,
        END,
    )
    return ServedSource([], [stream])


# Possible contents of the store.
STATES = {
    scripted: ["", "a@1 b@1 c@1 d@1 e@1", "a@9 b@1 c@1 d@1 e@1"],
    streaming: ["", "a@3", "a@3 c@6", "a@3 c@7"],
}

# Starts of the attempts of the first script: three streams, of which the last is
# replaced by pages and a watch, then 404s.
MOMENTS = [0.0, 1.2, 3.6, 5.6, 10.4]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("source", STATES)
async def test_reflector_cancelled_in_any_turn_leaves_nothing(
    source: Callable[[], ServedSource], moment: float
) -> None:
    before = asyncio.all_tasks()
    for turns in range(40):
        answers, store = source(), FakeStore()
        reflector = reflector_of(answers, store, streaming_list=True)
        task = await cancelled_after(reflector.run(), turns, moment=moment)

        assert task.cancelled()
        assert answers.open == 0
        assert asyncio.all_tasks() == before
        assert " ".join(store.names) in STATES[source]


async def test_script_of_the_source_is_used_up() -> None:
    answers, store = scripted(), FakeStore()
    reflector = reflector_of(answers, store, streaming_list=True)
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(21)
    task.cancel()
    await asyncio.wait({task})

    assert answers.requested == [
        *("stream ''", "stream ''", "stream ''"),
        *("list '0'", "list t1", "list t2", "watch '7'"),
        *("list '9'", "list '9'"),
    ]
    assert answers.served_checks
    assert store.discards == 5


async def test_reflector_runs_only_once() -> None:
    reflector = reflector_of(scripted())
    async with running(reflector.run()):
        await settle()

    with pytest.raises(OptionsError, match="runs only once"):
        await reflector.run()
