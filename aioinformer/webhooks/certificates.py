"""`Certificate`: a TLS certificate and its key, loaded again when their files change."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn

__all__ = ["Certificate"]

logger: Final = guarded_logger(__name__)

CHECK_SECONDS = 10.0
"""Interval at which the files are checked."""


class Certificate:
    """TLS certificate and key of a server, from two files.

    Each handshake uses the last complete pair: a new pair is loaded separately, and
    replaces the old one in one step. One that cannot be loaded is logged, and the old
    one stays.

    Args:
        certfile: File of the certificate chain, as PEM.
        keyfile: File of the private key, as PEM.
    """

    def __init__(self, certfile: Path, keyfile: Path) -> None:
        self._files = certfile, keyfile
        self._loaded: tuple[bytes, ...] = ()
        self._refused: tuple[bytes, ...] = ()
        self._current: ssl.SSLContext | None = None

    async def load(self) -> ssl.SSLContext:
        """Load the files, and return a context that follows their changes.

        Raises:
            OptionsError: If they are missing or invalid.

        Cancellation:
            Safe.
        """
        try:
            self._loaded = self._refused = ()
            while not await in_thread(self._changed):
                pass  # the files are being written
        except (OSError, ssl.SSLError) as exc:
            raise OptionsError(
                f"cannot load the certificate of the webhook server from "
                f"{self._files[0]} and {self._files[1]}: {_reason(exc)}"
            ) from exc

        # Of this context only the callback matters: it is called for each handshake, also
        # without a server name.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sni_callback = self._choose
        return context

    async def follow(self) -> NoReturn:
        """Check the files regularly. Cancellation: safe."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Load the files if they have changed. Cancellation: safe."""
        try:
            changed = await in_thread(self._changed)
        except (OSError, ssl.SSLError) as exc:
            # Perhaps one file is written already, and the other one is not yet.
            logger.warning(
                "webhook server: certificate not reloaded, the old one stays in use "
                "(file=%s, error=%s)",
                self._files[0],
                _reason(exc),
            )
        else:
            if changed:
                logger.info("webhook server: certificate reloaded (%s)", self._files[0])

    def _choose(self, connection: Any, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._current

    def _changed(self) -> bool:
        content = self._content()
        if content in {self._loaded, self._refused}:
            return False

        self._refused = content  # logged once
        context = _new_context(*self._files)
        if self._content() != content:
            self._refused = ()
            return False

        self._loaded, self._current = content, context
        return True

    def _content(self) -> tuple[bytes, ...]:
        return tuple(it.read_bytes() for it in self._files)


def _new_context(certfile: Path, keyfile: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A key with a passphrase would make OpenSSL ask for it on the terminal.
    context.load_cert_chain(certfile, keyfile, password=_no_passphrase)
    return context


def _no_passphrase() -> str:
    return ""


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "not a certificate and key in PEM format"
        return reason.lower().replace("_", " ")

    return error.strerror or type(error).__name__
