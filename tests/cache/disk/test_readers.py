"""`Readers` and `ReaderSlot`: positions, wake-ups, and dead readers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import stat
from typing import TYPE_CHECKING

import pytest
import uvloop

from aioinformer.cache.disk.readers import WAKE_SECONDS, Readers, ReaderSlot
from aioinformer.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "readers"


@pytest.fixture
def readers(directory: Path) -> Iterator[Readers]:
    readers = Readers(directory)
    yield readers
    readers.close()


@pytest.fixture
def slot(directory: Path) -> Iterator[ReaderSlot]:
    slot = ReaderSlot(directory)
    yield slot
    slot.close()


class Alarm:
    """Reader that counts its wake-ups."""

    def __init__(self, slot: ReaderSlot) -> None:
        self.slot = slot
        self.times: list[float] = []
        slot.start(self._woken)

    def _woken(self) -> None:
        self.times.append(asyncio.get_running_loop().time())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# ---------------------------------------------------------------- positions


def test_positions_are_those_of_each_reader(directory: Path, readers: Readers) -> None:
    one, two = ReaderSlot(directory), ReaderSlot(directory)
    one.position = 7
    two.position = 2**40

    assert readers.positions() == {one.name: 7, two.name: 2**40}
    one.position = 8
    assert (one.position, readers.positions()[one.name]) == (8, 8)
    one.close()
    one.close()
    assert readers.positions() == {two.name: 2**40}
    two.close()
    assert readers.positions() == {}
    assert list(directory.iterdir()) == []


def test_reader_without_position_is_listed(slot: ReaderSlot, readers: Readers) -> None:
    assert slot.position == -1
    assert readers.positions() == {slot.name: -1}
    assert slot.name.startswith(f"{os.getpid()}-")


def test_reader_with_a_damaged_position_is_listed(
    slot: ReaderSlot, directory: Path, readers: Readers
) -> None:
    slot.position = 3
    os.truncate(directory / slot.name, 5)

    assert readers.positions() == {slot.name: -1}


def test_there_are_no_readers_before_the_first(readers: Readers) -> None:
    assert readers.positions() == {}


def test_files_of_a_reader_are_private(slot: ReaderSlot, directory: Path) -> None:
    modes = {it.name: stat.S_IMODE(it.stat().st_mode) for it in directory.iterdir()}

    assert modes == {slot.name: 0o600, f"{slot.name}.socket": 0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_slot_in_an_unusable_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(CacheError, match="cannot create the files of a reader in"):
        ReaderSlot(tmp_path / "file" / "readers")
    with pytest.raises(CacheError, match="cannot create the files of a reader in"):
        ReaderSlot(tmp_path / "file")


def test_unreadable_positions_are_an_error(directory: Path, readers: Readers) -> None:
    """So a reader is never taken for dead, because there are no descriptors left."""
    directory.mkdir()
    (directory / "1-1").symlink_to(directory)

    with pytest.raises(CacheError, match="cannot read the positions of readers"):
        readers.positions()


def test_position_that_cannot_be_written_is_an_error(slot: ReaderSlot) -> None:
    slot.position = 4
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, slot._file or -1)
    os.close(full)

    with pytest.raises(CacheError, match="cannot write the position of reader"):
        slot.position = 5

    assert slot.position == 4


def test_foreign_files_are_no_readers(directory: Path, readers: Readers) -> None:
    directory.mkdir()
    (directory / "notes").touch()
    os.mkfifo(directory / "pipe")
    (directory / "folder").mkdir()

    assert readers.positions() == {}
    assert os.listdir(directory) == ["folder"]


# ---------------------------------------------------------------- wake-ups


async def test_first_wake_up_is_sent_at_once_and_later_ones_together(
    slot: ReaderSlot, readers: Readers, looptime: float
) -> None:
    alarm = Alarm(slot)
    start = asyncio.get_running_loop().time()
    readers.wake()
    await turns()
    first = [time - start for time in alarm.times]
    for _ in range(100):
        readers.wake()

    await asyncio.sleep(1)
    readers.wake()
    await turns()

    assert first == [0.0]
    assert [time - start for time in alarm.times] == pytest.approx(
        [0.0, WAKE_SECONDS, 1.0]
    )


async def test_late_reader_is_woken(directory: Path, readers: Readers) -> None:
    readers.wake()
    slot = ReaderSlot(directory)
    alarm = Alarm(slot)
    await asyncio.sleep(0.1)
    readers.wake()
    await turns()

    assert len(alarm.times) == 1
    slot.close()


async def test_close_leaves_no_timer_and_wakes_nobody(
    slot: ReaderSlot, directory: Path
) -> None:
    alarm = Alarm(slot)
    readers = Readers(directory)
    readers.wake()
    readers.wake()
    await turns()
    readers.close()
    readers.close()
    readers.wake()
    await asyncio.sleep(1)

    assert len(alarm.times) == 1


async def test_reader_that_reads_no_wake_ups_gets_one_of_them(
    slot: ReaderSlot, readers: Readers
) -> None:
    """Its queue is full after ten, and the writer does not wait."""
    for _ in range(100):
        readers.wake()
        await asyncio.sleep(0.01)

    alarm = Alarm(slot)
    await turns()
    assert len(alarm.times) == 1
    assert slot.name in readers.positions()


async def test_socket_left_by_a_killed_reader_is_removed(
    directory: Path, slot: ReaderSlot, readers: Readers
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(os.fspath(directory / "1-left.socket"))

    alarm = Alarm(slot)
    readers.wake()
    await turns()

    assert sorted(os.listdir(directory)) == sorted([slot.name, f"{slot.name}.socket"])
    assert len(alarm.times) == 1


async def test_directory_with_a_long_path_has_wake_ups(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 50)
    slot, readers = ReaderSlot(directory), Readers(directory)
    alarm = Alarm(slot)
    readers.wake()
    await turns()

    assert len(alarm.times) == 1
    slot.close()
    readers.close()
    assert list(directory.iterdir()) == []


async def test_reader_without_a_socket_keeps_its_position(
    directory: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system allows no sockets: the reader polls."""

    def refuse(*_: object) -> None:
        raise PermissionError("no sockets here")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    slot = ReaderSlot(directory)
    slot.start(lambda: None)
    slot.position = 3
    readers.wake()

    assert os.listdir(directory) == [slot.name]
    assert readers.positions() == {slot.name: 3}
    slot.close()


async def test_removed_directory_ends_nobody(
    slot: ReaderSlot, directory: Path, readers: Readers
) -> None:
    Alarm(slot)
    readers.wake()
    await turns()
    shutil.rmtree(directory)
    readers.wake()
    await asyncio.sleep(0.1)
    readers.wake()
    slot.position = 5

    assert readers.positions() == {}


def test_wake_ups_work_on_uvloop(directory: Path) -> None:
    async def main() -> int:
        slot, readers = ReaderSlot(directory), Readers(directory)
        alarm = Alarm(slot)
        for _ in range(3):
            readers.wake()
            await asyncio.sleep(0.02)

        slot.close()
        readers.wake()
        readers.close()
        return len(alarm.times)

    assert uvloop.run(main()) == 3


# ---------------------------------------------------------------- dead and stopped


@contextlib.contextmanager
def _forked(run: Callable[[int], object]) -> Iterator[tuple[int, int]]:
    """Run a function in a child, which then sleeps; give its id and what it wrote."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)
            run(told)
            signal.pause()
        finally:
            os._exit(1)

    try:
        yield child, int.from_bytes(os.read(ready, 4), "big")
    finally:
        os.close(ready)
        os.close(told)
        _kill(child)


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.realtime
async def test_killed_reader_is_removed_and_a_stopped_one_is_not(
    directory: Path, readers: Readers
) -> None:
    def follow(told: int) -> None:
        slot = ReaderSlot(directory)
        slot.position = 5
        os.write(told, b"done")
        signal.pause()

    with _forked(follow) as (child, _):
        ((name, position),) = readers.positions().items()
        os.kill(child, signal.SIGSTOP)
        for _ in range(15):
            readers.wake()
            await asyncio.sleep(2 * WAKE_SECONDS)

        stopped = readers.positions()
        _kill(child)

    readers.wake()

    assert (name.partition("-")[0], position) == (str(child), 5)
    assert stopped == {name: 5}
    assert os.listdir(directory) == []  # the wake-up was refused
    assert readers.positions() == {}


def test_forked_child_does_not_keep_its_parents_reader(
    directory: Path, readers: Readers
) -> None:
    """A parent that is killed while its child lives is noticed."""

    def follow(told: int) -> None:
        slot = ReaderSlot(directory)
        if os.fork() == 0:
            signal.alarm(30)
            slot.close()
            os.write(told, os.getpid().to_bytes(4, "big"))

        signal.pause()

    with _forked(follow) as (parent, child):
        alive = len(readers.positions())
        _kill(parent)
        dead = len(readers.positions())
        os.kill(child, signal.SIGKILL)

    assert (alive, dead) == (1, 0)
