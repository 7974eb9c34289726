"""Directories of stores on disk: safe ones only, one for each informer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["WriterLock", "safe_directory", "set_aside"]


def safe_directory(root: Path, name: str) -> Path:
    """Create, or check, the directory of a store below `root`; return its path.

    Directories have mode 0700 and files 0600; they must belong to this user, and none
    of them may be a symbolic link.

    Raises:
        CacheError: If it cannot be created, is not safe, or is on a network file
            system, where LMDB does not work.
    """
    raise NotImplementedError


def set_aside(path: Path, why: str) -> None:
    """Rename the files of a store that cannot be used, and log a warning."""
    raise NotImplementedError


class WriterLock:
    """Lock of the one process that writes a store, freed by the kernel when it dies.

    A record lock (`lockf`) on `writer.lock`, and a flag within this process.

    Args:
        path: Directory of the store.
    """

    def __init__(self, path: Path) -> None:
        raise NotImplementedError

    @property
    def held(self) -> bool:
        """True from a successful `acquire()` until `release()`."""
        raise NotImplementedError

    def acquire(self) -> bool:
        """Try to lock, without waiting; return True if this object has the lock.

        Raises:
            CacheError: If the file cannot be opened or locked at all.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Free the lock. Idempotent."""
        raise NotImplementedError
