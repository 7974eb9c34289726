"""Hostile servers: no output moves the cursor or forges a line."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import pytest
from aiohttp import web
from canned import CannedServer
from processes import start
from terminals import in_terminal

from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.demo import differences, draw_verdict
from aioinformer.cli.doctor import DoctorOptions, Report, doctor
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import SafeFormatter, crashed, print_error, print_text
from aioinformer.cli.parameters import run_typed
from aioinformer.cli.running import run
from aioinformer.cli.watch import Output, WatchCommandOptions, watch
from aioinformer.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Captured = pytest.CaptureFixture[str]

COMMAND = "from aioinformer.cli.main import main; main()"
CLI = Path(__file__).parents[2] / "aioinformer" / "cli"

# Clear the screen, set a title, ring, the C1 form of ESC [, reverse the direction,
# overwrite the line, begin another one, erase.
HOSTILE = (
    "x\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u2066reversed\rover\nADDED forged\u2028"
    "\x85\x7f\x08\x00\ty"
)


def commands_in(text: str) -> set[str]:
    """Return the characters that control a terminal."""
    return {it for it in text if not it.isprintable() and it != "\n"}


def forged(text: str) -> list[str]:
    return [it for it in text.splitlines() if it.startswith("ADDED forged")]


def pod_body() -> dict[str, Any]:
    """Return a pod whose texts are all hostile."""
    container = {"name": HOSTILE, "image": HOSTILE}
    waiting = {"waiting": {"reason": HOSTILE, "message": HOSTILE}}
    metadata = {
        "name": HOSTILE,
        "namespace": HOSTILE,
        "uid": HOSTILE,
        "resourceVersion": "5",
        "creationTimestamp": HOSTILE,
        "labels": {HOSTILE: HOSTILE},
        "annotations": {HOSTILE: HOSTILE},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "nodeName": HOSTILE},
        "status": {
            "phase": HOSTILE,
            "reason": HOSTILE,
            "podIP": HOSTILE,
            "containerStatuses": [{**container, "state": waiting}],
        },
    }


def event_body() -> dict[str, Any]:
    texts = dict.fromkeys(("message", "reason", "type", "lastTimestamp"), HOSTILE)
    involved = {"kind": HOSTILE, "name": HOSTILE, "fieldPath": HOSTILE}
    source = {"component": HOSTILE, "host": HOSTILE}
    metadata = pod_body()["metadata"]
    more = {"involvedObject": involved, "source": source, "metadata": metadata}
    return {"apiVersion": "v1", "kind": "Event", **texts, **more}


def crd_resources() -> dict[str, Any]:
    """Return discovery of a resource with a hostile plural, kind and short name."""
    widget = {
        "name": HOSTILE.replace("\n", ""),
        "singularName": "widget",
        "shortNames": ["wd"],
        "kind": f"Widget{HOSTILE}",
        "namespaced": True,
        "verbs": ["list", "watch"],
    }
    group = {"kind": "APIResourceList", "groupVersion": "v1", "resources": [widget]}
    return {"apiVersion": "v1", **group}


# Sequences of Screen: styles, the home position, and modes. It ends lines by \n\r.
OWN = re.compile(r"\x1b\[[0-9;]*[mH]|\x1b\[\?(?:1049|25|7)[hl]|\n\r")

BODIES = {"pods": pod_body(), "events": event_body()}


@asynccontextmanager
async def hostile_server(trouble: int | None = None) -> AsyncIterator[CannedServer]:
    """Server that lists one object and keeps watches open, or refuses by a hostile text."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if trouble is not None:
            status = {"kind": "Status", "apiVersion": "v1", "code": trouble}
            text = {"message": HOSTILE, "reason": HOSTILE, "status": "Failure"}
            return web.json_response({**status, **text}, status=trouble, reason="no")

        word = request.path.rpartition("/")[2]
        if request.path == "/api":
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})

        if request.path == "/apis":
            return web.json_response({"kind": "APIGroupList", "groups": []})

        if request.path == "/api/v1":
            return web.json_response(crd_resources())

        if request.path == "/version":
            return web.json_response({"major": "1", "gitVersion": f"v1.36.0{HOSTILE}"})

        if request.query.get("watch"):
            response = web.StreamResponse()
            response.content_type = "application/json"
            await response.prepare(request)
            await asyncio.Event().wait()

        body = BODIES.get(word) or {"metadata": pod_body()["metadata"]}
        listed = {"kind": "List", "apiVersion": "v1", "items": [body]}
        return web.json_response({**listed, "metadata": {"resourceVersion": "5"}})

    async with CannedServer() as canned:
        canned.answer(answer)
        yield canned


# ------------------------------------------------------------ each output


@pytest.mark.parametrize("output", ["table", "wide", "name", "yaml"])
@pytest.mark.parametrize("resource", ["pods", "events"])
async def test_watch_writes_no_control_characters_of_objects(
    resource: str, output: Output, capfd: Captured
) -> None:
    async with hostile_server() as canned:
        options = WatchCommandOptions(resource=resource, output=output, seconds=1)
        await watch(options, ConnectionOptions(server=canned.url))

    out, err = capfd.readouterr()
    assert "reversed" in out
    assert commands_in(out) == set()
    assert forged(out) == []
    assert err == ""
    if output != "yaml":
        assert len(out.splitlines()) == (1 if output == "name" else 2)


async def test_watch_writes_json_into_a_pipe_byte_for_byte(capfd: Captured) -> None:
    async with hostile_server() as canned:
        options = WatchCommandOptions(resource="pods", output="json", seconds=1)
        await watch(options, ConnectionOptions(server=canned.url))

    (line,) = capfd.readouterr().out.split("\n")[:-1]
    printed = json.loads(line)["object"]
    assert printed["metadata"] == pod_body()["metadata"]


async def test_watch_writes_no_control_characters_of_a_discovered_resource(
    capfd: Captured,
) -> None:
    async with hostile_server() as canned:
        options = WatchCommandOptions(resource="widget", output="name", seconds=1)
        await watch(options, ConnectionOptions(server=canned.url))

    out, err = capfd.readouterr()
    assert "widget" in out
    assert commands_in(out + err) == set()
    assert forged(out + err) == []


@pytest.mark.parametrize("report", ["lines", "json", "rules"])
@pytest.mark.parametrize("trouble", [None, 400, 403, 500])
async def test_doctor_writes_no_control_characters_of_answers(
    report: Report, trouble: int | None, capfd: Captured
) -> None:
    async with hostile_server(trouble) as canned:
        options = DoctorOptions(resources=("pods", "wd"), report=report, seconds=1)
        await doctor(options, ConnectionOptions(server=canned.url))

    out, err = capfd.readouterr()
    assert out + err
    assert commands_in(out + err) == set()
    assert forged(out + err) == []


def failing(error: BaseException) -> None:
    async def life() -> int:
        raise error

    run(life)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(lambda: failing(CommandError(HOSTILE)), id="command"),
        pytest.param(lambda: failing(ServerError(HOSTILE, status=500)), id="server"),
        pytest.param(lambda: run_typed(Refusing("x")), id="typed"),
        pytest.param(lambda: print_error(HOSTILE), id="complaint"),
        pytest.param(lambda: print_text(HOSTILE), id="said"),
        pytest.param(
            lambda: print_text(
                draw_verdict(
                    differences([{"metadata": {"name": HOSTILE}}], []), pods=1, apps=1
                )
            ),
            id="verdict",
        ),
        pytest.param(lambda: crash(RuntimeError(HOSTILE)), id="traceback"),
    ],
)
def test_messages_have_no_control_characters(
    failure: Callable[[], object], capsys: Captured
) -> None:
    failure()

    out, err = capsys.readouterr()
    assert "reversed" in out + err
    assert commands_in(out + err) == set()


class Refusing(click.Command):
    """Quote an argument."""

    def main(self, *_: object, **__: object) -> NoReturn:
        raise click.BadParameter(HOSTILE)


def crash(error: Exception) -> None:
    try:
        raise error
    except RuntimeError as exc:
        crashed(type(exc), exc, exc.__traceback__)


def test_log_records_stay_one_line_without_control_characters() -> None:
    formatter = SafeFormatter("%(levelname)s %(name)s: %(message)s")
    record = logging.LogRecord(HOSTILE, logging.INFO, "", 0, "got %s", (HOSTILE,), None)
    line = formatter.format(record)

    assert "reversed" in line
    assert "\n" not in line
    assert commands_in(line) == set()


def test_logged_tracebacks_keep_their_lines_and_no_control_characters() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord(
            "x", logging.ERROR, "", 0, "failed", (), sys.exc_info()
        )

    text = SafeFormatter("%(message)s").format(record)
    assert text.startswith("failed\nTraceback")
    assert commands_in(text) == set()


def test_warnings_of_other_libraries_have_no_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last = logging.StreamHandler()
    monkeypatch.setattr(logging, "lastResort", last)
    failing(CommandError("no"))
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, HOSTILE, (), None)

    line = last.format(record)

    assert "reversed" in line
    assert "\n" not in line
    assert commands_in(line) == set()


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_verbose_watch_logs_no_control_characters() -> None:
    async with hostile_server(403) as canned:
        arguments = ("watch", "pods", "-vv", "--server", canned.url)
        async with start("-c", COMMAND, *arguments) as process:
            end = await process.end()

    assert end.status == 2
    assert "reversed" in end.err
    assert " WARNING aioinformer.informer.listwatch." in end.err
    assert len([it for it in end.err.splitlines() if "aioinformer" in it]) > 2
    assert commands_in(end.out + end.err) == set()
    assert forged(end.err) == []


# ------------------------------------------------------------ on a terminal


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["watch", "pods"], id="live"),
        pytest.param(["watch", "pods", "-o", "json"], id="json"),
    ],
)
@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_terminal_gets_only_control_sequences_of_its_own(
    arguments: list[str],
) -> None:
    async with (
        hostile_server() as canned,
        in_terminal(
            *arguments, "--server", canned.url, columns=200, lines=150
        ) as terminal,
    ):
        await terminal.shows(lambda lines: any("reversed" in it for it in lines))
        written = terminal.written.decode("utf-8")

    assert terminal.screen.title == ""
    written = written.replace("\r\n", "\n")  # by the terminal driver
    assert commands_in(OWN.sub("", written)) == set()


# ------------------------------------------------------------ no other way out


def ways_out(tree: ast.AST) -> list[str]:
    """Return calls that write to a stream, or mark a text as a control sequence."""
    banned = {"print", "echo", "secho", "os.write", "Control", "output.Control"}
    streams = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}
    harmless = {"isatty", "fileno", "encoding"}
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func):
                name = ast.unparse(func)
                if name in banned or name.split(".")[-1] in {"echo", "secho", "print"}:
                    found.append(name)
            case ast.Attribute(value=value, attr=attr):
                if ast.unparse(value) in streams and attr not in harmless:
                    found.append(ast.unparse(node))
            case _:
                pass

    return found


def test_only_the_output_module_writes_to_streams() -> None:
    found = {
        str(path.relative_to(CLI)): ways_out(ast.parse(path.read_text("utf-8")))
        for path in sorted(CLI.rglob("*.py"))
        if path.name != "output.py"
    }

    assert {name: ways for name, ways in found.items() if ways} == {
        # Sequences made of constants.
        "doctor.py": ["Control"] * 5,
        # What rich draws of lines that are made harmless.
        "screen.py": ["Control"],
    }


@pytest.mark.parametrize(
    "code",
    [
        "print(x)",
        "click.echo(x)",
        "sys.stdout.write(x)",
        "os.write(1, x)",
        "Control(x)",
    ],
)
def test_output_checker_finds_forbidden_writes(code: str) -> None:
    assert ways_out(ast.parse(code))
