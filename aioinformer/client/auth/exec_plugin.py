"""`ExecPlugin`: a program that prints credentials, as kubeconfig files name one.

The protocol is `client.authentication.k8s.io`, v1 and v1beta1: the program is told about
the cluster by the variable `KUBERNETES_EXEC_INFO`, and prints an `ExecCredential`.
"""

from __future__ import annotations

import base64
import functools
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import orjson

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.client.auth.credentials import AuthInfo, bearer, is_transient
from aioinformer.client.auth.tls import expiry_of
from aioinformer.client.redaction import MOST_CHARACTERS, redacted
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["API_VERSIONS", "INTERACTIVE_MODES", "ExecPlugin"]

logger = guarded_logger(__name__)

API_VERSIONS = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
)

INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")

# Plugins ask a server of their own; somebody who types takes longer.
SECONDS = 60.0
INTERACTIVE_SECONDS = 300.0

# Credentials are renewed so much before they expire, or at 80 % of a short life.
SKEW_SECONDS = 60.0
SKEW_SHARE = 0.2

# A plugin, or a clock, that is wrong about times does not make it run all the time.
LEAST_SECONDS = 5.0

# How often a thread that waits for a plugin looks whether it is still wanted.
_TURN_SECONDS = 0.02

# Credentials are a few KiB.
_MOST_BYTES = 1024 * 1024

# What is logged of a plugin's complaints: their end, where the reason usually is.
_COMPLAINT_CHARACTERS = 1000

# Variables of this process whose values are secrets, by their names.
_TELLING = re.compile(r"(?i)token|secret|passw|key")

# An argument that is the name of an option, and no more.
_FLAG = re.compile(r"--?[a-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """How to run a plugin. Nothing of it is shown but its command.

    Standard input is the user's only if `interactive_mode` allows it and it is a
    terminal; then its stderr goes to the terminal too. Else stderr is logged at DEBUG,
    without what looks like a secret, and is in no error.

    Raises:
        OptionsError: If the version or the mode is none.
    """

    command: str
    """A name to be found on `PATH`, or a path."""

    where: str = "the configuration"
    """Who names it, for errors: `user 'me' in ~/.kube/config`."""

    arguments: tuple[str, ...] = field(default=(), repr=False)

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that it gets beside those of this process."""

    api_version: str = API_VERSIONS[0]

    interactive_mode: str = "Never"

    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    """What it is told of the cluster, by the names of the protocol; None for nothing."""

    ca: bytes | Path | None = field(default=None, repr=False)
    """The cluster's authority, told with `cluster`: data, or a file to read each time."""

    install_hint: str = field(default="", repr=False)
    """What to say where there is no such program."""

    seconds: float = SECONDS
    """How long it may take, when nobody is asked to type."""

    def __post_init__(self) -> None:
        if self.api_version not in API_VERSIONS:
            raise OptionsError(
                f"{self} has the apiVersion {self.api_version!r}: it must be one of "
                f"{', '.join(API_VERSIONS)}"
            )

        if self.interactive_mode not in INTERACTIVE_MODES:
            raise OptionsError(
                f"{self} has the interactiveMode {self.interactive_mode!r}: it must be "
                f"one of {', '.join(INTERACTIVE_MODES)}"
            )

    async def auth_info(self) -> AuthInfo:
        """Run it, in a thread, and read what it prints.

        Raises:
            OptionsError: If there is no such program, it fails, takes too long, or
                prints anything else.
            OSError: If this machine has no threads, processes or files left.

        Cancellation:
            Deferred until the plugin has been killed, which takes no time.
        """
        unwanted = threading.Event()
        call = functools.partial(self._run, unwanted)
        return await in_thread(call, stop=unwanted.set)

    def _run(self, unwanted: threading.Event) -> AuthInfo:
        interactive = self._asks()
        process = self._start(interactive)
        limit = INTERACTIVE_SECONDS if interactive else self.seconds
        try:
            printed, complaint = _listen(process, unwanted, limit)
        except TimeoutError as exc:
            raise OptionsError(
                f"{self} did not end within {limit:g} s and was killed{exc}"
            ) from None
        finally:
            _end(process, alone=not interactive)

        said = self._hint(complaint)
        if process.returncode:
            raise OptionsError(f"{self} failed with code {process.returncode}{said}")

        return self._read(printed, said)

    def _asks(self) -> bool:
        if self.interactive_mode == "Never":
            return False

        terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if not terminal and self.interactive_mode == "Always":
            raise OptionsError(
                f"{self} wants to ask somebody (interactiveMode: Always), and standard "
                "input is no terminal: log in by hand before, or use another user"
            )

        return terminal

    def _start(self, interactive: bool) -> subprocess.Popen[bytes]:
        try:
            info = orjson.dumps(self._info(interactive)).decode()
        except (TypeError, UnicodeDecodeError) as exc:
            raise OptionsError(f"{self} cannot be told of its cluster: {exc}") from None

        environment = {**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": info}
        try:
            return subprocess.Popen(
                [self.command, *self.arguments],
                env=environment,
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                # So that all it started can be killed with it; a group of its own
                # would take the terminal from one that asks.
                start_new_session=not interactive,
            )
        except FileNotFoundError:
            hint = f"\n{redacted(self.install_hint)}" if self.install_hint else ""
            raise OptionsError(
                f"{self} was not found: install it, or add its folder to PATH{hint}"
            ) from None
        except (OSError, ValueError) as exc:
            if isinstance(exc, OSError) and is_transient(exc):
                raise

            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise OptionsError(f"{self} cannot be run: {reason}") from None

    def _info(self, interactive: bool) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self.cluster is not None:
            spec["cluster"] = dict(self.cluster)
            authority = self._authority()
            if authority:
                encoded = base64.b64encode(authority).decode()
                spec["cluster"]["certificate-authority-data"] = encoded

        return {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}

    def _authority(self) -> bytes | None:
        if not isinstance(self.ca, Path):
            return self.ca

        try:
            return self.ca.read_bytes()
        except OSError as exc:
            if is_transient(exc):
                raise

            raise OptionsError(
                f"cannot tell {self} the certificate authority {self.ca}: "
                f"{exc.strerror}"
            ) from exc

    def _read(self, printed: bytes, said: str) -> AuthInfo:
        status = self._status(printed, said)
        token = self._text(status, "token")
        certificate = self._text(status, "clientCertificateData").encode()
        key = self._text(status, "clientKeyData").encode()
        if bool(certificate) != bool(key):
            raise OptionsError(
                f"{self} printed only one of clientCertificateData and clientKeyData"
            )

        if not token and not certificate:
            raise OptionsError(
                f"{self} printed neither a token nor a certificate{said}"
            )

        left = self._seconds_left(status, certificate)
        skew = min(SKEW_SECONDS, left * SKEW_SHARE) if left < math.inf else 0.0
        return AuthInfo(
            authorization=bearer(token, f"the token of {self}") if token else "",
            certificate=certificate or None,
            key=key or None,
            fresh_seconds=max(left - skew, LEAST_SECONDS),
            valid_seconds=max(left, LEAST_SECONDS),
        )

    def _status(self, printed: bytes, said: str) -> dict[str, Any]:
        try:
            answer = orjson.loads(printed)
        except orjson.JSONDecodeError:
            # Neither shown nor chained: it may hold a token.
            what = "nothing" if not printed.strip() else "something that is no JSON"
            raise OptionsError(f"{self} printed {what}{said}") from None

        kind = answer.get("kind") if isinstance(answer, dict) else None
        if kind != "ExecCredential":
            raise OptionsError(f"{self} printed JSON that is no ExecCredential{said}")

        if answer.get("apiVersion") != self.api_version:
            raise OptionsError(
                f"{self} is configured for {self.api_version} and printed "
                f"{str(answer.get('apiVersion'))[:80]!r}: set the apiVersion that it has"
            )

        status = answer.get("status")
        if not isinstance(status, dict):
            raise OptionsError(
                f"{self} printed an ExecCredential without a status{said}"
            )

        return status

    def _text(self, status: dict[str, Any], key: str) -> str:
        value = status.get(key)
        if value is not None and not isinstance(value, str):
            raise OptionsError(f"{self} printed a {key} that is no text")

        return value or ""

    def _seconds_left(self, status: dict[str, Any], certificate: bytes) -> float:
        """How long what it printed is valid, in seconds; infinite if it does not say."""
        ends = [expiry_of(certificate)]
        told = self._text(status, "expirationTimestamp")
        if told:
            ends.append(self._time(told))

        now = datetime.now(tz=UTC)
        left = [(each - now).total_seconds() for each in ends if each is not None]
        return max(min(left, default=math.inf), 0.0)

    def _time(self, text: str) -> datetime:
        try:
            when = datetime.fromisoformat(text)
            if when.tzinfo is None:
                raise ValueError

        except ValueError:
            raise OptionsError(
                f"{self} printed the expirationTimestamp {text[:40]!r}, which is no "
                "time such as 2030-01-31T12:00:00Z"
            ) from None

        return when

    def _hint(self, complaint: bytes) -> str:
        """Log what it complained of, and return where to look for that.

        No pattern finds all secrets, and errors go further than logs at DEBUG.
        """
        if not complaint.strip():
            return ""

        known = [*self.environment.values()]
        known += [each for each in self.arguments if not _FLAG.fullmatch(each)]
        known += [value for name, value in os.environ.items() if _TELLING.search(name)]
        text = complaint.decode("utf-8", "replace")[-MOST_CHARACTERS:]
        text = redacted(text, known)
        logger.debug("%s wrote to stderr: %s", self, text[-_COMPLAINT_CHARACTERS:])
        return f" (the logger {__name__} shows its stderr at DEBUG)"

    def __str__(self) -> str:
        return f"the exec plugin {self.command!r} of {self.where}"


class _Heard(NamedTuple):
    printed: bytes
    complaint: bytes


def _listen(
    process: subprocess.Popen[bytes], unwanted: threading.Event, seconds: float
) -> _Heard:
    """Read what a plugin prints until it ends, whoever else holds its pipes then.

    Raises:
        TimeoutError: If it takes too long, prints too much, or is not wanted any more.
    """
    pipes = [each for each in (process.stdout, process.stderr) if each is not None]
    heard = {each: bytearray() for each in pipes}
    for pipe in pipes:
        os.set_blocking(pipe.fileno(), False)

    limit = time.monotonic() + seconds
    while True:
        # First whether it ended, then what it printed: so nothing is missed.
        ended = process.poll() is not None
        for pipe, text in heard.items():
            _drain(pipe, text)

        if ended:
            texts = [bytes(text) for text in heard.values()]
            return _Heard(texts[0], b"".join(texts[1:]))

        if time.monotonic() > limit or unwanted.wait(_TURN_SECONDS):
            raise TimeoutError

        if any(len(text) > _MOST_BYTES for text in heard.values()):
            raise TimeoutError(f": it had printed more than {_MOST_BYTES} bytes")


def _drain(pipe: IO[bytes], text: bytearray) -> None:
    while len(text) <= _MOST_BYTES:
        try:
            piece = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return

        if not piece:
            return

        text += piece


def _end(process: subprocess.Popen[bytes], *, alone: bool) -> None:
    """Kill it if it still runs, with all that it started where that is possible."""
    if process.poll() is None:
        if alone and hasattr(os, "killpg"):
            # macOS refuses it where only its remains are left.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

        process.kill()

        process.wait()

    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
