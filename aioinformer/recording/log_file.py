"""Recordings as files: `LogFile` writes one, `read_lines` reads them.

A file is a sequence of zstd frames. Each flush ends a block, so a file that was cut off
is readable up to its last flush. A program that continues a file begins a new frame.
"""

from __future__ import annotations

import os
import stat
import weakref
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

from aioinformer._extras import import_extra
from aioinformer.errors import RecordingError

with suppress(ImportError):  # on Windows
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["LogFile", "TextReader", "compressor", "read_lines"]

SUFFIX: Final = ".alog"
"""Usual ending of the names of recordings."""

_LEVEL: Final = 1
# 8 MiB: of a thousand pods, the previous state of each is in it.
_WINDOW_LOG: Final = 23
# With the table of this level, the previous state of most would not be found: files
# would be twice as large.
_HASH_LOG: Final = 17
# After so many bytes a new frame begins, so that a damaged one does not take all.
_FRAME_BYTES: Final = 256 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
# Of an object. A server stores 3 MiB at most, and the marks of a redaction, in place of
# short values, can make that ten times as large. A few KB of a file can expand to more.
_MOST_LINE: Final = 64 * 1024 * 1024
# Of the format of zstd frames, RFC 8878.
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# The beginning of a frame of `compressor()`: it has a checksum, and that window.
_OURS: Final = _MAGIC + bytes([0x04, (_WINDOW_LOG - 10) << 3])
_BLOCK_HEADER: Final = 3
_MOST_BLOCK: Final = 128 * 1024
_REPEATED, _RESERVED = 1, 3


def _zstandard() -> Any:
    """Import the package.

    Raises:
        OptionsError: If it is not installed.
    """
    return import_extra("zstandard", "zstd", "recordings need zstandard")


def compressor() -> Any:
    """Return a compressor of frames.

    Raises:
        OptionsError: If the package is not installed.
    """
    zstandard = _zstandard()
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, hash_log=_HASH_LOG, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


class LogFile:
    """File that lines are appended to. For one thread.

    Args:
        path: Path of the file, which is created or continued.

    Raises:
        OptionsError: If the package for zstd is not installed.
        RecordingError: If another recorder writes it, or another user owns it.
        OSError: If the file cannot be opened.

    Attributes:
        path: Path of the file.
        raw_bytes: Bytes written so far, before compression.
        bytes: Size of the file, with what it had before.
    """

    def __init__(self, path: Path) -> None:
        self._zstandard = _zstandard()
        self._compressor = compressor()
        self.path = path
        self.raw_bytes: int = 0
        # Recordings may have what only their owner may read.
        self._file, is_new = _opened(path)
        try:
            _claim(self._file.fileno(), path, is_new=is_new)
        except BaseException:
            self._file.close()
            raise

        self.bytes: int = os.fstat(self._file.fileno()).st_size
        self._frame: Any = None
        self._in_frame = 0
        _open_files.add(self)

    def write(self, text: bytes) -> None:
        """Write whole lines, and pass them to the operating system.

        Raises:
            OSError: If they cannot be written, for example because the disk is full.
        """
        if self._frame is None:
            self._frame = self._compressor.compressobj()

        frame = self._frame
        self._in_frame += len(text)
        self.raw_bytes += len(text)
        data = frame.compress(text)
        if self._in_frame < _FRAME_BYTES:
            data += frame.flush(self._zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        else:
            data += frame.flush()
            self._frame, self._in_frame = None, 0

        self._put(data)

    def close(self) -> None:
        """End the frame, and close the file. Idempotent.

        Raises:
            OSError: If the end cannot be written.
        """
        if self._file.closed:
            return

        with closing(self._file):
            if self._frame is not None:
                frame, self._frame = self._frame, None
                self._put(frame.flush())

    def discard(self) -> None:
        """Close the file without ending the frame. Idempotent."""
        self._file.close()

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = self._file.write(rest) or 0
            self.bytes += written
            rest = rest[written:]


# A fork would keep the locks, and has no recorder.
_open_files: Final[weakref.WeakSet[LogFile]] = weakref.WeakSet()


def _close_in_fork() -> None:
    for file in list(_open_files):
        file.discard()


if os.name == "posix":
    os.register_at_fork(after_in_child=_close_in_fork)


def _opened(path: Path) -> tuple[BinaryIO, bool]:
    """Open a file to append to it; return it, and whether it is new."""
    try:
        return open(path, "xb", buffering=0, opener=_private), True
    except FileExistsError:
        return open(path, "ab", buffering=0, opener=_private), False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_APPEND, 0o600)


def _claim(descriptor: int, path: Path, *, is_new: bool) -> None:
    """Lock a file until it is closed, and make it readable by its owner only.

    On a network file system, a new one may belong to another user.

    Raises:
        RecordingError: If another recorder has it, or another user owns it.
    """
    if os.name != "posix":
        return

    status = os.fstat(descriptor)
    # No device, and no pipe.
    existed = stat.S_ISREG(status.st_mode) and not is_new
    if existed and status.st_uid != os.geteuid():
        raise RecordingError(
            f"{path} belongs to the user {status.st_uid}, who could read the recording: "
            "remove it, or record to another file"
        )

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordingError(f"another recorder writes to {path}") from None
    except OSError:  # a file system without locks
        pass

    if existed and status.st_mode & 0o077:
        with suppress(PermissionError):  # a file system without modes
            os.fchmod(descriptor, 0o600)


class TextReader:
    """Text of a recording, from compressed bytes that are fed in pieces.

    It feeds one block after the other. So nothing before a damaged one is lost, and a
    frame that was cut off, as by a kill, does not hide the one that follows it.

    Attributes:
        skipped: Number of compressed bytes that could not be read.
        frames: Number of frames that were begun.
    """

    def __init__(self) -> None:
        self._zstandard = _zstandard()
        self._decompressor = self._zstandard.ZstdDecompressor(max_window_size=2**27)
        self._frame: Any = None
        self._has_checksum = False
        self._buffer = bytearray()
        # True if nothing follows what is in the buffer.
        self._ends = False
        self.skipped: int = 0
        self.frames: int = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield pieces of the text; an empty one where something was skipped."""
        buffer = self._buffer
        buffer += data
        while True:
            if self._frame is None and self._skip_to_frame():
                yield b""

            size = self._size_of_next()
            # What was cut off may seem to go on in the next frame.
            beyond = len(_OURS) - 1 if size else len(_OURS)
            if size is None or len(buffer) < size + (0 if self._ends else beyond):
                return

            # The header of a frame is one by itself.
            begins = buffer.find(_OURS, self._frame is None, size + beyond)
            text = None
            if begins < 0 and size:
                text = self._decompressed(bytes(buffer[:size]))

            if text is None:
                self._frame = None
                self._skip(1 if begins < 0 else begins)
                yield b""
                continue

            del buffer[:size]
            if text:
                yield text

            if self._frame.eof:
                self._frame = None

    def finish(self) -> Iterator[bytes]:
        """Yield the rest at the end: the next frame may be within a block cut off."""
        self._ends = True
        yield from self.feed(b"")
        while self._buffer:
            self._frame = None
            self._skip(1)
            yield b""
            yield from self.feed(b"")

    def _decompressed(self, block: bytes) -> bytes | None:
        """Return the text of a block or a header; None if it is damaged."""
        try:
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
                self.frames += 1

            text: bytes = self._frame.decompress(block)
        except self._zstandard.ZstdError:
            return None

        return text

    def _size_of_next(self) -> int | None:
        """Return the size of the next header or block.

        0 if it cannot be one, None if too few bytes are known.
        """
        buffer = self._buffer
        if self._frame is None:
            if len(buffer) <= len(_MAGIC):
                return None

            flags = buffer[len(_MAGIC)]
            single = bool(flags & 0x20)
            self._has_checksum = bool(flags & 0x04)
            content = (int(single), 2, 4, 8)[flags >> 6]
            return len(_MAGIC) + 1 + (not single) + (0, 1, 2, 4)[flags & 3] + content

        if len(buffer) < _BLOCK_HEADER:
            return None

        header = int.from_bytes(buffer[:_BLOCK_HEADER], "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _RESERVED or size > _MOST_BLOCK:
            return 0

        size = 1 if kind == _REPEATED else size
        return _BLOCK_HEADER + size + (4 if last and self._has_checksum else 0)

    def _skip_to_frame(self) -> bool:
        """Skip what is not the beginning of a frame. Return True if there was any."""
        start = self._buffer.find(_MAGIC)
        if start < 0:
            # The beginning of a frame may be cut by the end of the piece.
            start = max(0, len(self._buffer) - len(_MAGIC) + 1)

        return self._skip(start)

    def _skip(self, count: int) -> bool:
        del self._buffer[:count]
        self.skipped += count
        return bool(count)


def read_lines(
    path: Path, reader: TextReader | None = None
) -> Generator[list[bytes], None, None]:
    """Read the lines of a file, in portions. A line that is cut off is left out.

    An empty line stands for a part that was skipped. A portion is empty if no line ends
    in it, so that readers can stop. Of a line that is too long, only the beginning is
    read, which is no JSON.

    Args:
        path: Path of the file.
        reader: Reader that counts what is skipped; None for one of its own.

    Raises:
        RecordingError: If it is not a recording.
        OptionsError: If the package for zstd is not installed.
        OSError: If it cannot be read.
    """
    reader = TextReader() if reader is None else reader
    begun = _BegunLine()
    for text in _texts(path, reader):
        if text:
            yield begun.lines_with(text)
        else:
            begun = _BegunLine()  # what follows does not continue the line
            yield [b""]

    if not reader.frames and path.stat().st_size:
        raise RecordingError(f"{path} is not a recording: it has no zstd frames")


class _BegunLine:
    """Line whose end was not read yet."""

    def __init__(self) -> None:
        # Joined at its end only: otherwise each piece would copy those before it.
        self._pieces: list[bytes] = []
        self._size = 0

    def lines_with(self, text: bytes) -> list[bytes]:
        """Add a text that follows; return the lines that have ended, without empty ones."""
        first, *more = text.split(b"\n")
        self._add(first)
        if not more:
            return []

        *lines, rest = [b"".join(self._pieces), *more]
        self._pieces, self._size = [], 0
        self._add(rest)
        return [it for it in lines if it]

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > _MOST_LINE:
            del self._pieces[1:]
        elif piece:
            self._pieces.append(piece)


def _texts(path: Path, reader: TextReader) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            yield from reader.feed(data)

    yield from reader.finish()
