"""`Credentials`: authentication of a client, and its renewal."""

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
from typing import Final, TypeAlias

from aioinformer._tasks import SharedRun, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.errors import OptionsError, TransportError

__all__ = ["AuthInfo", "AuthSource", "Credentials", "bearer", "is_transient"]


logger: Final = guarded_logger(__name__)


# Service account tokens are valid for an hour, and the kubelet replaces the file after
# 80 % of that. client-go rereads it every minute, too.
REREAD_SECONDS = 60.0


# Delay of the next attempt after a failed renewal, while the old credentials are valid.
RETRY_SECONDS = 10.0


# Longest wait for a reread file. A hanging disk delays requests once.
FILE_WAIT_SECONDS = 3.0


# Longest wait of requests without valid credentials: for a file, and for a source.
# Exec plugins have shorter limits of their own, unless they are interactive.
FILE_SECONDS = 30.0


SOURCE_SECONDS = 330.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthInfo:
    """Header, client certificate, both, or nothing. Secrets are in no `repr`."""

    authorization: str = field(default="", repr=False)
    """Value of the Authorization header; empty for none."""

    certificate: bytes | None = field(default=None, repr=False)
    """Client certificate with its chain, PEM; requires `key`."""

    key: bytes | None = field(default=None, repr=False)
    """Key of `certificate`, PEM."""

    fresh_seconds: float = field(default=math.inf, compare=False)
    """Seconds until it is due for renewal."""

    valid_seconds: float = field(default=math.inf, compare=False)
    """Seconds until it must not be used any more."""

    wait_seconds: float = field(default=0.0, compare=False)
    """Seconds that a renewal may delay requests while this is valid, counted from the
    start of the renewal. 0 renews in the background only."""


AuthSource: TypeAlias = Callable[[], Awaitable[AuthInfo]]
"""Coroutine function that returns new credentials. It raises `OptionsError`, or
`OSError` for temporary problems (see `is_transient`). Its error texts contain no
secrets."""


class Credentials:
    """Credentials of a client: a token, a token file, a source, a user name, or none.

    Files and sources are renewed before they expire and after a 401. A token file is
    reread after 60 s. One task renews for all requests: cancelling a request does not
    cancel a renewal that others need. While a client is entered, requests use the old
    credentials during a renewal, as long as these are valid. After a failed renewal
    they use them too, and the next attempt starts 10 s later. Without valid
    credentials, requests wait for the renewal and share its failure. Files are read in
    separate threads. Secrets appear in no `repr()` and no error.

    Args:
        token: Bearer token. White space around it is removed. With `token_file`, it is
            used until the file has been read once.
        token_file: File with the token.
        username: User name for basic authentication. API servers no longer support it,
            but proxies in front of them do. Ignored with a token.
        password: Password of `username`.
        source: Coroutine function that returns credentials, such as
            `ExecPlugin.auth_info`. Excludes the other arguments except `token`, which is
            used until the source has returned.

    Raises:
        OptionsError: If the token has characters that a header cannot contain.
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
        self._info = AuthInfo()
        self._kind, self._description = "anonymous", "none"
        self._source = source
        self._max_wait = SOURCE_SECONDS
        if token.strip():
            self._kind, self._description = "bearer", "a token"
            self._info = AuthInfo(authorization=bearer(token, "the token"))
        elif username and token_file is None and source is None:
            pair = base64.b64encode(f"{username}:{password}".encode())
            self._kind, self._description = "basic", "a user name and password"
            self._info = AuthInfo(authorization=f"Basic {pair.decode()}")

        if token_file is not None:
            self._kind = f"token_file={str(token_file)!r}"
            self._description = f"the token in {token_file}"
            self._source = _TokenFile(Path(token_file)).auth_info
            self._max_wait = FILE_SECONDS
        elif source is not None and not token.strip():
            owner = getattr(source, "__self__", source)
            self._kind = f"source={owner!r}"
            self._description = str(owner)

        # Valid for the loop of the last use. Another loop starts over.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewal = SharedRun(self._renew, "credentials")
        self._due_at = -math.inf if self._source is not None else math.inf
        self._valid_until = math.inf if self._info != AuthInfo() else -math.inf
        # Error of the last renewal, if it failed.
        self._failure: OptionsError | TransportError | None = None

    def keep(self) -> SharedRun:
        """Allow renewals in the background, for an entered client.

        Returns:
            The renewal of this loop. The caller releases it once.
        """
        renewal = self._renewal_of_loop()
        renewal.keep()
        return renewal

    async def auth_info(self) -> AuthInfo:
        """Return the current credentials, renewed if they are due.

        Raises:
            OptionsError: If there are none, and no earlier ones are still valid.
            TransportError: If there are none because this machine is out of resources,
                or because the source did not answer in time.

        Cancellation:
            Safe: a renewal that others need continues.
        """
        if self._source is not None and self._is_due():
            ended = await self._wait_for_renewal()
            if not self._is_valid():
                raise self._unavailable(ended=ended)

        return self._info

    async def invalidate(self, refused: AuthInfo) -> bool:
        """Renew the credentials after the server answered 401.

        Args:
            refused: Credentials of the refused request, as returned by `auth_info()`.
                If a renewal has ended since, even without success, no other is forced.

        Returns:
            True if `auth_info()` now returns other credentials, so that a retry makes
            sense.

        Cancellation:
            Safe: a renewal that others need continues.
        """
        # By identity: each renewal creates another object, even if the token is the
        # same.
        if self._source is not None and self._info is refused:
            await self._renewal_of_loop().wait(self._max_wait)

        return self._info != refused

    async def _wait_for_renewal(self) -> bool:
        """Start a renewal, wait if necessary, and return whether it has ended."""
        renewal, seconds = self._renewal_of_loop(), self._max_wait
        if self._is_valid() and renewal.kept:
            seconds = self._info.wait_seconds - renewal.start()

        return seconds > 0 and await renewal.wait(seconds)

    async def _renew(self) -> None:
        try:
            info = await self._call_source()
        except (OptionsError, TransportError) as exc:
            self._failed(exc)
        else:
            now = asyncio.get_running_loop().time()
            self._info, self._failure = info, None
            self._due_at = now + info.fresh_seconds
            self._valid_until = now + info.valid_seconds

    async def _call_source(self) -> AuthInfo:
        assert self._source is not None
        try:
            # A copy: the source may return the same object again.
            return replace(await self._source())
        except OptionsError:
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

            reason = "the source cancelled itself"
        except OSError as exc:
            reason = exc.strerror or type(exc).__name__
            if is_transient(exc):
                raise TransportError(
                    f"cannot get credentials from {self}: {reason}"
                ) from exc

        except Exception as exc:  # noqa: BLE001 - the user's source
            # Without its message, which may quote a secret.
            reason = f"the source raised {type(exc).__name__}"

        raise OptionsError(f"cannot get credentials from {self}: {reason}")

    def _failed(self, exc: OptionsError | TransportError) -> None:
        self._failure = exc
        # A new object: requests refused with the old one do not force another renewal.
        self._info = replace(self._info)
        if self._is_valid():
            self._due_at = asyncio.get_running_loop().time() + RETRY_SECONDS
            logger.warning("credential renewal failed, using the old ones: %s", exc)

    def _unavailable(self, *, ended: bool) -> OptionsError | TransportError:
        if self._failure is None or not ended:
            return TransportError(
                f"no credentials from {self} within {self._max_wait:g} s"
            )

        # A copy for each caller: raising an error adds traceback entries to it.
        return type(self._failure)(str(self._failure))

    def _renewal_of_loop(self) -> SharedRun:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._renewal = SharedRun(self._renew, "credentials")
            # Times of another loop are not comparable: wait for the first renewal.
            self._info = replace(self._info, wait_seconds=self._max_wait)
            self._due_at = -math.inf if self._source is not None else math.inf
            self._valid_until = math.inf if self._info != AuthInfo() else -math.inf

        return self._renewal

    def _is_due(self) -> bool:
        loop = asyncio.get_running_loop()
        return loop is not self._loop or loop.time() >= self._due_at

    def _is_valid(self) -> bool:
        return asyncio.get_running_loop().time() < self._valid_until

    def __repr__(self) -> str:
        return f"<Credentials {self._kind}>"

    def __str__(self) -> str:
        """Describe the kind of credentials in words."""
        return self._description


class _TokenFile:
    def __init__(self, file: Path) -> None:
        self._file = file

    async def auth_info(self) -> AuthInfo:
        try:
            text = await in_thread(self._file.read_text)
            header = bearer(text, "the token")
        except (OSError, UnicodeDecodeError, OptionsError) as exc:
            if isinstance(exc, OSError) and is_transient(exc):
                raise

            # A decoding error is not shown: it contains the bytes.
            problem = "it is not text" if isinstance(exc, UnicodeDecodeError) else exc
            raise OptionsError(
                f"cannot read a token from {self._file}: {problem}. Check that the "
                "file exists, that this process may read it, and that it holds a token."
            ) from None

        return AuthInfo(
            authorization=header,
            fresh_seconds=REREAD_SECONDS,
            wait_seconds=FILE_WAIT_SECONDS,
        )


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
    """Return whether a local error is temporary: this machine is out of resources.

    These are threads, processes, memory, open files and disk space. Such an error does
    not mean that the configuration is wrong.
    """
    # Errors of `ssl` and of name look-ups have their own numbers.
    has_other_numbers = isinstance(exc, ssl.SSLError | socket.gaierror)
    return exc.errno in _TRANSIENT and not has_other_numbers


def bearer(token: str, what: str) -> str:
    """Return the header for a bearer token, without white space around it.

    Args:
        token: The token.
        what: Description of the token for errors, which never show it.

    Raises:
        OptionsError: If it is empty, or has characters that a header cannot contain.
    """
    token = token.strip()
    if not token:
        raise OptionsError(f"{what} is empty")

    # The HTTP library would reject others with an error that contains the token.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise OptionsError(f"{what} has characters that a token cannot contain")

    return f"Bearer {token}"
