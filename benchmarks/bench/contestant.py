"""Contestants: programs that list, watch, and report when they are ready.

Each is a process of its own, so that none warms anything up for the next one. All use the
same protocol, in any language:

    PROGRAM URL [--events N] [--body] [--relist N]

A contestant copies all pods of the server at URL into memory by the usual means of its
library, with a handler (a callback where the library has them, else the body of its
loop). It writes one JSON object per line to its standard output, unbuffered:

* `{"at": "start", "resident": KIB}` before its first request, with everything imported;
* `{"at": "synced", "seconds": S, "resident": KIB, "objects": N}` when the handler has
  seen every object of the first list; seconds since the first request;
* with `--events N`: it requests `URL/bench/go`, and measures the time until the N-th
  change in the handler: `{"at": "watched", "seconds": S, "events": N, "resident": KIB,
  "latencies": [MS, ...]}`. If versions are times (above 10**18: nanoseconds of the wall
  clock), the latencies are the times from then until the handler got the event;
* with `--relist N`: it requests `URL/bench/relist?changed=F` (`--changed F`), and waits
  until the handler has seen N more changes: `{"at": "relisted", "seconds": S,
  "resident": KIB, "peak": KIB}`, with the peak of resident memory meanwhile;
* at the end `{"at": "end", "digest": HEX}`: the digest of its copy, see `bench.digest`.

`--body` requests an index on `spec.nodeName` (a dictionary kept by hand where the library
has no indexes) and a handler that reads `status.phase`. Without it, the body is not read.
Resident memory is `VmRSS` of /proc/self/status, after garbage has been released. For a
real server, the environment variables BENCH_TOKEN and BENCH_CA have a token and the file
of a CA.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.builds import BuildFailed, built
from bench.digest import digest_of_server
from bench.figures import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "KUBE_RS_STREAMING",
    "OURSELVES",
    "PEERS",
    "PLAIN_LIST",
    "PROTOBUF",
    "PROTOBUF_PLAIN_LIST",
    "Contestant",
    "Failed",
    "Report",
    "contest",
]

PEERS_FOLDER = Path(__file__).parent.parent / "peers"
TIMEOUT_SECONDS = 600.0

Report = dict[str, dict[str, Any]]
"""Output of a contestant, by `at`."""


class Failed(Exception):
    """Failure of a contestant: not built, not ended, or with a wrong state."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One of the compared programs.

    Attributes:
        name: Name in the table.
        program: Script of `peers/`, or name of a program of `bench.builds`.
        options: Further options of its program.
        language: "Python", "Go", "Rust".
        slow: True under 2,000 objects/s. It is measured with a fifth of the objects, which
            does not change its rate, and not with 100,000.
        protobuf: True if the server must answer it with protobuf.
        python: Interpreter of a script.
    """

    name: str
    program: str
    options: tuple[str, ...] = ()
    language: str = "Python"
    slow: bool = False
    protobuf: bool = False
    python: str = sys.executable

    def command(self) -> list[str]:
        """Return the command that starts it.

        Raises:
            Failed: The program cannot be built; the message has the reason.
        """
        if self.program.endswith(".py"):
            start = [self.python, str(PEERS_FOLDER / self.program)]
        else:
            try:
                start = [str(built(self.program))]
            except BuildFailed as error:
                raise Failed(str(error)) from error

        return [*start, *self.options]


OURSELVES = Contestant(name=OURS, program="ours.py")

PEERS = (
    Contestant(
        name="client-go typed JSON",
        program="client_go",
        options=("--mode", "typed"),
        language="Go",
    ),
    Contestant(
        name="client-go untyped",
        program="client_go",
        options=("--mode", "untyped"),
        language="Go",
    ),
    Contestant(name="kube-rs", program="kube_rs", language="Rust"),
    Contestant(name="lightkube", program="lightkube_peer.py"),
    Contestant(
        name="kubernetes_asyncio", program="kubernetes_asyncio_peer.py", slow=True
    ),
    Contestant(name="kubernetes.informer", program="official_peer.py", slow=True),
    Contestant(name="kr8s", program="kr8s_peer.py", slow=True),
)

# Other settings of the same libraries, of which one may be faster.
PLAIN_LIST = Contestant(
    name="client-go typed JSON, plain list",
    program="client_go",
    options=("--mode", "typed", "--watch-list=false"),
    language="Go",
)
PROTOBUF = Contestant(
    name="client-go typed protobuf",
    program="client_go",
    options=("--mode", "protobuf"),
    language="Go",
    protobuf=True,
)
PROTOBUF_PLAIN_LIST = Contestant(
    name="client-go typed protobuf, plain list",
    program="client_go",
    options=("--mode", "protobuf", "--watch-list=false"),
    language="Go",
    protobuf=True,
)
# One list from the watch cache is as fast as pages, the default.
KUBE_RS_STREAMING = Contestant(
    name="kube-rs, streaming list",
    program="kube_rs",
    options=("--list", "stream"),
    language="Rust",
)


def contest(
    contestant: Contestant,
    url: str,
    *options: str,
    environment: Mapping[str, str] | None = None,
    compare: bool = True,
) -> Report:
    """Run a contestant once, until it ends.

    Args:
        contestant: Contestant to run.
        url: Address of the server; each run has a new server.
        options: `--events`, `--body`, `--relist`, ...
        environment: Environment of the process; None for this one's.
        compare: True for a canned server, which knows the expected state.

    Raises:
        Failed: The process failed or hung, or its final state is not that of the server.
    """
    name = contestant.name
    try:
        process = subprocess.run(
            [*contestant.command(), url, *options],
            env=environment,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{name} did not end within {TIMEOUT_SECONDS:.0f} s") from None

    report: Report = {}
    for line in process.stdout.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            report[entry["at"]] = entry

    if "error" in report:
        raise Failed(f"{name}: {report['error']['message']}")

    if process.returncode or "end" not in report:
        last = process.stderr.strip().splitlines()[-1:] or ["nothing on standard error"]
        raise Failed(f"{name} ended with status {process.returncode}: {last[0]}")

    if compare and report["end"]["digest"] != digest_of_server(url):
        raise Failed(f"{name} has another state than the server")

    return report
