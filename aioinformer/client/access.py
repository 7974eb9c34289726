"""`Access`: what lets a request in, which is a proof and an SSL context, kept up to date.

Neither files nor SSL contexts are touched on the event loop.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from aioinformer._user_code import guarded_logger
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    import ssl

    from aioinformer.client.config import ClientConfig
    from aioinformer.client.proof import Proof

__all__ = ["Access", "Ticket"]

logger = guarded_logger(__name__)

# How often files of certificates are looked at; whoever replaces them does so long
# before the old ones expire. client-go looks every five minutes.
LOOK_SECONDS = 60.0


class Ticket(NamedTuple):
    """What one request is sent with."""

    proof: Proof
    context: ssl.SSLContext | None
    """What secures its connection; None for a plain one."""


class Access:
    """The way in to one API server, for one event loop.

    The SSL context is built once, and again only when the proof brings another client
    certificate or a file changes. Connections belong to the context that they were
    opened with: new requests get new ones, watches stay on theirs until they end.

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
        self._looking = asyncio.Lock()

    async def ticket(self) -> Ticket:
        """Give what to send a request with.

        Raises:
            OptionsError: If credentials cannot be got, or certificates cannot be used,
                and there are none from before that still can.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        proof = await self._config.credentials.proof()
        if self._is_due(proof):
            async with self._looking:
                if self._is_due(proof):
                    await self._look(proof)

        return Ticket(proof, self._context)

    async def renew(self, refused: Ticket) -> bool:
        """Look for something better after the server answered 401.

        Returns:
            True if `ticket()` gives something else now.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        renewed = await self._config.credentials.invalidate(refused.proof)
        if refused.context is None or refused.context is not self._context:
            return renewed or refused.context is not self._context

        self.suspect()
        try:
            return await self.ticket() != refused
        except OptionsError as exc:
            logger.warning("no other way in was found: %s", exc)
            return False

    def suspect(self) -> None:
        """Look at the files again before the next request: TLS failed, or a 401 came."""
        if self._config.secure:
            self._look_at = -math.inf

    def _is_due(self, proof: Proof) -> bool:
        if not self._config.secure:
            return False

        now = asyncio.get_running_loop().time()
        return now >= self._look_at or proof.certificate != self._certificate

    async def _look(self, proof: Proof) -> None:
        again = LOOK_SECONDS if self._config.tls.files else math.inf
        self._look_at = asyncio.get_running_loop().time() + again
        try:
            await asyncio.to_thread(self._rebuild, proof)
        except OptionsError as exc:
            if self._context is None or proof.certificate != self._certificate:
                self.suspect()
                raise

            # Perhaps one file of two is written, or both by half.
            logger.warning("keeping the last certificates: %s", exc)
        except BaseException:
            self.suspect()
            raise

    def _rebuild(self, proof: Proof) -> None:
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
