"""`aioinformer log` shows what is in a recording, and its errors are one line."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner
from json_helpers import nested

from aioinformer.cli import log
from aioinformer.cli.commands import aioinformer as command_line
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.log import LogOptions
from aioinformer.cli.running import INTERRUPTED, run
from aioinformer.recording.lines import (
    Header,
    InformerLine,
    change_line,
    encoded,
    plain_line,
)
from aioinformer.recording.log_file import LogFile
from aioinformer.recording.redaction import Redaction
from aioinformer.recording.sinks import FileSink

if TYPE_CHECKING:
    from collections.abc import Iterator


def pod(name: str, version: int, phase: str, **more: Any) -> bytes:
    metadata = {"name": name, "namespace": "shop", "resourceVersion": str(version)}
    body = {"metadata": metadata, "status": {"phase": phase}, **more}
    return json.dumps(body).encode()


@pytest.fixture
def options(tmp_path: Path) -> LogOptions:
    """Write a recording of 100 s, which began at 09:00:00."""
    path = tmp_path / "it.alog"
    manager = {
        "manager": "kubelet",
        "time": "2026-01-31T09:00:10Z",
        "fieldsV1": {"f:status": {"f:phase": {}}},
    }
    by_kubelet = json.loads(pod("web", 5, "Running"))
    by_kubelet["metadata"]["managedFields"] = [manager]
    lines = [
        HEADER,
        encoded(
            InformerLine(
                t=0, e="INFORMER", s=0, name="pods in shop", plural="pods", kind="Pod"
            )
        ),
        plain_line("LIST", 1.0, 0, n=2, version="4"),
        change_line("LISTED", 1.0, 0, pod("web", 3, "Pending")),
        change_line("LISTED", 1.0, 0, pod("old", 4, "Running")),
        plain_line("SYNCED", 1.0, 0),
        change_line("MODIFIED", 10.0, 0, json.dumps(by_kubelet).encode()),
        plain_line("STATUS", 40.0, 0, phase="backing off", failures=1, text="410 Gone"),
        plain_line("STATUS", 40.1, 0, phase="listing", failures=1, text="410 Gone"),
        plain_line("RELIST", 50.0, 0, n=2, version="9"),
        change_line("DELETED", 50.0, 0, pod("old", 4, "Running"), b'"unknown":true,'),
        change_line("ADDED", 50.0, 0, pod("new<b>\x1b", 8, "Pending")),
        change_line(
            "MODIFIED", 90.0, 0, pod("web", 10, "Failed", spec={"a": "x" * 99})
        ),
    ]
    return recorded(path, *lines)


def recorded(path: Path, *lines: bytes) -> LogOptions:
    """Write a recording of these lines."""
    file = LogFile(path)
    file.write(b"".join(lines))
    file.close()
    return LogOptions(files=(str(path),))


HEADER = encoded(Header(aioinformer_recording=1, started="2026-01-31T09:00:00Z"))
PODS_LINE = encoded(InformerLine(t=0, e="INFORMER", s=0, name="pods", plural="pods"))


def shown(options: LogOptions, key: str = "", at: str = "", **more: str) -> str:
    chosen = LogOptions(files=options.files, **more)
    return "\n".join(str(it) for it in log.show(chosen, key, at))


def test_ls_sums_up(options: LogOptions) -> None:
    first, *table, failure, end = log.ls(options)
    assert "2026-01-31 09:00:00 UTC, 90s, by " in first
    assert [it.split() for it in table] == [
        ["INFORMER", "OBJECTS", "ADDED", "MODIFIED", "DELETED", "RELISTS", "FAILURES"],
        ["pods", "in", "shop", "2", "1", "2", "1", "1", "1"],
    ]
    assert failure == "last failure: backing off, 1 failures in a row: 410 Gone"
    assert "its program was killed" in end


def test_show_tells_what_changed_and_who_wrote_it(options: LogOptions) -> None:
    text = shown(options, "shop/web")
    assert text.splitlines() == [
        "09:00:01.000  pods in shop  LISTED  shop/web  3",
        "09:00:10.000  pods in shop  MODIFIED  shop/web  5",
        '    status.phase: "Pending" -> "Running" (kubelet)',
        "09:01:30.000  pods in shop  MODIFIED  shop/web  10",
        f'    spec.a: nothing -> "{"x" * 56}...',
        '    status.phase: "Running" -> "Failed"',
    ]
    everything = shown(options)
    assert "RELIST  2 changes, version 9" in everything
    assert "DELETED  shop/old  4  (missed)" in everything
    assert "\x1b" not in everything


@pytest.mark.parametrize(
    ("since", "until", "versions"),
    [
        ("5", "20s", ["5"]),
        ("09:00:05", "09:01:00", ["5", "4", "8"]),
        ("2026-01-31T09:01:00Z", "", ["10"]),
        ("2026-01-31T10:01:00+01:00", "1m40s", ["10"]),
        ("200", "", []),
    ],
)
def test_times_choose_a_part(
    options: LogOptions, since: str, until: str, versions: list[str]
) -> None:
    text = shown(options, output="json", since=since, until=until)
    lines = [
        json.loads(it[2:-1].encode().decode("unicode_escape"))
        for it in text.splitlines()
    ]
    found = [
        it["object"]["metadata"]["resourceVersion"] for it in lines if "object" in it
    ]
    assert found == versions


def test_state_of_a_time(options: LogOptions) -> None:
    state = yaml.safe_load(shown(options, "shop/web", "30s"))
    assert state["status"]["phase"] == "Running"
    assert "phase: Failed" in shown(options, "shop/web", output="yaml")
    for key, at in (("shop/old", "60s"), ("shop/new", "5s")):
        with pytest.raises(CommandError, match="no object"):
            shown(options, key, at)


def test_page_escapes_what_is_foreign(options: LogOptions) -> None:
    text = shown(options, output="html")
    assert text.startswith("<!doctype html>")
    assert "<b>" not in text
    assert "new&lt;b&gt;" in text
    assert "<li><code>status.phase: &quot;Pending&quot;" in text


def test_grep_and_diff(options: LogOptions) -> None:
    found = [str(it).split()[4:6] for it in log.grep(options, r'"phase":\s*"Failed"')]
    assert found == [["MODIFIED", "shop/web"]]
    with pytest.raises(CommandError, match="not a regular expression"):
        list(log.grep(options, "("))

    lines = "\n".join(log.diff(options)).splitlines()
    assert [it[:1] for it in lines if not it.startswith(" ")] == ["+", "-", "~"]
    assert '    status.phase: "Pending" -> "Failed"' in lines
    early = LogOptions(files=options.files, since="5", until="20")
    assert "\n".join(log.diff(early)).splitlines() == [
        "~ pods in shop shop/web",
        '    status.phase: "Pending" -> "Running" (kubelet)',
    ]


@pytest.mark.parametrize("depth", [253, 400, 980, 5000])
def test_objects_of_any_depth_are_shown(tmp_path: Path, depth: int) -> None:
    bodies = [
        b'{"metadata":{"name":"a"},"x":%b}' % nested(it) for it in (depth, depth + 1)
    ]
    options = recorded(
        tmp_path / "it.alog",
        HEADER,
        PODS_LINE,
        plain_line("LIST", 1.0, 0, n=1, version="4"),
        change_line("LISTED", 1.0, 0, bodies[0]),
        change_line("MODIFIED", 2.0, 0, bodies[1]),
    )
    assert "MODIFIED  a" in shown(options, "a")
    for output in ("json", "yaml", "html"):
        assert "MODIFIED" in shown(options, "a", output=output)

    assert "a: null" in shown(options, "a", "2")
    assert "\n".join(log.diff(options))[:3] in {"", "~ p"}
    if depth < 900:  # deeper ones are cut off when they are read
        last = list(log.show(LogOptions(files=options.files, output="json")))[-1]
        assert json.loads(last)["object"] == json.loads(bodies[1])
        assert "# Values nested deeper" in shown(options, "a", "2")


def test_damage_is_told_by_all_commands(
    options: LogOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(options.files[0])
    path.write_bytes(path.read_bytes() + b"garbage")
    for found in (log.show(options), log.grep(options, "x"), log.diff(options)):
        list(found)
        assert (
            capsys.readouterr().err
            == "aioinformer: 7 bytes cannot be read, and are left out.\n"
        )


def test_texts_of_a_recording_forge_no_lines(tmp_path: Path) -> None:
    bad = "x\nFORGED"
    body = {"metadata": {"name": bad, "resourceVersion": bad}}
    header = Header(
        aioinformer_recording=1,
        started="2026-01-31T09:00:00Z",
        program=bad,
        redacted=[bad],
    )
    options = recorded(
        tmp_path / "it.alog",
        encoded(header),
        encoded(InformerLine(t=0, e="INFORMER", s=0, name=bad, plural="pods")),
        change_line("LISTED", 1.0, 0, json.dumps(body).encode()),
        change_line("ADDED", 2.0, 0, json.dumps(body | {"spec": {bad: 1}}).encode()),
        plain_line("STATUS", 3.0, 0, phase=bad, failures=1, text=bad),
        change_line("MODIFIED", 4.0, 0, json.dumps(body).encode()),
    )
    texts = [
        "\n".join(log.ls(options)),
        shown(options),
        "\n".join(log.diff(options)),
        "\n".join(log.diff(LogOptions(files=options.files, since="2"))),
        shown(options, bad, "2"),
    ]
    for text in texts:
        assert "FORGED" in text
        assert "\nFORGED" not in text


@pytest.mark.realtime
def test_signal_ends_a_command_that_reads_for_long() -> None:
    ended = threading.Event()
    waited: list[bool] = []

    def lines() -> Iterator[str]:
        waited.append(not ended.wait(20))
        yield ""

    async def command() -> int:
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, signal.raise_signal, signal.SIGINT)
        return await log.printed(lines())

    assert run(command) == INTERRUPTED
    assert not waited
    ended.set()


def test_ls_tells_what_all_parts_hide(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    for rules in (
        Redaction(["spec.x"], hash_names=True),
        Redaction(["spec.y", "spec.x"], hide_secrets=False),
    ):
        sink = FileSink(path, rules)
        sink.begin(datetime(2026, 1, 31, tzinfo=UTC))
        sink.close(1.0)

    text = "\n".join(log.ls(LogOptions(files=(str(path),))))
    assert "hidden: spec.x\n" in text
    assert "names" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "FILE", "shop/none"], "no changes of an object 'shop/none'"),
        (["show", "FILE", "--from", "noon"], "'noon' is not a time"),
        (["show", "FILE", "--at", "3"], "--at needs the KEY"),
        (["ls", "missing"], "cannot read missing: No such file"),
        (["grep", "FILE", "("], "not a regular expression"),
        (["show", "FILE", "-i", "nodes"], "no informer 'nodes': it has 'pods in shop'"),
        (["diff", "FILE", "-i", "nodes"], "no informer 'nodes': it has 'pods in shop'"),
        (["play", "FILE"], "log play needs a terminal"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_errors_are_one_line(
    options: LogOptions,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [options.files[0] if it == "FILE" else it for it in arguments]
    done = CliRunner().invoke(command_line, ["log", *arguments])
    text = done.output + capsys.readouterr().err
    assert done.exit_code == 2
    assert message in text
    assert "Traceback" not in text
