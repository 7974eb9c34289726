"""All benchmarks, one after the other, with a table and plots.

Each benchmark is a script of this folder. Its figures are written when it ends, so that an
interrupted run can be continued with `--only`.

    python benchmarks/run.py [--only BENCHMARK ...] [--quick] [--rounds N] [--report]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import msgspec
from bench import record
from bench.figures import Figure
from bench.page import write_between_marks, write_page

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "docs" / "benchmarks"
README = FOLDER.parent / "README.md"
BENCHMARKS = (
    "list_sync",
    "watch_throughput",
    "memory",
    "web_latency",
    "fanout",
    "workqueue",
    "indexer",
    "startup",
    "scale",
    "shared_cache",
    "shards",
    "apiserver",
    "real_server",
)


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
    kept = {} if arguments.quick else record.read(RESULTS / "figures.json")
    status = 0
    for benchmark in () if arguments.report else arguments.only or BENCHMARKS:
        options = ["--quick"] if arguments.quick else []
        if arguments.rounds:
            options += ["--rounds", str(arguments.rounds)]

        figures = ask(benchmark, options)
        if figures is None:
            status = 1
            continue

        kept[benchmark] = record.circumstances(
            figures, max(len(it.runs) for it in figures)
        )
        if not arguments.quick:
            record.write(RESULTS / "figures.json", kept)

    print(write_page(kept, None if arguments.quick else RESULTS))
    if not arguments.quick:
        write_between_marks(README, kept)

    return status


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
