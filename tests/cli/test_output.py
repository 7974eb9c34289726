"""Writing without being held up."""

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
    """Let stdout be a pipe, inside of a test; gives the end to read from."""
    end, other = os.pipe()
    with (
        os.fdopen(other, "w", encoding="ascii") as stdout,
        contextlib.redirect_stdout(stdout),
    ):
        yield end


async def test_writes_all_of_it_as_the_reader_takes_it() -> None:
    data = bytes(range(256)) * 4096  # a mebibyte: no pipe takes that at once
    async with asyncio.TaskGroup() as group:
        with piped() as end:
            reading = group.create_task(asyncio.to_thread(read_all, end))
            await write(data)

    assert reading.result() == data


def read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


async def test_can_be_cancelled_while_nobody_reads() -> None:
    with piped() as end:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await write(b"x" * 2**20)

        os.close(end)


async def test_tells_that_nobody_will_read() -> None:
    with piped() as end:
        os.close(end)
        with pytest.raises(BrokenPipeError):
            await write("x")


async def test_what_the_encoding_lacks_is_a_question_mark() -> None:
    with piped() as end:
        await write("web…")

    assert read_all(end) == b"web?"


async def test_files_are_written_too(tmp_path: Path) -> None:
    with (
        (tmp_path / "out").open("w", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
    ):
        await write("日本" * 5000)

    assert (tmp_path / "out").read_text(encoding="utf-8") == "日本" * 5000
