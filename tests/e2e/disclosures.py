"""Searches the logs and output of the tests against real servers for secrets.

    python tests/e2e/disclosures.py FOLDER   fails if one is found

As a pytest plugin, it writes all DEBUG logs with exceptions into the folder named by
AIOINFORMER_E2E_RECORD, one file per process, and does nothing without it. The caller of
pytest adds the output. Tests register the secrets that they create with `secret()`, and
objects whose `repr` must not show them with `note()`.
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

# The loggers of code that talks to the servers, all at DEBUG.
LOGGERS = ("aioinformer", "aiohttp", "asyncio")

_SECRETS = ".secrets"
_noted = logging.getLogger("aioinformer.e2e")


# ---------------------------------------------------------------- while tests run


def pytest_configure(config: pytest.Config) -> None:
    """Start recording the logs."""
    if not os.environ.get(RECORD):
        return

    # Written by a thread, because logging in the package must not block its loop.
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
    config.add_cleanup(writer.stop)  # first, because it was added last
    for name in ("AIOINFORMER_E2E_TOKEN", "AIOINFORMER_E2E_USER_TOKEN"):
        secret(os.environ[name])

    secrets_of(Path(os.environ["AIOINFORMER_E2E_CA"]).parents[1])


def secret(text: str) -> str:
    """Register a secret that must not appear anywhere, and return it."""
    if os.environ.get(RECORD):
        with _file(_SECRETS).open("a", encoding="utf-8") as known:
            known.write(f"{text}\n")

    return text


def secrets_of(folder: Path) -> None:
    """Register the lines of all private keys in a folder; each is long enough."""
    for path in folder.rglob("*.key"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "-----" not in line:
                secret(line)


def note(*things: object) -> None:
    """Record texts that users might print: objects, and errors with their causes."""
    for it in things:
        _noted.debug("%r %s", it, it)
        if isinstance(it, BaseException):
            _noted.debug("%s", "".join(traceback.format_exception(it)))


def _file(suffix: str) -> Path:
    return Path(os.environ[RECORD]) / f"{os.getpid()}{suffix}"


# ---------------------------------------------------------------- afterwards


def main(arguments: Sequence[str]) -> int:
    """Search a folder and return the exit status."""
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
        print(f"e2e: a secret was disclosed: {place}", file=sys.stderr)

    if not found:
        print(f"None of {len(secrets)} secrets is in {size // 1024} KiB of records.")

    return 1 if found else 0


def disclosed(secrets: Iterable[str], records: Iterable[Path]) -> Iterator[str]:
    """Yield each line that contains a secret, without the secret.

    Args:
        secrets: Secrets to search for, in any encoding.
        records: Files to search.
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
    """Return the encodings of a secret: plain, part of a token, base64."""
    encoded = base64.b64encode(text.encode()).decode()
    # Inside larger base64, only the part between the ends is equal.
    shifted = [
        base64.b64encode(bytes(by) + text.encode()).decode()[4:-4] for by in (1, 2)
    ]
    parts = [part for part in text.split(".") if len(part) > _TELLING]
    return {text, encoded, *shifted, *parts}


# Parts of tokens; shorter ones could be anything.
_TELLING = 30

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
