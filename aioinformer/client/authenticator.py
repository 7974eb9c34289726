"""`Authenticator`: current credentials and SSL context for requests.

Files are read and SSL contexts built in threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from aioinformer._tasks import SharedRun, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.client.auth.credentials import AuthInfo
from aioinformer.errors import OptionsError, TransportError

if TYPE_CHECKING:
    import ssl

    from aioinformer.client.config import ClientConfig

__all__ = ["Authenticator", "RequestAuth"]

logger: Final = guarded_logger(__name__)

# Interval of checking certificate files for changes. They are replaced long before the
# old certificates expire; client-go checks every five minutes.
CHECK_SECONDS = 60.0

# Longest delay of requests by a check, with and without a usable context. A check takes
# milliseconds, unless the disk hangs.
WAIT_SECONDS = 3.0
MAX_WAIT_SECONDS = 30.0


class RequestAuth(NamedTuple):
    """Credentials and SSL context of one request."""

    info: AuthInfo
    context: ssl.SSLContext | None
    """Context of its TLS connection; None for plain HTTP."""


class Authenticator:
    """Credentials and SSL context for one API server and one event loop.

    The SSL context is built once, and again only when the credentials have another
    client certificate or a file has changed. A connection keeps the context that it was
    opened with: new requests open new connections, watches stay on theirs until they
    end. Credentials and certificates are each renewed by one task for all requests,
    between `open()` and `close()` also in the background.

    Args:
        config: Server and credentials.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        # Sources of the context: the client certificate, and the state of the files.
        self._certificate: bytes | None = None
        self._stamp: tuple[object, ...] | None = None
        self._check_at = -math.inf if config.secure else math.inf
        self._checking = SharedRun(self._check, "certificates")
        # Credentials of the next check, those of the last one, and its error.
        self._wanted = AuthInfo()
        self._checked: AuthInfo | None = None
        self._failure: OptionsError | TransportError | None = None
        self._kept: list[SharedRun] = []
        self._closing = asyncio.Lock()

    def open(self) -> None:
        """Allow renewals in the background, until `close()`."""
        self._kept = [self._config.credentials.keep(), self._checking]
        self._checking.keep()

    async def close(self) -> None:
        """Cancel renewals in progress that no other client needs. Idempotent.

        Concurrent callers wait for the same end.

        Cancellation:
            Ends the wait. Renewals are cancelled nevertheless.
        """
        async with self._closing:
            while self._kept:
                await self._kept.pop().release()

    async def current(self) -> RequestAuth:
        """Return the credentials and the SSL context for the next request.

        Raises:
            OptionsError: If there are no usable credentials or certificates, and no
                earlier ones are still valid.
            TransportError: If this machine is out of resources, or a renewal did not
                end in time.

        Cancellation:
            Safe: a renewal that others need continues.
        """
        info = await self._config.credentials.auth_info()
        if self._is_due(info):
            await self._wait_for_check(info)

        return RequestAuth(info, self._context)

    async def renew(self, refused: RequestAuth) -> bool:
        """Renew the credentials and certificates after the server answered 401.

        Returns:
            True if `current()` now returns something else.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        renewed = await self._config.credentials.invalidate(refused.info)
        if refused.context is None or refused.context is not self._context:
            return renewed or refused.context is not self._context

        self.reload()
        try:
            return await self.current() != refused
        except (OptionsError, TransportError) as exc:
            logger.warning("cannot renew authentication after a 401: %s", exc)
            return False

    def reload(self) -> None:
        """Recheck the files before the next request, after a TLS failure or a 401."""
        if self._config.secure:
            self._check_at = -math.inf

    def _is_due(self, info: AuthInfo) -> bool:
        if not self._config.secure:
            return False

        now = asyncio.get_running_loop().time()
        return now >= self._check_at or not self._fits(info)

    def _fits(self, info: AuthInfo) -> bool:
        """Return whether the context belongs to these credentials."""
        return self._context is not None and info.certificate == self._certificate

    def _has_checked(self, info: AuthInfo) -> bool:
        found = self._checked
        return found is not None and found.certificate == info.certificate

    async def _wait_for_check(self, info: AuthInfo) -> None:
        """Check the files, and wait for that only as long as necessary."""
        self._wanted, self._checked = info, None
        # A check in progress may be for the previous certificate.
        while not self._has_checked(info):
            if self._fits(info):
                seconds = WAIT_SECONDS - self._checking.start()
            else:
                seconds = MAX_WAIT_SECONDS

            if seconds <= 0 or not await self._checking.wait(seconds):
                break

            if not self._is_due(info):
                break

        if not self._fits(info):
            raise self._unavailable()

    async def _check(self) -> None:
        info, self._failure = self._wanted, None
        again = CHECK_SECONDS if self._config.tls.files else math.inf
        self._check_at = asyncio.get_running_loop().time() + again
        try:
            await in_thread(functools.partial(self._rebuild, info))
        except (OptionsError, OSError) as exc:
            self._failed(exc, info)
        except BaseException:
            self.reload()
            raise

        self._checked = info

    def _failed(self, exc: OptionsError | OSError, info: AuthInfo) -> None:
        if self._fits(info):
            # Perhaps only one of two files has been written yet, or both partly.
            logger.warning("cannot reload certificates, using the old ones: %s", exc)
            return

        self.reload()
        if isinstance(exc, OptionsError):
            self._failure = exc
        else:
            server, reason = self._config.server, exc.strerror or exc
            self._failure = TransportError(f"cannot prepare TLS for {server}: {reason}")

    def _unavailable(self) -> OptionsError | TransportError:
        if self._failure is None:
            return TransportError(
                f"reading the certificates for {self._config.server} took more than "
                f"{MAX_WAIT_SECONDS:g} s"
            )

        # A copy for each caller: raising an error adds traceback entries to it.
        failure = type(self._failure)(str(self._failure))
        failure.__cause__ = self._failure.__cause__
        return failure

    def _rebuild(self, info: AuthInfo) -> None:
        """Rebuild the context if its sources have changed. Runs in a thread."""
        tls = self._config.tls
        # Taken before reading: the next check sees what is written meanwhile.
        stamp = tls.stamp()
        if stamp == self._stamp and info.certificate == self._certificate:
            return

        if info.certificate is not None:
            tls = replace(
                tls,
                certificate=info.certificate,
                key=info.key,
                certificate_of=repr(self._config.credentials),
            )

        context = tls.context()
        self._context, self._certificate = context, info.certificate
        self._stamp = stamp
