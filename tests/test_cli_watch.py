"""`aioinformer watch`: its lines, and what it does about servers that do not answer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from canned import CannedServer
from conftest import pod

from aioinformer.cli.explain import CommandError
from aioinformer.cli.target import Target
from aioinformer.cli.watch import WatchOptions, line_of, outage_line, watch
from aioinformer.errors import (
    NotSynced,
    OptionsError,
    SelectorSyntaxError,
    TransportError,
)
from aioinformer.informer import Added, Deleted, InformerStatus, Updated
from aioinformer.model import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse, Stall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OBJECT = KubeObject.of(pod("a", "x", metadata={"resourceVersion": "7"}))


def status(error: Exception | None) -> InformerStatus:
    return InformerStatus(
        phase="watching",
        synced=True,
        last_contact=1.0,
        last_event=None,
        age=0.0,
        resource_version="7",
        restarts=0,
        duplicates=0,
        history_resets=0,
        degraded=0,
        not_served=False,
        last_error=error,
        failures=0 if error is None else 1,
    )


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("event", "line"),
    [
        pytest.param(Added(OBJECT, initial=True), "ADDED x/a 7", id="added"),
        pytest.param(Updated(OBJECT, OBJECT), "MODIFIED x/a 7", id="modified"),
        pytest.param(Deleted(OBJECT), "DELETED x/a 7", id="deleted"),
    ],
)
def test_a_line_says_what_happened_to_which_version(
    event: Added | Updated | Deleted, line: str
) -> None:
    assert line_of(event) == line


def test_the_beginning_of_an_outage_is_told_with_its_cause() -> None:
    line = outage_line(status(TransportError("gone.")), was_out=False)

    assert line == "out of contact, trying again: gone."


@pytest.mark.parametrize("error", [None, TransportError("gone.")])
def test_nothing_is_told_while_nothing_changes(error: Exception | None) -> None:
    assert outage_line(status(error), was_out=error is not None) == ""


def test_the_end_of_an_outage_is_told() -> None:
    assert outage_line(status(None), was_out=True) == "in contact again"


# ---------------------------------------------------------------- with a server


@asynccontextmanager
async def serving(*names: str) -> AsyncIterator[tuple[APIServer, Target]]:
    async with APIServer(auto_namespaces=True) as server:
        for name in names:
            body = pod(name, "shop", {"app": name.partition("-")[0]})
            del body["metadata"]["resourceVersion"]
            server.create(PODS, body)

        yield server, Target(server=server.url)


async def test_ends_after_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    loop = asyncio.get_running_loop()
    async with serving("web-0", "web-1") as (_, target):
        before = loop.time()
        result = await watch(WatchOptions(resource="pods", seconds=30), target)

    assert result == 0
    assert loop.time() - before == pytest.approx(30, abs=1)
    words = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert words == [["ADDED", "shop/web-0"], ["ADDED", "shop/web-1"]]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"labels": "app=web"}, id="labels"),
        pytest.param({"fields": "metadata.name=web-0"}, id="fields"),
        pytest.param({"labels": "app in (web)", "namespace": "shop"}, id="namespace"),
    ],
)
async def test_shows_only_what_is_selected(
    options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving("web-0", "db-0") as (server, target):
        server.create(PODS, {"metadata": {"name": "other"}}, namespace="elsewhere")
        await watch(WatchOptions(resource="pods", seconds=1, **options), target)

    assert capsys.readouterr().out.split()[:2] == ["ADDED", "shop/web-0"]


async def test_waits_for_a_list_that_is_slow_but_on_its_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with serving(*(f"web-{number}" for number in range(20))) as (server, target):
        # A few objects come at once, the others when patience with silence is over.
        server.faults.add(Stall(verb="list", after_bytes=3000, seconds=20))
        await watch(WatchOptions(resource="pods", seconds=1), target)

    assert capsys.readouterr().out.count("ADDED shop/web-") == 20


async def test_gives_up_on_a_server_that_says_nothing_for_five_seconds() -> None:
    loop = asyncio.get_running_loop()
    async with serving() as (server, target):
        server.faults.add(Stall(verb="list", head=False))
        before = loop.time()
        with pytest.raises(CommandError, match="did not answer within 5 s"):
            await watch(WatchOptions(resource="pods"), target)

    assert loop.time() - before == pytest.approx(5, abs=1)


@pytest.mark.parametrize(("seconds", "patience"), [(0.1, 1), (1, 1), (3, 3), (30, 5)])
async def test_waits_for_silence_no_longer_than_it_is_to_run(
    seconds: float, patience: float
) -> None:
    loop = asyncio.get_running_loop()
    async with serving() as (server, target):
        server.faults.add(Stall(verb="list", head=False))
        before = loop.time()
        with pytest.raises(CommandError, match=f"did not answer within {patience} s"):
            await watch(WatchOptions(resource="pods", seconds=seconds), target)

    assert loop.time() - before == pytest.approx(patience, abs=0.5)


async def test_says_whose_answer_is_no_list() -> None:
    async with CannedServer() as canned:
        canned.json({"hello": "world"})
        with pytest.raises(CommandError) as caught:
            await watch(WatchOptions(resource="pods"), Target(server=canned.url))

    assert str(caught.value) == (
        f"{canned.url} did not answer with a list that can be read: not a list: no "
        "kind. Is the URL that of an API server?"
    )


async def test_gives_up_after_two_attempts_that_failed() -> None:
    async with serving() as (server, target):
        server.faults.add(Refuse(verb="list", status=503, times=None))
        with pytest.raises(NotSynced, match="2 attempts failed: 503"):
            await watch(WatchOptions(resource="pods"), target)


async def test_one_failed_attempt_is_no_reason_to_give_up() -> None:
    async with serving("web-0") as (server, target):
        server.faults.add(Refuse(verb="list", status=503))

        assert await watch(WatchOptions(resource="pods", seconds=5), target) == 0


async def test_a_failed_attempt_is_told_if_there_is_no_time_for_another() -> None:
    async with serving("web-0") as (server, target):
        server.faults.add(Refuse(verb="list", status=503))
        server.faults.add(Stall(verb="list", head=False))
        with pytest.raises(NotSynced, match="failed: 503"):
            await watch(WatchOptions(resource="pods", seconds=2), target)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(WatchOptions(resource="podz"), CommandError, id="resource"),
        pytest.param(
            WatchOptions(resource="pods", labels="a in"), SelectorSyntaxError, id="-l"
        ),
        pytest.param(
            WatchOptions(resource="pods", fields="a"), SelectorSyntaxError, id="fields"
        ),
        pytest.param(
            WatchOptions(resource="nodes", namespace="x"), OptionsError, id="namespace"
        ),
    ],
)
async def test_wrong_input_is_noticed_before_anything_is_asked(
    options: WatchOptions, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await watch(options, Target(server="http://127.0.0.1:1"))
