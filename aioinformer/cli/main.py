"""The entry point: it says what is missing, if click or rich are."""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from aioinformer.cli.running import INTERRUPTED, TROUBLE

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

# How writing to stdout fails: a full disk, a quota, a limit, a device, not for writing.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def main() -> NoReturn:
    """Run the `aioinformer` command with the arguments of this process.

    Raises:
        SystemExit: Always: with the exit status of the command, or with 1 and one line
            on stderr if what the command needs is not installed, or with 2 and one line
            if stdout is closed or cannot be written to.
    """
    # Until the command runs there is nothing to clean up; `run()` takes over then.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)

    if sys.__stdout__ is None:
        _fail("stdout is closed: redirect it to /dev/null to see nothing.")

    missing = [it for it in ("click", "rich") if importlib.util.find_spec(it) is None]
    if missing:
        sys.exit(
            f"aioinformer: this command needs {' and '.join(missing)}, which pip does "
            "not install by itself: pip install 'aioinformer[cli]'"
        )

    from aioinformer.cli.commands import aioinformer

    try:
        aioinformer.main(prog_name="aioinformer")
    except OSError as exc:
        if exc.errno not in _UNWRITABLE:
            raise

        # The interpreter flushes stdout once more, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"stdout cannot be written to: {exc.strerror}.")


def _fail(line: str) -> NoReturn:
    print(f"aioinformer: {line}", file=sys.stderr)
    sys.exit(TROUBLE)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End at once: an exception would show whatever module is being imported."""
    os._exit(INTERRUPTED)
