"""The whole demo, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aioinformer.cli.demo import DemoOptions, demo


async def test_caches_equal_the_server_in_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = await demo(DemoOptions(seconds=5, objects=60, changes_per_second=20))

    lines = capsys.readouterr().out.splitlines()
    assert result == 0
    assert lines[-1].startswith("The caches equal the server's state: ")
    assert "Ended after " in lines[-2]


async def test_tells_how_it_is_going_once_a_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await demo(DemoOptions(seconds=5, objects=60, changes_per_second=20))

    lines = capsys.readouterr().out.splitlines()
    times = [float(line.split()[0]) for line in lines if " events/s, " in line]
    assert times[:5] == pytest.approx([0, 1, 2, 3, 4], abs=0.2)


async def test_runs_without_any_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert await demo(DemoOptions(seconds=1, changes_per_second=0)) == 0
    assert ": 0 changes, " in capsys.readouterr().out


async def test_tells_what_it_did_when_cancelled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = asyncio.create_task(demo(DemoOptions(objects=60)))
    await asyncio.sleep(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert capsys.readouterr().out.splitlines()[-1].startswith("Interrupted after ")


# What rich takes for the cursor's coming back.
SHOW_CURSOR = "\x1b[?25h"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
async def test_draws_a_table_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await demo(DemoOptions(seconds=3, objects=60)) == 0

    table, _, rest = capsys.readouterr().out.rpartition(SHOW_CURSOR)
    # One frame in a quarter of a second.
    assert table.count("aioinformer demo, ") >= 12
    assert "The caches equal the server's state" in rest


@pytest.mark.usefixtures("terminal")
async def test_gives_the_cursor_back_when_cancelled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = asyncio.create_task(demo(DemoOptions(objects=60)))
    await asyncio.sleep(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert "Interrupted" in capsys.readouterr().out.rpartition(SHOW_CURSOR)[2]


@pytest.mark.usefixtures("terminal")
async def test_draws_no_table_if_lines_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await demo(DemoOptions(seconds=1, objects=60, plain=True))

    assert SHOW_CURSOR not in capsys.readouterr().out
