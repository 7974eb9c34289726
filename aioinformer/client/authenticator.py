"""`Authenticator`: what lets a request in, which is a proof and an SSL context, kept up to date.

Neither files nor SSL contexts are touched on the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from aioinformer._tasks import SharedRun, in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.client.auth.credentials import AuthInfo
from aioinformer.errors import OptionsError, TransportError

if TYPE_CHECKING:
    import ssl

    from aioinformer.client.config import ClientConfig

__all__ = ["Authenticator", "RequestAuth"]

logger = guarded_logger(__name__)

# How often files of certificates are looked at; whoever replaces them does so long
# before the old ones expire. client-go looks every five minutes.
LOOK_SECONDS = 60.0

# How long a look holds up requests while the last context can be used, and while not.
# It takes milliseconds, unless the disk hangs.
WAIT_SECONDS = 3.0
MOST_SECONDS = 30.0


class RequestAuth(NamedTuple):
    """What one request is sent with."""

    proof: AuthInfo
    context: ssl.SSLContext | None
    """What secures its connection; None for a plain one."""


class Authenticator:
    """The way in to one API server, for one event loop.

    The SSL context is built once, and again only when the proof brings another client
    certificate or a file changes. Connections belong to the context that they were
    opened with: new requests get new ones, watches stay on theirs until they end.
    Proofs and certificates are each renewed by one task, for all requests; between
    `open()` and `close()` they may be so in the background.

    Args:
        config: Which server, and who we are.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        # Of what the context was made: the proof's certificate, and the files.
        self._certificate: bytes | None = None
        self._stamp: tuple[object, ...] | None = None
        self._look_at = -math.inf if config.secure else math.inf
        self._looking = SharedRun(self._look, "certificates")
        # What the next look is for, what the last one was for, and its error.
        self._wanted = AuthInfo()
        self._looked_for: AuthInfo | None = None
        self._failure: OptionsError | TransportError | None = None
        self._kept: list[SharedRun] = []
        self._closing = asyncio.Lock()

    def open(self) -> None:
        """Let renewals go on in the background, until `close()`."""
        self._kept = [self._config.credentials.keep(), self._looking]
        self._looking.keep()

    async def close(self) -> None:
        """End the renewals under way that nobody else needs. Idempotent.

        Further callers wait for the same end.

        Cancellation:
            Ends the wait. Renewals are cancelled nevertheless.
        """
        async with self._closing:
            while self._kept:
                await self._kept.pop().release()

    async def current(self) -> RequestAuth:
        """Give what to send a request with.

        Raises:
            OptionsError: If credentials cannot be got, or certificates cannot be used,
                and there are none from before that still can.
            TransportError: If that is because this machine ran out of something, or
                nothing came in time.

        Cancellation:
            Safe: a renewal that others need goes on.
        """
        proof = await self._config.credentials.proof()
        if self._is_due(proof):
            await self._wait_for_look(proof)

        return RequestAuth(proof, self._context)

    async def renew(self, refused: RequestAuth) -> bool:
        """Look for something better after the server answered 401.

        Returns:
            True if `current()` gives something else now.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        renewed = await self._config.credentials.invalidate(refused.proof)
        if refused.context is None or refused.context is not self._context:
            return renewed or refused.context is not self._context

        self.suspect()
        try:
            return await self.current() != refused
        except (OptionsError, TransportError) as exc:
            logger.warning("no other way in was found: %s", exc)
            return False

    def suspect(self) -> None:
        """Look at the files again before the next request: TLS failed, or a 401 came."""
        if self._config.secure:
            self._look_at = -math.inf

    def _is_due(self, proof: AuthInfo) -> bool:
        if not self._config.secure:
            return False

        now = asyncio.get_running_loop().time()
        return now >= self._look_at or not self._fits(proof)

    def _fits(self, proof: AuthInfo) -> bool:
        """Return whether the context can be used with a proof."""
        return self._context is not None and proof.certificate == self._certificate

    def _has_looked_for(self, proof: AuthInfo) -> bool:
        found = self._looked_for
        return found is not None and found.certificate == proof.certificate

    async def _wait_for_look(self, proof: AuthInfo) -> None:
        """Look at the files, and wait for that only as long as it is needed."""
        self._wanted, self._looked_for = proof, None
        # A look under way may be for the certificate before.
        while not self._has_looked_for(proof):
            if self._fits(proof):
                seconds = WAIT_SECONDS - self._looking.start()
            else:
                seconds = MOST_SECONDS

            if seconds <= 0 or not await self._looking.wait(seconds):
                break

            if not self._is_due(proof):
                break

        if not self._fits(proof):
            raise self._why_none()

    async def _look(self) -> None:
        proof, self._failure = self._wanted, None
        again = LOOK_SECONDS if self._config.tls.files else math.inf
        self._look_at = asyncio.get_running_loop().time() + again
        try:
            await in_thread(functools.partial(self._rebuild, proof))
        except (OptionsError, OSError) as exc:
            self._failed(exc, proof)
        except BaseException:
            self.suspect()
            raise

        self._looked_for = proof

    def _failed(self, exc: OptionsError | OSError, proof: AuthInfo) -> None:
        if self._fits(proof):
            # Perhaps one file of two is written, or both by half.
            logger.warning("keeping the last certificates: %s", exc)
            return

        self.suspect()
        if isinstance(exc, OptionsError):
            self._failure = exc
        else:
            server, reason = self._config.server, exc.strerror or exc
            self._failure = TransportError(
                f"cannot prepare TLS for {server}: {reason}. Trying again may help."
            )

    def _why_none(self) -> OptionsError | TransportError:
        if self._failure is None:
            return TransportError(
                f"the certificates for {self._config.server} were not read within "
                f"{MOST_SECONDS:g} s. Trying again may help."
            )

        # One for each who asks: an error that is raised collects their tracebacks.
        failure = type(self._failure)(str(self._failure))
        failure.__cause__ = self._failure.__cause__
        return failure

    def _rebuild(self, proof: AuthInfo) -> None:
        """Build the context anew if it would be another one; runs in a thread."""
        tls = self._config.tls
        # Before they are read: what is written meanwhile is seen the next time.
        stamp = tls.stamp()
        if stamp == self._stamp and proof.certificate == self._certificate:
            return

        if proof.certificate is not None:
            tls = replace(
                tls,
                certificate=proof.certificate,
                key=proof.key,
                certificate_of=repr(self._config.credentials),
            )

        context = tls.context()
        self._context, self._certificate = context, proof.certificate
        self._stamp = stamp
