"""The entry point: it says what is missing, if click or rich are."""

from __future__ import annotations

import importlib.util
import signal
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the `aioinformer` command with the arguments of this process.

    Raises:
        SystemExit: Always: with the exit status of the command, or with 1 and one line
            on stderr if what the command needs is not installed.
    """
    missing = [it for it in ("click", "rich") if importlib.util.find_spec(it) is None]
    if missing:
        sys.exit(
            f"aioinformer: this command needs {' and '.join(missing)}, which pip does "
            "not install by itself: pip install 'aioinformer[cli]'"
        )

    try:
        from aioinformer.cli.commands import aioinformer
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)

    aioinformer.main(prog_name="aioinformer")
