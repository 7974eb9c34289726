"""G10 as a property, for any reconciles and any changes meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controller_helpers import Notes, controlled, named
from hypothesis import given
from hypothesis import strategies as st
from informer_helpers import settle

from aioinformer import PriorityQueue, ReconcileRequest, Result, TerminalError
from aioinformer.workqueue import ItemExponentialFailureRateLimiter
from examples import examples

if TYPE_CHECKING:
    from aioinformer.controller import Context

NAMES = ("a", "b", "c")

# Actions of one reconcile: its duration, and its end.
ACTS = st.tuples(
    st.sampled_from([0, 1, 5]),
    st.sampled_from(["done", "raise", "end", "cancel", "again", "nonsense", "hang"]),
)

# Other actions: an object changes, or time passes.
STEPS = st.one_of(st.sampled_from(NAMES), st.sampled_from([0, 1, 4]))


class Scripted(Notes):
    """A reconcile that follows a script, then succeeds; it records final states by key."""

    def __init__(self, script: list[tuple[int, str]]) -> None:
        super().__init__()
        self.script = list(script)
        self.ended_with: dict[str, str] = {}

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        pod = ctx.lister.get(request.key)
        state = "" if pod is None else pod.labels["n"]
        seconds, end = self.script.pop(0) if self.script else (0, "done")
        await asyncio.sleep(seconds)
        if end == "hang":
            await asyncio.Event().wait()

        if end == "raise":
            raise ValueError

        if end == "cancel":
            raise asyncio.CancelledError

        # From here on, only a change requeues the key.
        self.ended_with[request.name] = state
        answers: dict[str, Any] = {"again": Result(requeue_after=2), "nonsense": 7}
        if end == "end":
            raise TerminalError

        answer: Result | None = answers.get(end)
        return answer


@examples(40)
@given(
    script=st.lists(ACTS, max_size=12),
    steps=st.lists(STEPS, max_size=15),
    concurrency=st.integers(1, 3),
)
async def test_G10_last_reconcile_of_each_key_saw_its_last_state(
    script: list[tuple[int, str]], steps: list[str | int], concurrency: int
) -> None:
    reconcile = Scripted(script)
    queue: PriorityQueue[ReconcileRequest] = PriorityQueue(
        rate_limiter=ItemExponentialFailureRateLimiter(0.1, 5.0)
    )
    last: dict[str, str] = {}
    async with controlled(
        reconcile, queue=queue, concurrency=concurrency, timeout=10
    ) as (source, controller):
        for number, step in enumerate(steps):
            if not isinstance(step, str):
                await asyncio.sleep(step)
                continue

            change = source.modify if step in last else source.add
            last[step] = str(number)
            change(named(step, labels={"n": last[step]}))

        await settle()

        while "queued=0 working=0 delayed=0" not in repr(controller.queue):
            await asyncio.sleep(1)

        # `Notes` has asserted that no key was processed twice at once.
        assert reconcile.ended_with == last
        assert controller._workers._running == {}
        assert len(controller.queue) == 0
        assert len(controller._workers._causes) == 0
        assert controller._workers._causes._due == {}
