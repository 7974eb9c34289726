"""`Credentials`: the proof of who we are, and when it is renewed."""

from __future__ import annotations

import asyncio
import base64
import math
from pathlib import Path
from typing import TYPE_CHECKING

from aioinformer._user_code import guarded_logger
from aioinformer.client.proof import Proof, bearer
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from aioinformer.client.proof import ProofSource

__all__ = ["Credentials"]

logger = guarded_logger(__name__)

# Service account tokens live for an hour and the kubelet replaces the file when 80 % of
# that is over, so a minute is early enough; client-go uses the same.
REREAD_SECONDS = 60.0

# How soon a renewal that failed is tried again, while the last proof can be used.
RETRY_SECONDS = 10.0


class Credentials:
    """Who we are: a token, a file or a source that gives one, a name, or nobody.

    What comes from a file or a source is renewed, off the loop, before it expires and
    after the server refused it; a token file is read again after 60 s. While that fails
    the last proof stays in use, for as long as it is valid. Many requests at once cause
    one renewal, and share its failure. Secrets never show in `repr()` or in errors.

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
        source: ProofSource | None = None,
    ) -> None:
        self._proof = Proof()
        self._kind, self._words = "anonymous", "none"
        self._source = source
        if token.strip():
            self._kind, self._words = "bearer", "a token"
            self._proof = Proof(authorization=bearer(token, "the token"))
        elif username and token_file is None and source is None:
            pair = base64.b64encode(f"{username}:{password}".encode())
            self._kind, self._words = "basic", "a user name and password"
            self._proof = Proof(authorization=f"Basic {pair.decode()}")

        if token_file is not None:
            self._kind = f"token_file={str(token_file)!r}"
            self._words = f"the token in {token_file}"
            self._source = _TokenFile(Path(token_file)).proof
        elif source is not None:
            owner = getattr(source, "__self__", source)
            self._kind = f"source={owner!r}"
            self._words = str(owner)

        # Of the loop in which they are used; another one, later, begins anew.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._due_at = -math.inf if self._source is not None else math.inf
        self._valid_until = math.inf if self._proof != Proof() else -math.inf
        # How many renewals have ended, and what the last one failed with.
        self._renewals = 0
        self._failure = ""

    async def proof(self) -> Proof:
        """Give what proves who we are, renewed if it is time for that.

        Raises:
            OptionsError: If there is none, and none from before that is still valid.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._source is not None and self._is_due():
            await self._renew(self._source)
            if self._failure and not self._is_valid():
                raise OptionsError(self._failure)

        return self._proof

    async def invalidate(self, refused: Proof) -> bool:
        """Look for something better after the server answered 401.

        Args:
            refused: What the refused request had. If another request has renewed it
                meanwhile, nothing is done.

        Returns:
            True if `proof()` gives something else now, so that asking again makes
            sense.

        Cancellation:
            Safe: nothing is lost, call again.
        """
        if self._source is not None and self._proof == refused:
            await self._renew(self._source)

        return self._proof != refused

    async def _renew(self, source: ProofSource) -> None:
        """Renew it, unless somebody did while this waited for its turn."""
        lock, seen = self._lock_here(), self._renewals
        async with lock:
            if self._renewals == seen:
                await self._renew_now(source)

    async def _renew_now(self, source: ProofSource) -> None:
        try:
            proof = await source()
        except OptionsError as exc:
            self._failed(str(exc))
        else:
            now = asyncio.get_running_loop().time()
            self._proof, self._failure = proof, ""
            self._due_at = now + proof.fresh_seconds
            self._valid_until = now + proof.valid_seconds

        self._renewals += 1

    def _failed(self, failure: str) -> None:
        self._failure = failure
        if self._is_valid():
            self._due_at = asyncio.get_running_loop().time() + RETRY_SECONDS
            logger.warning("keeping the last credentials: %s", failure)

    def _lock_here(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock = loop, asyncio.Lock()
            # Times of another loop say nothing here.
            self._due_at = -math.inf
            self._valid_until = math.inf if self._proof != Proof() else -math.inf

        return self._lock

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

    async def proof(self) -> Proof:
        try:
            text = await asyncio.to_thread(self._file.read_text)
            header = bearer(text, "the token")
        except (OSError, UnicodeDecodeError, OptionsError) as exc:
            # Not all errors are shown: that of decoding holds what was decoded.
            problem = "it is no text" if isinstance(exc, UnicodeDecodeError) else exc
            raise OptionsError(
                f"cannot read a token from {self._file}: {problem}. Check that the "
                "file exists, that this process may read it, and that it holds a token."
            ) from None

        return Proof(authorization=header, fresh_seconds=REREAD_SECONDS)
