"""`DeltaFIFO` against a model, with any sequence of calls.

No change is lost or repeated. Changes of one key are popped together and in order, and
no change passes a whole list. Deletions are always reported. A version is applied only
after all earlier changes were popped.
"""

from __future__ import annotations

from fifo_machine import QueueMachine
from hypothesis import HealthCheck
from hypothesis.stateful import invariant

from examples import examples


class FIFOMachine(QueueMachine):
    ordered = False

    @invariant()
    def each_whole_list_ends_a_segment(self) -> None:
        queued = [entry for entry in self.fifo._queue if not isinstance(entry, str)]
        keys = [entry for entry in self.fifo._queue if isinstance(entry, str)]
        assert len(self.fifo._segments) == len(queued) + 1
        assert sum(map(len, self.fifo._segments)) == len(keys)


FIFOMachine.TestCase.settings = examples(
    50,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],  # the machine's speed varies
)
TestFIFOMachine = FIFOMachine.TestCase
