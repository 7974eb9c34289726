"""`aioinformer watch`: options, selection, and servers that do not respond."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer
from click.testing import CliRunner
from conftest import pod

from aioinformer.cli import running
from aioinformer.cli.commands import aioinformer
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.error_messages import CommandError, message_of
from aioinformer.cli.watch import WatchCommandOptions, title_of, watch
from aioinformer.errors import (
    AioInformerError,
    NotSynced,
    OptionsError,
    SelectorSyntaxError,
)
from aioinformer.model.resources import NODES, PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Refuse, Stall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

# ---------------------------------------------------------------- with a server


def rows(capfd: Captured) -> list[list[str]]:
    """Return the first word of each line."""
    return [line.split()[:3] for line in capfd.readouterr().out.splitlines()]


@asynccontextmanager
async def serving(*names: str) -> AsyncIterator[tuple[APIServer, ConnectionOptions]]:
    async with APIServer(auto_namespaces=True) as server:
        for name in names:
            body = pod(name, "shop", {"app": name.partition("-")[0]})
            del body["metadata"]["resourceVersion"]
            server.create(PODS, body)

        yield server, ConnectionOptions(server=server.url)


async def test_watch_ends_after_duration(capfd: Captured) -> None:
    loop = asyncio.get_running_loop()
    async with serving("web-0", "web-1") as (_, target):
        before = loop.time()
        result = await watch(WatchCommandOptions(resource="pods", seconds=30), target)

    assert result == 0
    assert loop.time() - before == pytest.approx(30, abs=1)
    assert rows(capfd) == [
        ["EVENT", "NAMESPACE", "NAME"],
        ["ADDED", "shop", "web-0"],
        ["ADDED", "shop", "web-1"],
    ]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"labels": "app=web"}, id="labels"),
        pytest.param({"fields": "metadata.name=web-0"}, id="fields"),
        pytest.param({"names": ("web-0",)}, id="name"),
        pytest.param({"names": ("web-0", "web-9")}, id="names"),
        pytest.param(
            {"names": ("web-0",), "fields": "metadata.namespace=shop"},
            id="name-and-fields",
        ),
        pytest.param(
            {"labels": "app in (web)", "namespaces": ("shop",)}, id="namespace"
        ),
    ],
)
async def test_watch_shows_selected_objects_only(
    options: dict[str, Any], capfd: Captured
) -> None:
    async with serving("web-0", "db-0") as (server, target):
        server.create(PODS, {"metadata": {"name": "other"}}, namespace="elsewhere")
        await watch(WatchCommandOptions(resource="pods", seconds=1, **options), target)

    names = [line.split() for line in capfd.readouterr().out.splitlines()[1:]]
    assert ["web-0" in it for it in names] == [True]


async def test_watch_waits_for_slow_list_in_progress(
    capfd: Captured,
) -> None:
    async with serving(*(f"web-{number}" for number in range(20))) as (server, target):
        # Some objects arrive at once, the others after the timeout of a silent server.
        server.faults.add(Stall(verb="list", after_bytes=3000, seconds=20))
        await watch(WatchCommandOptions(resource="pods", seconds=1), target)

    assert len(rows(capfd)) == 1 + 20


async def test_watch_fails_after_five_seconds_without_response() -> None:
    loop = asyncio.get_running_loop()
    async with serving() as (server, target):
        server.faults.add(Stall(verb="list", head=False))
        before = loop.time()
        with pytest.raises(CommandError, match="did not respond within 5 s"):
            await watch(WatchCommandOptions(resource="pods"), target)

    assert loop.time() - before == pytest.approx(5, abs=1)


@pytest.mark.parametrize(("seconds", "patience"), [(0.1, 1), (1, 1), (3, 3), (30, 5)])
async def test_watch_timeout_is_limited_by_duration(
    seconds: float, patience: float
) -> None:
    loop = asyncio.get_running_loop()
    async with serving() as (server, target):
        server.faults.add(Stall(verb="list", head=False))
        before = loop.time()
        with pytest.raises(CommandError, match=f"did not respond within {patience} s"):
            await watch(WatchCommandOptions(resource="pods", seconds=seconds), target)

    assert loop.time() - before == pytest.approx(patience, abs=0.5)


async def test_watch_names_server_of_invalid_list() -> None:
    async with CannedServer() as canned:
        canned.json({"hello": "world"})
        with pytest.raises(CommandError) as caught:
            await watch(
                WatchCommandOptions(resource="pods"),
                ConnectionOptions(server=canned.url),
            )

    assert str(caught.value) == (
        f"{canned.url} returned an invalid list: not a list: no "
        "kind. Is the URL that of an API server?"
    )


async def test_watch_fails_after_two_failed_attempts() -> None:
    async with serving() as (server, target):
        server.faults.add(Refuse(verb="list", status=503, times=None))
        with pytest.raises(NotSynced, match="2 attempts failed: 503"):
            await watch(WatchCommandOptions(resource="pods"), target)


async def test_watch_retries_after_one_failed_attempt() -> None:
    async with serving("web-0") as (server, target):
        server.faults.add(Refuse(verb="list", status=503))

        assert await watch(WatchCommandOptions(resource="pods", seconds=5), target) == 0


async def test_watch_reports_failed_attempt_without_time_for_retry() -> None:
    async with serving("web-0") as (server, target):
        server.faults.add(Refuse(verb="list", status=503))
        server.faults.add(Stall(verb="list", head=False))
        with pytest.raises(NotSynced, match="failed: 503"):
            await watch(WatchCommandOptions(resource="pods", seconds=2), target)


async def test_watch_reports_an_outage_and_its_end(capfd: Captured) -> None:
    async with serving("web-0") as (server, target):
        options = WatchCommandOptions(resource="pods", seconds=300)
        watching = asyncio.create_task(watch(options, target))
        await asyncio.sleep(10)
        await server.stop()
        await asyncio.sleep(60)
        await server.start()
        await watching

    begin, end = capfd.readouterr().err.splitlines()
    assert begin.startswith("aioinformer: connection lost, retrying: ")
    assert "refused the connection" in begin
    assert end == "aioinformer: connection restored"


async def test_watch_reports_a_replaced_server_and_its_objects(
    capfd: Captured,
) -> None:
    async with serving("web-0", "web-1") as (server, target):
        options = WatchCommandOptions(resource="pods", output="name", seconds=60)
        watching = asyncio.create_task(watch(options, target))
        await asyncio.sleep(10)
        await server.stop()
        await asyncio.sleep(10)
        await server.restart(snapshot=APIServer().snapshot())
        await asyncio.sleep(5)
        out, err = capfd.readouterr()
        await watching

    assert out.split() == ["pod/web-0", "pod/web-1"] * 2, "added, then deleted"
    # In either order: the watch may resume before the server's history is checked.
    assert sorted(err.splitlines()[1:]) == [
        "aioinformer: connection restored",
        "aioinformer: the server was restored or replaced, listing again",
    ]


async def test_first_lines_are_aligned_with_the_widest_row(capfd: Captured) -> None:
    async with serving("a", "a-long-name", "b") as (_, target):
        await watch(WatchCommandOptions(resource="pods", seconds=1), target)

    lines = capfd.readouterr().out.splitlines()
    assert {line.index("shop") for line in lines[1:]} == {lines[0].index("NAMESPACE")}
    assert {line.index("0/") for line in lines[1:]} == {lines[0].index("READY")}


async def test_watch_reports_an_empty_list_and_the_first_object(
    capfd: Captured,
) -> None:
    async with serving("db-0") as (server, target):
        options = WatchCommandOptions(
            resource="pods", namespaces=("shop",), labels="app=web", seconds=30
        )
        watching = asyncio.create_task(watch(options, target))
        await asyncio.sleep(10)
        body = {"metadata": {"name": "web-0", "labels": {"app": "web"}}}
        server.create(PODS, body, namespace="shop")
        await watching

    out, err = capfd.readouterr()
    assert err == (
        "aioinformer: no pods in shop with app=web found, waiting for changes\n"
    )
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["ADDED", "web-0"]]


async def error_of(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command line in this loop, and return the error that it shows."""
    lives: list[Callable[[], Coroutine[Any, Any, int]]] = []

    def run(life: Callable[[], Coroutine[Any, Any, int]], *, verbose: int) -> int:
        lives.append(life)
        return verbose

    monkeypatch.setattr(running, "run", run)
    CliRunner().invoke(aioinformer, arguments)
    (life,) = lives
    with pytest.raises((CommandError, AioInformerError)) as caught:
        await life()

    return message_of(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            ("pods", "--token", "wrong"),
            ("401 Unauthorized", "pass a valid --token"),
            id="token",
        ),
        pytest.param(
            ("widgets.v1.example.com",),
            ("the server has no resource 'widgets.v1.example.com'",),
            id="resource",
        ),
        pytest.param(
            ("pods", "--field-selector", "spec.foo=1"),
            ("400 BadRequest", "check --field-selector"),
            id="field-selector",
        ),
        pytest.param(
            ("pods", "-l", "app in ("), ("position 8 of 'app in ('",), id="selector"
        ),
    ],
)
async def test_watch_names_the_wrong_argument(
    arguments: tuple[str, ...],
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with APIServer(token="right") as server:
        place = ("--server", server.url, "--token", "right")
        line = await error_of("watch", *place, *arguments, monkeypatch=monkeypatch)

    assert all(it in line for it in words), line
    assert "\n" not in line
    assert "wrong" not in line


async def test_watch_names_an_unreachable_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with APIServer() as server:
        url = server.url

    line = await error_of("watch", "pods", "--server", url, monkeypatch=monkeypatch)

    assert f"{url} refused the connection" in line


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(
            WatchCommandOptions(resource="pods", labels="a in"),
            SelectorSyntaxError,
            id="-l",
        ),
        pytest.param(
            WatchCommandOptions(resource="pods", fields="a"),
            SelectorSyntaxError,
            id="fields",
        ),
        pytest.param(
            WatchCommandOptions(resource="nodes", namespaces=("x",)),
            CommandError,
            id="namespace",
        ),
        pytest.param(
            WatchCommandOptions(resource="pods", namespaces=("a/b",)),
            OptionsError,
            id="namespace-path",
        ),
    ],
)
async def test_invalid_watch_options_fail_before_any_request(
    options: WatchCommandOptions, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await watch(options, ConnectionOptions(server="http://127.0.0.1:1"))


def test_namespace_and_all_namespaces_are_refused_together() -> None:
    options = WatchCommandOptions(
        resource="pods", namespaces=("shop",), all_namespaces=True
    )
    with pytest.raises(CommandError, match="-n and -A cannot be combined"):
        asyncio.run(watch(options, ConnectionOptions(server="http://127.0.0.1:1")))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        pytest.param({}, ["here"], id="context"),
        pytest.param({"all_namespaces": True}, ["there", "here"], id="all"),
        pytest.param({"namespaces": ("elsewhere",)}, ["there"], id="named"),
        pytest.param(
            {"namespaces": ("default", "elsewhere")}, ["there", "here"], id="several"
        ),
    ],
)
async def test_watch_defaults_to_namespace_of_context(
    options: dict[str, Any], names: list[str], tmp_path: Path, capfd: Captured
) -> None:
    async with APIServer(auto_namespaces=True) as server:
        server.create(PODS, {"metadata": {"name": "here"}}, namespace="default")
        server.create(PODS, {"metadata": {"name": "there"}}, namespace="elsewhere")
        target = ConnectionOptions(
            kubeconfig=str(server.kubeconfig(tmp_path / "config"))
        )
        chosen = WatchCommandOptions(resource="po", output="name", seconds=1, **options)
        await watch(chosen, target)

    lines = capfd.readouterr().out.split()
    assert sorted(lines) == sorted(f"pod/{name}" for name in names)


async def test_json_output_is_events_without_managed_fields(
    capfd: Captured,
) -> None:
    async with serving("web-0") as (_, target):
        await watch(
            WatchCommandOptions(resource="pods", output="json", seconds=1), target
        )

    (line,) = capfd.readouterr().out.splitlines()
    event = json.loads(line)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "web-0")
    assert "managedFields" not in event["object"]["metadata"]


@pytest.mark.parametrize(
    ("options", "title"),
    [
        pytest.param({}, "pods in all namespaces", id="all"),
        pytest.param({"namespaces": ("shop",)}, "pods in shop", id="namespace"),
        pytest.param(
            {"namespaces": ("shop", "media"), "names": ("web-0", "web-1")},
            "pods web-0 web-1 in shop and media",
            id="namespaces-and-names",
        ),
        pytest.param(
            {"labels": "a=b", "fields": "x=y"},
            "pods in all namespaces with a=b and x=y",
            id="selectors",
        ),
    ],
)
def test_title_names_resource_namespace_and_selectors(
    options: dict[str, Any], title: str
) -> None:
    chosen = WatchCommandOptions(resource="pods", **options)

    assert title_of(chosen, PODS, chosen.namespaces) == title


def test_title_of_cluster_scoped_resource_has_no_namespace() -> None:
    assert title_of(WatchCommandOptions(resource="nodes"), NODES, ()) == "nodes"
