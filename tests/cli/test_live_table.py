"""The live table, as a process in a terminal, and its parts in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from cli_helpers import status
from conftest import pod
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from terminals import InTerminal, in_terminal

from aioinformer.cache import Store
from aioinformer.cli.columns import Columns
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.live_table import (
    KEPT,
    MARKED_SECONDS,
    ColumnTable,
    InformerHealth,
    LiveTable,
    RateMeter,
    VisibleObjects,
    draw,
    status_line,
)
from aioinformer.cli.terminal import ScreenLine
from aioinformer.cli.watch import WatchCommandOptions, watch
from aioinformer.cli.workload import Workload, objects_for
from aioinformer.errors import NotSynced, TransportError
from aioinformer.informer import Added, Deleted, SharedInformerFactory, Updated
from aioinformer.model import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioinformer.cli.terminal import Terminal


CTRL_C, CTRL_Z = b"\x03", b"\x1a"

ENTERED, LEFT, CLEARED = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[2J"
GREEN = b"\x1b[32m"


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
async def test_live_table_of_thousands_of_changing_pods_never_flickers(
    server: APIServer,
) -> None:
    workload = Workload(server, objects=objects_for(pods=2000), changes_per_second=0)
    workload.populate()
    arguments = ("watch", "pods", "-o", "wide", "--server", server.url)
    async with in_terminal(*arguments) as terminal:
        await shown(terminal, "more")
        for _ in range(3):
            for _ in range(40):
                workload.change()

            before = terminal.lines
            screen = await terminal.shows(lambda now, was=before: now != was)  # type: ignore[misc]
            assert len(screen) == 24
            assert screen[0].startswith("pods in all")

    # The screen is written once, then only its changes.
    assert terminal.written.count(CLEARED) == terminal.written.count(ENTERED) == 1
    # Each line is written at its own position: nothing scrolls.
    assert b"\n" not in terminal.written


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_live_table_follows_the_size_of_the_terminal(server: APIServer) -> None:
    create(server, *(f"web-{number:02}" for number in range(40)))
    async with in_terminal("watch", "po", "--server", server.url) as terminal:
        await shown(terminal, "19 more")

        terminal.resize(100, 50)
        screen = await shown(terminal, "web-39")
        assert not any("more" in line for line in screen)

        terminal.resize(30, 10)
        screen = await shown(terminal, "33 more")
        assert len(screen) == 10


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

        await terminal.resume()
        await shown(terminal, "+ shop        web-1")
        assert terminal.written.count(ENTERED) == 2

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
    """Fake terminal that keeps the last frame."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._size = os.terminal_size((columns, lines))
        self.texts: list[str] = []

    def size(self) -> os.terminal_size:
        return self._size

    async def paint(self, lines: Sequence[ScreenLine], size: os.terminal_size) -> None:
        assert len(lines) <= size.lines
        assert [it for it in lines if cell_len(it.text) > size.columns] == []
        self.texts = [it.text for it in lines]

    def leave(self, last_words: str = "") -> None:
        self.texts = [last_words]


@contextlib.asynccontextmanager
async def live_table(server: APIServer, frames: Frames) -> AsyncIterator[None]:
    """Paint a live table of the pods of a server."""
    async with SharedInformerFactory(server.client()) as factory:
        informer = factory.informer(PODS)
        columns = Columns(PODS, wide=True, namespaces=True)
        table = LiveTable(informer, columns, "pods", cast("Terminal", frames))
        await informer.wait_synced(timeout=10)
        painting = asyncio.create_task(table.show())
        await asyncio.sleep(1)
        yield
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
    async with live_table(server, frames):
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
        assert frames.texts[0].startswith("connection lost for ")
        assert "retrying" in frames.texts[0]
        assert "web-0" in frames.texts[2]

        await server.start()
        await asyncio.sleep(60)
        assert "synced" in frames.texts[0]

    assert frames.texts == ["pods: 1 objects, 0 events."]
    await server.stop()


# ---------------------------------------------------------------- its parts


def test_rate_meter_starts_at_zero() -> None:
    assert RateMeter().rate(10.0, 500) == 0.0


def test_rate_meter_returns_growth_per_second() -> None:
    meter = RateMeter()
    meter.rate(10.0, 500)

    assert meter.rate(10.5, 600) == 200.0


def test_rate_meter_forgets_growth_after_three_seconds() -> None:
    meter = RateMeter()
    for second in range(10):
        meter.rate(float(second), 1000 * second)

    rates = [meter.rate(10.0 + second, 9000) for second in range(4)]

    assert rates[0] > rates[1] > rates[2] == rates[3] == 0.0


HEALTH = InformerHealth(status=status(None), objects=1963, rate=91.4)


HEAD = ["NAMESPACE", "NAME", "AGE"]


def test_status_line_shows_title_state_and_counts() -> None:
    assert status_line("pods in shop", HEALTH, 80) == ScreenLine(
        "pods in shop   synced   fresh   1,963 objects   91 events/s", "title"
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        pytest.param({"age": 0.9}, "synced   fresh   ", id="fresh"),
        pytest.param({"age": 45.3}, "synced   quiet for 45s   ", id="quiet"),
        pytest.param(
            {"age": None, "synced": False, "phase": "listing"},
            "pods   listing   1,963",
            id="not-synced",
        ),
    ],
)
def test_status_line_shows_freshness(changed: dict[str, object], words: str) -> None:
    health = replace(HEALTH, status=replace(HEALTH.status, **changed))  # type: ignore[arg-type]

    assert words in status_line("pods", health, 80).text


def test_status_line_starts_with_an_outage() -> None:
    failing = replace(status(TransportError("x refused the connection.")), age=12.0)
    line = status_line("pods", replace(HEALTH, status=failing), 60)

    assert line.style == "trouble"
    assert line.text == "connection lost for 12s, retrying: x refused the connection…"


def test_rows_of_changes_have_a_sign_and_a_style() -> None:
    rows = [
        ("", ["shop", "web-0", "5d"]),
        ("added", ["shop", "web-1", "0s"]),
        ("modified", ["shop", "web-2", "5d"]),
        ("deleted", ["shop", "web-3", "5d"]),
    ]

    assert ColumnTable(HEAD).draw(rows, 80) == [  # type: ignore[arg-type]
        ScreenLine("  NAMESPACE   NAME    AGE", "head"),
        ScreenLine("  shop        web-0   5d"),
        ScreenLine("+ shop        web-1   0s", "added"),
        ScreenLine("~ shop        web-2   5d", "modified"),
        ScreenLine("- shop        web-3   5d", "deleted"),
    ]


def test_columns_never_become_narrower() -> None:
    table = ColumnTable(HEAD)
    table.draw([("", ["shop", "web-7d9c5b8f6-x2x4z", "5d"])], 80)
    (head, _) = table.draw([("", ["shop", "web", "5d"])], 80)

    assert head.text.index("AGE") == 2 + 9 + 3 + 19 + 3


@pytest.mark.parametrize("width", [1, 2, 3, 10, 20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal_width(width: int) -> None:
    cells = ["shop", "日本語" * 30, "5d"]
    table = ColumnTable(HEAD).draw([("modified", cells), ("", cells)], width)
    failing = replace(HEALTH, status=status(TransportError("gone " * 50)))
    lines = draw("pods " * 30, HEALTH, table, more=1975, width=width)
    lines += draw("pods", failing, table, more=0, width=width)

    assert [it for it in lines if cell_len(it.text) > width] == []


def test_last_line_shows_the_number_of_hidden_objects() -> None:
    *_, last = draw("pods", HEALTH, [], more=1975, width=80)

    assert last.style == "quiet"
    assert last.text.startswith(
        "  … 1,975 more, recently changed ones are at the top; "
    )


def thing(key: str) -> KubeObject:
    namespace, _, name = key.rpartition("/")
    return KubeObject.of(pod(name, namespace))


class Cache:
    """Store and `VisibleObjects` that receive the same changes."""

    def __init__(self, *keys: str) -> None:
        self.store: Store[KubeObject] = Store()
        self.board = VisibleObjects(self.store)
        for key in keys:
            self.store.add(thing(key))
            self.board.note(Added(thing(key), initial=True), 0.0)

    def add(self, key: str, now: float) -> None:
        self.store.add(thing(key))
        self.board.note(Added(thing(key)), now)

    def change(self, key: str, now: float) -> None:
        self.board.note(Updated(thing(key), thing(key)), now)

    def delete(self, key: str, now: float) -> None:
        self.store.delete(thing(key))
        self.board.note(Deleted(thing(key)), now)

    def shown(self, room: int, now: float) -> list[str]:
        return [
            f"{it.mark} {it.obj.key}".strip() for it in self.board.choose(room, now)
        ]


def test_objects_are_ordered_by_namespace_then_name_if_all_fit() -> None:
    cache = Cache("b/a", "a-b/c", "a/z", "a/b")

    assert cache.shown(4, 0.0) == ["a/b", "a/z", "a-b/c", "b/a"]


def test_objects_of_the_first_list_are_not_marked_as_changes() -> None:
    cache = Cache("a/b")

    assert (cache.board.events, cache.shown(9, 0.0)) == (0, ["a/b"])


def test_changes_are_marked_for_two_seconds() -> None:
    cache = Cache("a/1", "a/2", "a/3")
    cache.change("a/1", 10.0)
    cache.add("a/4", 10.0)
    cache.delete("a/2", 10.0)

    marked = ["modified a/1", "deleted a/2", "a/3", "added a/4"]
    assert cache.shown(9, 10.0 + MARKED_SECONDS - 0.1) == marked
    assert cache.shown(9, 10.0 + MARKED_SECONDS) == ["a/1", "a/3", "a/4"]
    assert cache.board.events == 3


def test_recently_changed_objects_come_first_if_not_all_fit() -> None:
    cache = Cache("a/1", "a/2", "a/3", "a/4", "a/5")
    cache.change("a/4", 10.0)
    cache.change("a/2", 11.0)
    cache.change("a/4", 12.0)

    assert cache.shown(4, 20.0) == ["a/4", "a/2", "a/1", "a/3"]
    assert cache.shown(1, 20.0) == ["a/4"]
    assert cache.shown(0, 20.0) == []


def test_deleted_object_leaves_the_order() -> None:
    cache = Cache("a/1", "a/2", "a/3", "a/4")
    assert cache.shown(2, 0.0) == ["a/1", "a/2"]

    cache.delete("a/1", 1.0)

    assert cache.shown(2, 1.0) == ["deleted a/1", "a/2"]
    assert cache.shown(2, 9.0) == ["a/2", "a/3"]


def test_object_created_again_is_not_marked_as_deleted() -> None:
    cache = Cache("a/1")
    cache.delete("a/1", 1.0)
    cache.add("a/1", 1.5)

    assert cache.shown(5, 1.5) == ["added a/1"]
    assert cache.board.total(1.5) == 1


def test_visible_objects_remember_a_bounded_number_of_changes() -> None:
    cache = Cache(*(f"a/{number}" for number in range(KEPT + 50)))
    for number in range(KEPT + 50):
        cache.change(f"a/{number}", 1.0)

    shown = cache.shown(KEPT + 10, 1.0)

    assert sum(it.startswith("modified") for it in shown) == KEPT
    assert len(shown) == len(set(shown)) == KEPT + 10


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "change", "delete"]),
        st.integers(0, 7),
        st.floats(0, 1.5),
    ),
    max_size=30,
)


@given(steps, st.integers(0, 10))
def test_visible_objects_fit_and_are_unique(
    steps: list[tuple[str, int, float]], room: int
) -> None:
    cache, now = Cache(), 0.0
    for step, number, pause in steps:
        key = f"a/{number}"
        now += pause
        if step == "add":
            cache.add(key, now)
        elif key in cache.store:
            getattr(cache, step)(key, now)

        keys = [it.obj.key for it in cache.board.choose(room, now)]
        assert len(keys) == len(set(keys)) == min(room, cache.board.total(now))
        whole = {it.obj.key for it in cache.board.choose(100, now)}
        assert set(cache.store.list_keys()) <= whole
