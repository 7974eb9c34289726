"""The watchdog of blocked event loops, on the real clock."""

from __future__ import annotations

import asyncio
import contextlib
import io
import pdb
import threading
import time
from typing import TYPE_CHECKING

import pytest

from aioinformer.testing.watchdog import start_watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.realtime, pytest.mark.looptime(False)]

SECONDS = 0.1


@contextlib.contextmanager
def watchdog(
    loop: asyncio.AbstractEventLoop, report: io.StringIO, seconds: float = SECONDS
) -> Iterator[None]:
    stop = start_watchdog(loop, __file__, report, seconds=seconds)
    try:
        yield
    finally:
        stop()


def blocked() -> None:
    time.sleep(4 * SECONDS)


async def test_watchdog_reports_line_that_blocks_loop() -> None:
    report = io.StringIO()
    with watchdog(asyncio.get_running_loop(), report):
        blocked()
        blocked()

    (line,) = report.getvalue().strip().splitlines()
    assert line.startswith(
        "aioinformer: no turn of the event loop for 0.1 s, blocked by "
    )
    assert f"{__file__}:{blocked.__code__.co_firstlineno + 1}: time.sleep(4" in line
    assert line.endswith("run blocking code with asyncio.to_thread()")


async def test_watchdog_is_silent_while_loop_turns() -> None:
    report = io.StringIO()
    with watchdog(asyncio.get_running_loop(), report):
        await asyncio.sleep(4 * SECONDS)
        await asyncio.to_thread(blocked)

    assert report.getvalue() == ""


def test_watchdog_is_silent_while_loop_does_not_run() -> None:
    report = io.StringIO()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        with watchdog(loop, report):
            runner.run(asyncio.sleep(0))
            blocked()
            runner.run(asyncio.sleep(0))

    assert report.getvalue() == ""


async def test_watchdog_is_silent_in_debugger() -> None:
    class Debugger(pdb.Pdb):
        def do_wait(self, _arg: str) -> None:
            blocked()

    report = io.StringIO()
    commands = io.StringIO("wait\n")
    with watchdog(asyncio.get_running_loop(), report):
        Debugger(stdin=commands, stdout=io.StringIO(), nosigint=True).onecmd("wait")

    assert report.getvalue() == ""


async def test_watchdog_ends_with_its_block() -> None:
    # Watchdogs of earlier tests may still be ending.
    others = set(threading.enumerate())
    with watchdog(asyncio.get_running_loop(), io.StringIO(), 10):
        (thread,) = (
            it
            for it in threading.enumerate()
            if it not in others and "watchdog" in it.name
        )

    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
