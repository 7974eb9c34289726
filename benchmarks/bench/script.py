"""Command line of all benchmarks: their options and outputs."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.figures import Figure

__all__ = ["Options", "run"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a benchmark.

    Attributes:
        rounds: Number of measurements of each contestant; they take turns.
        quick: True for the smallest run, which shows that it works, not how fast.
    """

    rounds: int
    quick: bool

    @property
    def fewer_rounds(self) -> int:
        """Number of rounds for measurements that take minutes each."""
        return max(1, self.rounds // 3)


def run(measure: Callable[[Options], Iterable[Figure]], *, rounds: int = 3) -> int:
    """Measure and print.

    Args:
        measure: Function that yields the figures. It may take minutes, and reports its
            progress on standard error.
        rounds: Default of `--rounds`.

    Returns:
        Exit status.
    """
    doc = (sys.modules["__main__"].__doc__ or "").split("\n", 1)[0]
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--rounds", type=int, help=f"runs of each ({rounds})")
    parser.add_argument(
        "--quick", action="store_true", help="smallest run, to see that it works"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one figure per line, as JSON"
    )
    arguments = parser.parse_args()
    number = arguments.rounds or (1 if arguments.quick else rounds)
    for figure in measure(Options(rounds=number, quick=arguments.quick)):
        if arguments.json:
            print(msgspec.json.encode(figure).decode(), flush=True)
        else:
            value = figure.note if figure.value is None else f"{figure.value:,.6g}"
            print(
                f"{figure.case:48} {figure.contestant:28} {value:>12} {figure.unit}",
                flush=True,
            )

    return 0
