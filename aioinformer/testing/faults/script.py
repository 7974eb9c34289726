"""The script: faults that are still to strike, and what has been struck."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.testing.faults.base import Occasion
from aioinformer.testing.faults.chaos import Chaos

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer.testing.faults.base import Fault

__all__ = ["Faults", "Strike"]

# Strikes remembered for tests to look at.
_STRIKES = 10_000


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that has struck.

    Attributes:
        fault: Which one.
        occasion: The request.
    """

    fault: Fault
    occasion: Occasion


class Faults:
    """The faults that are still to strike, in the order in which they are tried.

    Attributes:
        struck: What has struck, oldest first; clear it at will.
    """

    def __init__(self) -> None:
        self.struck: deque[Strike] = deque(maxlen=_STRIKES)
        self._pending: list[_Pending | Chaos] = []

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Fault | Chaos]:
        return iter([it if isinstance(it, Chaos) else it.fault for it in self._pending])

    def __repr__(self) -> str:
        return f"<Faults {list(self)}>"

    def add(self, *faults: Fault | Chaos) -> None:
        """Append faults; a request takes the first one that matches."""
        self._pending += [
            it if isinstance(it, Chaos) else _Pending(it, it.skip, it.times)
            for it in faults
        ]

    def clear(self) -> None:
        """Drop all that have not struck yet. Requests already struck stay so."""
        self._pending.clear()

    def take(
        self,
        verb: str,
        resource: str,
        *,
        namespace: str = "",
        query: Mapping[str, str] | None = None,
        path: str = "",
    ) -> Fault | None:
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
        for pending in tuple(self._pending):
            fault = pending.take(occasion)
            if isinstance(pending, _Pending) and pending.times == 0:
                self._pending.remove(pending)

            if fault is not None:
                self.struck.append(Strike(fault, occasion))
                return fault

        return None


@dataclass(slots=True, eq=False)
class _Pending:
    fault: Fault
    skip: int
    times: int | None

    def take(self, occasion: Occasion) -> Fault | None:
        if not self.fault.matches(occasion):
            return None

        if self.skip:
            self.skip -= 1
            return None

        if self.times is not None:
            self.times -= 1

        return self.fault
