"""`ExecPlugin`: a program that prints credentials, as configured in kubeconfig files.

The protocol is `client.authentication.k8s.io`, v1 and v1beta1: the variable
`KUBERNETES_EXEC_INFO` describes the cluster, and the program prints an
`ExecCredential`.
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
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from aioinformer import json_codec
from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.client.auth.credentials import AuthInfo, bearer, is_transient
from aioinformer.client.auth.tls import expiry_of
from aioinformer.client.redaction import MOST_CHARACTERS, redacted
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["API_VERSIONS", "INTERACTIVE_MODES", "ExecPlugin"]

logger: Final = guarded_logger(__name__)

API_VERSIONS = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
)

INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")

# Time limits: plugins send requests to a server, and people take longer to type.
SECONDS = 60.0
INTERACTIVE_SECONDS = 300.0

# Credentials are renewed this long before they expire, or at 80 % of a short life.
SKEW_SECONDS = 60.0
SKEW_SHARE = 0.2

# A wrong expiry, or a wrong clock, must not make the plugin run all the time.
LEAST_SECONDS = 5.0

# Interval of checking whether a plugin has ended or was cancelled.
_POLL_SECONDS = 0.02

# Credentials are a few KiB.
_OUTPUT_LIMIT = 1024 * 1024

# Part of stderr that is logged: the end, where the reason usually is.
_STDERR_CHARACTERS = 1000

# Names of environment variables whose values are secrets.
_SECRET_NAMES = re.compile(r"(?i)token|secret|passw|key")

# An argument that is only the name of an option.
_FLAG = re.compile(r"--?[a-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """Description of an exec plugin. Its `repr` shows only the command.

    The plugin shares the user's stdin only if `interactive_mode` allows it and stdin is
    a terminal. Its stderr then goes to the terminal too. Otherwise, stderr is logged at
    DEBUG with secrets redacted, and appears in no error.

    Raises:
        OptionsError: If the version or the mode is unknown.
    """

    command: str
    """Name of a program on `PATH`, or a path."""

    where: str = "the configuration"
    """Place of its configuration, for errors: `user 'me' in ~/.kube/config`."""

    arguments: tuple[str, ...] = field(default=(), repr=False)

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables in addition to those of this process."""

    api_version: str = API_VERSIONS[0]

    interactive_mode: str = "Never"

    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    """Cluster information for the plugin, in the protocol's names; None for none."""

    ca: bytes | Path | None = field(default=None, repr=False)
    """CA of the cluster, passed with `cluster`: data, or a file read on each run."""

    install_hint: str = field(default="", repr=False)
    """Hint for the error if the program does not exist."""

    seconds: float = SECONDS
    """Time limit, unless the plugin is interactive."""

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
        """Run the plugin in a thread, and parse its output.

        Raises:
            OptionsError: If the program does not exist, fails, exceeds its time limit,
                or prints something else.
            OSError: If this machine is out of threads, processes or files.

        Cancellation:
            Deferred until the plugin has been killed, which takes milliseconds.
        """
        cancelled = threading.Event()
        call = functools.partial(self._run, cancelled)
        return await in_thread(call, stop=cancelled.set)

    def _run(self, cancelled: threading.Event) -> AuthInfo:
        interactive = self._is_interactive()
        process = self._start(interactive)
        limit = INTERACTIVE_SECONDS if interactive else self.seconds
        try:
            stdout, stderr = _read_output(process, cancelled, limit)
        except TimeoutError as exc:
            raise OptionsError(
                f"{self} did not end within {limit:g} s and was killed{exc}"
            ) from None
        finally:
            _end(process, alone=not interactive)

        hint = self._hint(stderr)
        if process.returncode:
            raise OptionsError(f"{self} failed with code {process.returncode}{hint}")

        return self._read(stdout, hint)

    def _is_interactive(self) -> bool:
        if self.interactive_mode == "Never":
            return False

        terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if not terminal and self.interactive_mode == "Always":
            raise OptionsError(
                f"{self} needs input (interactiveMode: Always), but standard input is not "
                "a terminal: log in manually first, or use another user"
            )

        return terminal

    def _start(self, interactive: bool) -> subprocess.Popen[bytes]:
        try:
            info = json_codec.dumps(self._info(interactive)).decode()
        except (TypeError, UnicodeDecodeError) as exc:
            raise OptionsError(f"cannot pass the cluster to {self}: {exc}") from None

        environment = {**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": info}
        try:
            return subprocess.Popen(
                [self.command, *self.arguments],
                env=environment,
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                # Makes it possible to kill its children with it. An interactive plugin
                # would lose the terminal with a session of its own.
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
                f"cannot pass the certificate authority {self.ca} to {self}: "
                f"{exc.strerror}"
            ) from exc

    def _read(self, stdout: bytes, hint: str) -> AuthInfo:
        status = self._status(stdout, hint)
        token = self._text(status, "token")
        certificate = self._text(status, "clientCertificateData").encode()
        key = self._text(status, "clientKeyData").encode()
        if bool(certificate) != bool(key):
            raise OptionsError(
                f"{self} printed only one of clientCertificateData and clientKeyData"
            )

        if not token and not certificate:
            raise OptionsError(
                f"{self} printed neither a token nor a certificate{hint}"
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

    def _status(self, stdout: bytes, hint: str) -> dict[str, Any]:
        try:
            response = json_codec.loads(stdout)
        except json_codec.JSONDecodeError:
            # Neither shown nor chained: the output may contain a token.
            what = "nothing" if not stdout.strip() else "something that is not JSON"
            raise OptionsError(f"{self} printed {what}{hint}") from None

        kind = response.get("kind") if isinstance(response, dict) else None
        if kind != "ExecCredential":
            raise OptionsError(
                f"{self} printed JSON that is not an ExecCredential{hint}"
            )

        if response.get("apiVersion") != self.api_version:
            raise OptionsError(
                f"{self} is configured for {self.api_version} but printed "
                f"{str(response.get('apiVersion'))[:80]!r}: set the apiVersion of the plugin"
            )

        status = response.get("status")
        if not isinstance(status, dict):
            raise OptionsError(
                f"{self} printed an ExecCredential without a status{hint}"
            )

        return status

    def _text(self, status: dict[str, Any], key: str) -> str:
        value = status.get(key)
        if value is not None and not isinstance(value, str):
            raise OptionsError(f"{self} printed a {key} that is not a string")

        return value or ""

    def _seconds_left(self, status: dict[str, Any], certificate: bytes) -> float:
        """Return the validity of the output in seconds; infinite if unknown."""
        ends = [expiry_of(certificate)]
        expiration = self._text(status, "expirationTimestamp")
        if expiration:
            ends.append(self._time(expiration))

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
                f"{self} printed the expirationTimestamp {text[:40]!r}, which is not a "
                "timestamp such as 2030-01-31T12:00:00Z"
            ) from None

        return when

    def _hint(self, stderr: bytes) -> str:
        """Log the plugin's stderr, and return a hint at that log line.

        No pattern finds all secrets, and errors are seen by more people than DEBUG
        logs.
        """
        if not stderr.strip():
            return ""

        known = [*self.environment.values()]
        known += [each for each in self.arguments if not _FLAG.fullmatch(each)]
        known += [
            value for name, value in os.environ.items() if _SECRET_NAMES.search(name)
        ]
        text = stderr.decode("utf-8", "replace")[-MOST_CHARACTERS:]
        text = redacted(text, known)
        logger.debug("%s wrote to stderr: %s", self, text[-_STDERR_CHARACTERS:])
        return f" (the logger {__name__} shows its stderr at DEBUG)"

    def __str__(self) -> str:
        return f"the exec plugin {self.command!r} of {self.where}"


class _Output(NamedTuple):
    stdout: bytes
    stderr: bytes


def _read_output(
    process: subprocess.Popen[bytes], cancelled: threading.Event, seconds: float
) -> _Output:
    """Read the output of a plugin until it ends, even if its children keep the pipes.

    Raises:
        TimeoutError: If it exceeds its time limit, prints too much, or was cancelled.
    """
    pipes = [each for each in (process.stdout, process.stderr) if each is not None]
    output = {each: bytearray() for each in pipes}
    for pipe in pipes:
        os.set_blocking(pipe.fileno(), False)

    limit = time.monotonic() + seconds
    while True:
        # In this order, no output is missed.
        ended = process.poll() is not None
        for pipe, text in output.items():
            _drain(pipe, text)

        if ended:
            texts = [bytes(text) for text in output.values()]
            return _Output(texts[0], b"".join(texts[1:]))

        if time.monotonic() > limit or cancelled.wait(_POLL_SECONDS):
            raise TimeoutError

        if any(len(text) > _OUTPUT_LIMIT for text in output.values()):
            raise TimeoutError(f": it had printed more than {_OUTPUT_LIMIT} bytes")


def _drain(pipe: IO[bytes], text: bytearray) -> None:
    while len(text) <= _OUTPUT_LIMIT:
        try:
            piece = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return

        if not piece:
            return

        text += piece


def _end(process: subprocess.Popen[bytes], *, alone: bool) -> None:
    """Kill it if it still runs, with its children where possible."""
    if process.poll() is None:
        if alone and hasattr(os, "killpg"):
            # macOS refuses this for a zombie.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

        process.kill()

        process.wait()

    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
