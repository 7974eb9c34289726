"""The live table in a terminal, as a user sees it: another process, a real clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from processes import in_real_time
from rich.cells import cell_len
from terminals import InTerminal, in_terminal

from aioinformer.cli.workload import Workload, objects_for
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = in_real_time

CTRL_C, CTRL_Z = b"\x03", b"\x1a"
ENTERED, LEFT, CLEARED = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[2J"


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


def create(server: APIServer, *names: str, namespace: str = "shop") -> None:
    for name in names:
        server.create(PODS, {"metadata": {"name": name}}, namespace=namespace)


async def shown(terminal: InTerminal, word: str) -> list[str]:
    return await terminal.shows(lambda lines: any(word in it for it in lines))


async def test_shows_objects_and_marks_what_changes(server: APIServer) -> None:
    create(server, "web-1", "web-0")
    async with in_terminal("watch", "po", "--server", server.url) as terminal:
        title, head, *rows = await shown(terminal, "web-1")
        assert title.startswith("pods in all namespaces   synced   ")
        assert head.split() == [
            "NAMESPACE",
            "NAME",
            "READY",
            "STATUS",
            "RESTARTS",
            "AGE",
        ]
        assert [row.split()[1] for row in rows if row] == ["web-0", "web-1"]

        create(server, "web-2")
        assert (await shown(terminal, "+ shop        web-2"))[4].startswith("+ shop")
        await shown(terminal, "  shop        web-2")

        server.delete(PODS, "web-0", namespace="shop")
        await shown(terminal, "- shop        web-0")
        await terminal.shows(lambda lines: not any("web-0" in it for it in lines))

        terminal.press(CTRL_C)
        assert await terminal.end() == 130

    assert b"Traceback" not in terminal.written
    last = terminal.written.rpartition(LEFT)[2].decode()
    assert last == "pods in all namespaces: 2 objects, 2 events.\r\n"


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50), (20, 5)])
async def test_thousands_of_pods_that_change_neither_wrap_nor_flicker(
    server: APIServer, columns: int, lines: int
) -> None:
    workload = Workload(server, objects=objects_for(pods=2000), changes_per_second=0)
    workload.populate()
    namespace, name = "a-long-name-of-a-namespace", "x" * 200
    create(server, name, namespace=namespace)
    reason = {"status": {"reason": "日本語" * 30}}
    arguments = ("watch", "pods", "-o", "wide", "--server", server.url)
    async with in_terminal(*arguments, columns=columns, lines=lines) as terminal:
        await shown(terminal, "more")
        for _ in range(5):
            for _ in range(40):
                workload.change()

            server.patch(PODS, name, reason, namespace=namespace)
            reason["status"]["reason"] += "!"
            before = terminal.lines
            screen = await terminal.shows(lambda now, was=before: now != was)  # type: ignore[misc]
            assert len(screen) == lines
            assert screen[0].startswith("pods in all")
            assert all(cell_len(line) <= columns for line in screen)
            assert "…" in screen[2]

    # All was written once; from then on, only what differs.
    assert terminal.written.count(CLEARED) == terminal.written.count(ENTERED) == 1
    # Nothing moves down or up by itself: each line is written where it belongs.
    assert b"\n" not in terminal.written


async def test_follows_the_size_of_the_terminal(server: APIServer) -> None:
    create(server, *(f"web-{number:02}" for number in range(40)))
    async with in_terminal("watch", "po", "--server", server.url) as terminal:
        await shown(terminal, "19 more")

        terminal.resize(100, 50)
        screen = await shown(terminal, "web-39")
        assert not any("more" in line for line in screen)

        terminal.resize(30, 10)
        screen = await shown(terminal, "33 more")
        assert len(screen) == 10


async def test_says_that_the_server_is_away_and_recovers() -> None:
    server = APIServer(auto_namespaces=True)
    await server.start()
    create(server, "web-0")
    async with in_terminal("watch", "po", "--server", server.url) as terminal:
        await shown(terminal, "web-0")
        await server.stop()
        screen = await shown(terminal, "trying again")
        assert screen[0].startswith("out of contact")
        assert any("web-0" in line for line in screen)

        await server.start()
        await shown(terminal, "synced")

    await server.stop()


async def test_gives_the_terminal_back_while_it_is_suspended(
    server: APIServer,
) -> None:
    create(server, "web-0")
    async with in_terminal("watch", "po", "--server", server.url) as terminal:
        await shown(terminal, "web-0")
        terminal.press(CTRL_Z)
        await terminal.shows(lambda _: LEFT in terminal.written)
        create(server, "web-1")

        terminal.resume()
        await shown(terminal, "web-1")
        assert terminal.written.count(ENTERED) == 2


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        pytest.param({}, True, id="coloured"),
        pytest.param({"NO_COLOR": "1"}, False, id="no-color"),
        pytest.param({"NO_COLOR": ""}, True, id="empty-no-color"),
    ],
)
async def test_colours_are_left_out_if_asked(
    server: APIServer, environment: dict[str, str], coloured: bool
) -> None:
    arguments = ("watch", "po", "--server", server.url)
    async with in_terminal(*arguments, environment=environment) as terminal:
        await shown(terminal, "synced")
        create(server, "web-0")
        await shown(terminal, "+ shop")

    assert (b"\x1b[32m" in terminal.written) == coloured


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        pytest.param(["--plain"], {}, id="plain"),
        pytest.param(["-o", "name"], {}, id="names"),
        pytest.param([], {"TERM": "dumb"}, id="dumb-terminal"),
    ],
)
async def test_lines_are_lines_on_a_terminal_too(
    server: APIServer, options: list[str], environment: dict[str, str]
) -> None:
    create(server, "web-0")
    arguments = ("watch", "po", *options, "--server", server.url)
    async with in_terminal(*arguments, environment=environment) as terminal:
        await shown(terminal, "web-0")
        terminal.press(CTRL_C)
        assert await terminal.end() == 130

    assert b"\x1b" not in terminal.written


async def test_an_error_is_a_line_and_the_screen_is_left_alone() -> None:
    async with APIServer(token="right") as server:
        arguments = ("watch", "po", "--server", server.url, "--token", "wrong")
        async with in_terminal(*arguments, columns=200) as terminal:
            assert await terminal.end() == 2

    assert b"\x1b" not in terminal.written
    assert terminal.written.startswith(b"aioinformer: ")
    assert terminal.written.count(b"\n") == 1
