"""`Transactions` of an LMDB environment: nested, in any thread, in a map that grows."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING

from aioinformer.cache.disk.header import Header

with contextlib.suppress(ImportError):  # on Windows, there are no caches
    import resource

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import lmdb

    from aioinformer.errors import CacheError

__all__ = ["Block", "Thread", "Transactions", "new_map_size"]

# Address space for the file, which takes no memory and no space on the disk.
_MAP_SIZE = 16 * 2**30 if sys.maxsize > 2**32 else 512 * 2**20
_SMALLEST_MAP = 16 * 2**20
_REMAP_SECONDS = 1.0


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
        check: Function that raises if the environment cannot be used now; called at the
            beginning of transactions, with True for one that writes.
        error: Function that returns the error for one of LMDB, by what could not be done.
    """

    def __init__(
        self,
        env: lmdb.Environment,
        data: str,
        failures: type[Exception],
        check: Callable[[bool], None],
        error: Callable[[str, Exception], CacheError],
    ) -> None:
        self._env = env
        self._data = data
        self._failures = failures
        self._check = check
        self._error = error
        self._page = env.stat()["psize"]
        self._extent = 0
        self._threads: weakref.WeakSet[Thread] = weakref.WeakSet()
        self._local = threading.local()
        self._remapping = False
        self._ended = False
        self._remap = threading.Lock()
        self.map_size: int = env.info()["map_size"]
        """Bytes of address space."""
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
            with self._remap:
                self._threads.add(thread)

            return thread

    def _begin_read(self) -> lmdb.Transaction[bytes]:
        thread = self.thread
        txn = thread.txn
        if txn is None:
            self._check(False)
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

        self._check(True)
        if not thread.depth:
            self._grow()

        txn = self._begin(thread, write=True)
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
        verb = "write" if write else "read"
        try:
            return self._begin_now(thread, write=write)
        except self._failures as exc:
            resized = type(exc).__name__ == "MapResizedError"
            if thread.depth or not resized:
                raise self._error(verb, exc) from exc

        # Another process has made the file larger than the map of this one.
        self._enlarge(_REMAP_SECONDS)
        try:
            return self._begin_now(thread, write=write)
        except self._failures as exc:
            raise self._error(verb, exc) from exc

    def _begin_now(self, thread: Thread, *, write: bool) -> lmdb.Transaction[bytes]:
        thread.busy = True
        while self._remapping and not thread.depth:
            thread.busy = False
            with self._remap:  # wait for its end
                thread.busy = True

        if self._ended and not thread.depth:
            thread.busy = False
            self._check(write)

        try:
            txn: lmdb.Transaction[bytes] = self._env.begin(write=write)
        except self._failures:
            thread.busy = thread.depth > 0
            raise

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
            with self._remap:
                if not any(thread.busy for thread in self._threads):
                    return True

            pause.wait(0.001)

        return False

    def _grow(self) -> None:
        """Enlarge the map ahead of need: a full one would end a transaction."""
        if self.used * 2 > self.map_size:
            self._enlarge(0)

    def _enlarge(self, seconds: float) -> None:
        """Enlarge the map, once no thread has a transaction, or else not at all."""
        with self._remap:
            size = self._larger_map()
            if size <= self.map_size:
                return

            self._remapping = True
            try:
                pause = threading.Event()
                for _ in range(int(seconds * 1000) + 1):
                    if not any(thread.busy for thread in self._threads):
                        self._env.set_mapsize(size)
                        self.map_size = size
                        return

                    pause.wait(0.001)
            except self._failures as exc:
                raise self._error("map", exc) from exc
            finally:
                self._remapping = False

    def _larger_map(self) -> int:
        """Return the size of a larger map; that of this one if none is possible."""
        used = self.used
        for size in (2 * max(used, self.map_size), used + used // 4):
            pages = -(-size // mmap.ALLOCATIONGRANULARITY)
            size = pages * mmap.ALLOCATIONGRANULARITY
            if size > self.map_size and _may_map(size - self.map_size):
                return size

        return self.map_size


def new_map_size() -> int:
    """Return the address space to reserve for the file."""
    size = _MAP_SIZE
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        size = min(size, limit // 4 // mmap.PAGESIZE * mmap.PAGESIZE)

    while size > _SMALLEST_MAP and not _may_map(size):
        size //= 2

    return max(size, _SMALLEST_MAP)


def _may_map(size: int) -> bool:
    """Return True if there is as much address space left."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except (OSError, ValueError, OverflowError):
        return False

    return True
