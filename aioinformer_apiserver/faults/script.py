"""The script: faults that are still to strike, and what has been struck."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError
from aioinformer_apiserver.faults.base import Fault, Occasion
from aioinformer_apiserver.faults.chaos import Chaos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Faults", "Strike"]

# Strikes remembered for tests to look at.
_STRIKES = 10_000


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that a request has taken.

    Attributes:
        fault: Which one.
        occasion: The request.
        land: Says that it has changed something; only the first time counts. The server
            calls it.
    """

    fault: Fault
    occasion: Occasion
    land: Callable[[], None] = field(repr=False, compare=False)


class Faults:
    """The faults that are still to strike, in the order in which they are tried.

    Attributes:
        taken: What requests have taken, oldest first; clear it at will.
        struck: What of that has changed something, in the order in which it did so:
            what is answered, or when, or whether it arrives. Clear it at will.
    """

    def __init__(self) -> None:
        self.taken: deque[Strike] = deque(maxlen=_STRIKES)
        self.struck: deque[Strike] = deque(maxlen=_STRIKES)
        self._pending: list[_Entry] = []
        self._entries: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Fault | Chaos]:
        return iter([it.source for it in self._pending])

    def __repr__(self) -> str:
        return f"<Faults {list(self)}>"

    def add(self, *faults: Fault | Chaos) -> None:
        """Append faults; a request takes the first one that matches.

        Raises:
            OptionsError: If one of them is no fault; then none is added.
        """
        entries = [_Entry.of(it) for it in faults]
        self._pending += entries
        self._entries += entries

    def clear(self) -> None:
        """Drop all that have not struck yet. Requests already struck stay so."""
        for entry in self._pending:
            entry.wanted = 0

        self._pending.clear()

    def check(self) -> None:
        """Check that every fault has done what it was added for; for a test's end.

        It has if it has struck as often as it says, and changed something each time. Of
        `Chaos`, and of a fault with `times=None`, one strike is enough. What has been
        dropped by `clear()` need not have struck, but must not have missed.

        Raises:
            AssertionError: If one is left over, or changed nothing; it names them all.
        """
        missing = [text for it in self._entries if (text := it.missing())]
        if missing:
            raise AssertionError("faults without effect: " + "; ".join(missing))

    def take(
        self,
        verb: str,
        resource: str,
        *,
        namespace: str = "",
        query: Mapping[str, str] | None = None,
        path: str = "",
    ) -> Strike | None:
        """Take the fault for one request, if there is one. The server calls this.

        Args:
            verb: As permissions name it.
            resource: The plural.
            namespace: Empty for all, and for what is in none.
            query: The parameters.
            path: Without the query.
        """
        occasion = Occasion(
            verb=verb,
            resource=resource,
            namespace=namespace,
            query=dict(query or {}),
            path=path,
        )
        for entry in tuple(self._pending):
            fault = entry.take(occasion)
            if entry.wanted == 0:
                self._pending.remove(entry)

            if fault is not None:
                return self._strike(entry, fault, occasion)

        return None

    def _strike(self, entry: _Entry, fault: Fault, occasion: Occasion) -> Strike:
        def land() -> None:
            if entry.missed.pop(id(strike), None) is not None:
                entry.landed = True
                self.struck.append(strike)

        strike = Strike(fault, occasion, land)
        entry.missed[id(strike)] = strike
        self.taken.append(strike)
        return strike


@dataclass(slots=True, eq=False)
class _Entry:
    """What one call of `add()` wants of one fault, and what has become of it."""

    source: Fault | Chaos
    skip: int
    wanted: int | None
    """How often it is still to strike; None without end."""

    lenient: bool
    """Once is enough."""

    landed: bool = False
    missed: dict[int, Strike] = field(default_factory=dict)
    """Its strikes that have had no effect so far, by identity."""

    @classmethod
    def of(cls, source: object) -> _Entry:
        if isinstance(source, Chaos):
            return cls(source, 0, None, lenient=True)

        if isinstance(source, Fault):
            return cls(source, source.skip, source.times, source.times is None)

        if isinstance(source, type) and issubclass(source, Fault | Chaos):
            wanted = f"a {source.__name__}, not the class: {source.__name__}(...)"
        else:
            wanted = f"faults, such as Gone(), and not {source!r}"

        raise OptionsError(f"faults.add() takes {wanted}")

    def take(self, occasion: Occasion) -> Fault | None:
        if isinstance(self.source, Chaos):
            return self.source.take(occasion)

        if not self.source.matches(occasion):
            return None

        if self.skip:
            self.skip -= 1
            return None

        if self.wanted is not None:
            self.wanted -= 1

        return self.source

    def missing(self) -> str:
        """Say what it has not done, in a line; empty if it has done all."""
        if self.lenient and self.landed:
            return ""

        told = []
        if self.missed:
            struck = [it.occasion for it in self.missed.values()]
            requests = ", ".join(f"{it.verb} {it.path or it.resource}" for it in struck)
            told.append(f"changed nothing about {requests}")

        if self.wanted:
            told.append(f"is left over (times={self.wanted})")
        elif self.wanted is None and not self.missed:
            told.append("is left over")

        return f"{self.source!r} {' and '.join(told)}" if told else ""
