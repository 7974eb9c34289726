"""`Readers`: the processes that follow a store, their positions, and their wake-ups.

A reader has two files in `readers/`: its position, under its name, and a datagram
socket. It holds a lock on the position (`flock`), which the kernel frees when the process
dies: so a stopped reader is told from a dead one. A forked child has neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from struct import Struct
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from aioinformer._user_code import guarded_logger
from aioinformer.cache.disk.failures import lacks_descriptors
from aioinformer.errors import CacheError

with contextlib.suppress(ImportError):  # on Windows, there are no caches
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["ReaderSlot", "Readers"]

logger: Final = guarded_logger(__name__)

WAKE_SECONDS = 0.005
"""Shortest time between two wake-ups of a reader. Waking processes is what costs."""

_LISTING_SECONDS = 0.05
"""Time after which the directory is listed again for a wake-up."""

_NO_POSITION = -1

_POSITION: Final = Struct(">q")

_SOCKET = ".socket"

# Paths of sockets are limited to 107 bytes on Linux, and to 103 on macOS.
_LONGEST_PATH = 103

_LONGEST_NAME = 32

_WAKE_UP = b"w"


class ReaderSlot:
    """Place of one follower in `readers/`: a datagram socket and a position.

    Args:
        directory: Directory `readers` of an environment; created if it is missing.

    Raises:
        CacheError: If the files cannot be created.
    """

    name: str
    """Name such as `"4711-a03f5c"`: the process, and a random part."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = _NO_POSITION
        self._file: int | None = None
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            self.name, self._file = _locked_file(directory)
            # Takes its place on the disk, which may be full later.
            os.pwrite(self._file, _POSITION.pack(_NO_POSITION), 0)
            self._socket = self._bound()
        except OSError as exc:
            self.close()
            raise CacheError(
                f"cannot create the files of a reader in {directory}: {exc}"
            ) from exc

        _slots.add(self)

    @property
    def position(self) -> int:
        """Number of the last entry of the journal that was told to handlers.

        Set it within the read transaction in which the entry was read, see `Journal`.
        -1 until it is set.

        Raises:
            CacheError: If it is set, and cannot be written.
        """
        return self._number

    @position.setter
    def position(self, number: int) -> None:
        if self._file is not None:
            try:
                os.pwrite(self._file, _POSITION.pack(number), 0)
            except OSError as exc:
                raise CacheError(
                    f"cannot write the position of reader {self.name} in "
                    f"{self._directory}: {exc}"
                ) from exc

        self._number = number

    def start(self, on_wake: Callable[[], None]) -> None:
        """Call `on_wake` in the running loop after each wake-up."""
        if self._socket is not None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._socket, self._woken, self._socket, on_wake)

    def close(self) -> None:
        """Remove it. Idempotent."""
        if self._file is None:
            return

        own = self._socket
        if own is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(own)

            own.close()

        # The lock is freed last: without it, others remove the files.
        _remove(self._directory, self.name)
        os.close(self._file)
        self._file = self._socket = None

    def forget(self) -> None:
        """Close the files, but leave them in place: they belong to the parent process."""
        if self._socket is not None:
            self._socket.close()

        if self._file is not None:
            os.close(self._file)

        self._file = self._socket = None

    def _bound(self) -> socket.socket | None:
        own: socket.socket | None = None
        try:
            own = _datagram_socket()
            with _socket_directory(self._directory) as path:
                own.bind(f"{path}/{self.name}{_SOCKET}")

            (self._directory / (self.name + _SOCKET)).chmod(0o600)
        except OSError as exc:
            if own is not None:
                own.close()

            if lacks_descriptors(exc):
                raise

            logger.debug(
                "%s: cannot create a socket, polling each second (%s)",
                self._directory,
                exc,
            )
            return None

        return own

    @staticmethod
    def _woken(own: socket.socket, on_wake: Callable[[], None]) -> None:
        # All wake-ups at once. Others are rare, as the sender pauses.
        with contextlib.suppress(BlockingIOError):
            while own.recv(1):
                pass

        on_wake()


class Readers:
    """All readers of an environment, for the writer and for `aioinformer cache`.

    Args:
        directory: Directory `readers` of an environment.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._socket: socket.socket | None = None
        self._names: list[str] = []
        self._listed = float("-inf")
        self._changed = 0
        self._woken = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def wake(self) -> None:
        """Wake all readers; at most every 5 ms, the first time at once. In a loop."""
        if self._timer is not None or self._closed:
            return

        loop = asyncio.get_running_loop()
        due = self._woken + WAKE_SECONDS
        if loop.time() >= due:
            self._woken = loop.time()
            self._wake_now()
        else:
            self._timer = loop.call_at(due, self._wake_later)

    def positions(self) -> dict[str, int]:
        """Return the positions of live readers by name, and remove dead ones.

        The position of a reader that has none yet is -1.

        Raises:
            CacheError: If a position cannot be read.
        """
        try:
            names = [it for it in self._entries() if not it.endswith(_SOCKET)]
            positions = {name: self._position(name) for name in names}
        except OSError as exc:
            raise CacheError(
                f"cannot read the positions of readers in {self._directory}: {exc}"
            ) from exc

        return {name: it for name, it in positions.items() if it is not None}

    def close(self) -> None:
        """Close the socket that it sends from. Idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except FileNotFoundError:
            return []  # nobody has followed yet

    def _position(self, name: str) -> int | None:
        """Return the position of a reader; None if it has ended, and remove it."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(self._directory / name, flags)
        except FileNotFoundError:
            _remove(self._directory, name)  # a socket may be left
            return None

        try:
            if _locked(file, fcntl.LOCK_SH):
                _remove(self._directory, name)
                return None

            data = os.pread(file, _POSITION.size, 0)
            complete = len(data) == _POSITION.size
            return _POSITION.unpack(data)[0] if complete else _NO_POSITION
        finally:
            os.close(file)

    def _wake_later(self) -> None:
        self._timer = None
        self.wake()

    def _wake_now(self) -> None:
        try:
            if self._socket is None:
                self._socket = _datagram_socket()

            # New readers change the directory: they should not wait for the next poll.
            changed = _changed_at(self._directory)
            late = self._woken >= self._listed + _LISTING_SECONDS
            if late or changed != self._changed:
                names = self._entries()
                self._listed, self._changed = self._woken, changed
                self._names = [it for it in names if it.endswith(_SOCKET)]

            with _socket_directory(self._directory) as path:
                self._names = [
                    name for name in self._names if self._send(self._socket, path, name)
                ]
        except OSError as exc:
            logger.debug("%s: cannot wake readers (%s)", self._directory, exc)

    def _send(self, own: socket.socket, path: str, name: str) -> bool:
        """Wake a reader; return True unless it has ended."""
        try:
            own.sendto(_WAKE_UP, f"{path}/{name}")
        except BlockingIOError:
            pass  # has wake-ups that it did not read yet
        except (ConnectionRefusedError, FileNotFoundError):
            self._position(name.removesuffix(_SOCKET))
            return False
        except OSError as exc:
            logger.debug("%s: cannot wake reader %s (%s)", self._directory, name, exc)

        return True


def _changed_at(directory: Path) -> int:
    """Return when files were last added to a directory, or removed; 0 if it is missing."""
    try:
        return directory.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _locked_file(directory: Path) -> tuple[str, int]:
    """Create the position of a new reader, and lock it; return its name and file."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f"{os.getpid()}-{secrets.token_hex(3)}"
        path = directory / name
        try:
            file = os.open(path, flags, 0o600)
        except FileExistsError:
            continue

        # Another process may have seen it without the lock, and have removed it.
        if _locked(file, fcntl.LOCK_EX) and path.exists():
            return name, file

        os.close(file)


def _locked(file: int, kind: int) -> bool:
    """Lock a file, without waiting; return True if nobody else has the lock."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False

    return True


def _remove(directory: Path, name: str) -> None:
    """Remove the files of a reader that has ended, or of the caller."""
    for it in (name, name + _SOCKET):
        with contextlib.suppress(OSError):  # the directory may have been removed
            os.unlink(directory / it)


def _datagram_socket() -> socket.socket:
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.setblocking(False)
    return own


@contextlib.contextmanager
def _socket_directory(directory: Path) -> Iterator[str]:
    """Return a path of a directory that is short enough for addresses of sockets."""
    path = os.fspath(directory)
    if len(os.fsencode(path)) + _LONGEST_NAME <= _LONGEST_PATH:
        yield path
        return

    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


# Slots of this process. A forked child closes them: it would keep the locks.
_slots: Final[WeakSet[ReaderSlot]] = WeakSet()


def _forget_slots() -> None:
    for slot in tuple(_slots):
        slot.forget()


os.register_at_fork(after_in_child=_forget_slots)
