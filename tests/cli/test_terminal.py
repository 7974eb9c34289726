"""`Terminal`: only changed lines are written."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TextIO, cast

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.cli.terminal import ScreenLine, Terminal, has_colors

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.looptime(False)

SIZE = os.terminal_size((20, 6))


class Pipe:
    """Replacement of stdout."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self._end, self._descriptor = os.pipe()
        os.set_blocking(self._end, False)

    def fileno(self) -> int:
        return self._descriptor

    def taken(self) -> bytes:
        """Return the output since the last call."""
        try:
            return os.read(self._end, 65536)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        os.close(self._end)
        os.close(self._descriptor)


@contextlib.contextmanager
def piped() -> Iterator[Pipe]:
    """Replace stdout by a pipe within a test, as pytest replaces it between fixtures."""
    pipe = Pipe()
    with contextlib.redirect_stdout(cast("TextIO", pipe)):
        yield pipe

    pipe.close()


def lines_of(*texts: str) -> list[ScreenLine]:
    return [ScreenLine(text) for text in texts]


async def test_first_frame_is_written_completely() -> None:
    with piped() as pipe:
        await Terminal(colors=True).paint(lines_of("one", "two"), SIZE)

        assert pipe.taken() == (
            b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J\x1b[1Hone\x1b[K\x1b[2Htwo\x1b[K"
        )


async def test_later_frames_write_changed_lines_only() -> None:
    with piped() as pipe:
        terminal = Terminal(colors=True)
        await terminal.paint(lines_of("one", "two", "three"), SIZE)
        pipe.taken()

        await terminal.paint(
            [ScreenLine("one"), ScreenLine("TWO", "added"), ScreenLine("three")], SIZE
        )
        assert pipe.taken() == b"\x1b[2H\x1b[32mTWO\x1b[m\x1b[K"

        await terminal.paint(
            [ScreenLine("one"), ScreenLine("TWO", "added"), ScreenLine("three")], SIZE
        )
        assert pipe.taken() == b""


async def test_full_line_keeps_its_last_character() -> None:
    with piped() as pipe:
        terminal = Terminal(colors=True)
        screen = pyte.Screen(*SIZE)
        await terminal.paint(lines_of("x" * 20), SIZE)
        pyte.ByteStream(screen).feed(pipe.taken())

        assert screen.display[0] == "x" * 20


async def test_resize_rewrites_all_lines() -> None:
    with piped() as pipe:
        terminal = Terminal(colors=True)
        await terminal.paint(lines_of("one"), SIZE)
        pipe.taken()
        await terminal.paint(lines_of("one"), os.terminal_size((30, 6)))

        assert pipe.taken() == b"\x1b[2J\x1b[1Hone\x1b[K"


async def test_leave_restores_terminal_once() -> None:
    with piped() as pipe:
        terminal = Terminal(colors=True)
        terminal.leave("never seen")
        assert pipe.taken() == b""

        await terminal.paint(lines_of("one"), SIZE)
        pipe.taken()
        terminal.leave("bye")
        terminal.leave("bye")

        assert pipe.taken() == b"\x1b[?7h\x1b[?25h\x1b[?1049lbye\n"


async def test_terminal_without_colors_uses_bold() -> None:
    with piped() as pipe:
        await Terminal(colors=False).paint([ScreenLine("one", "added")], SIZE)

        assert pipe.taken().endswith(b"\x1b[1H\x1b[1mone\x1b[m\x1b[K")


def test_output_without_terminal_has_default_size() -> None:
    with piped():
        assert Terminal(colors=True).size() == (80, 24)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)],
    ids=["unset", "empty", "set"],
)
def test_no_color_disables_colors(environment: dict[str, str], wanted: bool) -> None:
    assert has_colors(environment) == wanted


texts = st.text(st.sampled_from("ab 日"), max_size=10).map(str.rstrip)
frames = st.lists(st.lists(texts, max_size=SIZE.lines), max_size=6)


@given(frames)
def test_screen_shows_last_frame_after_any_frames(
    frames: list[list[str]],
) -> None:
    terminal = Terminal(colors=True)
    screen = pyte.Screen(*SIZE)
    stream = pyte.Stream(screen)
    painted: list[ScreenLine] = []
    for frame in frames:
        lines = lines_of(*frame)
        stream.feed("".join(terminal._changes(lines, SIZE.columns)))
        terminal._painted = painted = lines

    expected = [it.text for it in painted]
    expected += [""] * (SIZE.lines - len(expected))
    assert [line.rstrip() for line in screen.display] == expected
