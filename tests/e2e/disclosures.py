"""Looks for secrets in what was logged and printed while the real servers were used.

    python tests/e2e/disclosures.py FOLDER   fails if one is found

As a pytest plugin it writes into the folder that AIOINFORMER_E2E_RECORD names, and does
nothing without: all that is logged at DEBUG, with its exceptions, into one file for each
process. Whoever starts pytest puts its output there, too. Tests give the secrets that they
make by `secret()`, and by `note()` what has a `repr` that must not show them.
"""

from __future__ import annotations

import base64
import logging
import logging.handlers
import os
import queue
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pytest

__all__ = ["disclosed", "note", "secret", "spellings"]

RECORD = "AIOINFORMER_E2E_RECORD"

# What talks to the servers; all of it at DEBUG.
LOGGERS = ("aioinformer", "aiohttp", "asyncio")

_SECRETS = ".secrets"
_noted = logging.getLogger("aioinformer.e2e")


# ---------------------------------------------------------------- while tests run


def pytest_configure(config: pytest.Config) -> None:
    """Begin to write down what is logged."""
    if not os.environ.get(RECORD):
        return

    # Written by a thread: what is logged by the package must not block its loop.
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(records)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
    file = logging.FileHandler(_file(".log"), encoding="utf-8")
    writer = logging.handlers.QueueListener(records, file)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger(name).addHandler(handler)

    writer.start()
    config.add_cleanup(file.close)
    config.add_cleanup(writer.stop)  # first, as the last one that was added
    for name in ("AIOINFORMER_E2E_TOKEN", "AIOINFORMER_E2E_USER_TOKEN"):
        secret(os.environ[name])

    secrets_of(Path(os.environ["AIOINFORMER_E2E_CA"]).parents[1])


def secret(text: str) -> str:
    """Say that this must be told nowhere; returns it."""
    if os.environ.get(RECORD):
        with _file(_SECRETS).open("a", encoding="utf-8") as known:
            known.write(f"{text}\n")

    return text


def secrets_of(folder: Path) -> None:
    """Say so of the lines of all private keys in a folder; each is long enough."""
    for path in folder.rglob("*.key"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "-----" not in line:
                secret(line)


def note(*things: object) -> None:
    """Write down what somebody might print: texts of errors with all that belongs to them."""
    for it in things:
        _noted.debug("%r %s", it, it)
        if isinstance(it, BaseException):
            _noted.debug("%s", "".join(traceback.format_exception(it)))


def _file(suffix: str) -> Path:
    return Path(os.environ[RECORD]) / f"{os.getpid()}{suffix}"


# ---------------------------------------------------------------- afterwards


def main(arguments: Sequence[str]) -> int:
    """Look through a folder; returns the exit status."""
    folder = Path(arguments[0])
    secrets = {
        line
        for path in folder.glob(f"*{_SECRETS}")
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    records = [path for path in folder.iterdir() if path.suffix != _SECRETS]
    size = sum(path.stat().st_size for path in records)
    if not secrets or not size:
        print(f"e2e: nothing to look through in {folder}", file=sys.stderr)
        return 1

    found = list(disclosed(secrets, records))
    for place in found:
        print(f"e2e: a secret was told: {place}", file=sys.stderr)

    if not found:
        print(f"None of {len(secrets)} secrets is in {size // 1024} KiB of records.")

    return 1 if found else 0


def disclosed(secrets: Iterable[str], records: Iterable[Path]) -> Iterator[str]:
    """Yield each line that tells a secret, without the secret.

    Args:
        secrets: What must not be there, in any spelling.
        records: The files to look through.
    """
    wanted = [(it, spelt) for it in secrets for spelt in spellings(it)]
    for path in records:
        text = path.read_text(encoding="utf-8", errors="replace")
        for plain, spelt in wanted:
            if spelt not in text:
                continue

            for number, line in enumerate(text.splitlines(), 1):
                if spelt in line:
                    shown = line.replace(spelt, f"({len(plain)} characters)")
                    yield f"{path.name}:{number}: {shown[:300]}"


def spellings(text: str) -> set[str]:
    """Return how a secret may be written: plain, a part of a token, in base64."""
    encoded = base64.b64encode(text.encode()).decode()
    # In the middle of something larger, only what lies between its ends is the same.
    shifted = [
        base64.b64encode(bytes(by) + text.encode()).decode()[4:-4] for by in (1, 2)
    ]
    parts = [part for part in text.split(".") if len(part) > _TELLING]
    return {text, encoded, *shifted, *parts}


# Parts of tokens; shorter ones may be anything.
_TELLING = 30

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
