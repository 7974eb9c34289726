"""Writing to stdout without being held up by whoever reads it.

A pipe whose reader has paused (`| less`) takes nothing more, and a plain write would wait
for it in the kernel, where Ctrl-C cannot end it.
"""

from __future__ import annotations

import asyncio
import os
import sys

__all__ = ["write"]

# POSIX's PIPE_BUF, at the least: a pipe that is ready takes as much at once.
PIECE_BYTES = 4096


async def write(data: str | bytes) -> None:
    """Write all of it to stdout; a text in its encoding, what that lacks as `?`.

    Raises:
        OSError: It cannot be written to; `BrokenPipeError` if nobody reads it any more.

    Cancellation:
        Ends it between two pieces of 4 KiB, or while the reader pauses.
    """
    if isinstance(data, str):
        data = data.encode(sys.stdout.encoding, "replace")

    descriptor = sys.stdout.fileno()
    rest = memoryview(data)
    while rest:
        await _ready(descriptor)
        rest = rest[os.write(descriptor, rest[:PIECE_BYTES]) :]


async def _ready(descriptor: int) -> None:
    """Wait until it takes something.

    Files always do, and no loop can wait for them; macOS says so of some devices, too.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_writer(descriptor, ready.set)
    except OSError:
        return

    try:
        await ready.wait()
    finally:
        loop.remove_writer(descriptor)
