"""The live table, as a process in a terminal, and in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, cast

import pytest
from rich.cells import cell_len
from terminals import InTerminal, in_terminal

from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.live_table import LiveTable
from aioinformer.cli.watch import WatchCommandOptions, watch
from aioinformer.cli.workload import Workload, objects_for
from aioinformer.errors import NotSynced
from aioinformer.informer import SharedInformerFactory
from aioinformer.model.resources import PODS
from aioinformer.tables.columns import Columns
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from rich.text import Text

    from aioinformer.cli.screen import Screen


CTRL_C, CTRL_Z, PAGE_DOWN = b"\x03", b"\x1a", b"\x1b[6~"

ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"
GREEN = b"\x1b[1;32m"


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


def create(server: APIServer, *names: str, namespace: str = "shop") -> None:
    for name in names:
        server.create(PODS, {"metadata": {"name": name}}, namespace=namespace)


# ---------------------------------------------------------------- as a process


async def shown(terminal: InTerminal, word: str) -> list[str]:
    return await terminal.shows(lambda lines: any(word in it for it in lines))


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_live_table_marks_changes_until_ctrl_c(server: APIServer) -> None:
    create(server, "web-1", "web-0")
    async with in_terminal("watch", "po", "--server", server.url) as terminal:
        title, head, *rows = await shown(terminal, "web-1")
        assert title.startswith("pods in all namespaces   synced   ")
        assert head.replace("▲", "").split() == [
            "NAMESPACE",
            "NAME",
            "READY",
            "STATUS",
            "RESTARTS",
            "AGE",
        ]
        assert [row.split()[1] for row in rows[:-1] if row] == ["web-0", "web-1"]

        create(server, "web-2")
        assert (await shown(terminal, "+ shop        web-2"))[4].startswith("+ shop")
        server.delete(PODS, "web-0", namespace="shop")
        await shown(terminal, "- shop        web-0")
        await terminal.shows(lambda lines: not any("web-0" in it for it in lines))

        terminal.press(CTRL_C)
        assert await terminal.end() == 130

    assert GREEN in terminal.written
    assert b"Traceback" not in terminal.written
    last = terminal.written.rpartition(LEFT)[2].decode()
    assert last == "pods in all namespaces: 2 objects, 2 events.\r\n"


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_keys_scroll_sort_filter_and_quit(server: APIServer) -> None:
    create(server, *(f"web-{number:02}" for number in range(60)))
    create(server, "db-0", namespace="data")
    async with in_terminal("watch", "po", "--server", server.url) as terminal:
        before = terminal.settings
        await shown(terminal, "1-21 of 61")
        terminal.press(PAGE_DOWN)
        await shown(terminal, "22-42 of 61")
        terminal.press(b"s")
        assert (await shown(terminal, "sort: NAME ↑"))[2].split()[1] == "db-0"
        terminal.press(b"r")
        assert (await shown(terminal, "sort: NAME ↓"))[2].split()[1] == "web-59"
        terminal.press(b"/data\r")
        screen = await shown(terminal, "filter: data")
        assert [row.split()[:2] for row in screen[2:-1] if row] == [["data", "db-0"]]
        assert "db-0" in screen[2]

        terminal.press(b"q")
        assert await terminal.end() == 0
        assert terminal.settings == before != terminal.raw_settings

    last = terminal.written.rpartition(LEFT)[2].decode()
    assert last == "pods in all namespaces: 61 objects, 0 events.\r\n"


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_live_table_of_thousands_of_changing_pods_stays_in_place(
    server: APIServer,
) -> None:
    workload = Workload(server, objects=objects_for(pods=2000), changes_per_second=0)
    workload.populate()
    arguments = ("watch", "pods", "-o", "wide", "--server", server.url)
    async with in_terminal(*arguments) as terminal:
        await shown(terminal, "1-21 of 2,000")
        terminal.press(b"S")
        await shown(terminal, "sort: last change")
        for _ in range(3):
            for _ in range(40):
                workload.change()

            before = terminal.lines
            screen = await terminal.shows(lambda now, was=before: now != was)  # type: ignore[misc]
            assert screen[0].startswith("pods in all")
            assert screen[1].startswith("  NAMESPACE  NAME ")
            assert "q quit" in screen[-1]

    assert terminal.written.count(ENTERED) == 1


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_live_table_follows_the_size_of_the_terminal(server: APIServer) -> None:
    create(server, *(f"web-{number:02}" for number in range(40)))
    async with in_terminal("watch", "po", "--server", server.url) as terminal:
        await shown(terminal, "1-21 of 40")

        terminal.resize(100, 50)
        await terminal.shows(lambda lines: lines[-1].startswith("q quit"))
        assert any("web-39" in it for it in terminal.lines)

        terminal.resize(30, 10)
        screen = await shown(terminal, "1-7 of 40")
        assert "RESTARTS" not in screen[1], "the last columns are left out"


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_live_table_restores_the_terminal_while_suspended(
    server: APIServer,
) -> None:
    create(server, "web-0")
    arguments = ("watch", "po", "--server", server.url)
    async with in_terminal(*arguments, environment={"NO_COLOR": "1"}) as terminal:
        await shown(terminal, "web-0")
        terminal.press(CTRL_Z)
        await terminal.shows(lambda _: LEFT in terminal.written)
        create(server, "web-1")
        assert terminal.settings != terminal.raw_settings

        await terminal.resume()
        await shown(terminal, "+ shop        web-1")
        assert terminal.written.count(ENTERED) == 2
        terminal.press(b"/web-1")
        await terminal.shows(lambda lines: not any("web-0" in it for it in lines))

    assert GREEN not in terminal.written


# ---------------------------------------------------------------- in this process


async def watched(
    server: APIServer, monkeypatch: pytest.MonkeyPatch, *, token: str = "", **more: Any
) -> tuple[bytes, BaseException | None]:
    """Watch for a second with a terminal as stdout; return its output and its error."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    options = WatchCommandOptions(resource="pods", seconds=1, **more)
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as stdout, contextlib.redirect_stdout(stdout):
        target = ConnectionOptions(server=server.url, token=token or None)
        results = await asyncio.gather(watch(options, target), return_exceptions=True)
        stdout.write("end")

    written = b""
    while not written.endswith(b"end"):
        written += os.read(master, 65536)

    os.close(master)
    (error,) = (it if isinstance(it, BaseException) else None for it in results)
    return written.removesuffix(b"end"), error


@pytest.mark.parametrize(
    ("options", "term", "live"),
    [
        pytest.param({}, "xterm", True, id="terminal"),
        pytest.param({"output": "wide"}, "xterm", True, id="wide"),
        pytest.param({"plain": True}, "xterm", False, id="plain"),
        pytest.param({"output": "name"}, "xterm", False, id="names"),
        pytest.param({}, "dumb", False, id="dumb-terminal"),
    ],
)
async def test_watch_shows_lines_unless_the_table_can_be_live(
    server: APIServer,
    options: dict[str, Any],
    term: str,
    live: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", term)
    create(server, "web-0")
    written, error = await watched(server, monkeypatch, **options)

    assert error is None
    assert b"web-0" in written
    assert (b"\x1b" in written) == live
    assert written.startswith(ENTERED) == live


async def test_failed_watch_leaves_the_screen_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    async with APIServer(token="right") as server:
        written, error = await watched(server, monkeypatch, token="wrong")

    assert isinstance(error, NotSynced)
    assert written == b""


class Frames:
    """Fake screen that keeps the last frame."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._size = os.terminal_size((columns, lines))
        self.texts: list[str] = []

    def size(self) -> os.terminal_size:
        return self._size

    async def paint(self, lines: Sequence[Text], size: os.terminal_size) -> None:
        assert len(lines) <= size.lines
        assert [it for it in lines if cell_len(it.plain) > size.columns] == []
        self.texts = [it.plain for it in lines]

    def leave(self, last_words: str = "") -> None:
        self.texts = [last_words]


@contextlib.asynccontextmanager
async def live_table(server: APIServer, frames: Frames) -> AsyncIterator[LiveTable]:
    """Paint a live table of the pods of a server."""
    async with SharedInformerFactory(server.client()) as factory:
        informer = factory.informer(PODS)
        columns = Columns(PODS, wide=True, namespaces=True)
        table = LiveTable(informer, columns, "pods", cast("Screen", frames))
        await informer.wait_synced(timeout=10)
        painting = asyncio.create_task(table.show())
        await asyncio.sleep(1)
        try:
            yield table
        finally:
            painting.cancel()
            await asyncio.wait({painting})


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50), (20, 5), (9, 1)])
async def test_live_table_fits_terminals_of_any_size(
    server: APIServer, columns: int, lines: int
) -> None:
    name, reason = "x" * 200, "日本語" * 30
    create(server, *(f"web-{number:02}" for number in range(60)))
    create(server, name, namespace="a-long-name-of-a-namespace")
    frames = Frames(columns, lines)
    async with live_table(server, frames) as table:
        table.press("S")
        for number in range(3):
            body = {"status": {"reason": f"{reason}{number}"}}
            server.patch(PODS, name, body, namespace="a-long-name-of-a-namespace")
            await asyncio.sleep(1)
            assert len(frames.texts) == lines
            assert lines < 3 or frames.texts[2].startswith("~ ")
            assert lines < 3 or "…" in frames.texts[2]


async def test_live_table_reports_an_outage_and_keeps_the_objects() -> None:
    server = APIServer(auto_namespaces=True)
    await server.start()
    create(server, "web-0")
    frames = Frames()
    async with live_table(server, frames):
        await server.stop()
        await asyncio.sleep(30)
        assert frames.texts[0].startswith("pods   connection lost for ")
        assert frames.texts[0].endswith("   1 object")
        assert frames.texts[1].startswith("retrying: http://127.0.0.1:")
        assert "web-0" in frames.texts[3]

        await server.start()
        await asyncio.sleep(60)
        assert "synced" in frames.texts[0]

    assert frames.texts == ["pods: 1 object, 0 events."]
    await server.stop()


async def test_live_table_reports_a_replaced_server_at_once(
    server: APIServer,
) -> None:
    create(server, "web-0", "web-1")
    empty = APIServer().snapshot()
    frames = Frames()
    async with live_table(server, frames):
        await server.stop()
        await asyncio.sleep(10)
        await server.restart(snapshot=empty)
        create(server, "web-2")
        async with asyncio.timeout(1.5 + 2):
            while "relisted (server reset)" not in frames.texts[0]:
                await asyncio.sleep(0.1)

        assert [it[:1] for it in frames.texts[2:5]] == ["-", "-", "+"]
        server.delete(PODS, "web-2", namespace="shop")

        await asyncio.sleep(60)
        assert "synced" in frames.texts[0]
        assert frames.texts[2] == "  No pods found, waiting for changes."


async def test_live_table_keeps_the_scrolled_rows_within_the_table(
    server: APIServer,
) -> None:
    create(server, *(f"web-{number:02}" for number in range(40)))
    frames = Frames(lines=13)
    async with live_table(server, frames) as table:
        table.press("end")
        await asyncio.sleep(0.1)
        assert frames.texts[-1].startswith("31-40 of 40")

        for number in range(25):
            server.delete(PODS, f"web-{number:02}", namespace="shop")

        await asyncio.sleep(4)
        assert frames.texts[-1].startswith("6-15 of 15")
        assert "web-30" in frames.texts[2]

        table.press("/")
        for key in "nothing":
            table.press(key)

        await asyncio.sleep(0.1)
        assert "No object matches the filter" in frames.texts[2]
        table.press("escape")
        table.press("q")
        await asyncio.sleep(0.1)
        assert frames.texts == ["pods: 15 objects, 25 events."]
