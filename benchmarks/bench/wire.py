"""Bytes of HTTP responses, split as kube-apiserver splits them.

kube-apiserver encodes a list item by item, without a length in advance. The HTTP server
of Go collects what it writes in a buffer of 2,048 bytes. Hence a pod of 4 KiB becomes
two chunks: one of 2,048 bytes, and one with the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["chunk", "chunks_of", "pieces_of"]

BUFFER_SIZE = 2048
PIECE_SIZE = 2**20
"""Size from which collected bytes are sent."""


def chunk(data: bytes) -> bytes:
    """Return one chunk of an HTTP response."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunks_of(writes: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a response, as the HTTP server of Go forms them.

    Args:
        writes: Bytes of each call that writes to the response.
    """
    held = b""
    for data in writes:
        rest = data
        while len(rest) > BUFFER_SIZE - len(held):
            # Without held bytes, a large write is not buffered.
            taken = BUFFER_SIZE - len(held) if held else len(rest)
            yield chunk(held + rest[:taken])
            held, rest = b"", rest[taken:]

        held += rest

    if held:
        yield chunk(held)

    yield b"0\r\n\r\n"


def pieces_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about 1 MiB, which take few system calls."""
    collected: list[bytes] = []
    size = 0
    for part in parts:
        collected.append(part)
        size += len(part)
        if size >= PIECE_SIZE:
            yield b"".join(collected)
            collected, size = [], 0

    yield b"".join(collected)
