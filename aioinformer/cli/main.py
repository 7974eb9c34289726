"""The entry point: it says what is missing, if click or rich are.

Until `main()` runs, Ctrl-C shows a traceback of whatever is being imported, so this
module and the packages around it import next to nothing; `main()` does, when it can.
"""

from __future__ import annotations

import os
import sys

from aioinformer.cli import INTERRUPTED, TROUBLE

TYPE_CHECKING = False  # Type checkers take it for that of `typing`, which is not small.
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the `aioinformer` command with the arguments of this process.

    Raises:
        SystemExit: Always: with the exit status of the command, or with 1 and one line
            on stderr if what the command needs is not installed, or with 2 and one line
            if stdout is closed or cannot be written to. Only Ctrl-C, while the command
            is still being imported, ends the process without it, with 130.
    """
    try:
        import signal

        # Until the command runs there is nothing to clean up; `run()` takes over then.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)

        _run()
    except KeyboardInterrupt:
        _leave()


def _run() -> NoReturn:
    if sys.__stdout__ is None:
        _fail("stdout is closed: redirect it to /dev/null to see nothing.")

    from importlib.util import find_spec

    missing = [it for it in ("click", "rich") if find_spec(it) is None]
    if missing:
        sys.exit(
            f"aioinformer: this command needs {' and '.join(missing)}, which pip does "
            "not install by itself: pip install 'aioinformer[cli]'"
        )

    from aioinformer.cli.commands import aioinformer
    from aioinformer.cli.output import crashed
    from aioinformer.cli.parameters import run_typed

    sys.excepthook = crashed
    try:
        sys.exit(run_typed(aioinformer))
    except OSError as exc:
        if not _is_of_stdout(exc):
            raise

        # The interpreter flushes stdout once more, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"stdout cannot be written to: {exc.strerror}.")


def _is_of_stdout(error: OSError) -> bool:
    """How writing fails: a full disk, a quota, a limit, a device, not for writing."""
    import errno

    return error.errno in {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EBADF,
    }


def _fail(line: str) -> NoReturn:
    from aioinformer.cli.output import complain

    complain(line)
    sys.exit(TROUBLE)


def _leave(number: int = 0, frame: FrameType | None = None) -> NoReturn:
    """End at once: an exception would show whatever module is being imported."""
    os._exit(INTERRUPTED)
