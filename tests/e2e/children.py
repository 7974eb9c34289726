"""Child processes that never outlive this one, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

__all__ = ["ending_by_signals", "in_background", "stop"]

# Time for a child to end by itself before it is killed, in seconds.
GRACE_SECONDS = 5.0

_PR_SET_PDEATHSIG = 1


@contextmanager
def in_background(
    command: Sequence[str | Path],
    *,
    output: IO[bytes],
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child during the block, then stop it and its descendants.

    It leads its own process group, so that Ctrl-C reaches only this process, which ends
    its children in the right order.
    """
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=None if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    try:
        yield child
    finally:
        stop(child)


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a child's process group with SIGTERM, and with SIGKILL after 5 s."""
    _signal_group(child, signal.SIGTERM)
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Also when a second Ctrl-C ends the wait.
        _signal_group(child, signal.SIGKILL)
        child.wait()


@contextmanager
def ending_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception in the block, so that it cleans up."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The leader may be gone while others of its group are not.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _die_with_parent() -> None:
    """Make the kernel kill this child when its parent is killed and cannot clean up."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
