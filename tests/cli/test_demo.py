"""`aioinformer demo`, in virtual time."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from conftest import pod
from rich.console import Console

from aioinformer.cli.demo import (
    DemoOptions,
    DemoState,
    InformerRow,
    PodCounter,
    app_of,
    demo,
    differences,
    draw_line,
    draw_table,
    draw_verdict,
)
from aioinformer.model import KubeObject
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


async def test_demo_ends_with_caches_equal_to_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = await demo(DemoOptions(seconds=5, objects=60, changes_per_second=20))

    lines = capsys.readouterr().out.splitlines()
    assert result == 0
    assert lines[-1].startswith("The caches equal the server: ")
    assert "Ended after " in lines[-2]


async def test_demo_prints_state_every_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await demo(DemoOptions(seconds=5, objects=60, changes_per_second=20))

    lines = capsys.readouterr().out.splitlines()
    times = [float(line.split()[0]) for line in lines if " events/s, " in line]
    assert times[:5] == pytest.approx([0, 1, 2, 3, 4], abs=0.2)


async def test_demo_runs_without_churn(capsys: pytest.CaptureFixture[str]) -> None:
    assert await demo(DemoOptions(seconds=1, changes_per_second=0)) == 0
    assert ": 0 changes, " in capsys.readouterr().out


async def test_cancelled_demo_prints_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = asyncio.create_task(demo(DemoOptions(objects=60)))
    await asyncio.sleep(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert capsys.readouterr().out.splitlines()[-1].startswith("Interrupted after ")


# Sequence with which rich shows the cursor again.
SHOW_CURSOR = "\x1b[?25h"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
async def test_demo_draws_table_on_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await demo(DemoOptions(seconds=3, objects=60)) == 0

    table, _, rest = capsys.readouterr().out.rpartition(SHOW_CURSOR)
    # Four frames per second.
    assert table.count("aioinformer demo, ") >= 12
    assert "The caches equal the server" in rest


@pytest.mark.usefixtures("terminal")
async def test_cancelled_demo_restores_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = asyncio.create_task(demo(DemoOptions(objects=60)))
    await asyncio.sleep(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert "Interrupted" in capsys.readouterr().out.rpartition(SHOW_CURSOR)[2]


@pytest.mark.usefixtures("terminal")
async def test_plain_demo_draws_no_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await demo(DemoOptions(seconds=1, objects=60, plain=True))

    assert SHOW_CURSOR not in capsys.readouterr().out


A, B = pod("a", "x"), pod("b", "x")


NODE = {"metadata": {"name": "n"}}


def test_equal_cache_has_no_differences() -> None:
    cached = [KubeObject.of(body) for body in (NODE, B, A)]

    assert differences([A, B, NODE], cached) == []


@pytest.mark.parametrize(
    ("cached", "found"),
    [
        pytest.param([A], ["n is missing", "x/b is missing"], id="missing"),
        pytest.param([A, B, NODE, pod("c", "x")], ["x/c is extra"], id="extra"),
        pytest.param(
            [A, pod("b", "x", spec={"nodeName": "other"}), NODE],
            ["x/b is different"],
            id="body",
        ),
    ],
)
def test_differences_name_keys(
    cached: list[dict[str, object]], found: list[str]
) -> None:
    objects = [KubeObject.of(body) for body in cached]

    assert differences([A, B, NODE], objects) == found


FRAME = DemoState(
    seconds=12.34,
    rows=(
        InformerRow(
            name="pods",
            phase="watching",
            objects=250,
            events=1200,
            rate=48.4,
            age=0.04,
        ),
        InformerRow(
            name="configmaps", phase="listing", objects=0, events=0, rate=0.0, age=None
        ),
    ),
    changes=600,
    depth=3,
    reconciles=90,
    reconcile_rate=7.6,
    writes=20,
    retries=1,
)


def test_state_line_shows_informers_queue_and_reconciles() -> None:
    assert draw_line(FRAME) == (
        " 12.3 s  pods 250 (48 events/s, watching, age 0.0 s)  "
        "configmaps 0 (0 events/s, listing, age never)  "
        "queue 3  reconciles 90 (8/s)  retries 1"
    )


def test_table_has_row_for_each_informer() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(draw_table(FRAME, width=100))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()

    assert lines[0].strip() == "aioinformer demo, 12 s"
    cells = [line.strip("│ ").split("│") for line in lines if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in cells] == [
        ["pods", "watching", "250", "1200", "48", "0.0 s"],
        ["configmaps", "listing", "0", "0", "0", "never"],
    ]
    below = " ".join(" ".join(lines[-2:]).split())
    assert below == (
        "600 changes on the server, queue 3, 90 reconciles (8/s), 20 writes, 1 retries. "
        "Ctrl-C ends it."
    )


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (80, ["informer", "phase", "objects", "events", "events/s", "age"]),
        (72, ["informer", "phase", "objects", "events", "events/s", "age"]),
        (71, ["informer", "phase", "objects", "events/s", "age"]),
        (60, ["informer", "phase", "objects", "age"]),
        (40, ["informer", "phase", "objects"]),
        (30, ["informer", "objects"]),
    ],
)
def test_narrow_terminal_gets_fewer_uncut_columns(width: int, names: list[str]) -> None:
    console = Console(file=io.StringIO(), width=width)
    console.print(draw_table(FRAME, width=width))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()

    (head,) = [line for line in text.splitlines() if line.startswith("┃")]
    assert head.replace("┃", " ").split() == names
    assert "…" not in text
    assert "configmaps" in text
    words = " ".join(text.split())
    assert "600 changes on the server, queue 3, 90 reconciles (8/s), 20 writes" in words
    assert words.endswith("1 retries. Ctrl-C ends it.")


def test_verdict_without_differences_is_positive() -> None:
    assert draw_verdict([], pods=2, apps=1) == (
        "The caches equal the server: 2 pods, 1 config maps, all counts correct."
    )


def test_verdict_lists_differences() -> None:
    assert draw_verdict(["a", "b", "c"], pods=2, apps=1) == ("Differences: a, b, c.")


def test_verdict_counts_unlisted_differences() -> None:
    assert draw_verdict(list("abcde"), pods=2, apps=1) == (
        "Differences: a, b, c and 2 more."
    )


def fill(server: APIServer, *phases: str) -> None:
    """Create an app with a pod in each of these phases."""
    server.create(CONFIG_MAPS, {"metadata": {"name": "web"}}, namespace="shop")
    for number, phase in enumerate(phases):
        body = pod(f"web-{number}", "shop", {"app": "web"}, status={"phase": phase})
        del body["metadata"]["resourceVersion"]
        server.create(PODS, body)


def count_of(server: APIServer) -> object:
    return server.get(CONFIG_MAPS, "web", namespace="shop").get("data")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition in virtual time, with a generous timeout."""
    async with asyncio.timeout(600):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def counting(server: APIServer) -> AsyncIterator[PodCounter]:
    """Run a counter whose handlers have seen all objects."""
    async with server.client() as client:
        counter = PodCounter(client)
        async with counter.factory, asyncio.TaskGroup() as group:
            pods, maps = len(server.objects(PODS)), len(server.objects(CONFIG_MAPS))
            await until(
                lambda: (counter.pod_events, counter.map_events) == (pods, maps)
            )
            task = group.create_task(counter.manager.run())
            yield counter
            task.cancel()


async def test_pod_counter_writes_number_of_running_pods() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running", "Pending", "Running")
        async with counting(server) as counter:
            # The written config map is reconciled once more.
            await until(lambda: counter.reconciles == 2)

            assert count_of(server) == {"running": "2"}
            assert counter.wrong() == []
            assert counter.writes == 1


async def test_pod_counter_updates_count_after_changes() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running", "Pending")
        async with counting(server):
            await until(lambda: count_of(server) == {"running": "1"})
            started = {"status": {"phase": "Running"}}
            server.patch(PODS, "web-1", started, namespace="shop")
            await until(lambda: count_of(server) == {"running": "2"})

            server.delete(PODS, "web-0", namespace="shop")
            await until(lambda: count_of(server) == {"running": "1"})


async def test_pod_counter_corrects_changed_count() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running")
        async with counting(server):
            await until(lambda: count_of(server) == {"running": "1"})
            wrong = {"data": {"running": "7"}}
            server.patch(CONFIG_MAPS, "web", wrong, namespace="shop")

            await until(lambda: count_of(server) == {"running": "1"})


async def test_pod_counter_retries_refused_write() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running")
        server.faults.add(Refuse(verb="patch", status=500, times=2))
        async with counting(server) as counter:
            await until(lambda: count_of(server) == {"running": "1"})

            assert counter.retries == 2


async def test_wrong_counts_are_listed_by_key() -> None:
    async with APIServer(auto_namespaces=True) as server:
        fill(server, "Running")
        server.faults.add(Refuse(verb="patch", status=500, times=None))
        async with counting(server) as counter:
            await until(lambda: counter.retries >= 2)

            assert counter.wrong() == ["shop/web"]


async def test_pod_counter_reads_its_own_writes() -> None:
    """So no count is written twice when pods change during the write."""
    async with APIServer(auto_namespaces=True) as server:
        fill(server, *["Running"] * 5)
        async with counting(server) as counter:
            await until(lambda: count_of(server) == {"running": "5"})
            for number in range(5):
                server.delete(PODS, f"web-{number}", namespace="shop")

            await until(lambda: count_of(server) == {"running": "0"})
            await asyncio.sleep(1)
            assert counter.writes <= 6
            assert counter.wrong() == []


def test_pod_without_app_label_has_no_app() -> None:
    assert list(app_of(KubeObject.of(pod("a", "x")))) == []
    assert list(app_of(KubeObject.of(pod("a", "x", {"app": "b"})))) == ["x/b"]
