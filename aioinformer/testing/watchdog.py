"""`start_watchdog()`: a line on stderr when blocking code in a test stalls its event loop.

The test server runs in the loop of the test. If a test blocks that loop with a request
to the server, it waits forever, and nothing would say why.
"""

from __future__ import annotations

import linecache
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from typing import TextIO

__all__ = ["start_watchdog"]

# Whoever debugs the test needs no report.
_DEBUGGERS = frozenset({"bdb", "pdb", "pydevd", "_pydevd_bundle", "debugpy"})
_REPORT = """
aioinformer: no turn of the event loop for {seconds:g} s, blocked by {place}. The API \
server runs in this loop: run blocking code with asyncio.to_thread()
"""


def start_watchdog(
    loop: AbstractEventLoop, file: str, to: TextIO, *, seconds: float = 10.0
) -> Callable[[], None]:
    """Report once if the loop of this thread makes no turn for some time.

    Args:
        loop: The loop. While it does not run, there is no report.
        file: File of the test, whose innermost line the report shows.
        to: Stream of the report.
        seconds: Least time without a turn, on the real clock.

    Returns:
        Function that ends the watch.
    """
    ended, thread = threading.Event(), threading.get_ident()

    def watch() -> None:
        turned, missed = threading.Event(), 0
        turned.set()
        while not ended.wait(seconds / 2):
            missed = missed + 1 if loop.is_running() and not turned.is_set() else 0
            if missed == 2 and (place := _blocked_at(thread, file)):
                to.write(_REPORT.format(seconds=seconds, place=place))
                to.flush()
                return

            if not missed:
                turned.clear()
                try:
                    loop.call_soon_threadsafe(turned.set)
                except RuntimeError:  # The loop is closed.
                    return

    threading.Thread(target=watch, name="aioinformer-watchdog", daemon=True).start()
    return ended.set


def _blocked_at(thread: int, file: str) -> str:
    """Return the current line of a test; empty if it is being debugged."""
    # The only way to the frames of another thread.
    frame, lines = sys._current_frames().get(thread), []  # noqa: SLF001
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _DEBUGGERS:
            return ""

        path, line = frame.f_code.co_filename, frame.f_lineno
        lines.append((path == file, f"{path}:{line}: {linecache.getline(path, line)}"))
        frame = frame.f_back

    ours = [text for is_ours, text in lines if is_ours] or [it for _, it in lines]
    return " ".join(ours[0].split()) if ours else ""
