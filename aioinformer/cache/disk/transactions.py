"""`Transactions` of an LMDB environment: nested, in any thread."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from typing import TYPE_CHECKING

from aioinformer.cache.disk.header import Header

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import lmdb

    from aioinformer.errors import CacheError

__all__ = ["Block", "Thread", "Transactions", "new_map_size"]

_LARGEST_MAP = 64 * 2**30
_SMALLEST_MAP = 16 * 2**20
# A map may take one of so many parts of the addresses that are left.
_PARTS = 8


class Thread:
    """Transactions of one thread."""

    __slots__ = ("__weakref__", "busy", "changed", "depth", "header", "outer", "txn")

    def __init__(self) -> None:
        self.txn: lmdb.Transaction[bytes] | None = None
        self.depth: int = 0
        self.busy: bool = False
        # In a write transaction: the read transaction around it.
        self.outer: tuple[lmdb.Transaction[bytes] | None, int] | None = None
        # Header of a write transaction, once it was read or written.
        self.header: Header | None = None
        self.changed: bool = False


class Block:
    """Context manager of all transactions of a kind; their state is that of a thread."""

    __slots__ = ("_begin", "_end")

    def __init__(
        self,
        begin: Callable[[], lmdb.Transaction[bytes]],
        end: Callable[[BaseException | None], None],
    ) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> lmdb.Transaction[bytes]:
        return self._begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(exc)


class Transactions:
    """Read and write transactions of an LMDB environment, by thread.

    Args:
        env: Environment of LMDB.
        data: Path of its file.
        failures: Base of the errors of LMDB.
        check: Function that raises if the environment cannot be used now; called before
            transactions.
        check_write: Function that raises if it must not be written; called at the
            beginning of write transactions.
        error: Function that returns the error for one of LMDB, by what could not be done.
    """

    def __init__(
        self,
        env: lmdb.Environment,
        data: str,
        failures: type[Exception],
        check: Callable[[], None],
        check_write: Callable[[], None],
        error: Callable[[str, Exception], CacheError],
    ) -> None:
        self._env = env
        self._data = data
        self._failures = failures
        self._check = check
        self._check_write = check_write
        self._error = error
        self._page = env.stat()["psize"]
        self._extent = 0
        self._threads: weakref.WeakSet[Thread] = weakref.WeakSet()
        self._local = threading.local()
        self._ended = False
        self._adding = threading.Lock()
        self.newest: tuple[int, Header] = (-1, Header())
        """Number of a transaction, and its header: the one that was used last."""
        self.reading: Block = Block(self._begin_read, self._end_read)
        """Context manager of read transactions."""
        self.writing: Block = Block(self._begin_write, self._end_write)
        """Context manager of write transactions."""

    @property
    def used(self) -> int:
        """Bytes of the file that are in use, or were and can be used again."""
        return int((self._env.info()["last_pgno"] + 1) * self._page)

    @property
    def thread(self) -> Thread:
        """Transactions of the current thread."""
        try:
            return self._local.thread  # type: ignore[no-any-return]
        except AttributeError:
            thread = self._local.thread = Thread()
            with self._adding:
                self._threads.add(thread)

            return thread

    def _begin_read(self) -> lmdb.Transaction[bytes]:
        thread = self.thread
        txn = thread.txn
        if txn is None:
            self._check()
            txn = thread.txn = self._begin(thread, write=False)

        thread.depth += 1
        return txn

    def _end_read(self, exc: BaseException | None) -> None:
        thread = self.thread
        thread.depth -= 1
        if thread.depth == 0 and thread.txn is not None:
            txn, thread.txn = thread.txn, None
            txn.abort()
            thread.busy = False

        if isinstance(exc, self._failures):
            raise self._error("read", exc) from exc

    def _begin_write(self) -> lmdb.Transaction[bytes]:
        thread = self.thread
        if thread.outer is not None and thread.txn is not None:
            thread.depth += 1
            return thread.txn

        self._check()
        txn = self._begin(thread, write=True)
        try:
            self._check_write()
        except BaseException:
            txn.abort()
            thread.busy = thread.depth > 0
            raise

        thread.outer = thread.txn, thread.depth
        thread.txn, thread.depth = txn, 1
        return txn

    def _end_write(self, exc: BaseException | None) -> None:
        thread = self.thread
        thread.depth -= 1
        if thread.depth == 0 and thread.outer is not None and thread.txn is not None:
            txn, header = thread.txn, thread.header if thread.changed else None
            thread.txn, thread.depth = thread.outer
            thread.outer, thread.header, thread.changed = None, None, False
            try:
                if exc is not None:
                    txn.abort()
                else:
                    number = txn.id()
                    txn.commit()
                    if header is not None:
                        self.newest = number, header

                    self._extend()
            except self._failures as failure:
                raise self._error("write", failure) from failure
            finally:
                thread.busy = thread.depth > 0

        if isinstance(exc, self._failures):
            raise self._error("write", exc) from exc

    def _extend(self) -> None:
        """Extend the file to its last page.

        LMDB does not write pages at the end that were used and freed within one
        transaction. Then the file looks as if it had been truncated.
        """
        used = self.used
        if used <= self._extent:
            return

        # The transaction before was committed, whatever happens here.
        with contextlib.suppress(OSError, self._failures):
            self._extent = os.lstat(self._data).st_size
            if self._extent >= used:
                return

            # In a transaction, so that no other process adds pages that would be cut off.
            txn = self._env.begin(write=True)
            try:
                used = self.used
                if os.lstat(self._data).st_size < used:
                    os.truncate(self._data, used)
            finally:
                txn.abort()

    def _begin(self, thread: Thread, *, write: bool) -> lmdb.Transaction[bytes]:
        thread.busy = True
        if self._ended and not thread.depth:
            thread.busy = False
            self._check()

        try:
            txn: lmdb.Transaction[bytes] = self._env.begin(write=write)
        except self._failures as exc:
            thread.busy = thread.depth > 0
            raise self._error("write" if write else "read", exc) from exc

        return txn

    def end(self, seconds: float) -> bool:
        """Refuse new transactions, and wait for the end of those in progress.

        The environment was marked as closed before: `check` raises.

        Args:
            seconds: Time to wait.

        Returns:
            True if there are none. Then LMDB may close the environment.
        """
        self._ended = True
        pause = threading.Event()
        for _ in range(int(seconds * 1000) + 1):
            with self._adding:
                if not any(thread.busy for thread in self._threads):
                    return True

            pause.wait(0.001)

        return False


def new_map_size() -> int:
    """Return the address space to reserve for a file, which cannot grow beyond that.

    It takes no memory and no space on the disk. Where addresses are scarce, with
    `ulimit -v` or on a processor of 32 bits, a file gets an eighth of what is left: a
    process may open many files.
    """
    size = _LARGEST_MAP
    while size > _SMALLEST_MAP and not _may_map(_PARTS * size):
        size //= 2

    return size


def _may_map(size: int) -> bool:
    """Return True if there is as much address space left."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except (OSError, ValueError, OverflowError):
        return False

    return True
