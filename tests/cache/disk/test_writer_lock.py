"""`WriterLock`: one writer for each directory, in all processes and threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from aioinformer.cache.disk.directory import WriterLock
from aioinformer.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[WriterLock]:
    lock = WriterLock(tmp_path)
    yield lock
    lock.release()


def test_lock_is_held_from_acquire_to_release(lock: WriterLock) -> None:
    before, acquired, again = lock.held, lock.acquire(), lock.acquire()
    held = lock.held
    lock.release()
    lock.release()

    assert (before, acquired, again, held, lock.held) == (
        False,
        True,
        True,
        True,
        False,
    )


def test_lock_is_given_to_one_object_of_a_process(
    tmp_path: Path, lock: WriterLock
) -> None:
    other = WriterLock(tmp_path)
    assert lock.acquire()

    refused = other.acquire()
    other.release()
    still_held = lock.held
    lock.release()

    assert (refused, still_held) == (False, True)
    assert other.acquire()
    assert not lock.held
    other.release()


def test_locks_of_two_directories_are_independent(tmp_path: Path) -> None:
    locks = []
    for name in ("pods", "nodes"):
        (tmp_path / name).mkdir()
        locks.append(WriterLock(tmp_path / name))

    assert [it.acquire() for it in locks] == [True, True]
    for it in locks:
        it.release()


def test_lock_is_given_to_one_of_several_threads(tmp_path: Path) -> None:
    locks = [WriterLock(tmp_path) for _ in range(8)]
    threads = [threading.Thread(target=it.acquire) for it in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sum(it.held for it in locks) == 1
    for it in locks:
        it.release()


def test_lock_is_lost_with_its_file(tmp_path: Path, lock: WriterLock) -> None:
    other = WriterLock(tmp_path)
    assert lock.acquire()
    lock.check()
    (tmp_path / "writer.lock").unlink()

    assert not lock.held
    with pytest.raises(CacheError, match=r"writer\.lock was removed or replaced"):
        lock.check()
    assert other.acquire()
    assert not lock.acquire()
    other.release()
    assert lock.acquire()


def test_lock_works_in_a_directory_that_was_made_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.mkdir()
    lock = WriterLock(path)
    assert lock.acquire()

    shutil.rmtree(path)
    assert not lock.held
    with pytest.raises(CacheError, match="its directory was removed"):
        lock.acquire()

    path.mkdir()
    assert lock.acquire()
    lock.release()


def test_lock_refuses_a_symbolic_link(tmp_path: Path, lock: WriterLock) -> None:
    (tmp_path / "writer.lock").symlink_to(tmp_path / "victim")

    with pytest.raises(CacheError, match=r"cannot lock .*writer\.lock"):
        lock.acquire()

    assert not (tmp_path / "victim").exists()


def test_lock_closes_its_files(tmp_path: Path) -> None:
    first, second = WriterLock(tmp_path), WriterLock(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert first.acquire()
        assert not second.acquire()
        first.release()
        second.release()

    assert len(os.listdir("/proc/self/fd")) == before


# ------------------------------------------------------------ processes

_HOLDER = """
import os, sys
from pathlib import Path
from aioinformer.cache.disk.directory import WriterLock

lock = WriterLock(Path(sys.argv[1]))
assert lock.acquire()
if "fork" in sys.argv and os.fork() == 0:
    # A worker that outlives it, and has inherited the descriptor.
    assert not lock.held
    assert not lock.acquire()
    assert not WriterLock(Path(sys.argv[1])).acquire()
    os.write(1, b"child\\n")
    sys.stdin.read()
    os._exit(0)

os.write(1, b"locked\\n")
sys.stdin.read()
"""


@contextmanager
def holder(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that has the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, path, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert {process.stdout.readline() for _ in range(1 + len(options))} >= {
            "locked\n"
        }
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.realtime
@pytest.mark.parametrize("options", [(), ("fork",)])
def test_lock_is_free_once_its_process_was_killed(
    tmp_path: Path, lock: WriterLock, options: tuple[str, ...]
) -> None:
    """Also while a child of a fork lives, which would keep an `flock()`."""
    with holder(tmp_path, *options) as process:
        for _ in range(3):
            assert not lock.acquire()

        process.kill()
        process.wait()
        assert lock.acquire()
