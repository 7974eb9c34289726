"""`Locks` of a store on disk: which processes open, use and write it."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING, Final

from aioinformer.cache.disk.directory import STORE_LOCK, WITHOUT_LINKS
from aioinformer.errors import CacheError

with contextlib.suppress(ImportError):  # on Windows, there are no caches
    import fcntl

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Locks"]

# Bytes of the file. A writer also locks the byte after them that is that of its epoch.
_OPENING: Final = 0
_USING: Final = 1
_WRITING: Final = 2
_EPOCHS: Final = 3


class Locks:
    """Record locks of this process on the file `store.lock`.

    The kernel frees them when the process ends, at once and in any way. A child of a
    fork does not inherit them, unlike those of `flock()`. They are also freed when the
    process closes any descriptor of the file, so only its `Environment` may open it.

    Locks of one process do not exclude each other: `Environment` tells its users apart.

    Args:
        path: Directory of the store.
        create: False to use an existing file only.

    Raises:
        CacheError: If the file cannot be opened.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._path = path / STORE_LOCK
        self._create = create
        self._fd = -1
        self._epoch = 0
        self._open()

    def _open(self) -> None:
        self.close()
        create = os.O_CREAT if self._create else 0
        try:
            self._fd = os.open(self._path, os.O_RDWR | create | WITHOUT_LINKS, 0o600)
        except OSError as exc:
            raise self._failed(exc) from exc

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the locked file."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    # ------------------------------------------------------------ opening and using

    def enter(self, seconds: float) -> bool:
        """Wait until no other process opens or closes the store.

        Files are examined and set aside by one process at a time.

        Args:
            seconds: Time to wait.

        Returns:
            False after that time.

        Raises:
            CacheError: If the file cannot be locked at all.
        """
        pause = threading.Event()
        for _ in range(int(seconds * 100)):
            if self._lock(fcntl.LOCK_EX, _OPENING):
                if self._is_current():
                    return True

                self._open()  # another process has removed the file in between

            pause.wait(0.01)

        return False

    def leave(self) -> None:
        """Let other processes open or close the store."""
        self._unlock(_OPENING)

    def is_alone(self) -> bool:
        """Return True if no other process uses the store, and keep it so."""
        return self._lock(fcntl.LOCK_EX, _USING)

    def share(self) -> None:
        """Count this process as a user, until `close()` or its end."""
        self._lock(fcntl.LOCK_SH, _USING)

    def abstain(self) -> None:
        """Do not count this process as a user: it only looks at the store."""
        self._unlock(_USING)

    # ------------------------------------------------------------ writing

    def acquire(self) -> bool:
        """Try to become the process that writes; return False if another one is."""
        return self._lock(fcntl.LOCK_EX, _WRITING)

    def claim(self, epoch: int) -> None:
        """Show that the state of an epoch is that of this process, which writes."""
        if self._epoch != epoch and self._lock(fcntl.LOCK_EX, _EPOCHS + epoch):
            self._epoch = epoch

    def is_of_writer(self, epoch: int) -> bool:
        """Return True if the process that has claimed an epoch still writes."""
        if self._epoch:
            return self._epoch == epoch

        if not self._lock(fcntl.LOCK_SH, _EPOCHS + epoch):
            return True

        self._unlock(_EPOCHS + epoch)
        return False

    def release(self) -> None:
        """Let another process write. Idempotent."""
        if self._epoch:
            self._unlock(_EPOCHS + self._epoch)
            self._epoch = 0

        self._unlock(_WRITING)

    def close(self) -> None:
        """Free all locks. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # ------------------------------------------------------------ the file

    def _lock(self, kind: int, byte: int) -> bool:
        """Lock one byte, without waiting; return False if another process has it."""
        try:
            fcntl.lockf(self._fd, kind | fcntl.LOCK_NB, 1, byte)
        except OSError as exc:
            if exc.errno in {errno.EAGAIN, errno.EACCES}:
                return False

            raise self._failed(exc) from exc

        return True

    def _unlock(self, byte: int) -> None:
        if self._fd < 0:
            return

        with contextlib.suppress(OSError):
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, byte)

    def _is_current(self) -> bool:
        """Return True if the path leads to the opened file."""
        try:
            found = os.lstat(self._path)
        except OSError:
            return False

        return self.identity == (found.st_dev, found.st_ino)

    def _failed(self, exc: OSError) -> CacheError:
        if isinstance(exc, FileNotFoundError):
            why = "its directory was removed. Restart the process to use a cache again"
        else:
            why = f"{exc.strerror or exc}. The directory must be on a local, writable disk"

        return CacheError(f"cannot lock {self._path}: {why}")
