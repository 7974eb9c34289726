"""`Locks`, and their use by `Environment`: one writer in all processes and threads."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from store_processes import StoreProcess

from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.header import Header, WriterState
from aioinformer.cache.disk.locks import Locks
from aioinformer.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.realtime


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Environment]:
    env = Environment.open(tmp_path)
    yield env
    env.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[StoreProcess]:
    with StoreProcess(tmp_path) as process:
        yield process


# ------------------------------------------------------------ the file


def test_locks_refuse_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "store.lock").symlink_to(tmp_path / "victim")

    with pytest.raises(CacheError, match=r"cannot lock .*store\.lock"):
        Locks(tmp_path)

    assert not (tmp_path / "victim").exists()


def test_locks_name_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="its directory was removed"):
        Locks(tmp_path / "store")


def test_entering_opens_the_file_again_that_was_replaced(tmp_path: Path) -> None:
    locks = Locks(tmp_path)
    (tmp_path / "store.lock").unlink()

    assert locks.enter(1)
    status = (tmp_path / "store.lock").stat()
    assert locks.identity == (status.st_dev, status.st_ino)

    locks.close()
    locks.close()


# ------------------------------------------------------------ users of one process


def test_lock_is_held_from_acquire_to_release(env: Environment) -> None:
    first, second = object(), object()

    assert [env.acquire(it) for it in (first, first, second)] == [True, True, False]
    env.release(second)
    assert not env.acquire(second)

    env.release(first)
    env.release(first)
    assert env.acquire(second)
    assert not env.acquire(first)


def test_lock_is_given_to_one_of_several_threads(env: Environment) -> None:
    acquired: list[bool] = []
    threads = [
        threading.Thread(target=lambda: acquired.append(env.acquire(object())))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sorted(acquired) == [False] * 7 + [True]


def test_lock_is_refused_after_the_close(tmp_path: Path) -> None:
    env = Environment.open(tmp_path)
    env.close()

    with pytest.raises(CacheError, match="is closed"):
        env.acquire(object())


def test_lock_of_a_removed_file_is_not_given_twice_in_a_process(
    env: Environment, tmp_path: Path
) -> None:
    assert env.acquire("first")
    (tmp_path / "store.lock").unlink()

    assert not env.acquire("second")
    with pytest.raises(CacheError, match="its files were removed"):
        Environment.open(tmp_path)
    with pytest.raises(CacheError, match="its files were removed"), env.write():
        pass


# ------------------------------------------------------------ processes


def test_lock_is_free_once_its_process_was_killed(
    env: Environment, other: StoreProcess
) -> None:
    other("start()")
    assert other("env.acquire('writer')")
    os.kill(other.pid, signal.SIGSTOP)
    for _ in range(3):
        assert not env.acquire("writer")

    other.kill()
    assert env.acquire("writer")


def test_lock_is_free_once_its_process_was_killed_whose_child_lives(
    env: Environment, other: StoreProcess
) -> None:
    """The child would keep an `flock()`."""
    other("start()")
    assert other("env.acquire('writer')")
    child = other("child()")
    try:
        other.kill()
        assert env.acquire("writer")
    finally:
        os.kill(child, signal.SIGKILL)


def test_lock_is_not_that_of_a_forked_child(
    env: Environment, other: StoreProcess
) -> None:
    other("start()")
    assert other("env.acquire('writer')")

    assert "after a fork" in other("forked(\"env.acquire('writer')\")")
    assert other("forked(\"env.release('writer')\")") == "None"
    assert not env.acquire("writer")


def test_lock_survives_the_close_of_another_store(
    tmp_path: Path, env: Environment, other: StoreProcess
) -> None:
    shutil.copytree(tmp_path, tmp_path / "copy")
    assert env.acquire("writer")

    Environment.open(tmp_path / "copy").close()
    Environment.open(tmp_path).close()  # one user less

    other("start()")
    assert not other("env.acquire('writer')")


def test_writer_does_not_write_once_another_process_may(
    env: Environment, other: StoreProcess, tmp_path: Path
) -> None:
    """Somebody removes the file of the locks, so that a new process creates it."""
    assert env.acquire("writer")
    with env.write():
        env.set_header(Header(version="7"))

    (tmp_path / "store.lock").unlink()
    other("start()")
    assert other("env.acquire('writer')")

    with pytest.raises(CacheError, match="its files were replaced"), env.write():
        env.set_header(Header(version="8"))
    other("version('9')")
    assert env.header.version == "9"


def test_writer_checks_its_lock_within_the_transaction(
    env: Environment, other: StoreProcess, tmp_path: Path
) -> None:
    """Another process that gets the lock of a new file while this one waits, writes."""
    assert env.acquire("writer")
    other("start()")
    other("env.write().__enter__() and None")
    failures: list[Exception] = []

    def write() -> None:
        try:
            with env.write():
                env.set_header(Header(version="mine"))
        except CacheError as exc:
            failures.append(exc)

    waits = threading.Thread(target=write)
    waits.start()
    waits.join(0.1)  # in LMDB
    (tmp_path / "store.lock").unlink()
    with StoreProcess(tmp_path) as third:
        third.send("start()")
        other("env.write().__exit__(None, None, None)")
        assert third.result() is None

    waits.join(10)
    assert len(failures) == 1
    assert env.header.version == ""


# ------------------------------------------------------------ the state of a writer


def test_state_is_that_of_the_writer_until_its_end(
    env: Environment, other: StoreProcess
) -> None:
    other("start()")
    assert other("env.acquire('writer')")
    other("state(3)")
    state = env.writer_state

    assert state.epoch == 3
    assert env.is_of_writer(state)
    assert other("env.is_of_writer(env.writer_state)")
    assert not env.is_of_writer(replace(state, ended=True))
    assert not env.is_of_writer(replace(state, epoch=2))
    assert not other("env.is_of_writer(replace(env.writer_state, epoch=2))")

    other.kill()
    assert not env.is_of_writer(state)


def test_state_of_a_dead_writer_is_not_that_of_the_next_one(
    env: Environment, other: StoreProcess
) -> None:
    """It has the lock, and has not written yet; process ids may be the same."""
    assert env.acquire("first")
    with env.write():
        env.set_writer_state(WriterState(pid=7, epoch=1, confirmed=True))
    env.release("first")
    other("start()")
    assert other("env.acquire('next')")

    assert not env.acquire("first")
    assert not env.is_of_writer(env.writer_state)
    assert not other("env.is_of_writer(env.writer_state)")

    other("state(2)")
    assert env.is_of_writer(env.writer_state)
