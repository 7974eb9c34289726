"""`OrderedFIFO` against a model, with any sequence of calls.

Every change is popped alone and in order, also after a requeue. Lists and resyncs are
one entry, or several with known objects.
"""

from __future__ import annotations

from fifo_machine import QueueMachine
from hypothesis import HealthCheck
from hypothesis.stateful import invariant

from aioinformer.cache import Replacement
from examples import examples


class OrderedMachine(QueueMachine):
    ordered = True

    @invariant()
    def newest_change_is_queued_after_the_last_list(self) -> None:
        newest = self.fifo._newest
        after = [*self.fifo._queue]
        lists = [n for n, it in enumerate(after) if isinstance(it[1], Replacement)]
        after = after[lists[-1] + 1 if lists else 0 :]
        assert newest == {key: entry for key, entry in after if key is not None}


OrderedMachine.TestCase.settings = examples(
    30,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],  # the machine's speed varies
)
TestOrderedMachine = OrderedMachine.TestCase
