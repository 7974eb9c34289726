"""`keep_open()`: keeps a client entered until its last user has ended."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from aioinformer._tasks import finish
from aioinformer._user_code import guarded_logger
from aioinformer.backoff import Backoff, Failure
from aioinformer.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.client.client import Client

__all__ = ["keep_open"]

logger: Final = guarded_logger(__name__)

# Closing takes 5 s at most; others may be closing and entering before.
_LEAVE_SECONDS = 30.0


@dataclass(slots=True)
class _Share:
    """Users of a client on one loop."""

    loop: asyncio.AbstractEventLoop
    users: int = 0
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


_SHARES: WeakKeyDictionary[Client, _Share] = WeakKeyDictionary()


@asynccontextmanager
async def keep_open(client: Client) -> AsyncIterator[None]:
    """Keep a client entered during the block.

    A client that its owner has entered is neither entered nor closed. Otherwise the
    first block enters the client, and the last one closes it. Local problems that
    prevent entering, such as a full disk, are logged and retried with backoff.

    Raises:
        OptionsError: If there is no usable configuration.

    Cancellation:
        Deferred until a client that was entered here is closed: a few seconds at most.
    """
    share = _share_of(client)
    async with share.changing:
        ours = share.users > 0 or not client.entered
        if ours and not share.users:
            await _enter(client)

        share.users += ours

    try:
        yield
    finally:
        if ours:
            await finish(_leave(share, client), within_seconds=_LEAVE_SECONDS)


def _share_of(client: Client) -> _Share:
    loop = asyncio.get_running_loop()
    share = _SHARES.get(client)
    if share is None or share.loop is not loop:
        share = _SHARES[client] = _Share(loop)

    return share


async def _enter(client: Client) -> None:
    loop = asyncio.get_running_loop()
    backoff = Backoff()
    while True:
        backoff.begin(loop.time())
        try:
            return await client.start()
        except (TransportError, OSError) as exc:
            wait = backoff.end(loop.time(), Failure.OTHER)
            logger.warning(
                "cannot enter %s, next attempt in %.1f s: %s", client, wait, exc
            )
            await asyncio.sleep(wait)


async def _leave(share: _Share, client: Client) -> None:
    async with share.changing:
        share.users -= 1
        if not share.users:
            await client.close()
