"""`Credentials`: what goes into the Authorization header, and how it is renewed."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path

from aioinformer.errors import OptionsError

__all__ = ["Credentials"]

logger = logging.getLogger(__name__)

# Service account tokens live for an hour and the kubelet replaces the file when 80 % of
# that is over, so a minute is early enough; client-go uses the same.
REREAD_SECONDS = 60.0


class Credentials:
    """Who we are: a bearer token, a file that holds one, a name with password, nobody.

    A token file is read again, off the loop, when what was read is older than 60 s and
    after the server refused it. While it cannot be read the last token stays in use.
    Many requests at once cause one read. Tokens never show in `repr()` or in errors.

    Args:
        token: A bearer token. White space around it is removed. With `token_file` it is
            used only for as long as the file could not be read once.
        token_file: The file that holds the token.
        username: For basic authentication, which API servers know no more, but proxies
            in front of them do. No effect with a token.
        password: Belongs to `username`.

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
    ) -> None:
        self._file = Path(token_file) if token_file is not None else None
        self._read_at: float | None = None
        self._header = ""
        # Of the loop in which they are used; another one, later, gets its own.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

        if token.strip():
            self._header = _bearer(token, "the token")
        elif username and self._file is None:
            pair = base64.b64encode(f"{username}:{password}".encode())
            self._header = f"Basic {pair.decode()}"

    async def header(self) -> str:
        """Give the value of the Authorization header; empty for an anonymous client.

        Raises:
            OptionsError: If the token file holds no token and none is known from before.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._file is not None and self._is_due():
            async with self._reading():
                if self._is_due():
                    await self._read(self._file)

        return self._header

    async def invalidate(self, refused: str) -> bool:
        """Look for something better after the server answered 401.

        Args:
            refused: The header that the refused request had. If another request has
                renewed it meanwhile, nothing is read.

        Returns:
            True if `header()` gives something else now, so that asking again makes
            sense.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._file is not None:
            async with self._reading():
                if self._header == refused:
                    await self._read(self._file)

        return self._header != refused

    def _reading(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock = loop, asyncio.Lock()
            self._read_at = None

        return self._lock

    def _is_due(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._read_at is None or loop is not self._loop:
            return True  # times of another loop say nothing here

        return loop.time() - self._read_at >= REREAD_SECONDS

    async def _read(self, file: Path) -> None:
        try:
            text = await asyncio.to_thread(file.read_text)
            self._header = _bearer(text, f"the token in {file}")
        except (OSError, UnicodeDecodeError) as exc:
            self._keep_or_raise(file, str(exc))
        except OptionsError as exc:
            self._keep_or_raise(file, str(exc))

        self._read_at = asyncio.get_running_loop().time()

    def _keep_or_raise(self, file: Path, problem: str) -> None:
        if not self._header:
            raise OptionsError(
                f"cannot read a token from {file}: {problem}. Check that the file "
                "exists, that this process may read it, and that it holds a token."
            )

        logger.warning("keeping the last token: cannot read %s: %s", file, problem)

    def __repr__(self) -> str:
        if self._file is not None:
            return f"<Credentials token_file={str(self._file)!r}>"

        return f"<Credentials {self._header.partition(' ')[0].lower() or 'anonymous'}>"


def _bearer(token: str, what: str) -> str:
    token = token.strip()
    if not token:
        raise OptionsError(f"{what} is empty")

    # Anything else would be refused by the HTTP library, with the token in its error.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise OptionsError(f"{what} has characters that no token can have")

    return f"Bearer {token}"
