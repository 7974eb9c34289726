"""Entering a client together: the first enters it, and the last leaves it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.client.client import Client

__all__ = ["entered_together"]


@dataclass(slots=True)
class _Share:
    users: int = 0
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


_SHARES: WeakKeyDictionary[Client, _Share] = WeakKeyDictionary()


@asynccontextmanager
async def entered_together(client: Client) -> AsyncIterator[None]:
    """Have a client entered for the length of a block.

    One that its owner has entered is left alone. One that nobody has entered is entered
    with the first block, and left with the last.

    Raises:
        OptionsError: If there is no usable configuration to enter it with.

    Cancellation:
        Safe: what was entered is left again.
    """
    share = _SHARES.setdefault(client, _Share())
    async with share.changing:
        ours = share.users > 0 or not client.entered
        if ours and not share.users:
            await client.start()

        share.users += ours

    try:
        yield
    finally:
        if ours:
            share.users -= 1
            if not share.users:
                async with share.changing:
                    if not share.users:
                        await client.close()
