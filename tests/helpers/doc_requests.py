"""Requests of the documentation: `curl` commands, and what they show."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from typing import TYPE_CHECKING

from doc_sessions import answers

if TYPE_CHECKING:
    import aiohttp


async def listening(port: int) -> None:
    """Wait until a program listens on a port."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            await writer.wait_closed()
            return


async def curl(http: aiohttp.ClientSession, command: str, shown: str) -> None:
    """Send the request of a curl command, and read until the response is as shown.

    Raises:
        AssertionError: The response ends, or nothing more comes, before it is as shown.
    """
    program, *words = shlex.split(command)
    assert program == "curl"
    headers = {}
    while len(words) > 1:
        option = words.pop(0)
        assert option in {"-b", "-N"}
        if option == "-b":
            headers["Cookie"] = words.pop(0)

    text = ""
    async with http.get(words[0], headers=headers) as answer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                async for chunk in answer.content.iter_any():
                    text += chunk.decode()
                    if answers(text, shown):
                        return

    raise AssertionError(f"{command}: {text}")
