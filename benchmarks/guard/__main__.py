"""Counts the cost of events, and fails if one exceeds the committed baseline.

Counted are Python instructions and objects tracked by the garbage collector. With Valgrind
and the interpreter of the baseline, machine instructions and memory allocations are
counted, too. Nothing is timed: the same code gives the same counts, however busy the
machine is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from guard import baseline, machine, material, report
from guard.baseline import OF_ONE_BUILD, Baseline, Counts, Maker, NotCounted
from guard.report import Report


def main() -> int:
    arguments = parse()
    path: Path = arguments.baseline
    minor = baseline.this_minor()
    before = baseline.read(path).get(minor)
    if arguments.write:
        result = write(path)
    elif before is None:
        result = report.no_baseline(minor)
    else:
        result = report.compare(before, counted(before))

    print(*result.lines, sep="\n")
    return result.status


def parse() -> argparse.Namespace:
    doc = (__doc__ or "").split("\n", 1)[0]
    parser = argparse.ArgumentParser(prog="scripts/guard", description=doc)
    parser.add_argument(
        "--write", action="store_true", help="write the current counts as the baseline"
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        default=baseline.BASELINE,
        help="path of the baseline file",
    )
    return parser.parse_args()


def write(path: Path) -> Report:
    now = counted(None)
    if now.missing:
        return Report(
            [*now.left_out(), "Not written: the baseline would be incomplete."], 2
        )

    baseline.write(path, now.counts)
    return Report([f"Written: {path}"], 0)


def counted(before: Baseline | None) -> report.Counted:
    """Count everything that the baseline has; everything possible without one."""
    here = Maker.here()
    missing: dict[str, str] = {}
    of_machine: Counts = {}
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "material"
        material.write(made)
        command = [sys.executable, "-m", "guard.counted", str(made), "within"]
        # The slow counts run in parallel with the slower ones.
        with subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE
        ) as within:
            try:
                if before is not None:
                    before.made_with.check_build(here)

                of_machine = machine.count(made, Path(folder), environment())
            except NotCounted as exc:
                missing = dict.fromkeys(sorted(OF_ONE_BUILD), str(exc))

            output, _ = within.communicate()

    if within.returncode:
        sys.exit(f"counting failed with status {within.returncode}")

    counts = msgspec.json.decode(output, type=Counts)
    for case, more in of_machine.items():
        counts[case] |= more

    return report.Counted(here, counts, missing)


def environment() -> dict[str, str]:
    """Return the environment of the counting processes, which is always the same."""
    kept = ("PATH", "LD_LIBRARY_PATH")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }


if __name__ == "__main__":
    sys.exit(main())
