"""`Environment`: an LMDB environment, opened once in a process."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from aioinformer.cache.disk.data_file import (
    EARLY_SECONDS,
    Session,
    boot_id,
    doubt,
    move_store,
)
from aioinformer.cache.disk.directory import (
    DATA,
    LOCK,
    READERS,
    STORE_LOCK,
    check_complete,
    device_and_inode,
    remove_directory,
    safe_directory,
    set_aside,
)
from aioinformer.cache.disk.failures import cause_of, is_damage
from aioinformer.cache.disk.header import Header, WriterState
from aioinformer.cache.disk.lmdb_file import (
    HEADER,
    META,
    Doubtful,
    import_lmdb,
    open_file,
)
from aioinformer.cache.disk.locks import Locks
from aioinformer.cache.disk.transactions import Transactions
from aioinformer.errors import CacheError, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import lmdb

__all__ = ["Environment"]

# A process opens or closes a store in milliseconds, but syncs it first.
_OPENING_SECONDS = 10.0
# Time for a lock that is usually free.
_ATTEMPT_SECONDS = 0.01
# A writer extends the file within microseconds after a commit.
_EXTENDING_SECONDS = 0.1

_WRITER = b"writer"

_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(Header).decode
_decode_writer = msgspec.msgpack.Decoder(WriterState).decode


class _Process:
    """This process: a call of `os.getpid()` takes as long as a transaction."""

    id = os.getpid()

    @classmethod
    def update(cls) -> None:
        cls.id = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.update)


class Environment:
    """LMDB environment in a directory of its own, shared by all users in this process.

    LMDB forbids to open a file twice in one process, so `open()` returns the same
    environment for the same directory, and `close()` closes it for the last user.

    A transaction is never kept across an `await`: it would keep all pages that were
    replaced since. Usable from any thread.
    """

    path: Path
    """Directory with `data.mdb`, `lock.mdb`, `store.lock`, `session`, and `readers/`."""

    users: int
    """Number of users in this process."""

    _opened: dict[tuple[int, int], Environment] = {}  # noqa: RUF012 - shared on purpose
    _guards: dict[tuple[int, int], threading.Lock] = {}  # noqa: RUF012

    def __init__(
        self,
        path: Path,
        key: tuple[int, int],
        *,
        create: bool,
        adopts: Iterable[Path],
    ) -> None:
        self.path = path
        self._key = key
        self._failures: type[Exception] = import_lmdb().Error
        self._pid = _Process.id
        self.users = 1
        self._opened_at = time.monotonic()
        self._closed = False
        # Text of the first error for damaged data.
        self._damage = ""
        self._databases: dict[str, lmdb._Database] = {}
        self._naming = threading.Lock()
        self._data = os.fspath(path / DATA)
        self._lock_file = os.fspath(path / STORE_LOCK)
        self._create = create
        # The informer of this process that writes; the kernel knows processes only.
        self._writer: object = None
        self._election = threading.Lock()
        self._locks = Locks(path, create=create)
        try:
            self._boot = boot_id()
            self._open(adopts)
        except OSError as exc:
            self._locks.close()
            raise self._error("open", exc) from exc
        except BaseException:
            self._locks.close()
            raise

    # -------------------------------------------------------- opening

    @classmethod
    def open(
        cls, path: Path, *, create: bool = True, adopts: Iterable[Path] = ()
    ) -> Environment:
        """Open, or create, the environment of a directory that exists and is safe.

        Blocks, for up to 10 s while another process opens or closes it: call it in a
        thread.

        Args:
            path: Directory, as `safe_directory()` returned it.
            create: False to only read: it creates nothing, sets no file aside, and
                refuses `write()`.
            adopts: Directories of other stores. If there is no file yet, the first one
                of them that no process has open is moved here.

        Raises:
            OptionsError: If the package `lmdb` is not installed.
            CacheError: If it cannot be used. A damaged file is set aside first, and a
                file of an earlier boot of the machine that was not closed in order. If
                other processes have the file open, it is not set aside.
        """
        # By its inode: one path may lead there by a symbolic link above it.
        key = device_and_inode(path)
        if key is None:
            raise CacheError(f"there is no cache in {path}")

        if not create:
            check_complete(path)

        with cls._guard(key):
            env = cls._opened.get(key)
            if env is None:
                env = cls(path, key, create=create, adopts=adopts)
                cls._opened[key] = env
            else:
                env.check()
                env.users += 1

            return env

    @classmethod
    def _guard(cls, key: tuple[int, int]) -> threading.Lock:
        """Return the lock for opening and closing one directory, which may take time."""
        return cls._guards.setdefault(key, threading.Lock())

    @classmethod
    @contextlib.contextmanager
    def _unused(cls, path: Path) -> Iterator[bool]:
        """Keep processes from opening a store in a block; False if one has it open.

        Raises:
            CacheError: If the directory is not safe, or has no lock.
        """
        path = safe_directory(path.parent, path.name, create=False)
        key = device_and_inode(path)
        # The kernel's locks belong to a process, which loses them when it closes any
        # descriptor of their file. So a store of this process is left alone.
        guard = None if key is None else cls._guard(key)
        if key is None or guard is None or not guard.acquire(blocking=False):
            yield False
            return

        try:
            if key in cls._opened:
                yield False
                return

            lock = Locks(path, create=False)
            try:
                yield lock.enter(_ATTEMPT_SECONDS) and lock.is_alone()
            finally:
                lock.close()
        finally:
            guard.release()

    @classmethod
    def remove(cls, path: Path) -> None:
        """Remove a store, unless a process has it open. Blocks: call it in a thread."""
        with contextlib.suppress(CacheError, OSError), cls._unused(path) as unused:
            if unused:
                remove_directory(path)

    def _adopt(self, others: Iterable[Path]) -> None:
        """Move the file of another store here, if there is none."""
        for other in others:
            if os.path.lexists(self._data):
                break

            with (
                contextlib.suppress(CacheError, OSError),
                self._unused(other) as unused,
            ):
                if unused:
                    move_store(other, self.path)
                    remove_directory(other)

    def _open(self, adopts: Iterable[Path]) -> None:
        if not self._locks.enter(_OPENING_SECONDS):
            raise CacheError(
                f"cannot open the cache {self.path}: another process has been opening or "
                f"closing it for {_OPENING_SECONDS:g} s. Check whether that process was "
                "stopped"
            )

        try:
            alone = self._locks.is_alone()
            if alone and self._create:
                self._adopt(adopts)

            session = Session.read(self.path)
            why = doubt(self.path, session, in_use=not alone)
            if why and not alone:
                # A writer may be about to extend the file to its last page.
                threading.Event().wait(_EXTENDING_SECONDS)
                why = doubt(self.path, session, in_use=True)

            if why:
                self._replace(why, alone=alone)

            self._begin_session(None if why else session, alone=alone)
            if self._create:
                (self.path / READERS).mkdir(0o700, exist_ok=True)

            try:
                self._map()
            except Doubtful as exc:
                self._replace(str(exc), alone=alone)
                self._map()

            # The lock that this process has, if its file is replaced just now.
            self._identity = *self._find()[:-1], self._locks.identity
            if self._create:
                self._locks.share()
            else:  # programs may end meanwhile, and close the store in order
                self._locks.abstain()
        finally:
            self._locks.leave()

    def _begin_session(self, last: Session | None, *, alone: bool) -> None:
        if not self._create:
            return

        if last is not None and last.state == "open":
            if alone:
                # It stays valid, also if there is no space for it.
                with contextlib.suppress(OSError):
                    last.next(self.path).write(self.path)

            return

        # If it was closed, that must not be on the disk any more when the file changes.
        Session.new().write(self.path, durable=last is not None)

    def _replace(self, why: str, *, alone: bool) -> None:
        """Set the file aside, if this process may do that."""
        if alone and self._create:
            set_aside(self.path, why)
            return

        if alone:
            what = "The next program that uses it lists again"
        else:
            what = "Stop the other processes that have it open, to start a new one"

        raise CacheError(f"cannot open the cache {self.path}: {why}. {what}")

    def _map(self) -> None:
        """Open the file in LMDB, and check that it is one of ours."""
        try:
            self._env, self._databases = open_file(
                self.path, create=self._create, seconds=_OPENING_SECONDS
            )
        except TimeoutError:
            raise CacheError(
                f"cannot open the cache {self.path}: another process has been writing it "
                f"for {_OPENING_SECONDS:g} s. Check whether that process was stopped"
            ) from None
        except self._failures as exc:
            raise self._error("open", exc) from exc

        self._meta = self._databases[META.decode()]
        self._transactions = Transactions(
            self._env,
            self._data,
            self._failures,
            self._check_process,
            self._check_files,
            self._error,
        )

    def close(self) -> None:
        """Close it, unless it has other users in this process. Idempotent for the last.

        The last process syncs the file to the disk and marks it as closed in order.
        Blocks, for up to 10 s while other threads read: call it in a thread.
        """
        with self._guard(self._key):
            if self._closed or self._pid != _Process.id:
                return

            self.users -= 1
            if self.users:
                return

            self._closed = True
            del self._opened[self._key]
            try:
                self._close()
            finally:
                self._locks.close()

    def _close(self) -> None:
        try:
            if self._find() == self._identity and self._locks.enter(_OPENING_SECONDS):
                self._end_session()
        except (CacheError, OSError, self._failures):
            # It is not marked then, and not trusted after a restart of the machine.
            pass
        finally:
            # Without its map, a read in progress ends the process. So the map is left to
            # threads that take too long.
            if self._transactions.end(_OPENING_SECONDS):
                self._env.close()

            self._locks.leave()

    def _end_session(self) -> None:
        session = Session.read(self.path)
        if session is None or session.state == "damaged" or not self._create:
            return

        if self._damage:
            session._replace(state="damaged").write(self.path)
        elif self._locks.is_alone():
            self._env.sync(True)
            session._replace(state="closed", early_ends=0).write(self.path)

    # -------------------------------------------------------- transactions

    def read(self) -> AbstractContextManager[lmdb.Transaction[bytes]]:
        """Begin a read transaction, in any thread; nested calls share the outer one.

        Within `write()`, in the same thread, it is the write transaction.

        Raises:
            CacheError: If the file cannot be read, the environment is closed, or it was
                opened before a fork. Errors of LMDB within the block become one, too.
        """
        return self._transactions.reading

    def write(self) -> AbstractContextManager[lmdb.Transaction[bytes]]:
        """Begin a write transaction; nested calls join the outer one.

        It is committed at the end of the outermost block, and aborted by an exception.
        Within `read()` it is a transaction of its own, and may be newer.

        Raises:
            CacheError: If the disk or the map is full, the directory has vanished, or as
                in `read`. Nothing was written.
        """
        return self._transactions.writing

    @property
    def in_write(self) -> bool:
        """True within `write()`, in this thread."""
        return self._transactions.thread.outer is not None

    # -------------------------------------------------------- the writer

    def acquire(self, writer: object) -> bool:
        """Try to become the one writer of the store, without waiting.

        Args:
            writer: User of this environment that is to write.

        Returns:
            True if it is the writer.

        Raises:
            CacheError: If the file cannot be locked at all.
        """
        self._check_process()
        with self._election:
            if self._writer is None and self._locks.acquire():
                self._writer = writer

            return self._writer is writer

    def release(self, writer: object) -> None:
        """Let another user, or process, write. Idempotent."""
        if self._pid != _Process.id:
            return

        with self._election:
            if self._writer is writer:
                self._writer = None
                self._locks.release()

    def is_of_writer(self, state: WriterState) -> bool:
        """Return True if the writer of a stored state still writes.

        Another one may have the lock already, and not have replaced the state yet.
        """
        return not state.ended and self._locks.is_of_writer(state.epoch)

    # -------------------------------------------------------- contents

    def database(
        self, name: str, *, dupsort: bool = False, integerkey: bool = False
    ) -> lmdb._Database:
        """Return a database by its name; create it if it does not exist.

        The first call for a name has to be made outside of transactions.

        Args:
            name: Name; any text.
            dupsort: True for several values of one key.
            integerkey: True for keys that are integers in native byte order.

        Raises:
            CacheError: If it cannot be created.
        """
        found = self._databases.get(name)
        if found is not None:
            return found

        if self._transactions.thread.depth:
            raise InternalError(f"database {name!r} is opened within a transaction")

        if not self._create:
            raise CacheError(f"the cache {self.path} has no database {name!r} yet")

        # LMDB wants one thread at a time here.
        with self._naming, self.write() as txn:
            if name not in self._databases:
                self._databases[name] = self._env.open_db(
                    name.encode(), txn=txn, dupsort=dupsort, integerkey=integerkey
                )

        return self._databases[name]

    @property
    def header(self) -> Header:
        """Header as of the current transaction, or the newest one."""
        thread = self._transactions.thread
        txn = thread.txn
        if txn is None:
            with self._transactions.reading:
                return self.header

        if thread.outer is not None:
            if thread.header is None:
                thread.header = self._read_header(txn)

            return thread.header

        number = txn.id()
        known, header = self._transactions.newest
        if known != number:
            header = self._read_header(txn)
            self._transactions.newest = number, header

        return header

    def _read_header(self, txn: lmdb.Transaction[bytes]) -> Header:
        try:
            return _decode_header(txn.get(HEADER, b"", self._meta))
        except msgspec.MsgspecError as exc:
            raise self.damaged("header", exc) from exc

    def set_header(self, header: Header) -> None:
        """Write the header, in the current write transaction."""
        thread = self._transactions.thread
        self._put(HEADER, header)
        thread.header = header
        thread.changed = True

    @property
    def writer_state(self) -> WriterState:
        """State of the writer, as of the current transaction, or the newest one.

        Of a writer before the last start of the machine, only the counters are left:
        its times are those of another clock.
        """
        with self._transactions.reading as txn:
            stored = txn.get(_WRITER, None, self._meta)
            try:
                state = WriterState() if stored is None else _decode_writer(stored)
            except msgspec.MsgspecError as exc:
                raise self.damaged("state of the writer", exc) from exc

        if state.boot == self._boot:
            return state

        return WriterState(epoch=state.epoch, history_resets=state.history_resets)

    def set_writer_state(self, state: WriterState) -> None:
        """Write the state of the writer, in the current write transaction."""
        if self._writer is not None:
            self._locks.claim(state.epoch)

        state = msgspec.structs.replace(state, boot=self._boot)
        self._put(_WRITER, state)

    def _put(self, key: bytes, record: msgspec.Struct) -> None:
        thread = self._transactions.thread
        if thread.outer is None or thread.txn is None:
            raise InternalError(f"{key.decode()} is written outside of a transaction")

        thread.txn.put(key, _encode(record), db=self._meta)

    def damaged(self, what: str, why: object) -> CacheError:
        """Return the error for damaged data, and have the file set aside.

        The next process that opens it alone sets it aside. In this one, `check()` raises
        from now on.

        Args:
            what: Part of the file, such as `"record of 'default/web-0'"`.
            why: Reason.
        """
        error = CacheError(
            f"cannot read the cache {self.path}: its {what} is damaged: {why}. The next "
            "process that opens it alone sets the file aside, and lists again"
        )
        self._damage = self._damage or str(error)
        return error

    # -------------------------------------------------------- state

    def check(self) -> None:
        """Check that the path leads to the opened files, and for damage; every second.

        LMDB does not notice when a directory is removed or replaced.

        Raises:
            CacheError: If the directory or a file was removed or replaced, or if this
                process has found damaged data.
        """
        self._check_process()
        if self._damage:
            # Found by a read of the user, perhaps, who would get the error for ever.
            raise CacheError(self._damage)

        found = self._find()
        if found != self._identity:
            gone = "removed" if None in found else "replaced"
            raise CacheError(
                f"cannot use the cache {self.path}: its files were {gone}. Restart the "
                "process to use a cache again"
            )

        # Only early ends matter, and each time costs a write to the disk.
        if time.monotonic() - self._opened_at < 2 * EARLY_SECONDS:
            Session.seen(self.path)

    @property
    def used(self) -> int:
        """Bytes of the file that are in use, or were and can be used again."""
        return self._transactions.used

    def reader_check(self) -> int:
        """Free the slots of dead readers in LMDB's table; return their number.

        The oldest transaction in the table keeps all pages that were replaced since.

        Raises:
            CacheError: If the environment cannot be read.
        """
        self._check_process()
        try:
            return int(self._env.reader_check())
        except self._failures as exc:
            raise self._error("read", exc) from exc

    def snapshots(self) -> dict[tuple[int, str], int]:
        """Return the snapshots that are being read, by process and thread.

        A snapshot is the number of the newest transaction in it.

        Raises:
            CacheError: If the environment cannot be read.
        """
        self._check_process()
        try:
            table = self._env.readers()
        except self._failures as exc:
            raise self._error("read", exc) from exc

        rows = (row.split() for row in table.splitlines()[1:])
        return {
            (int(process), thread): int(snapshot)
            for process, thread, snapshot in rows
            if snapshot != "-"
        }

    def processes_before(self, transaction: int) -> set[int]:
        """Return the processes that read a snapshot from before a transaction.

        Args:
            transaction: Number of a write transaction, `lmdb.Transaction.id()`.

        Raises:
            CacheError: If the environment cannot be read.
        """
        return {
            process
            for (process, _), snapshot in self.snapshots().items()
            if snapshot < transaction
        }

    def _find(self) -> tuple[tuple[int, int] | None, ...]:
        """Return device and inode of the directory and its files."""
        paths = [self.path, *(self.path / it for it in (DATA, LOCK, STORE_LOCK))]
        return tuple(map(device_and_inode, paths))

    def _check_files(self) -> None:
        """Check that the files are still there.

        Without the file of the locks, another process may write, once the transaction
        ends in which this is called.
        """
        if (
            device_and_inode(self._data) != self._identity[1]
            or device_and_inode(self._lock_file) != self._identity[-1]
        ):
            self.check()

    def _check_process(self) -> None:
        if self._pid != _Process.id:
            raise CacheError(
                f"cannot use the cache {self.path} after a fork: the process "
                f"{self._pid} opened it. Start informers after the fork, in each worker"
            )

        if self._closed:
            raise CacheError(f"the cache {self.path} is closed")

    def _error(self, verb: str, exc: Exception) -> CacheError:
        error = CacheError(f"cannot {verb} the cache {self.path}: {cause_of(exc)}")
        if is_damage(exc):
            self._damage = self._damage or str(error)

        return error
