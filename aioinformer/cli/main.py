"""Entry point of the command, which reports a missing click or rich.

Until `main()` runs, Ctrl-C shows a traceback of the current import. So this module and
its packages import next to nothing, and `main()` imports the rest.
"""

from __future__ import annotations

import os
import sys

from aioinformer.cli import INTERRUPTED, TROUBLE

TYPE_CHECKING = False  # Type checkers know the name. Importing `typing` is slow.
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the `aioinformer` command with the arguments of this process.

    Raises:
        SystemExit: Always, with the exit status of the command. It is 1 if a dependency
            is not installed, and 2 if stdout is closed or writing to it fails, each
            with one line on stderr. Only Ctrl-C during the imports ends the process
            without it, with 130.
    """
    try:
        import signal

        # Until the command runs there is nothing to clean up. Then `run()` takes over.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)

        _run()
    except KeyboardInterrupt:
        _leave()


def _run() -> NoReturn:
    if sys.__stdout__ is None:
        _fail("stdout is closed: redirect it to /dev/null to discard the output.")

    from importlib.util import find_spec

    missing = [it for it in ("click", "rich") if find_spec(it) is None]
    if missing:
        sys.exit(
            f"aioinformer: this command requires {' and '.join(missing)}: "
            "pip install 'aioinformer[cli]'"
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

        # The interpreter flushes stdout once more, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"cannot write to stdout: {exc.strerror}.")


def _is_of_stdout(error: OSError) -> bool:
    """Return True for a failed write: full disk, quota, file size, device, read-only."""
    import errno

    return error.errno in {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EBADF,
    }


def _fail(line: str) -> NoReturn:
    from aioinformer.cli.output import print_error

    print_error(line)
    sys.exit(TROUBLE)


def _leave(number: int = 0, frame: FrameType | None = None) -> NoReturn:
    """Exit at once. An exception would show a traceback of the current import."""
    os._exit(INTERRUPTED)
