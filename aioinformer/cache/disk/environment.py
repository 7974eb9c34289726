"""`Environment`: an LMDB environment, opened once in a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    import lmdb

    from aioinformer.cache.disk.header import Header

__all__ = ["Environment"]


class Environment:
    """LMDB environment in a directory of its own, shared by all users in this process.

    LMDB forbids to open a file twice in one process, so `open()` returns the same
    environment for the same directory, and `close()` closes it for the last user.

    A transaction is never kept across an `await`: it would keep all pages that were
    replaced since.
    """

    path: Path
    """Directory with `data.mdb`, `lock.mdb`, `writer.lock` and `readers/`."""

    @classmethod
    def open(cls, path: Path) -> Environment:
        """Open, or create, the environment of a directory that exists and is safe.

        Raises:
            CacheError: If it cannot be used. A damaged file is set aside first, and a
                file of an earlier boot of the machine that was not closed in order.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close it, unless it has other users in this process."""
        raise NotImplementedError

    def read(self) -> AbstractContextManager[lmdb.Transaction]:
        """Begin a read transaction, in any thread; nested calls share the outer one.

        Within `write()`, in the same thread, it is the write transaction.

        Raises:
            CacheError: If the file cannot be read, the environment is closed, or it was
                opened before a fork.
        """
        raise NotImplementedError

    def write(self) -> AbstractContextManager[lmdb.Transaction]:
        """Begin a write transaction; nested calls join the outer one.

        It is committed at the end of the outermost block, and aborted by an exception.

        Raises:
            CacheError: If the disk or the map is full, the directory has vanished, or as
                in `read`. Nothing was written.
        """
        raise NotImplementedError

    @property
    def header(self) -> Header:
        """Header as of the current transaction, or the newest one."""
        raise NotImplementedError

    def set_header(self, header: Header) -> None:
        """Write the header, in the current write transaction."""
        raise NotImplementedError

    def database(self, name: str, *, dupsort: bool = False) -> lmdb._Database:
        """Return a database, for all transactions of this process."""
        raise NotImplementedError

    def processes_before(self, transaction: int) -> set[int]:
        """Return the processes that read a snapshot from before a transaction.

        Args:
            transaction: Number of a write transaction, `lmdb.Transaction.id()`.
        """
        raise NotImplementedError
