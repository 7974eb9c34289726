"""A server of prepared bytes: without a socket, and always the same.

It replaces the client below `ListWatch`, so that splitting, decoding and everything above
are the real code. HTTP is not counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aioinformer.errors import TransportError
from guard.material import LISTED_VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

__all__ = ["Feed"]

PIECE_BYTES = 256 * 1024
"""Number of bytes that a client reads at once."""


class Feed:
    """Source that answers a list with pods, and a watch with chunks on request.

    Args:
        pods: Pods of the list.
        chunks: Chunks of the watch, which is silent after the last one.
        alone: True to send a chunk for each call of `go()`. False to send one in each turn
            of the loop after the first call.
    """

    def __init__(
        self, pods: list[bytes], chunks: Iterable[bytes] = (), *, alone: bool = False
    ) -> None:
        self.watched = asyncio.Event()
        """Set when a reader waits for the first chunk."""
        body = (
            b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"}'
        )
        listed = b'%b,"items":[%b]}\n' % (body % LISTED_VERSION, b",".join(pods))
        self._pieces = [
            listed[start : start + PIECE_BYTES]
            for start in range(0, len(listed), PIECE_BYTES)
        ]
        self._chunks = deque(chunks)
        self._alone = alone
        self._open = asyncio.Event()

    def go(self) -> None:
        """Send the next chunk, or all of them one after the other."""
        self._open.set()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        gzip: bool | None = None,
        accept: str = "",
    ) -> AsyncIterator[_Body]:
        """Answer a list or a watch, depending on the parameters."""
        if (params or {}).get("watch") == "true":
            yield _Body(self._next_chunk)
        else:
            pieces = deque(self._pieces)

            async def next_piece() -> bytes:
                await asyncio.sleep(0)
                return pieces.popleft() if pieces else b""

            yield _Body(next_piece)

    async def _next_chunk(self) -> bytes:
        self.watched.set()
        if not self._chunks:
            await asyncio.Event().wait()

        await self._open.wait()
        if self._alone:
            self._open.clear()

        await asyncio.sleep(0)
        return self._chunks.popleft()


class _Body:
    """`ByteStream` of one response."""

    def __init__(self, take: Callable[[], Awaitable[bytes]]) -> None:
        self._take = take
        self._closed = False

    async def read_some(self, *, patient: bool = False) -> bytes:
        if self._closed:
            raise TransportError("closed")

        return await self._take()

    def close(self) -> None:
        self._closed = True
