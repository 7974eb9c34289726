"""All benchmarks, one after the other: one table, plots, and what they were made from.

Each question is a script of this folder. Its answers are written as soon as they are
there, so that a run that was interrupted can be continued with `--only`.

    python benchmarks/run.py [--only QUESTION ...] [--quick] [--rounds N] [--report]
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
QUESTIONS = (
    "list_sync",
    "watch_throughput",
    "memory",
    "web_latency",
    "fanout",
    "workqueue",
    "indexer",
    "startup",
    "scale",
    "apiserver",
    "real_server",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="QUESTION")
    parser.add_argument(
        "--quick", action="store_true", help="small; nothing is written"
    )
    parser.add_argument("--rounds", type=int, help="runs of each contestant")
    parser.add_argument("--report", action="store_true", help="from the last figures")
    arguments = parser.parse_args()
    kept = {} if arguments.quick else record.read(RESULTS / "figures.json")
    status = 0
    for question in () if arguments.report else arguments.only or QUESTIONS:
        options = ["--quick"] if arguments.quick else []
        if arguments.rounds:
            options += ["--rounds", str(arguments.rounds)]

        figures = ask(question, options)
        if figures is None:
            status = 1
            continue

        kept[question] = record.circumstances(
            figures, max(len(it.runs) for it in figures)
        )
        if not arguments.quick:
            record.write(RESULTS / "figures.json", kept)

    print(write_page(kept, None if arguments.quick else RESULTS))
    if not arguments.quick:
        write_between_marks(README, kept)

    return status


def ask(question: str, options: list[str]) -> list[Figure] | None:
    """Run one script; None, and a line on standard error, if it failed."""
    print(f"### {question}", file=sys.stderr, flush=True)
    script = [sys.executable, str(FOLDER / f"{question}.py"), "--json", *options]
    done = subprocess.run(script, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        print(f"{question} failed with status {done.returncode}", file=sys.stderr)
        return None

    decode = msgspec.json.Decoder(Figure).decode_lines
    return decode(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
