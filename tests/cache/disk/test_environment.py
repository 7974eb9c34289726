"""`Environment`: transactions, header, databases, and what can go wrong with them."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import lmdb
import pytest
from msgspec.structs import replace

from aioinformer.cache.disk.data_file import boot_id
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.header import Header, WriterState
from aioinformer.errors import CacheError, InternalError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.realtime


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a store, which is short in messages."""
    return tmp_path


@pytest.fixture
def env(path: Path) -> Iterator[Environment]:
    env = Environment.open(path)
    yield env
    env.close()


def in_thread(call: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join(10)
    assert results, "the call failed or did not return"
    return results[0]


def stored(env: Environment, key: bytes) -> bytes | None:
    with env.read() as txn:
        return txn.get(key, db=env.database("o0"))


# ------------------------------------------------------------ transactions


def test_write_is_committed_at_the_end_of_the_outermost_block(env: Environment) -> None:
    objects = env.database("o0")
    with env.write() as txn:
        with env.write() as inner:
            assert inner is txn
            inner.put(b"key", b"value", db=objects)
        assert in_thread(lambda: stored(env, b"key")) is None

    assert stored(env, b"key") == b"value"


def test_write_is_aborted_by_an_exception(env: Environment) -> None:
    objects = env.database("o0")

    def fail() -> None:
        with env.write() as txn:
            with env.write():
                txn.put(b"key", b"value", db=objects)
            env.set_header(Header(version="7"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert stored(env, b"key") is None
    assert env.header == Header()


def test_read_within_write_is_the_write_transaction(env: Environment) -> None:
    objects = env.database("o0")
    with env.write() as txn:
        txn.put(b"key", b"value", db=objects)
        with env.read() as inside:
            assert inside is txn
        assert stored(env, b"key") == b"value"


def test_nested_reads_share_one_snapshot(env: Environment) -> None:
    objects = env.database("o0")

    def change() -> bool:
        with env.write() as txn:
            return txn.put(b"key", b"value", db=objects)

    with env.read():
        assert in_thread(change)
        assert stored(env, b"key") is None
        assert env.header is env.header

    assert stored(env, b"key") == b"value"


def test_write_within_read_is_newer_than_it(env: Environment) -> None:
    objects = env.database("o0")
    with env.read() as reading:
        with env.write() as txn:
            txn.put(b"key", b"value", db=objects)
            env.set_header(Header(version="7"))
        assert not env.in_write
        assert reading.get(b"key", db=objects) is None
        assert env.header == Header()

    assert env.header == Header(version="7")


def test_in_write_is_true_within_write_only(env: Environment) -> None:
    assert not env.in_write
    with env.write(), env.read():
        inside, elsewhere = env.in_write, in_thread(lambda: env.in_write)

    assert [inside, elsewhere, env.in_write] == [True, False, False]


def test_lmdb_error_in_a_block_becomes_a_cache_error(env: Environment) -> None:
    objects = env.database("o0")

    def fail() -> None:
        with env.write() as txn:
            txn.put(b"first", b"value", db=objects)
            txn.put(b"x" * 512, b"value", db=objects)

    with pytest.raises(CacheError, match="cannot write the cache") as caught:
        fail()

    assert isinstance(caught.value.__cause__, lmdb.BadValsizeError)
    assert stored(env, b"first") is None
    assert "MDB_BAD_VALSIZE" in str(caught.value)


def test_write_waits_for_that_of_another_thread(env: Environment) -> None:
    objects = env.database("o0")
    with env.write() as txn:
        txn.put(b"key", b"1", db=objects)

    def count() -> bool:
        for _ in range(50):
            with env.write() as txn:
                number = int(txn.get(b"key", b"", db=objects))
                txn.put(b"key", b"%d" % (number + 1), db=objects)
        return True

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert count()
    for thread in threads:
        thread.join(30)

    assert stored(env, b"key") == b"201"


# ------------------------------------------------------------ header and databases


def test_header_is_kept_in_the_file(path: Path) -> None:
    header = Header(version="7", indexes={"node": (1, "spec.nodeName")}, last=3)
    env = Environment.open(path)
    with env.write():
        env.set_header(header)
        assert env.header == header
    env.close()

    env = Environment.open(path)
    assert env.header == header
    env.close()


def test_header_in_a_transaction_is_that_of_its_snapshot(env: Environment) -> None:
    def change() -> bool:
        with env.write():
            env.set_header(replace(env.header, count=env.header.count + 1))
        return True

    with env.read():
        before = env.header
        assert in_thread(change)
        assert env.header == before
    assert env.header.count == 1


def test_header_of_an_aborted_write_is_forgotten(env: Environment) -> None:
    def fail() -> None:
        with env.write():
            env.set_header(Header(version="8"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    # It has the same number as the transaction that was aborted.
    with env.write() as txn:
        assert env.header == Header()
        txn.put(b"key", b"value", db=env.database("meta"))
    assert env.header == Header()


def test_writer_state_is_a_record_of_its_own(env: Environment) -> None:
    assert env.writer_state == WriterState()

    state = WriterState(pid=7, heartbeat=1.5, error="refused")
    with env.write():
        env.set_writer_state(state)

    assert env.writer_state == replace(state, boot=boot_id())
    assert env.header == Header()


def test_times_of_a_writer_before_a_restart_of_the_machine_are_not_read(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with env.write():
        env.set_writer_state(WriterState(pid=7, epoch=3, heartbeat=1.5, in_step=1.5))

    monkeypatch.setattr(env, "_boot", "the next one")
    assert env.writer_state == WriterState(epoch=3)


def test_records_are_written_in_write_transactions_only(env: Environment) -> None:
    with pytest.raises(InternalError):
        env.set_header(Header())
    with env.read(), pytest.raises(InternalError):
        env.set_writer_state(WriterState())


@pytest.mark.parametrize("key", [b"header", b"writer"])
def test_damaged_record_raises_and_has_the_file_set_aside(
    path: Path, key: bytes
) -> None:
    env = Environment.open(path)
    with env.write() as txn:
        txn.put(key, b"\xc1", db=env.database("meta"))

    with pytest.raises(CacheError, match="is damaged"):
        _ = env.header if key == b"header" else env.writer_state
    env.close()

    assert (path / "session").read_text(encoding="ascii").split()[1] == "damaged"


def test_database_is_created_once_and_found_again(path: Path) -> None:
    env = Environment.open(path)
    index = env.database("x0", dupsort=True)
    assert env.database("x0", dupsort=True) is index
    with env.write() as txn:
        txn.put(b"value", b"key-1", db=index)
        txn.put(b"value", b"key-2", db=index)
    env.close()

    env = Environment.open(path, create=False)
    with env.read() as txn:
        assert txn.stat(env.database("x0", dupsort=True))["entries"] == 2
    with pytest.raises(CacheError, match="has no database 'x1' yet"):
        env.database("x1")
    with pytest.raises(CacheError, match="opened to be read only"), env.write():
        pass
    env.close()


def test_database_cannot_be_opened_within_a_transaction(env: Environment) -> None:
    with env.read(), pytest.raises(InternalError, match="'o1'"):
        env.database("o1")


def test_database_is_created_by_several_threads_at_once(env: Environment) -> None:
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(env.database("o0")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert found == [env.database("o0")] * 8


def test_environment_has_a_limit_of_databases(env: Environment) -> None:
    def open_many() -> None:
        for number in range(200):
            env.database(f"x{number}")

    with pytest.raises(CacheError, match="Use fewer indexes"):
        open_many()

    assert env.header == Header()


# ------------------------------------------------------------ users and ends


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="not on this system")
def test_locks_take_their_place_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a full disk would kill the process, when LMDB writes to a hole of the file."""

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(CacheError, match="no space is left on its disk"):
            Environment.open(path)

    env = Environment.open(path)
    status = (path / "lock.mdb").stat()
    assert 512 * status.st_blocks >= status.st_size > 64 * 1024
    env.close()


def test_open_without_lmdb_names_the_extra(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)

    with pytest.raises(OptionsError, match=r"pip install 'aioinformer\[shared\]'"):
        Environment.open(path)


def test_open_returns_the_same_environment_until_its_last_close(path: Path) -> None:
    first, second = Environment.open(path), Environment.open(path)
    assert first is second

    first.close()
    assert second.header == Header()
    second.close()

    with pytest.raises(CacheError, match="is closed"):
        _ = second.header
    with pytest.raises(CacheError, match="is closed"), second.write():
        pass
    second.close()


def test_open_finds_the_same_environment_by_another_path(path: Path) -> None:
    (path / "real" / "pods").mkdir(parents=True)
    (path / "link").symlink_to(path / "real")

    first = Environment.open(path / "real" / "pods")
    second = Environment.open(path / "link" / "pods")

    assert first is second
    second.close()
    first.close()


@pytest.mark.parametrize("create", [False, True])
def test_open_needs_a_directory(path: Path, create: bool) -> None:
    with pytest.raises(CacheError, match="there is no cache in"):
        Environment.open(path / "missing", create=create)

    assert not any(path.iterdir())


def test_open_in_several_threads_opens_it_once(path: Path) -> None:
    found: list[Environment] = []
    threads = [
        threading.Thread(target=lambda: found.append(Environment.open(path)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    for env in found:
        assert env.header == Header()
        env.close()


def test_failed_open_leaves_nothing_open(path: Path) -> None:
    (path / "data.mdb").mkdir()
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(3):
        with pytest.raises(CacheError, match="cannot open the cache"):
            Environment.open(path)

    assert len(os.listdir("/proc/self/fd")) == before
    (path / "data.mdb").rmdir()
    Environment.open(path).close()


def test_close_waits_for_reads_of_other_threads(path: Path) -> None:
    env = Environment.open(path)
    objects = env.database("o0")
    with env.write() as txn:
        txn.put(b"key", b"value", db=objects)

    begun, closes, found = threading.Event(), threading.Event(), []

    def read() -> None:
        with env.read() as txn:
            begun.set()
            closes.wait(10)
            threading.Event().wait(0.05)
            with env.read():  # nested
                found.append(txn.get(b"key", db=objects))

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait(10)
    closes.set()
    env.close()

    assert found == [b"value"]
    reader.join(10)
    with pytest.raises(CacheError, match="is closed"), env.read():
        pass


def test_close_leaves_the_map_to_a_read_that_takes_too_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioinformer.cache.disk.environment._OPENING_SECONDS", 0.1)
    env = Environment.open(path)
    objects = env.database("o0")
    with env.write() as txn:
        txn.put(b"key", b"value", db=objects)

    closing = threading.Thread(target=env.close)
    with env.read() as txn:
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
        assert txn.get(b"key", db=objects) == b"value"


def test_close_leaves_nothing_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))

    Environment.open(path).close()

    assert len(os.listdir("/proc/self/fd")) == before


def test_files_are_private(path: Path) -> None:
    before = os.umask(0)
    try:
        env = Environment.open(path)
    finally:
        os.umask(before)

    modes = {it.name: it.stat().st_mode & 0o777 for it in path.iterdir()}
    env.close()
    assert modes == {
        "data.mdb": 0o600,
        "lock.mdb": 0o600,
        "readers": 0o700,
        "session": 0o600,
        "store.lock": 0o600,
    }


# ------------------------------------------------------------ files under it


def remove_directory(path: Path) -> None:
    shutil.rmtree(path)


def replace_directory(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()
    (path / "data.mdb").touch()


def remove_file(path: Path) -> None:
    (path / "data.mdb").unlink()


def replace_lock_file(path: Path) -> None:
    (path / "lock.mdb").rename(path / "lock.old")
    (path / "lock.mdb").touch()


def replace_locks(path: Path) -> None:
    (path / "store.lock").rename(path / "store.old")
    (path / "store.lock").touch()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (remove_directory, "removed"),
        (replace_directory, "removed"),
        (remove_file, "removed"),
        (replace_lock_file, "replaced"),
        (replace_locks, "replaced"),
    ],
)
def test_check_finds_files_that_are_not_the_opened_ones(
    path: Path, change: Callable[[Path], None], what: str
) -> None:
    store = path / "store"
    store.mkdir()
    with ExitStack() as stack:
        env = Environment.open(store)
        stack.callback(env.close)
        env.check()
        change(store)

        with pytest.raises(CacheError, match=f"its files were {what}"):
            env.check()
        # It is still mapped.
        assert env.header == Header()


def test_write_raises_after_the_directory_was_removed(path: Path) -> None:
    store = path / "store"
    store.mkdir()
    env = Environment.open(store)
    shutil.rmtree(store)

    with pytest.raises(CacheError, match="its files were removed"), env.write():
        pass
    env.close()

    store.mkdir()
    env = Environment.open(store)
    with env.write():
        env.set_header(Header(version="7"))
    env.close()


def test_write_extends_the_file_to_its_last_page(env: Environment, path: Path) -> None:
    """LMDB does not write pages that a transaction has used and freed."""
    objects = env.database("o0")
    for size in (300, 300, 300, 20_000, 40_000):
        with env.write() as txn:
            for number in range(9):
                txn.put(b"%d" % number, b"x" * size, db=objects)
            for number in range(9):
                txn.delete(b"%d" % number, db=objects)

        assert (path / "data.mdb").stat().st_size >= env.used

    assert env.used > 360_000


def test_used_grows_with_the_file(env: Environment, path: Path) -> None:
    before = env.used
    objects = env.database("o0")
    with env.write() as txn:
        txn.put(b"key", b"x" * 100_000, db=objects)

    assert env.used - before >= 100_000
    assert env.used == (path / "data.mdb").stat().st_size
