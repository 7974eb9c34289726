"""Informers with a store on disk, in several processes: kills and takeovers."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from processes import in_real_time, start

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = in_real_time

WORKER = """
import asyncio, sys
from aioinformer import Client, SharedInformerFactory

async def main(url, token, path):
    client = Client.from_url(url, token=token)
    factory = SharedInformerFactory(client, cache_dir=path)
    maps = factory.informer("v1", "configmaps", namespace="default")
    async with factory, maps.events() as events:
        await maps.wait_synced(timeout=30)
        print("role", maps.status.cache.role, flush=True)
        async for event in events:
            name = (event.new if hasattr(event, "new") else event.obj).name
            print(type(event).__name__, name, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_reader_takes_over_from_a_killed_writer_within_two_seconds(
    tmp_path: Path,
) -> None:
    async with APIServer() as server:
        server.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
        arguments = ("-c", WORKER, server.url, server.token or "")
        async with start(*arguments, str(tmp_path)) as writer:
            await writer.line("role writer")
            async with start(*arguments, str(tmp_path)) as reader:
                await reader.line("role reader")
                await reader.line("Added a")
                server.requests.clear()
                writer.interrupt(signal.SIGKILL)
                await writer.end()
                began = asyncio.get_running_loop().time()
                server.create(CONFIG_MAPS, {"metadata": {"name": "b"}})
                await reader.line("Added b")
                assert asyncio.get_running_loop().time() - began < 2
                made = [
                    it.verb for it in server.requests if it.resource == "configmaps"
                ]
                assert made == ["watch"]
                reader.interrupt(signal.SIGINT)
                await reader.end()
