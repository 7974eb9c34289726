"""`write()`: slow, paused and ended readers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from aioinformer.cli.output import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.looptime(False)


@contextlib.contextmanager
def piped() -> Iterator[int]:
    """Replace stdout by a pipe, and return its read end."""
    end, other = os.pipe()
    with (
        os.fdopen(other, "w", encoding="ascii") as stdout,
        contextlib.redirect_stdout(stdout),
    ):
        yield end


async def test_write_waits_for_slow_reader_and_writes_all() -> None:
    data = bytes(range(256)) * 4096  # 1 MiB, more than any pipe holds
    async with asyncio.TaskGroup() as group:
        with piped() as end:
            reading = group.create_task(asyncio.to_thread(read_all, end))
            await write(data)

    assert reading.result() == data


def read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


async def test_write_can_be_cancelled_while_reader_pauses() -> None:
    with piped() as end:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await write(b"x" * 2**20)

        os.close(end)


async def test_write_raises_broken_pipe_without_reader() -> None:
    with piped() as end:
        os.close(end)
        with pytest.raises(BrokenPipeError):
            await write("x")


async def test_unencodable_characters_become_ascii_signs_or_question_marks() -> None:
    with piped() as end:
        await write("web…", "▲日")

    assert read_all(end) == b"web.^?"


async def test_write_works_with_files(tmp_path: Path) -> None:
    with (
        (tmp_path / "out").open("w", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
    ):
        await write("日本" * 5000)

    assert (tmp_path / "out").read_text(encoding="utf-8") == "日本" * 5000
