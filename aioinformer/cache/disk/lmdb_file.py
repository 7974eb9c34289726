"""`data.mdb` in LMDB: open it, and check that it is one of ours."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aioinformer._extras import import_extra
from aioinformer.cache.disk.directory import LOCK, WITHOUT_LINKS
from aioinformer.cache.disk.failures import is_damage
from aioinformer.cache.disk.header import FORMAT, Header
from aioinformer.cache.disk.transactions import new_map_size

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import lmdb

__all__ = ["HEADER", "META", "Doubtful", "import_lmdb", "open_file"]

META: Final = b"meta"
"""Name of the database of the header."""

HEADER: Final = b"header"
"""Key of the header."""

_READERS: Final = 1024
# Size of the file of LMDB's locks: 64 bytes for each reader, and a head.
_LOCK_BYTES: Final = 64 * _READERS + 4096
_DATABASES: Final = 128

# One file at a time: each gets a part of the addresses that are left.
_mapping: Final = threading.Lock()

_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(Header).decode


class Doubtful(Exception):
    """File that LMDB cannot read, or that is not one of ours.

    Args:
        why: Reason.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)


class _Format(msgspec.Struct):
    """The one field of a header that every format has."""

    format: int


_decode_format = msgspec.msgpack.Decoder(_Format).decode


def import_lmdb() -> Any:
    """Import the package when it is needed: most programs do not use it.

    Raises:
        OptionsError: If it is not installed.
    """
    return import_extra("lmdb", "shared", "cache_dir= needs lmdb")


def open_file(
    path: Path, *, create: bool, seconds: float
) -> tuple[lmdb.Environment, dict[str, lmdb._Database]]:
    """Open the file of a store; return its environment, and its databases by name.

    Args:
        path: Directory of the store.
        create: False to only read.
        seconds: Time to wait for another process that writes.

    Raises:
        Doubtful: If the file cannot be used.
        TimeoutError: If another process has been writing for that time.
        lmdb.Error: If it cannot be opened now.
    """
    package = import_lmdb()
    try:
        with _mapping:
            if create:
                _reserve_locks(path / LOCK, package.DiskError)

            env: lmdb.Environment = package.open(
                os.fspath(path),
                map_size=new_map_size(),
                mode=0o600,
                create=False,
                sync=False,
                max_readers=_READERS,
                max_dbs=_DATABASES,
                max_spare_txns=1,
                readonly=not create,
            )

        try:
            env.reader_check()
            return env, _checked(env, package.Error, create=create, seconds=seconds)
        except TimeoutError:
            raise  # it is closed at the end of that transaction
        except BaseException:
            env.close()
            raise
    except package.VersionMismatchError as exc:
        raise Doubtful(f"LMDB cannot read it: {exc}") from exc
    except package.Error as exc:
        if is_damage(exc):
            raise Doubtful(f"the file is damaged ({exc})") from exc

        raise


def _reserve_locks(path: Path, failure: type[Exception]) -> None:
    """Give the file of LMDB's locks its place on the disk.

    LMDB maps it with holes. If the disk is full, the kernel would kill the process when
    it writes to one. Call it only if this process does not have the store open: closing
    the file would release its locks.

    Raises:
        Exception: Of the given class, if there is no space.
    """
    if not hasattr(os, "posix_fallocate"):
        return

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | WITHOUT_LINKS, 0o600)
        try:
            size = max(os.fstat(descriptor).st_size, _LOCK_BYTES)
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
    except OSError as exc:
        if exc.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise failure(exc.strerror) from exc
        # LMDB reports anything else, and some file systems reserve nothing.


def _checked(
    env: lmdb.Environment, failures: type[Exception], *, create: bool, seconds: float
) -> dict[str, lmdb._Database]:
    """Check the format, and return the databases; create the first in a new file."""
    names = env.dbs()
    if META not in names:
        if env.stat()["entries"] or not create:
            raise Doubtful("it is not a store of aioinformer")

        with env.begin(write=True) as txn:
            meta = env.open_db(META, txn=txn)
            txn.put(HEADER, _encode(Header()), overwrite=False, db=meta)

        names = [META]

    if create:
        opened = _opened(env, names, failures, seconds)
    else:
        opened = {name.decode(): env.open_db(name, create=False) for name in names}

    with env.begin() as txn:
        stored = txn.get(HEADER, b"", opened[META.decode()])

    try:
        found = _decode_format(stored).format
        if found == FORMAT:
            _decode_header(stored)
    except msgspec.MsgspecError as exc:
        raise Doubtful(f"its header is damaged ({exc})") from exc

    if found != FORMAT:
        raise Doubtful(f"it has format {found}, and this version uses {FORMAT}")

    return opened


def _opened(
    env: lmdb.Environment,
    names: Iterable[bytes],
    failures: type[Exception],
    seconds: float,
) -> dict[str, lmdb._Database]:
    """Open databases, unless another process was stopped while it writes.

    That takes a write transaction: databases that a read transaction has opened would
    end with it. In a thread, which may have to wait.
    """
    ended: Future[dict[str, lmdb._Database]] = Future()

    def call() -> None:
        try:
            # `open_db()` would begin one, too, but keeps the interpreter's lock.
            with env.begin(write=True) as txn:
                opened = {
                    name.decode(): env.open_db(name, txn=txn, create=False)
                    for name in names
                }
        except failures as exc:
            ended.set_exception(exc)
        else:
            ended.set_result(opened)

    threading.Thread(target=call, name="aioinformer cache", daemon=True).start()
    try:
        return ended.result(seconds)
    except TimeoutError:
        ended.add_done_callback(lambda _: env.close())
        raise
