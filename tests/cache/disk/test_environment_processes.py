"""`Environment` in several processes, which are killed, forked and limited."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from store_processes import StoreProcess

from aioinformer.cache.disk import environment
from aioinformer.cache.disk.data_file import Session
from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.header import Header
from aioinformer.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.realtime

MIB = 2**20


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    env = Environment.open(tmp_path)
    yield env
    env.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[StoreProcess]:
    with StoreProcess(tmp_path) as process:
        yield process


def state_of(path: Path) -> str:
    session = Session.read(path)
    assert session is not None
    return session.state


def test_changes_of_another_process_are_read(
    env: Environment, other: StoreProcess
) -> None:
    assert env.header.version == ""
    other("start()")
    for number in range(3):
        other(f"version('{number}')")
        other(f"put(b'key', b'{number}')")

        assert env.header.version == f"{number}"
        objects = env.database("o0")
        with env.read() as txn:
            assert txn.get(b"key", db=objects) == b"%d" % number

    with env.write():
        env.set_header(Header(version="mine"))
    assert other("env.header.version") == "mine"


def test_database_of_another_process_is_found(
    env: Environment, other: StoreProcess
) -> None:
    other("start()")
    other("put(b'key', b'value')")

    with_read = env.database("o0")
    with env.read() as txn:
        assert txn.get(b"key", db=with_read) == b"value"


def test_write_is_possible_once_a_process_was_killed_within_one(
    env: Environment, other: StoreProcess
) -> None:
    other("start()")
    other("version('1')")
    other("env.write().__enter__() and None")
    other("env.set_header(Header(version='2'))")
    other.kill()

    with env.write():
        assert env.header.version == "1"
        env.set_header(Header(version="3"))

    assert env.header.version == "3"


def test_slot_of_a_killed_reader_is_freed(
    env: Environment, other: StoreProcess
) -> None:
    other("start()")
    other("env.read().__enter__() and None")
    other.kill()

    assert env.reader_check() >= 1
    assert env.reader_check() == 0


def test_processes_that_read_older_snapshots_are_found(
    env: Environment, other: StoreProcess
) -> None:
    def write() -> int:
        with env.write() as txn:
            env.set_header(Header())
            return txn.id()

    first = write()
    other("start()")
    assert env.processes_before(first + 10) == set()

    other("env.read().__enter__() and None")
    second = write()

    assert env.processes_before(first) == set()
    assert env.processes_before(second) == {other.pid}
    with env.read():
        assert env.processes_before(second) == {other.pid}
        assert env.processes_before(second + 1) == {other.pid, os.getpid()}
    other.kill()
    env.reader_check()
    assert env.processes_before(second) == set()


# ------------------------------------------------------------ forks


@pytest.mark.parametrize(
    "use",
    [
        "env.header",
        "env.writer_state",
        "env.check()",
        "env.reader_check()",
        "get(b'key')",
        "put(b'key', b'child')",
        "start()",
    ],
)
def test_use_after_a_fork_is_refused(other: StoreProcess, use: str) -> None:
    other("start()")
    other("put(b'key', b'parent')")

    answer = other(f'forked("{use}")')

    assert "after a fork" in answer
    assert f"the process {other.pid} opened it" in answer
    assert "Start informers after the fork" in answer


def test_store_survives_the_end_of_a_forked_child(
    env: Environment, other: StoreProcess
) -> None:
    """Its descriptors are those of the parent."""
    other("start()")
    other("put(b'key', b'parent')")
    other('forked("env.close()")')

    other("put(b'key', b'after')")
    assert other("get(b'key')") == b"after"

    # The other process still counts as a user.
    env.close()
    env = Environment.open(other_path := env.path)
    env.close()
    assert state_of(other_path) == "open"
    assert other("env.close()") is None
    assert state_of(other_path) == "closed"


def test_fork_before_the_opening_is_fine(other: StoreProcess) -> None:
    assert other("forked(\"start() or put(b'key', b'1') or get(b'key')\")") == repr(
        b"1"
    )


# ------------------------------------------------------------ opening and closing


def test_store_is_marked_as_closed_by_its_last_process(
    tmp_path: Path, other: StoreProcess
) -> None:
    env = Environment.open(tmp_path)
    other("start()")

    env.close()
    assert state_of(tmp_path) == "open"

    other("env.close()")
    assert state_of(tmp_path) == "closed"


def test_store_is_marked_as_closed_beside_a_process_that_looks_at_it(
    tmp_path: Path, other: StoreProcess
) -> None:
    Environment.open(tmp_path).close()
    assert other("look()") == ""
    env = Environment.open(tmp_path)
    with env.write():
        env.set_header(Header(version="7"))

    env.close()
    assert state_of(tmp_path) == "closed"
    assert other("env.header.version") == "7"


def test_store_is_not_marked_as_closed_by_a_kill(
    tmp_path: Path, other: StoreProcess
) -> None:
    other("start()")
    other.kill()

    assert state_of(tmp_path) == "open"


def test_damage_is_remembered_until_all_processes_have_left(
    tmp_path: Path, other: StoreProcess
) -> None:
    env = Environment.open(tmp_path)
    other("start()")
    env.damaged("record", "test")
    env.close()

    with pytest.raises(CacheError, match="a process found damaged data in it"):
        Environment.open(tmp_path)
    other("env.close()")
    assert state_of(tmp_path) == "damaged"

    Environment.open(tmp_path).close()
    assert state_of(tmp_path) == "closed"


def test_store_that_another_process_uses_is_not_set_aside(
    tmp_path: Path, other: StoreProcess
) -> None:
    other("start()")
    other("version('7')")
    (tmp_path / "session").unlink()

    with pytest.raises(CacheError, match="Stop the other processes that have it open"):
        Environment.open(tmp_path)

    assert other("env.header.version") == "7"
    other("version('8')")
    other.kill()
    env = Environment.open(tmp_path)
    assert env.header == Header()
    env.close()


def test_processes_that_start_at_once_replace_a_damaged_store_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "data.mdb").write_bytes(b"x" * 50_000)
    with ExitStack() as stack:
        processes = [stack.enter_context(StoreProcess(tmp_path)) for _ in range(4)]
        for process in processes:
            process.send("start()")
        assert [it.result() for it in processes] == [None] * 4

        processes[0]("version('7')")
        assert [it("env.header.version") for it in processes] == ["7"] * 4

    (kept,) = tmp_path.glob("data.mdb.*")
    assert kept.stat().st_size == 50_000


def test_opening_waits_for_that_of_another_process(
    tmp_path: Path, other: StoreProcess
) -> None:
    assert other("(lock := Locks(path)).enter(1)") is True
    with StoreProcess(tmp_path) as third:
        assert third("Locks(path).enter(0.05)") is False
        third.send("start()")
        other.kill()
        assert third.result() is None


def test_same_process_id_in_another_container_is_explained(
    tmp_path: Path, other: StoreProcess
) -> None:
    """LMDB locks the byte of its process id in the file of readers."""
    Environment.open(tmp_path).close()
    with (tmp_path / "lock.mdb").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, other.pid)

        answer = other("start()")

    assert "another container uses it, with the same process id" in answer
    assert "shareProcessNamespace" in answer
    assert other("start()") is None


def test_stopped_process_does_not_block_readers(
    env: Environment, other: StoreProcess
) -> None:
    other("start()")
    other("env.write().__enter__() and None")
    os.kill(other.pid, signal.SIGSTOP)

    assert env.header == Header()
    read_only = StoreProcess(env.path)
    with read_only:
        assert read_only("Environment.open(path, create=False).header.version") == ""


# ------------------------------------------------------------ limits


def test_opening_is_given_up_while_the_writer_is_stopped_in_a_transaction(
    other: StoreProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB itself would wait for it, and stop the whole interpreter."""
    other("start()")
    other("put(b'key', b'value')")
    other("env.write().__enter__() and None")
    os.kill(other.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(environment, "_OPENING_SECONDS", 0.2)
        with pytest.raises(CacheError, match=r"has been writing it for 0\.2 s"):
            Environment.open(tmp_path)

    other.kill()
    env = opened_after_a_while(tmp_path)
    objects = env.database("o0")
    with env.read() as txn:
        assert txn.get(b"key", db=objects) == b"value"
    env.close()


def opened_after_a_while(path: Path) -> Environment:
    """Open a store once the attempt that was given up has closed it."""
    for _ in range(500):
        try:
            return Environment.open(path)
        except CacheError:
            time.sleep(0.01)

    return Environment.open(path)


def test_full_disk_raises_and_keeps_the_last_commit(
    tmp_path: Path, other: StoreProcess
) -> None:
    """A limit of the file size stands for a full disk."""
    other("start()")
    other(f"limit({resource.RLIMIT_FSIZE}, {MIB})")

    answer = other("fill(100, 50_000)")

    assert "cannot write the cache" in answer
    assert "Free some space, or choose a larger volume for cache_dir" in answer
    count = other("env.header.count")
    assert 5 < count < 25
    assert other(f"get(b'fill-{count - 1}') is not None")
    assert other(f"get(b'fill-{count}') is None")

    # Another process sees the same, and it can be written once there is space.
    env = Environment.open(tmp_path)
    assert env.header.count == count
    other(f"limit({resource.RLIMIT_FSIZE}, {resource.RLIM_INFINITY})")
    assert other("fill(100, 50_000)") is None
    assert env.header.count == 100
    env.close()


def test_full_map_raises_and_keeps_the_last_commit(tmp_path: Path) -> None:
    with StoreProcess(tmp_path) as limited, StoreProcess(tmp_path) as free:
        limited(f"limit({resource.RLIMIT_AS}, {200 * MIB})")
        limited("start()")
        free("start()")

        answer = limited("fill(40, 2**20)")
        assert "addresses: 64 GiB, or less if they are limited" in answer
        count = limited("env.header.count")
        assert 3 < count < 33
        assert free("env.header.count") == count

        # The other process has no limit, and the one with a limit cannot follow.
        assert free("fill(40, 2**20)") is None
        answer = limited("env.header")
        assert "has made the file larger than this process can map" in answer
        assert free("env.header.count") == 40


def test_stores_leave_address_space_for_the_program(tmp_path: Path) -> None:
    with StoreProcess(tmp_path) as process:
        process(f"limit({resource.RLIMIT_AS}, {2048 * MIB})")
        assert process("[open_in(str(it)) for it in range(8)] and None") is None
        assert process(f"len(bytes({200 * MIB}))") == 200 * MIB
        assert process("put(b'key', b'value')") is None
