"""Stored measurements, with date, machine and versions."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from bench.figures import Figure

__all__ = ["Measurement", "circumstances", "read", "write"]

LIBRARIES = (
    *("aiohttp", "msgspec", "orjson", "kr8s", "kubernetes"),
    *("kubernetes_asyncio", "lightkube"),
)

PEERS = Path(__file__).parents[1] / "peers"
# Libraries of compiled contestants: the file with the version, and its pattern.
SOURCES = {
    "client-go": (PEERS / "client_go" / "go.mod", r"k8s\.io/client-go v(\S+)"),
    "kube-rs": (
        PEERS / "kube_rs" / "Cargo.toml",
        r'(?m)^kube = .*version = "=?([^"]+)"',
    ),
}


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one benchmark, and their origin.

    Attributes:
        figures: Figures of the script.
        rounds: Number of runs of each contestant.
        commit: Commit of the checkout; with a "+" if it was modified.
        date: Day in UTC.
        machine: Processor, cores, memory.
        versions: Versions of Python and of the libraries.
    """

    figures: list[Figure]
    rounds: int
    commit: str
    date: str
    machine: str
    versions: dict[str, str]


def circumstances(figures: list[Figure], rounds: int) -> Measurement:
    """Return a measurement that was taken here and now."""
    return Measurement(
        figures=figures,
        rounds=rounds,
        commit=_commit(),
        date=datetime.now(tz=UTC).date().isoformat(),
        machine=_machine(),
        versions={
            "Python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
            **{name: _named_in(*place) for name, place in SOURCES.items()},
        },
    )


def _named_in(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text())
    if found is None:
        raise ValueError(f"{path} has no version")

    return found[1]


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "aioinformer")
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")


def _machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{model}, {os.cpu_count()} cores, {pages / 2**30:.0f} GiB"


def read(path: Path) -> dict[str, Measurement]:
    """Return the stored measurements by benchmark; empty without a file.

    Raises:
        msgspec.ValidationError: The file has another content.
    """
    if not path.exists():
        return {}

    return msgspec.json.decode(path.read_bytes(), type=dict[str, Measurement])


def write(path: Path, measurements: dict[str, Measurement]) -> None:
    """Write the measurements as readable JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(measurements), indent=1)
    path.write_bytes(text + b"\n")
