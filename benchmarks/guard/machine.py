"""Counts of machine instructions and memory allocations.

Callgrind, a tool of Valgrind, runs the interpreter in a virtual machine and records all
calls. It can write its counts and reset them when a given function is called, so that one
process is enough for all cases.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from guard.baseline import NotCounted
from guard.cases import CASES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["count", "counts_of_part"]

# Functions of the C library that a case calls before and after the counted part, and
# that nothing else calls.
BEGIN, END = "getsid", "getpgid"

# Functions that allocate memory. Calls between them are not counted.
ALLOCATORS = {
    *("PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc"),
    *("PyMem_Malloc", "PyMem_Calloc", "PyMem_Realloc"),
    *("_PyObject_Malloc", "_PyObject_Calloc", "_PyObject_Realloc"),
}

_LINE = re.compile(
    r"^(?:summary: (\d+)|fn=(.*)|cfn=(.*)|calls=(\d+) .*)$", re.MULTILINE
)


def count(
    material: Path, folder: Path, environment: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Run all cases, and count.

    Args:
        material: Input of the cases.
        folder: Folder for the files of Callgrind, some 20 MB.
        environment: Environment of the process.

    Raises:
        NotCounted: This machine cannot count; the message has the reason.
        CalledProcessError: The process failed; standard error has the reason.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotCounted("valgrind is not installed")

    output = folder / "part"
    command = [
        *(valgrind, "--tool=callgrind", f"--log-file={folder / 'log'}"),
        *(f"--callgrind-out-file={output}", "--compress-strings=no"),
        *(f"--zero-before={BEGIN}", f"--dump-before={END}"),
        *(sys.executable, "-m", "guard.counted", str(material), "marked"),
    ]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)

    runs = msgspec.json.decode(done.stdout, type=list[tuple[str, int]])
    found = {
        run: counts_of_part(output.with_suffix(f".{number}").read_text())
        for number, run in enumerate(runs, 1)
    }
    if not any(parts["allocations"] for parts in found.values()):
        raise NotCounted("cannot read function names: the interpreter is stripped")

    return {
        case.name: {
            what: (found[case.name, large][what] - found[case.name, small][what])
            / case.further_events
            for what in ("instructions", "allocations")
        }
        for case in CASES
        for small, large in [case.sizes]
    }


def counts_of_part(text: str) -> dict[str, int]:
    """Return the counts in a Callgrind file without name compression."""
    caller = called = ""
    counts = {"instructions": 0, "allocations": 0}
    for total, function, callee, calls in _LINE.findall(text):
        if total:
            counts["instructions"] += int(total)
        elif function:
            caller = function
        elif callee:
            called = callee
        elif called in ALLOCATORS and caller not in ALLOCATORS:
            counts["allocations"] += int(calls)

    return counts
