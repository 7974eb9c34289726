"""All benchmarks, one after the other, with a table and plots.

Each benchmark is a script of this folder. Its figures are written when it ends. A run
of all replaces the stored run. `--only` continues the stored run or repeats parts of
it, on the same commit and machine and with the same versions; elsewhere, it prints its
table only.

    python benchmarks/run.py [--only BENCHMARK ...] [--quick] [--rounds N] [--report]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from bench import record
from bench.figures import Figure
from bench.page import write_between_marks, write_page

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "docs" / "benchmarks"
FIGURES = RESULTS / "figures.json"
README = FOLDER.parent / "README.md"
BENCHMARKS = (
    "list_sync",
    "watch_throughput",
    "memory",
    "web_latency",
    "interpreters",
    "fanout",
    "workqueue",
    "indexer",
    "startup",
    "scale",
    "million",
    "steady",
    "recording",
    "shared_cache",
    "shards",
    "apiserver",
    "real_server",
)
LONG = frozenset({"million"})
"""Benchmarks that a short run leaves out, unless they are requested."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="BENCHMARK")
    parser.add_argument(
        "--quick", action="store_true", help="smallest run; writes nothing"
    )
    parser.add_argument("--rounds", type=int, help="number of runs of each contestant")
    parser.add_argument(
        "--report",
        action="store_true",
        help="only write the report from the stored figures",
    )
    arguments = parser.parse_args()
    status = 0
    run, published = prepared(arguments)
    chosen = [it for it in BENCHMARKS if not (arguments.quick and it in LONG)]
    for benchmark in () if arguments.report else arguments.only or chosen:
        options = ["--quick"] if arguments.quick else []
        if arguments.rounds:
            options += ["--rounds", str(arguments.rounds)]

        began = time.monotonic()
        figures = ask(benchmark, options)
        if figures is None:
            status = 1
            continue

        run = run.with_figures(benchmark, figures, round(time.monotonic() - began))
        if published:
            record.write(FIGURES, run)

    print(write_page(run, RESULTS if published else None))
    if published:
        write_between_marks(README, run)

    return status


def prepared(arguments: argparse.Namespace) -> tuple[record.Run, bool]:
    """Return the run that gets the figures, and True if it is to be stored."""
    now, stored = record.new_run(), record.read(FIGURES)
    if arguments.report and stored is not None:
        return stored, True

    if arguments.quick:
        return now, False

    try:
        return record.resume(stored if arguments.only and stored else now, now), True
    except record.Mixed as difference:
        print(f"Figures are not stored: {difference}.", file=sys.stderr)
        return now, False


def ask(benchmark: str, options: list[str]) -> list[Figure] | None:
    """Run one script. Return None, and print a line on standard error, if it fails."""
    print(f"### {benchmark}", file=sys.stderr, flush=True)
    script = [sys.executable, str(FOLDER / f"{benchmark}.py"), "--json", *options]
    done = subprocess.run(script, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        print(f"{benchmark} failed with status {done.returncode}", file=sys.stderr)
        return None

    decode = msgspec.json.Decoder(Figure).decode_lines
    return decode(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
