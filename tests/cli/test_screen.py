"""`Screen`: frames that an emulated terminal shows."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TextIO, cast

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from aioinformer.cli.output import has_colors, terminal_size
from aioinformer.cli.screen import Screen

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


def lines_of(*texts: str) -> list[Text]:
    return [Text(text) for text in texts]


def shown(written: bytes, size: os.terminal_size = SIZE) -> list[str]:
    """Return the lines that a terminal shows after this output."""
    screen = pyte.Screen(*size)
    # As the terminal driver writes line ends.
    pyte.ByteStream(screen).feed(written.replace(b"\n", b"\r\n"))
    return [line.rstrip() for line in screen.display]


async def test_first_frame_takes_the_terminal() -> None:
    with piped() as pipe:
        await Screen(colors=True).paint(lines_of("one", "two"), SIZE)
        written = pipe.taken()

    assert written.startswith(b"\x1b[?1049h")
    assert b"\x1b[?25l" in written, "no cursor"
    assert b"\x1b[?7l" in written, "no wrapping"
    assert shown(written) == ["one", "two", "", "", "", ""]


async def test_frame_that_is_shown_already_writes_nothing() -> None:
    with piped() as pipe:
        screen = Screen(colors=True)
        await screen.paint(lines_of("one", "two"), SIZE)
        pipe.taken()

        await screen.paint(lines_of("one", "two"), SIZE)
        assert pipe.taken() == b""

        await screen.paint([Text("one"), Text("two", "green")], SIZE)
        assert b"\x1b[32mtwo" in pipe.taken()


async def test_resize_repaints_the_frame_in_the_new_size() -> None:
    larger = os.terminal_size((30, 8))
    with piped() as pipe:
        screen = Screen(colors=True)
        await screen.paint(lines_of("x" * 20), SIZE)
        pipe.taken()
        await screen.paint(lines_of("x" * 30), larger)

        assert shown(pipe.taken(), larger) == ["x" * 30, *[""] * 7]


async def test_leave_restores_terminal_once_and_paint_takes_it_again() -> None:
    with piped() as pipe:
        screen = Screen(colors=True)
        screen.leave("never seen")
        assert pipe.taken() == b""

        await screen.paint(lines_of("one"), SIZE)
        pipe.taken()
        screen.leave("bye")
        screen.leave("bye")
        left = pipe.taken()
        await screen.paint(lines_of("one"), SIZE)
        again = pipe.taken()

    assert left == b"\x1b[?7h\x1b[?25h\x1b[?1049lbye\n"
    assert again.startswith(b"\x1b[?1049h")
    assert shown(again)[0] == "one"


async def test_screen_without_colors_uses_bold() -> None:
    with piped() as pipe:
        await Screen(colors=False).paint([Text("one", "bold green")], SIZE)

        assert b"\x1b[1mone" in pipe.taken()


async def test_screen_writes_no_control_characters_of_lines() -> None:
    with piped() as pipe:
        await Screen(colors=True).paint(lines_of("a\x1b[2Jb\x9b3mc"), SIZE)

        assert shown(pipe.taken())[0] == "a\ufffd[2Jb\ufffd3mc"


def test_output_without_terminal_has_default_size() -> None:
    with piped():
        assert terminal_size() == (80, 24)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)],
    ids=["unset", "empty", "set"],
)
def test_no_color_disables_colors(environment: dict[str, str], wanted: bool) -> None:
    assert has_colors(environment) == wanted


texts = st.text(st.sampled_from("ab 日"), max_size=10).map(str.rstrip)
frames = st.lists(st.lists(texts, max_size=SIZE.lines), min_size=1, max_size=6)


@given(frames)
async def test_screen_shows_last_frame_after_any_frames(
    frames: list[list[str]],
) -> None:
    written = b""
    with piped() as pipe:
        screen = Screen(colors=True)
        for frame in frames:
            await screen.paint(lines_of(*frame), SIZE)
            written += pipe.taken()

    last = frames[-1]
    assert shown(written) == [*last, *[""] * (SIZE.lines - len(last))]
