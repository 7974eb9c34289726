"""`data.mdb` before LMDB maps it, and whether its contents can be trusted.

LMDB has no checksums. It ends the process for some damages, and the kernel does if a page
is missing. Commits are not synced to the disk, so only these files are mapped:

- those that were written since the machine started: after any end of a process, the
  kernel has all that was committed;
- those that were synced and then closed by the last process.

The file `session` tells which it is.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from aioinformer.cache.disk.directory import DATA, LOCK, SESSION
from aioinformer.cache.disk.failures import lacks_descriptors

__all__ = ["EARLY_SECONDS", "Session", "boot_id", "doubt", "move_store"]

# Page header, and the native structs `MDB_meta` and `MDB_db` of LMDB 0.9: magic, version,
# address, map size, two databases (the first begins with the page size), last page,
# transaction.
_PAGE_HEADER = struct.calcsize("@N") + 8
_META = struct.Struct("@IIPN IHH5N IHH5N NN")
_MAGIC = 0xBEEFC0DE
_LAYOUT = 1
# Place of the number in files of LMDB 1.0.
_LATER_MAGIC = 24

# A store is set aside after so many processes that ended so early: it may be the reason.
_EARLY_ENDS = 5
EARLY_SECONDS = 10.0


class Session(NamedTuple):
    """Use of a store by one or more processes, from the first opening to the last close.

    Written before LMDB opens the file. Its time of modification is the time when a
    process was last seen alive.
    """

    boot: str
    """Id of the machine's boot; empty if the system has none."""

    state: str = "open"
    """`open`, `closed` (all was synced), or `damaged`."""

    since: float = 0.0
    """Time of the first opening."""

    early_ends: int = 0
    """Number of sessions before this one that ended early, without a close."""

    @classmethod
    def read(cls, path: Path) -> Session | None:
        """Return the session of a store; None if its file is missing or damaged.

        Raises:
            OSError: If the file cannot be read.
        """
        try:
            boot, state, since, early_ends = (
                (path / SESSION).read_text(encoding="ascii").split(" ")
            )
            return cls(boot, state, float(since), int(early_ends))
        except (FileNotFoundError, ValueError):
            return None

    def next(self, path: Path) -> Session:
        """Return the session that follows this one, by the first process that opens it."""
        early_ends = 0
        if self.state == "open" and self.boot == boot_id():
            seen = (path / SESSION).stat().st_mtime
            if seen - self.since < EARLY_SECONDS:
                early_ends = self.early_ends + 1

        return Session.new()._replace(early_ends=early_ends)

    @classmethod
    def new(cls) -> Session:
        """Return the session of a new store."""
        return cls(boot_id(), since=datetime.now(tz=UTC).timestamp())

    @staticmethod
    def seen(path: Path) -> None:
        """Note that a process that uses the store is alive."""
        with contextlib.suppress(OSError):
            os.utime(path / SESSION)

    def write(self, path: Path, *, durable: bool = False) -> None:
        """Write it to its file.

        Args:
            path: Directory of the store.
            durable: True to have it on the disk before anything that is written later.
        """
        file = path / SESSION
        new = path / f"{SESSION}.new"
        text = f"{self.boot} {self.state} {self.since} {self.early_ends}"
        with open(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600),
            "w",
            encoding="ascii",
        ) as stream:
            stream.write(text)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())

        os.replace(new, file)
        if not durable:
            return

        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def doubt(path: Path, session: Session | None, *, in_use: bool = False) -> str:
    """Return why the file of a store must not be mapped; empty if it may be.

    Args:
        path: Directory of the store.
        session: Its session, as `Session.read()` returned it.
        in_use: True if other processes have it open, so that the session has not ended.
    """
    try:
        with (path / DATA).open("rb") as file:
            start = file.read(2 * 65536)
            # Afterwards: a writer may be adding pages, and then names them.
            size = os.fstat(file.fileno()).st_size
            why = _doubt_of_pages(start, size)
    except FileNotFoundError:
        return ""

    if why or size == 0:
        return why

    if session is None:
        return "there is no record of how it was closed"

    if session.state == "damaged":
        return "a process found damaged data in it"

    if session.state == "closed":
        return ""

    if not session.boot or session.boot != boot_id():
        return "the machine was restarted without an orderly close"

    if not in_use and session.next(path).early_ends >= _EARLY_ENDS:
        return (
            f"the last {_EARLY_ENDS} processes that opened it ended within "
            f"{EARLY_SECONDS:g} s each"
        )

    return ""


def move_store(source: Path, target: Path) -> None:
    """Move the file of a store to another directory, if it can be trusted.

    Only for a process that keeps all others from opening both. Blocks.

    Args:
        source: Directory of the store.
        target: Directory that has no file yet.

    Raises:
        OSError: If it cannot be moved.
    """
    session = Session.read(source)
    if session is None or not (source / DATA).exists() or doubt(source, session):
        return

    if session.state == "closed":
        # After a power loss, the file may be in its old place again, but written since.
        Session.new().write(source, durable=True)

    session.write(target)
    (target / LOCK).unlink(missing_ok=True)
    (source / DATA).rename(target / DATA)


def _doubt_of_pages(start: bytes, size: int) -> str:
    """Check the two meta pages, and the size that the newer one needs."""
    if size == 0:  # LMDB starts a new file
        return ""

    # LMDB itself has to check the pages of other versions.
    if start[_LATER_MAGIC : _LATER_MAGIC + 4] == _MAGIC.to_bytes(4, sys.byteorder):
        return ""

    first = _meta(start, 0)
    if first is None or first[0] != _MAGIC:
        return "it is not a file of LMDB"

    if first[1] != _LAYOUT:
        return f"LMDB does not know its layout, {first[1]}"

    page = first[4]
    second = _meta(start, page)
    if page < 512 or second is None or second[0] != _MAGIC:
        return "its second page is damaged"

    newest = max(first, second, key=lambda meta: meta[-1])
    needed = (newest[-2] + 1) * page
    if size < needed:
        return f"it was truncated: it has {size} bytes of {needed}"

    return ""


def _meta(start: bytes, page: int) -> tuple[int, ...] | None:
    offset = page + _PAGE_HEADER
    if len(start) < offset + _META.size:
        return None

    return _META.unpack_from(start, offset)


def boot_id() -> str:
    """Return the id of this boot of the machine; empty if the system has none.

    Raises:
        OSError: If no file can be opened just now.
    """
    try:
        return (
            Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        )
    except OSError as exc:  # not Linux
        if lacks_descriptors(exc):
            raise

        return ""
