"""The fault queue of a server: pending faults, and the record of their strikes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError
from aioinformer_apiserver.faults.base import Fault, Occasion, Strike
from aioinformer_apiserver.faults.chaos import Chaos

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Faults"]

# Maximum number of recorded strikes.
_STRIKES = 10_000


class Faults:
    """Queue of pending faults, in the order in which requests try them.

    Attributes:
        taken: Strikes that requests have taken, oldest first. May be cleared.
        struck: Strikes that have changed the content, time or arrival of a response, in
            the order in which they did. May be cleared.
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
            OptionsError: If an argument is not a fault; then none is added. Also
                without arguments.
        """
        if not faults:
            raise OptionsError("faults.add() needs at least one fault, such as Gone()")

        entries = [_Entry.of(it) for it in faults]
        self._pending += entries
        self._entries += entries

    def clear(self) -> None:
        """Remove all pending faults. Strikes in progress continue."""
        for entry in self._pending:
            entry.remaining = 0

        self._pending.clear()

    def check(self) -> None:
        """Check at the end of a test that every fault has had its effect.

        Each must have struck `times` times, and changed something each time. For
        `Chaos`, and for a fault with `times=None`, one strike is enough. Faults removed
        by `clear()` need not have struck, but their strikes must have had an effect.

        Raises:
            AssertionError: If a fault was not used or had no effect. The message names
                all of them.
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
        """Take the fault of one request; None if none matches. The server calls this.

        Args:
            verb: Kubernetes permission verb.
            resource: Plural name.
            namespace: Empty for cluster-wide requests and cluster-scoped resources.
            query: Query parameters.
            path: Path without the query.
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
            if entry.remaining == 0:
                self._pending.remove(entry)

            if fault is not None:
                return self._strike(entry, fault, occasion)

        return None

    def _strike(self, entry: _Entry, fault: Fault, occasion: Occasion) -> Strike:
        def record_effect() -> None:
            if entry.without_effect.pop(id(strike), None) is not None:
                entry.had_effect = True
                self.struck.append(strike)

        strike = Strike(fault, occasion, record_effect)
        entry.without_effect[id(strike)] = strike
        self.taken.append(strike)
        return strike


@dataclass(slots=True, eq=False)
class _Entry:
    """One added fault and its progress."""

    source: Fault | Chaos
    skip: int
    remaining: int | None
    """Number of strikes left; None for no limit."""

    lenient: bool
    """One strike with an effect is enough."""

    had_effect: bool = False
    without_effect: dict[int, Strike] = field(default_factory=dict)
    """Strikes without an effect so far, by identity."""

    @classmethod
    def of(cls, source: object) -> _Entry:
        if isinstance(source, Chaos):
            return cls(source, 0, None, lenient=True)

        if isinstance(source, Fault):
            return cls(source, source.skip, source.times, source.times is None)

        if isinstance(source, type) and issubclass(source, Fault | Chaos):
            expected = f"a {source.__name__}, not the class: {source.__name__}(...)"
        else:
            expected = f"faults, such as Gone(), not {source!r}"

        raise OptionsError(f"faults.add() takes {expected}")

    def take(self, occasion: Occasion) -> Fault | None:
        if isinstance(self.source, Chaos):
            return self.source.take(occasion)

        if not self.source.matches(occasion):
            return None

        if self.skip:
            self.skip -= 1
            return None

        if self.remaining is not None:
            self.remaining -= 1

        return self.source

    def missing(self) -> str:
        """Describe the missing effects in one line; empty if there are none."""
        if self.lenient and self.had_effect:
            return ""

        failures = []
        if self.without_effect:
            struck = [it.occasion for it in self.without_effect.values()]
            requests = ", ".join(f"{it.verb} {it.path or it.resource}" for it in struck)
            failures.append(f"had no effect on {requests}")

        if self.remaining:
            failures.append(f"has unused strikes (times={self.remaining})")
        elif self.remaining is None and not self.without_effect:
            failures.append("was not used")

        return f"{self.source!r} {' and '.join(failures)}" if failures else ""
