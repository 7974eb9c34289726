"""The committed baseline, and comparisons with it."""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BASELINE",
    "OF_ONE_BUILD",
    "Baseline",
    "Change",
    "Counts",
    "Maker",
    "NotCounted",
    "changes",
    "read",
    "this_minor",
    "write",
]

BASELINE = Path(__file__).parents[1] / "baseline.json"

TOLERATED = 0.10
"""Fraction by which a count may differ."""

SLACK = 0.05
"""Additional absolute difference, because counts are rounded."""

PACKAGES = ("aiohttp", "msgspec", "orjson")

OF_ONE_BUILD = {"instructions", "allocations"}
"""Counts that differ between builds of the same interpreter."""

Counts = dict[str, dict[str, float]]
"""Counts for one event, by case and kind."""


class NotCounted(Exception):
    """Something cannot be counted on this machine; the message has the reason."""


class Maker(msgspec.Struct, frozen=True):
    """Versions that counts were made with.

    Attributes:
        python: Version of the interpreter.
        build: Compiler and platform of the interpreter.
        packages: Versions of the used packages.
    """

    python: str
    build: str
    packages: dict[str, str]

    @classmethod
    def here(cls) -> Maker:
        """Return the versions of this interpreter."""
        flags = f"{sysconfig.get_config_vars('CONFIG_ARGS', 'PY_CFLAGS', 'OPT')}"
        parts = [
            platform.python_compiler(),
            " ".join(platform.libc_ver()).strip(),
            platform.machine(),
            f"flags {hashlib.sha256(flags.encode()).hexdigest()[:8]}",
        ]
        return cls(
            platform.python_version(),
            ", ".join(filter(None, parts)),
            {name: metadata.version(name) for name in PACKAGES},
        )

    def check_build(self, other: Maker) -> None:
        """Check that the baseline was made with the same machine code, except packages.

        Raises:
            NotCounted: If their builds differ.
        """
        if (self.python, self.build) != (other.python, other.build):
            raise NotCounted("Python build differs from that of the baseline")

    def differences(self, other: Maker) -> Iterator[str]:
        """Return the differences in words."""
        if other.python != self.python:
            yield f"Python {self.python}, not {other.python}"

        if other.build != self.build:
            yield f"a build of {self.build}, not {other.build}"

        for name, version in self.packages.items():
            if (there := other.packages.get(name)) != version:
                yield f"{name} {version}, not {there}"


class Baseline(msgspec.Struct, frozen=True):
    """Counts with one minor version of Python."""

    made_with: Maker
    counts: Counts


class Change(msgspec.Struct, frozen=True):
    """One count and its baseline; either is None if missing."""

    case: str
    what: str
    before: float | None
    now: float | None

    @property
    def verdict(self) -> str:
        """Return an empty string, `"rose"`, `"fell"`, `"new"` or `"removed"`."""
        if self.before is None:
            return "new"

        if self.now is None:
            return "removed"

        allowed = self.before * TOLERATED + SLACK
        if self.now > self.before + allowed:
            return "rose"

        return "fell" if self.now < self.before - allowed else ""


def changes(before: Counts, now: Counts) -> list[Change]:
    """Return the counts that occur on either side."""
    both = {
        (case, what): None
        for counts in (before, now)
        for case, found in counts.items()
        for what in found
    }
    return [
        Change(case, what, before.get(case, {}).get(what), now.get(case, {}).get(what))
        for case, what in both
    ]


def this_minor() -> str:
    """Return the key of the baselines, such as "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def read(path: Path = BASELINE) -> dict[str, Baseline]:
    """Return the baselines by minor version of Python."""
    if not path.exists():
        return {}

    return msgspec.json.decode(path.read_bytes(), type=dict[str, Baseline])


def write(path: Path, counts: Counts) -> None:
    """Write the counts for this Python, and keep those of others."""
    # Adding 0.0 turns -0.0 into 0.0.
    rounded = {
        case: {what: round(count, 1) + 0.0 for what, count in sorted(found.items())}
        for case, found in counts.items()
    }
    baselines = read(path) | {this_minor(): Baseline(Maker.here(), rounded)}
    ordered = {minor: baselines[minor] for minor in sorted(baselines)}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ordered)) + b"\n")
