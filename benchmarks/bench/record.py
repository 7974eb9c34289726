"""The stored run: figures of one commit, on one machine, with the same versions.

The file has a single place for commit, machine and versions, so that figures of different
origins cannot be in one table.
"""

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

__all__ = ["Mixed", "Run", "new_run", "read", "resume", "write"]

# Changes elsewhere, such as in the page of the figures, do not change a figure.
MEASURED = ("aioinformer", "benchmarks", "constraints.txt", "pyproject.toml")
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


class Mixed(Exception):
    """Figures of different origins. The message is one sentence with the difference."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one or more benchmarks, and their origin.

    Attributes:
        commit: Commit of the checkout; with a "+" if it was modified.
        date: Day of the start, in UTC.
        machine: Processor, cores, memory.
        versions: Versions of Python and of the libraries.
        seconds: Duration of each benchmark.
        figures: Figures of each benchmark.
    """

    commit: str
    date: str
    machine: str
    versions: dict[str, str]
    seconds: dict[str, float] = {}
    figures: dict[str, list[Figure]] = {}

    @property
    def all_figures(self) -> list[Figure]:
        """Return the figures of all benchmarks."""
        return [it for figures in self.figures.values() for it in figures]

    def with_figures(
        self, benchmark: str, figures: list[Figure], seconds: float
    ) -> Run:
        """Return the run with the figures of another benchmark, or with new ones of it."""
        return msgspec.structs.replace(
            self,
            figures={**self.figures, benchmark: figures},
            seconds={**self.seconds, benchmark: seconds},
        )


def new_run() -> Run:
    """Return an empty run, of here and now."""
    return Run(
        commit=_commit(),
        date=datetime.now(tz=UTC).date().isoformat(),
        machine=_machine(),
        versions={
            "Python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
            **{name: _named_in(*place) for name, place in SOURCES.items()},
        },
    )


def resume(stored: Run, now: Run) -> Run:
    """Return the stored run, to which figures of now may be added.

    Args:
        stored: Run to continue.
        now: Empty run, of here and now.

    Raises:
        Mixed: Commit, machine or a version differs, or the checkout was modified.
    """
    if now.commit.endswith("+"):
        raise Mixed("the checkout is modified; commit before you publish figures")

    for name in ("commit", "machine", "versions"):
        before, here = getattr(stored, name), getattr(now, name)
        if before != here:
            raise Mixed(
                f"the stored figures are of another {name}: {before}, not {here}"
            )

    return stored


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

    changed = git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
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


def read(path: Path) -> Run | None:
    """Return the stored run; None without a file.

    Raises:
        msgspec.ValidationError: The file has another content.
    """
    return msgspec.json.decode(path.read_bytes(), type=Run) if path.exists() else None


def write(path: Path, run: Run) -> None:
    """Write a run as readable JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(run), indent=1)
    path.write_bytes(text + b"\n")
