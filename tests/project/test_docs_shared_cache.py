"""docs/shared-cache.md: its programs, commands and manifest work.

All of them run in one test, beside each other, as on one machine.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from doc_blocks import blocks_of, broken_links, said
from doc_fragments import place, run_fragment
from doc_sessions import answers
from ports import free_port
from processes import ROOT, in_real_time, start

from aioinformer.model.resources import DAEMON_SETS, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "shared-cache.md"
TEXT = PAGE.read_text(encoding="utf-8")
WEB, UNCONFIRMED, CELERY = blocks_of(TEXT, "python")
DIRECTORY = "/var/cache/shop"


def test_links_resolve() -> None:
    assert broken_links(PAGE) == []
    assert {it.language for it in blocks_of(TEXT)} == {"console", "python", "yaml"}


async def test_manifest_is_valid() -> None:
    (block,) = blocks_of(TEXT, "yaml")
    async with APIServer(auto_namespaces=True) as server, server.client() as client:
        await client.create(DAEMON_SETS, yaml.safe_load(block.text))


async def test_unconfirmed_read_finds_the_objects() -> None:
    async with place() as names:
        await run_fragment(UNCONFIRMED, names)

    assert [it.name for it in names["found"]] == ["web-0", "web-1"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"KUBECONFIG": str(tmp_path / "config"), "PYTHONPATH": f"{tmp_path}:{ROOT}"}


def program(name: str, text: str, folder: Path) -> str:
    """Write a program of the page that uses another directory; return its path."""
    moved = text.replace(DIRECTORY, str(folder / "cache"))
    assert moved != text
    path = folder / name
    path.write_text(moved)
    return str(path)


def requests_of(server: APIServer) -> list[str]:
    return sorted(it.verb for it in server.requests if it.resource == "pods")


async def ready(http: aiohttp.ClientSession) -> None:
    while True:
        try:
            async with http.get("/readyz") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientConnectionError:
            pass

        await asyncio.sleep(0.05)


@pytest.mark.parametrize("_", [pytest.param(None, marks=in_real_time)])
async def test_workers_and_commands_share_a_cache(
    environment: dict[str, str], tmp_path: Path, _: Any
) -> None:
    program("web.py", WEB.text, tmp_path)
    more = """
start_informers()
print(len(names_in("shop")), "pods", flush=True)
stop_informers()
print("ended" if not thread.is_alive() else "runs")
"""
    tasks = program("tasks.py", CELERY.text + more, tmp_path)
    port = str(free_port())
    web = ("-m", "uvicorn", "--workers", "2", "web:app", "--port", port)
    async with APIServer(auto_namespaces=True) as server:
        server.kubeconfig(tmp_path / "config")
        for name in ("web-0", "web-1", "db-0"):
            server.create(PODS, {"metadata": {"name": name}}, namespace="shop")

        async with (
            start(*web, environment=environment) as app,
            app.interrupted(),
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        ):
            await ready(http)
            async with http.get("/pods/shop") as response:
                assert (await response.text()).count('"kind":"Pod"') == 3

            async with start(tasks, environment=environment) as process:
                assert await process.line("pods") == "3 pods"
                assert await process.line("ended") == "ended"
                assert (await process.end()).status == 0

            assert requests_of(server) == ["list", "watch"]
            await run_commands(tmp_path / "cache", environment)


async def run_commands(cache: Path, environment: dict[str, str]) -> None:
    (informer,) = os.listdir(cache)
    (block,) = blocks_of(TEXT, "console")
    for command, shown in said(block):
        program, *arguments = shlex.split(
            command.replace("pods-...", informer).replace(DIRECTORY, str(cache))
        )
        assert program == "aioinformer"
        async with start(
            "-m", "aioinformer", *arguments, environment=environment
        ) as process:
            end = await process.end()

        assert end.err == ""
        assert answers(end.out, shown), end.out
