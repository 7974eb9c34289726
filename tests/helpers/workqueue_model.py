"""Plain and slow model of a work queue."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Model"]


@dataclass(order=True)
class Queued:
    """An item in the line; the lowest comes first.

    Of one rank the one whose place was given for a lower priority does: it is older.
    """

    rank: float
    place: int
    asked: int
    item: str
    priority: int


class Model:
    """The model of every kind of queue.

    Args:
        ageing: Seconds for each step of priority; 0 for strict ones; None for a queue
            that knows no priorities.
    """

    def __init__(self, ageing: float | None) -> None:
        self.ageing = ageing
        self.line: list[Queued] = []
        self.working: set[str] = set()
        self.again: dict[str, int] = {}
        self.delayed: dict[str, tuple[float, int, int]] = {}
        self.failures: dict[str, int] = {}
        self.phase = "open"
        self.cuts_delays = True
        self.granted: set[str] = set()
        self.refused: set[str] = set()
        self.now = 0.0
        self.asked = 0

        # What metrics should say.
        self.adds = 0
        self.retries = 0
        self.taken = 0
        self.finished = 0

    @property
    def queued(self) -> set[str]:
        return {it.item for it in self.line}

    # ------------------------------------------------------------ adding

    def add(self, item: str, priority: int) -> None:
        if self.phase == "open":
            self._add_open(item, priority)
        elif item in self.working and item not in self.again:
            if self.phase == "draining" and item not in self.granted:
                self.granted.add(item)
                self.again[item] = priority
                self.adds += 1
            else:
                self.refused.add(item)

    def _add_open(self, item: str, priority: int) -> None:
        if item in self.again:
            self.again[item] = max(priority, self.again[item])
        elif item in self.working:
            self.again[item] = priority
            self.adds += 1
        elif item not in self.queued:
            self.put(item, priority)
            self.adds += 1
        else:
            self._raise(item, priority)

    def _raise(self, item: str, priority: int) -> None:
        known = next(it for it in self.line if it.item == item)
        if self.ageing is None or priority <= known.priority:
            return

        if known.rank <= self.rank_of(priority):
            known.priority = priority
        else:
            self.line.remove(known)
            self.put(item, priority)

    def rank_of(self, priority: int) -> float:
        """That of an item which is put into the line now."""
        if not self.ageing:
            return -priority

        return self.now - priority * self.ageing

    def put(self, item: str, priority: int) -> None:
        self.asked += 1
        place = 0 if self.ageing is None else priority
        rank = self.rank_of(place)
        self.line.append(Queued(rank, place, self.asked, item, priority))

    def add_after(self, item: str, delay: float, priority: int) -> None:
        if self.phase != "open":
            if delay <= 0 or self.cuts_delays:
                self.add(item, priority)
            elif item in self.working and item not in self.again:
                self.refused.add(item)

            return

        self.retries += 1
        if delay <= 0:
            self.add(item, priority)
            return

        self.asked += 1
        when, asked, before = self.delayed.get(item, (float("inf"), 0, priority))
        if self.now + delay < when:
            when, asked = self.now + delay, self.asked

        self.delayed[item] = (when, asked, max(before, priority))

    def add_rate_limited(self, item: str, priority: int) -> None:
        self.failures[item] = self.failures.get(item, 0) + 1
        self.add_after(item, 2 ** (self.failures[item] - 1), priority)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._add_due(self.now)

    def _add_due(self, until: float) -> None:
        for item in self._due(until):
            self.add(item, self.delayed.pop(item)[2])

    def _due(self, until: float) -> list[str]:
        due = [item for item, (when, *_) in self.delayed.items() if when <= until]
        return sorted(due, key=self.delayed.__getitem__)

    # ------------------------------------------------------------ working

    def take(self, item: str) -> None:
        assert item not in self.working  # never in two hands
        first = min(self.line)
        assert item == first.item  # in order, none left out
        self.line.remove(first)
        self.working.add(item)
        self.taken += 1

    def done(self, item: str) -> None:
        if item not in self.working:
            return

        self.finished += 1
        self.working.remove(item)
        if item in self.again:
            self.put(item, self.again.pop(item))

    # ------------------------------------------------------------ shutting down

    def _leave_delayed(self) -> None:
        self.refused.update(self.delayed)
        self.delayed.clear()

    def shut_down(self) -> None:
        self._leave_delayed()
        self.phase = "shut"

    def drain(self, *, cut_delays: bool) -> None:
        self.cuts_delays = cut_delays
        if cut_delays:
            self._add_due(float("inf"))
        else:
            self._leave_delayed()

        if self.phase == "open":
            self.phase = "draining"

    def give_up(self) -> frozenset[str]:
        left = self.refused | self.queued | self.working
        self.refused |= self.queued | self.again.keys()
        self.line.clear()
        self.again.clear()
        self.phase = "shut"
        return frozenset(left)
