"""Keys: input of terminals, and the settings of one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import PROMPT_SECONDS

from aioinformer.cli.keyboard import ESCAPE_SECONDS, Keyboard, keys_in

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("jk/", ["j", "k", "/"]),
        ("日 x", ["日", " ", "x"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOA\x1bOB", ["up", "down"]),
        ("\x1b[5~\x1b[6~", ["page up", "page down"]),
        ("\x1b[C\x1b[D\x1bOC\x1bOD", ["right", "left", "right", "left"]),
        ("\x1b[H\x1b[F", ["home", "end"]),
        ("\x1bOH\x1bOF", ["home", "end"]),
        ("\x1b[1~\x1b[4~", ["home", "end"]),
        ("\x1b[7~\x1b[8~", ["home", "end"]),
        ("\r\n", ["enter", "enter"]),
        ("\x7f\b", ["backspace", "backspace"]),
        ("\x1b[1;5C\x1b[Z\t\x00x", ["x"]),
        ("\x1bx", ["escape", "x"]),
        ("\x1b[[A\x1b[?1;2c\x1b[<0;1;1M\x1b[1 qx", ["x"]),
    ],
)
def test_keys_of_terminals_have_one_name_each(text: str, keys: list[str]) -> None:
    assert keys_in(text) == (keys, "")


@pytest.mark.parametrize(
    "rest", ["\x1b", "\x1b[", "\x1b[5", "\x1bO", "\x1b[[", "\x1b[?1"]
)
def test_incomplete_sequence_is_kept(rest: str) -> None:
    assert keys_in(f"j{rest}") == (["j"], rest)


pieces = st.sampled_from(["j", "/", "\x1b[A", "\x1bOB", "\x1b[5~", "\r", "日"])


@given(st.lists(pieces, max_size=8), st.integers(0, 30))
def test_keys_do_not_depend_on_where_input_is_cut(pieces: list[str], cut: int) -> None:
    text = "".join(pieces)
    first, rest = keys_in(text[:cut])
    second, end = keys_in(rest + text[cut:])

    assert (first + second, end) == keys_in(text)


@contextlib.contextmanager
def typed_into(keys: list[str]) -> Iterator[tuple[int, Keyboard]]:
    """Replace stdin by a terminal; yield its other side, and a keyboard."""
    master, slave = os.openpty()
    with os.fdopen(slave) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        try:
            yield master, Keyboard(keys.append)
        finally:
            with contextlib.suppress(OSError):
                os.close(master)


async def arrived(keys: list[str], number: int) -> list[str]:
    """Wait for a number of keys, and return them."""
    async with asyncio.timeout(PROMPT_SECONDS):
        while len(keys) < number:
            await asyncio.sleep(0.001)

    return keys


def flags_of(descriptor: int) -> int:
    return int(termios.tcgetattr(descriptor)[3])


@pytest.mark.looptime(False)
async def test_keyboard_reads_keys_without_echo_and_restores_the_terminal() -> None:
    keys: list[str] = []
    with typed_into(keys) as (master, keyboard):
        before = flags_of(master)
        keyboard.enter()
        keyboard.enter()
        raw = flags_of(master)
        os.write(master, b"j\x1b[6~")
        assert await arrived(keys, 2) == ["j", "page down"]

        keyboard.leave()
        keyboard.leave()
        assert not raw & (termios.ECHO | termios.ICANON)
        assert raw & termios.ISIG, "Ctrl-C remains a signal"
        assert flags_of(master) == before


@pytest.mark.looptime(False)
async def test_lone_escape_is_a_key_after_a_moment() -> None:
    keys: list[str] = []
    with typed_into(keys) as (master, keyboard):
        keyboard.enter()
        began = asyncio.get_running_loop().time()
        os.write(master, b"\x1b")
        assert await arrived(keys, 1) == ["escape"]
        assert asyncio.get_running_loop().time() - began > 0.9 * ESCAPE_SECONDS

        keyboard.leave()


@pytest.mark.looptime(False)
async def test_character_in_two_pieces_is_one_key() -> None:
    keys: list[str] = []
    with typed_into(keys) as (master, keyboard):
        keyboard.enter()
        first, *rest = "日".encode()
        os.write(master, bytes([ord("j"), first]))
        await arrived(keys, 1)
        os.write(master, bytes(rest))

        assert await arrived(keys, 2) == ["j", "日"]
        keyboard.leave()


@pytest.mark.looptime(False)
async def test_closed_terminal_sends_no_more_keys() -> None:
    keys: list[str] = []
    with typed_into(keys) as (master, keyboard):
        keyboard.enter()
        os.write(master, b"j")
        await arrived(keys, 1)
        os.close(master)
        await asyncio.sleep(0.01)
        assert not asyncio.get_running_loop().remove_reader(sys.stdin.fileno()), (
            "a closed terminal would be readable forever"
        )
        keyboard.leave()

    assert keys == ["j"]


async def test_keyboard_without_terminal_has_no_keys() -> None:
    with open(os.devnull) as stdin, pytest.MonkeyPatch.context() as patch:  # noqa: ASYNC230 - of the test
        patch.setattr(sys, "stdin", stdin)
        keyboard = Keyboard(lambda _: None)
        keyboard.enter()

        assert not keyboard.usable
        keyboard.leave()
