"""`Credentials`: the proof of who we are, and when it is renewed."""

from __future__ import annotations

import asyncio
import base64
import errno
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from aioinformer._tasks import SharedRun, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.errors import OptionsError, TransportError

__all__ = ["AuthInfo", "AuthSource", "Credentials", "bearer", "is_transient"]


logger = guarded_logger(__name__)


# Service account tokens live for an hour and the kubelet replaces the file when 80 % of
# that is over, so a minute is early enough; client-go uses the same.
REREAD_SECONDS = 60.0


# How soon a renewal that failed is tried again, while the last proof can be used.
RETRY_SECONDS = 10.0


# Local files are read in a fraction of this. One that hangs holds up requests once.
FILE_WAIT_SECONDS = 3.0


# How long requests wait while there is no valid proof: for a file, and for a source.
# Exec plugins have shorter limits of their own, unless somebody types.
FILE_SECONDS = 30.0


SOURCE_SECONDS = 330.0


class Credentials:
    """Who we are: a token, a file or a source that gives one, a name, or nobody.

    What comes from a file or a source is renewed before it expires and after the server
    refused it; a token file is read again after 60 s. One task renews, for all requests:
    a cancelled request ends no renewal that others need. While a client is entered,
    requests use the last proof during a renewal, for as long as it is valid. If the
    renewal fails they use it too, and the next attempt starts 10 s later. Without a
    valid proof requests wait for the renewal and share its failure. Files are read in
    threads of their own. Secrets never show in `repr()` or in errors.

    Args:
        token: A bearer token. White space around it is removed. With `token_file` it is
            used only for as long as the file could not be read once.
        token_file: The file that holds the token.
        username: For basic authentication, which API servers know no more, but proxies
            in front of them do. No effect with a token.
        password: Belongs to `username`.
        source: Gets a proof, such as `ExecPlugin.proof`; alone, without the others.

    Raises:
        OptionsError: If the token has characters that no header can carry.
    """

    def __init__(
        self,
        *,
        token: str = "",
        token_file: str | Path | None = None,
        username: str = "",
        password: str = "",
        source: AuthSource | None = None,
    ) -> None:
        self._proof = AuthInfo()
        self._kind, self._words = "anonymous", "none"
        self._source = source
        self._most_seconds = SOURCE_SECONDS
        if token.strip():
            self._kind, self._words = "bearer", "a token"
            self._proof = AuthInfo(authorization=bearer(token, "the token"))
        elif username and token_file is None and source is None:
            pair = base64.b64encode(f"{username}:{password}".encode())
            self._kind, self._words = "basic", "a user name and password"
            self._proof = AuthInfo(authorization=f"Basic {pair.decode()}")

        if token_file is not None:
            self._kind = f"token_file={str(token_file)!r}"
            self._words = f"the token in {token_file}"
            self._source = _TokenFile(Path(token_file)).proof
            self._most_seconds = FILE_SECONDS
        elif source is not None:
            owner = getattr(source, "__self__", source)
            self._kind = f"source={owner!r}"
            self._words = str(owner)

        # Of the loop in which they are used; another one, later, begins anew.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewal = SharedRun(self._renew, "credentials")
        self._due_at = -math.inf if self._source is not None else math.inf
        self._valid_until = math.inf if self._proof != AuthInfo() else -math.inf
        # The last renewal's, if it failed.
        self._failure: OptionsError | TransportError | None = None

    def keep(self) -> SharedRun:
        """Let renewals go on in the background, for an entered client.

        Returns:
            The renewal of this loop, to be released once.
        """
        renewal = self._here()
        renewal.keep()
        return renewal

    async def proof(self) -> AuthInfo:
        """Give what proves who we are, renewed if it is time for that.

        Raises:
            OptionsError: If there is none, and none from before that is still valid.
            TransportError: If there is none because this machine ran out of something,
                or because the source did not answer in time.

        Cancellation:
            Safe: a renewal that others need goes on.
        """
        if self._source is not None and self._is_due():
            ended = await self._wait_for_renewal()
            if not self._is_valid():
                raise self._why_none(ended=ended)

        return self._proof

    async def invalidate(self, refused: AuthInfo) -> bool:
        """Look for something better after the server answered 401.

        Args:
            refused: AuthInfo of the refused request, as `proof()` gave it. If a renewal
                has ended since, even without success, none is forced.

        Returns:
            True if `proof()` gives something else now, so that asking again makes
            sense.

        Cancellation:
            Safe: a renewal that others need goes on.
        """
        # By identity: each renewal gives another object, if only with the same token.
        if self._source is not None and self._proof is refused:
            await self._here().wait(self._most_seconds)

        return self._proof != refused

    async def _wait_for_renewal(self) -> bool:
        """Start a renewal, wait for it if that is needed, and return if it has ended."""
        renewal, seconds = self._here(), self._most_seconds
        if self._is_valid() and renewal.kept:
            seconds = self._proof.wait_seconds - renewal.start()

        return seconds > 0 and await renewal.wait(seconds)

    async def _renew(self) -> None:
        try:
            proof = await self._ask()
        except (OptionsError, TransportError) as exc:
            self._failed(exc)
        else:
            now = asyncio.get_running_loop().time()
            self._proof, self._failure = proof, None
            self._due_at = now + proof.fresh_seconds
            self._valid_until = now + proof.valid_seconds

    async def _ask(self) -> AuthInfo:
        assert self._source is not None
        try:
            # A copy: the source may give the same object again.
            return replace(await self._source())
        except OptionsError:
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

            reason = "it cancelled itself"
        except OSError as exc:
            reason = exc.strerror or type(exc).__name__
            if is_transient(exc):
                raise TransportError(
                    f"cannot get credentials from {self}: {reason}. "
                    "Trying again may help."
                ) from exc

        except Exception as exc:  # noqa: BLE001 - the user's source
            # Without its words: they may quote a secret.
            reason = f"it failed with {type(exc).__name__}"

        raise OptionsError(f"cannot get credentials from {self}: {reason}")

    def _failed(self, exc: OptionsError | TransportError) -> None:
        self._failure = exc
        # Another object: whoever was refused with the one before has had its renewal.
        self._proof = replace(self._proof)
        if self._is_valid():
            self._due_at = asyncio.get_running_loop().time() + RETRY_SECONDS
            logger.warning("keeping the last credentials: %s", exc)

    def _why_none(self, *, ended: bool) -> OptionsError | TransportError:
        if self._failure is None or not ended:
            return TransportError(
                f"no credentials from {self} within {self._most_seconds:g} s. "
                "Trying again may help."
            )

        # One for each who asks: an error that is raised collects their tracebacks.
        return type(self._failure)(str(self._failure))

    def _here(self) -> SharedRun:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._renewal = SharedRun(self._renew, "credentials")
            # Times of another loop say nothing here: the first renewal is waited for.
            self._proof = replace(self._proof, wait_seconds=self._most_seconds)
            self._due_at = -math.inf if self._source is not None else math.inf
            self._valid_until = math.inf if self._proof != AuthInfo() else -math.inf

        return self._renewal

    def _is_due(self) -> bool:
        loop = asyncio.get_running_loop()
        return loop is not self._loop or loop.time() >= self._due_at

    def _is_valid(self) -> bool:
        return asyncio.get_running_loop().time() < self._valid_until

    def __repr__(self) -> str:
        return f"<Credentials {self._kind}>"

    def __str__(self) -> str:
        """Say of what kind they are, in plain words."""
        return self._words


class _TokenFile:
    def __init__(self, file: Path) -> None:
        self._file = file

    async def proof(self) -> AuthInfo:
        try:
            text = await in_thread(self._file.read_text)
            header = bearer(text, "the token")
        except (OSError, UnicodeDecodeError, OptionsError) as exc:
            if isinstance(exc, OSError) and is_transient(exc):
                raise

            # Not all errors are shown: that of decoding holds what was decoded.
            problem = "it is no text" if isinstance(exc, UnicodeDecodeError) else exc
            raise OptionsError(
                f"cannot read a token from {self._file}: {problem}. Check that the "
                "file exists, that this process may read it, and that it holds a token."
            ) from None

        return AuthInfo(
            authorization=header,
            fresh_seconds=REREAD_SECONDS,
            wait_seconds=FILE_WAIT_SECONDS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthInfo:
    """A header, a client certificate, both, or nothing. Secrets are in no `repr`."""

    authorization: str = field(default="", repr=False)
    """The value of the Authorization header; empty for none."""

    certificate: bytes | None = field(default=None, repr=False)
    """A client certificate with its chain, PEM; it comes with `key`."""

    key: bytes | None = field(default=None, repr=False)
    """The key of `certificate`, PEM."""

    fresh_seconds: float = field(default=math.inf, compare=False)
    """How long to use it before a newer one is asked for."""

    valid_seconds: float = field(default=math.inf, compare=False)
    """How long it may be used if no newer one can be got."""

    wait_seconds: float = field(default=0.0, compare=False)
    """How long a renewal may hold up requests while this one is valid, counted from the
    start of the renewal. Zero renews in the background only."""


AuthSource: TypeAlias = Callable[[], Awaitable[AuthInfo]]


"""Gets a new proof. Fails with `OptionsError`, or `OSError` for what passes by itself
(see `is_transient`). The texts hold no secret."""


_TRANSIENT = frozenset(
    {
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
    }
)


def is_transient(exc: OSError) -> bool:
    """Return whether a local error passes by itself: this machine ran out of something.

    Threads, processes, memory, open files or disk space. Nothing is wrong with the
    configuration then.
    """
    # Errors of `ssl` and of name look-ups have numbers of their own.
    foreign = isinstance(exc, ssl.SSLError | socket.gaierror)
    return exc.errno in _TRANSIENT and not foreign


def bearer(token: str, what: str) -> str:
    """The header of a bearer token, without the white space around it.

    Args:
        token: The token.
        what: Names it in errors, which never show it.

    Raises:
        OptionsError: If it is empty, or has characters that no header can carry.
    """
    token = token.strip()
    if not token:
        raise OptionsError(f"{what} is empty")

    # Anything else would be refused by the HTTP library, with the token in its error.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise OptionsError(f"{what} has characters that no token can have")

    return f"Bearer {token}"
