"""How each benchmark is started: the same options, and the same two ways to print."""

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
    """What a benchmark was asked for.

    Attributes:
        rounds: How often each contestant is measured; they take turns.
        quick: As small as it can be: whether all works, not how fast it is.
    """

    rounds: int
    quick: bool

    @property
    def fewer_rounds(self) -> int:
        """How often what takes minutes each time is measured."""
        return max(1, self.rounds // 3)


def run(measure: Callable[[Options], Iterable[Figure]], *, rounds: int = 3) -> int:
    """Measure, and print.

    Args:
        measure: Gives the figures; it may take minutes, and says on standard error what
            it is doing.
        rounds: How many without `--rounds`.

    Returns:
        The status of the process.
    """
    doc = (sys.modules["__main__"].__doc__ or "").split("\n", 1)[0]
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--rounds", type=int, help=f"runs of each ({rounds})")
    parser.add_argument("--quick", action="store_true", help="small, for a look at it")
    parser.add_argument(
        "--json", action="store_true", help="one figure a line, as JSON"
    )
    arguments = parser.parse_args()
    wanted = arguments.rounds or (1 if arguments.quick else rounds)
    for figure in measure(Options(rounds=wanted, quick=arguments.quick)):
        if arguments.json:
            print(msgspec.json.encode(figure).decode(), flush=True)
        else:
            value = figure.note if figure.value is None else f"{figure.value:,.6g}"
            print(
                f"{figure.case:48} {figure.contestant:28} {value:>12} {figure.unit}",
                flush=True,
            )

    return 0
