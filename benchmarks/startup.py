"""Time and memory of a starting program: imports, and the first call.

Each import runs in a new interpreter, timed from before the process is started. A bare
interpreter is measured in turn, and subtracted where the case says so.

    python benchmarks/startup.py [--quick] [--rounds N] [--json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.canned_server import canned_server
from bench.corpus import encoded_pods
from bench.digest import digest, digest_of_server
from bench.figures import OURS, median
from bench.script import Options, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figures import Figure

BENCHMARK = "startup"
BARE = "a bare interpreter"
BEYOND = f"beyond {BARE}"
IMPORTS = {
    BARE: "pass",
    OURS: "import aioinformer",
    # Names that a program imports, and modules that an entered client loads.
    f"{OURS}, a factory's names": "from aioinformer import Client, SharedInformerFactory",
    f"{OURS}, with a client entered": (
        "from aioinformer import Client, SharedInformerFactory\n"
        "import aioinformer.client.transport"
    ),
    "aiohttp": "import aiohttp",
    "kr8s": "import kr8s",
    "kubernetes": "import kubernetes",
    "kubernetes_asyncio": "import kubernetes_asyncio.client",
    "lightkube": "import lightkube",
}
TELL = """
import time
now = time.monotonic()
with open("/proc/self/status") as status:
    print(now, next(line.split()[1] for line in status if line.startswith("VmRSS")))
"""
OBJECTS = 100


class Start(NamedTuple):
    """Start of a process."""

    milliseconds: float
    mib: float


def measure(options: Options) -> Iterator[Figure]:
    if not options.quick:
        for statement in IMPORTS.values():
            _imported(statement)  # the modules are compiled now, and in the disk cache

    starts: dict[str, list[Start]] = {name: [] for name in IMPORTS}
    for number in range(options.rounds):
        print(f"{BENCHMARK}: imports, run {number + 1}", file=sys.stderr)
        for name, statement in IMPORTS.items():
            starts[name].append(_imported(statement))

    yield from _imports(starts)
    yield from _first_calls(options.rounds)


def _imports(starts: dict[str, list[Start]]) -> Iterator[Figure]:
    bare = starts[BARE]
    for name, runs in starts.items():
        times = [it.milliseconds for it in runs]
        sizes = [it.mib for it in runs]
        yield median(BENCHMARK, "import: total time", name, "ms", times)
        yield median(BENCHMARK, "import: total memory", name, "MiB", sizes)
        if name != BARE:
            # Differences within a round, so that a busy machine affects both.
            pairs = list(zip(runs, bare, strict=True))
            times = [it.milliseconds - other.milliseconds for it, other in pairs]
            sizes = [it.mib - other.mib for it, other in pairs]
            yield median(BENCHMARK, f"import: time {BEYOND}", name, "ms", times)
            yield median(BENCHMARK, f"import: memory {BEYOND}", name, "MiB", sizes)


def _imported(statement: str) -> Start:
    began = time.monotonic()
    # Without the current folder.
    command = [sys.executable, "-P", "-c", statement + TELL]
    done = subprocess.run(command, env=_environ(), stdout=subprocess.PIPE, check=True)
    now, kib = done.stdout.split()
    return Start((float(now) - began) * 1e3, int(kib) / 1024)


def _environ() -> dict[str, str]:
    """Return an environment in which modules are compiled as pip compiles them."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


# ---------------------------------------------------------------- the first call


def _first_calls(rounds: int) -> Iterator[Figure]:
    pods = encoded_pods(OBJECTS)
    first: list[float] = []
    synced: list[float] = []
    for number in range(rounds):
        print(f"{BENCHMARK}: first call, run {number + 1}", file=sys.stderr)
        with canned_server(pods) as url:
            began = time.monotonic()
            report = _first_call(url)
            first.append((report["first"] - began) * 1e3)
            synced.append((report["synced"] - began) * 1e3)

    of = f"of {OBJECTS} objects"
    yield median(BENCHMARK, f"start to the first call, {of}", OURS, "ms", first)
    yield median(BENCHMARK, f"start to the last call, {of}", OURS, "ms", synced)


def _first_call(url: str) -> dict[str, float]:
    """Run the program once.

    Raises:
        RuntimeError: The store differs from the server.
    """
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-m", "bench.first_call", url],
        env={**_environ(), "PYTHONPATH": folder},
        stdout=subprocess.PIPE,
        check=True,
    )
    report = json.loads(done.stdout)
    bodies = (body.encode() for body in report.pop("bodies"))
    if digest(bodies) != digest_of_server(url):
        raise RuntimeError("the informer has another state than the server")

    times: dict[str, float] = report
    return times


if __name__ == "__main__":
    sys.exit(run(measure, rounds=20))
