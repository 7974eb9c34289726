"""`MemoryBudget`: limit of the memory that the stores of a factory take."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioinformer.errors import OptionsError
from aioinformer.model.compression import check_compression

__all__ = ["MemoryBudget", "MemoryStatus", "memory_limit"]

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?)?B?")
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

_LEAST: Final = 2**20

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Limit of the memory that the stores of a factory take.

    Below it, bodies stay as they are. Near it, the bodies that have not changed for the
    longest time are compressed, as with `compression="zstd"`. If that is not enough, all
    bodies are, dictionaries are trained anew, and managed fields are dropped if that is
    allowed. If even that is not enough, `InformerStatus.memory` says so, and all objects
    stay.

    It counts stored objects, with their share of the indexes, and those of lists that
    are being received. The program itself comes on top, and so do objects that it keeps
    and notifications that slow handlers have not taken yet. While a relist is received,
    both states of the objects that it has changed are in memory. If there is no room for
    that, the new bodies are stored as their differences from the compressed old ones,
    until the list has replaced the store. Requires the `zstd` extra.

    Args:
        limit: Bytes, such as `2 * 2**30`; a text such as `"2GiB"`, or `"2Gi"` as in a
            manifest; or a share such as `"50%"` of the memory that the process may use:
            the limit of its cgroup, or else the memory of the machine.
        drop_managed_fields: True to allow dropping `metadata.managedFields` of stored
            objects, from then on also of new ones.

    Attributes:
        limit: Same as the argument.
        drop_managed_fields: Same as the argument.

    Raises:
        OptionsError: If the limit is malformed or below 1 MiB, a share is above 100 % or
            not supported on this system, or the package is not installed.
    """

    limit: int | str
    drop_managed_fields: bool = False

    def __init__(self, limit: int | str, *, drop_managed_fields: bool = False) -> None:
        if _share_of(limit) is None:
            _bytes_of(limit)
        elif not hasattr(os, "sysconf"):
            raise OptionsError(
                f"a memory budget of {limit!r} is not supported on this system: pass bytes"
            )

        check_compression("zstd", "memory_budget=")
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "drop_managed_fields", drop_managed_fields)

    @property
    def is_share(self) -> bool:
        """True if the limit is a share of the memory that the process may use."""
        return _share_of(self.limit) is not None

    def read(self) -> int:
        """Return the limit in bytes. For a share, this reads files: call it in a thread."""
        share = _share_of(self.limit)
        return _bytes_of(self.limit) if share is None else int(share * memory_limit())

    @staticmethod
    def of(value: MemoryBudget | int | str | None) -> MemoryBudget | None:
        """Return the budget of an option `memory_budget`."""
        if value is None or isinstance(value, MemoryBudget):
            return value

        return MemoryBudget(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStatus:
    """Memory of the stores of a factory with a `MemoryBudget`, at one moment."""

    limit: int
    """Limit in bytes; 0 for a share before the factory runs."""

    held: int
    """Bytes that the stores take."""

    objects: int
    """Number of stored objects."""

    compressed: int
    """Number of those whose bodies are compressed."""

    differences: int
    """Number of those whose bodies are differences, since the last relist."""

    managed_fields_dropped: bool
    """True once managed fields were dropped, which lasts until the factory ends."""

    over: bool
    """True while the stores take more than the limit, although everything was done."""

    def __str__(self) -> str:
        share = round(100 * self.held / self.limit) if self.limit else 0
        text = f"{share} % of {self.limit / 2**20:,.0f} MiB"
        return f"{text}, {self.compressed:,} of {self.objects:,} objects compressed"


def _share_of(limit: object) -> float | None:
    """Return the share that a limit is, or None if it is none."""
    match = _SHARE.fullmatch(limit.strip()) if isinstance(limit, str) else None
    share = float(match[1]) / 100 if match else 0.0
    return share if 0 < share <= 1 else None


def _bytes_of(limit: object) -> int:
    found: float | None = None
    if isinstance(limit, int) and not isinstance(limit, bool):
        found = limit
    elif isinstance(limit, str) and (match := _SIZE.fullmatch(limit.strip())):
        unit = match[2] or ""
        base = 1024 if unit.endswith("i") else 1000
        found = float(match[1]) * base ** _POWERS[unit[:1].upper()]

    if found is None:
        raise OptionsError(
            "a memory budget is a number of bytes, a text such as '2GiB', or a share of "
            f"the memory that the process may use, such as '50%', not {limit!r}"
        )

    if found < _LEAST:
        raise OptionsError(
            f"a memory budget must be at least 1 MiB, not {limit!r}; a share is written "
            "as '50%'"
        )

    return int(found)


def memory_limit(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Return the bytes that this process may use: the limit of its cgroup, or the RAM.

    Args:
        proc: Where the process file system is mounted.
        cgroups: Where control groups are mounted, of version 1 or 2.
    """
    limits = [
        int(text)
        for path in _limit_files(proc, cgroups)
        if (text := _read(path)).isdecimal()
    ]
    return min([*limits, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")])


def _limit_files(proc: Path, cgroups: Path) -> list[Path]:
    """Return the files that may have a limit: of the process's cgroup, and above it."""
    found = []
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not controllers:
            root, file = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue

        # In a container, the path may be that of the host, whose folders are missing.
        folder = root / name.strip("/")
        folders = [folder, *folder.parents]
        found += [it / file for it in folders if it.is_relative_to(root)]

    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
