"""Metrics sinks that record their calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Labels: TypeAlias = "tuple[str, ...]"


class PlainSink:
    """A sink that records values by metric name and label values."""

    enabled = True

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Labels]] = Counter()
        self.gauges: dict[tuple[str, Labels], float] = {}
        self.observed: defaultdict[str, list[float]] = defaultdict(list)
        self.labels: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.calls = 0

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        self.calls += 1
        self.counts[name, tuple(labels.values())] += int(amount)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.calls += 1
        self.gauges[name, tuple(labels.values())] = value

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        self.calls += 1
        self.labels[name].update(labels.items())
        self.observed[name].append(value)

    def depths(self, queue: str) -> dict[str, float]:
        """Return the depths of a queue by priority."""
        return {
            labels[1]: value
            for (name, labels), value in self.gauges.items()
            if name == "workqueue_depth" and labels[0] == queue
        }


class ReadSink(PlainSink):
    """A sink whose registered functions update it before it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.tellers: list[Callable[[], None]] = []

    def register(self, tell: Callable[[], None], /) -> None:
        self.tellers.append(tell)
        tell()

    def observe(self, name: str, /, *values: float, **labels: str) -> None:
        self.calls += 1
        self.observed[name].extend(values)

    def read(self) -> None:
        for tell in self.tellers:
            tell()
