"""docs/recording.md: its programs and commands work, with the output that it shows."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import prometheus_client  # noqa: F401 - it reads files when it is imported
import pytest
from click import Group
from doc_blocks import blocks_of, broken_links, said
from doc_sessions import answers
from informer_helpers import running
from processes import ROOT

from aioinformer import Manager
from aioinformer.cli import apiserver, log
from aioinformer.cli.commands import aioinformer as command_line
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.record import RecordOptions, record
from aioinformer.model.resources import PODS
from aioinformer.recording import replay
from aioinformer.recording.history import History
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

PAGE = ROOT / "docs" / "recording.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROGRAM, LAST, REPLAYED = blocks_of(TEXT, "python")
RECORD, LS, SHOW, GREP, DIFF, SERVE = (
    it for block in blocks_of(TEXT, "console") for it in said(block)
)
pytestmark = [pytest.mark.realtime, pytest.mark.looptime(False)]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        server.create(PODS, {"metadata": {"name": "web-0"}}, namespace="shop")
        yield server


def parameters(command: str) -> dict[str, Any]:
    """Return the options of a command as click parses them."""
    program, *arguments = command.split()
    assert program == "aioinformer"
    found: Any = command_line
    while isinstance(found, Group):
        found = found.commands[arguments.pop(0)]

    parsed: dict[str, Any] = found.make_context(found.name, arguments).params
    return parsed


def change(server: APIServer, status: dict[str, Any]) -> None:
    server.patch(PODS, "web-0", {"status": status}, namespace="shop")


async def incident(server: APIServer) -> None:
    """Make the changes of the page."""
    await asyncio.sleep(0.1)
    change(server, {"phase": "Running"})
    await asyncio.sleep(0.1)
    change(server, {"phase": "Failed", "reason": "Evicted"})
    await asyncio.sleep(0.1)
    server.delete(PODS, "web-0", namespace="shop")
    server.create(PODS, {"metadata": {"name": "web-1"}}, namespace="shop")
    await asyncio.sleep(0.1)
    server.patch(PODS, "web-1", {"status": {"phase": "Running"}}, namespace="shop")
    server.patch(PODS, "web-1", {"status": {"phase": "Failed"}}, namespace="shop")


async def recorded(server: APIServer, path: Path) -> None:
    """Run the command that records, for as long as the incident takes."""
    typed = parameters(RECORD[0])
    assert (typed["seconds"], typed["file"]) == (3600, "incident.alog")
    options = RecordOptions(
        resources=typed["resources"],
        file=str(path),
        namespaces=typed["namespaces"],
        seconds=1.0,
    )
    async with running(incident(server)):
        assert await record(options, ConnectionOptions(server=server.url)) == 0


async def test_commands_print_what_the_page_shows(
    server: APIServer, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "incident.alog"
    await recorded(server, path)
    shown = capsys.readouterr().out.replace(str(path), "incident.alog")
    assert answers(shown, RECORD[1]), shown

    def printed(command: str) -> Iterable[str | bytes]:
        typed = parameters(command)
        files = typed.get("files") or (typed["file"],)
        options = log.LogOptions(files=files)
        match command.split()[2]:
            case "ls":
                return log.ls(options)
            case "show":
                return log.show(options, typed["key"])
            case "grep":
                return log.grep(options, typed["pattern"])
            case _:
                return log.diff(options)

    for command, output in (LS, SHOW, GREP, DIFF):
        lines = await asyncio.to_thread(list, printed(command))
        found = "".join(f"{it!s}\n" for it in lines)
        assert answers(found, output), (command, found)


async def test_command_says_that_it_continues_a_recording(
    server: APIServer, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "it.alog"
    options = RecordOptions(resources=("pods",), file=str(path), seconds=0.1)
    outputs = []
    for _ in range(2):
        assert await record(options, ConnectionOptions(server=server.url)) == 0
        outputs.append(capsys.readouterr().out)

    line = f"{path} exists, and is continued.\n"
    assert [it.startswith(line) for it in outputs] == [False, True]


async def test_recorded_pods_are_replayed_to_the_handlers_of_the_page(
    server: APIServer, tmp_path: Path
) -> None:
    path = tmp_path / "incident.alog"
    await recorded(server, path)
    names: dict[str, Any] = {"asyncio": asyncio}
    exec(REPLAYED.text, names)
    assert await names["failed_pods"](path) == ["shop/web-0", "shop/web-1"]


async def test_recording_is_served(
    server: APIServer, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "incident.alog"
    await recorded(server, path)
    capsys.readouterr()
    typed = parameters(SERVE[0])
    options = apiserver.APIServerOptions(
        port=typed["port"],
        replay=(str(path),),
        speed=typed["speed"],
        seconds=1.0,
    )
    assert await apiserver.serve(options) == 0
    shown = capsys.readouterr().out.replace(str(path), "incident.alog")
    assert answers(shown, SERVE[1] + "Stopped after ... s: 7 changes made.\n"), shown


async def test_program_records_its_informers(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(PROGRAM.text, names)
    async with running(names["main"](server.client())):
        await server.until(lambda: any(it.verb == "watch" for it in server.requests))
        change(server, {"phase": "Running"})
        await asyncio.sleep(0.2)

    async with replay("pods.alog") as played:
        assert [it.name for it in played.informers] == ["pods in shop"]
        while await played.step() is not None:
            pass

        assert played.ended


async def test_last_minutes_are_saved_at_a_signal_and_served(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(LAST.text, names)
    manager = Manager(server.client())
    pods = manager.informer(PODS)

    async def reconcile(request: object, ctx: object) -> None:
        pass

    serve = manager.serve
    monkeypatch.setattr(
        manager,
        "serve",
        lambda port, recorder: serve(0, host="127.0.0.1", recorder=recorder),
    )
    async with running(names["run"](manager, pods, reconcile)):
        async with asyncio.timeout(10):
            while not pods.has_synced:
                await asyncio.sleep(0.01)

        change(server, {"phase": "Running"})
        await asyncio.sleep(0.2)
        port = manager._serving.port  # type: ignore[union-attr]
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{port}/debug/recording") as response,
        ):
            assert response.status == 200
            body = await response.read()

        os.kill(os.getpid(), signal.SIGUSR2)
        await asyncio.sleep(0.3)

    def kinds(path: Path) -> list[str]:
        return [it.kind for it in History([path]).steps() if it.obj is not None]

    def saved() -> list[list[str]]:
        (tmp_path / "downloaded.alog").write_bytes(body)
        return [kinds(it) for it in sorted(tmp_path.iterdir())]

    assert await asyncio.to_thread(saved) == [["LISTED", "MODIFIED"]] * 2
    with suppress(ValueError):
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR2)


def test_links_resolve() -> None:
    assert broken_links(PAGE) == []
    assert {it.language for it in blocks_of(TEXT)} == {"console", "python", "text"}
