"""Lines for changes and outages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from cli_helpers import status
from conftest import pod
from json_helpers import nested

from aioinformer.cli.line_output import JSONLines, NameLines, TableLines, outage_line
from aioinformer.errors import HistoryReset, TransportError
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.model import KubeObject
from aioinformer.model.resource import Resource
from aioinformer.model.resources import DEPLOYMENTS, PODS
from aioinformer.tables.columns import Columns

if TYPE_CHECKING:
    from aioinformer.informer.notifications import Notification


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def thing(name: str) -> KubeObject:
    born = {"creationTimestamp": "2025-12-31T23:59:00Z"}
    body = {"spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Pending"}}
    return KubeObject.of({**pod(name, "shop", metadata=born), **body})


EVENTS: list[Notification] = [
    Added(thing("web-0"), initial=True),
    Updated(thing("web-0"), thing("web-0")),
    Deleted(thing("web-0")),
]


def test_table_lines_start_with_event_type() -> None:
    lines = TableLines(Columns(PODS, wide=False, namespaces=True))
    text = lines.of(EVENTS, NOW)

    assert text.splitlines() == [
        "EVENT      NAMESPACE   NAME    READY   STATUS    RESTARTS   AGE",
        "ADDED      shop        web-0   0/1     Pending   0          60s",
        "MODIFIED   shop        web-0   0/1     Pending   0          60s",
        "DELETED    shop        web-0   0/1     Pending   0          60s",
    ]


def test_json_lines_are_lines_however_deep_an_object_of_several_lines_nests() -> None:
    body = b'{"metadata":{"name":"a\\n"},\n"x":%b}' % nested(400)
    lines = JSONLines().of([Added(KubeObject.of(body))], NOW)

    assert lines.count(b"\n") == 1
    assert json.loads(lines)["object"] == json.loads(body)


def test_table_lines_print_header_once() -> None:
    lines = TableLines(Columns(PODS, wide=False, namespaces=False))
    lines.of(EVENTS, NOW)
    (line,) = lines.of(EVENTS[:1], NOW).splitlines()

    assert line.split() == ["ADDED", "web-0", "0/1", "Pending", "0", "60s"]
    assert line.startswith("ADDED      web-0")


def test_table_lines_fit_a_terminal() -> None:
    long = [Added(thing("web-7d9c5b8f6-x2x4z-and-a-long-end"), initial=True)]
    lines = TableLines(Columns(PODS, wide=True, namespaces=True), width=61)
    head, row = lines.of(long, NOW).splitlines()

    assert head == "EVENT   NAMESPACE   NAME           READY   STATUS    RESTARTS"
    assert row == "ADDED   shop        web-7d9c5b8…   0/1     Pending   0"


def test_json_lines_are_watch_events() -> None:
    lines = JSONLines().of(EVENTS, NOW).splitlines()
    events = [json.loads(line) for line in lines]

    assert [it["type"] for it in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [it["object"] for it in events] == [thing("web-0").to_dict()] * 3


def test_pretty_printed_object_becomes_one_line() -> None:
    body = json.dumps(pod("web-0"), indent=2).encode()
    output = JSONLines().of([Added(KubeObject.of(body))], NOW)

    assert output.count(b"\n") == 1
    assert json.loads(output)["object"] == pod("web-0")


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param(PODS, "pod/web-0", id="core"),
        pytest.param(DEPLOYMENTS, "deployment.apps/web-0", id="group"),
        pytest.param(Resource("x.io", "v1", "webs"), "webs.x.io/web-0", id="custom"),
    ],
)
def test_name_lines_equal_those_of_kubectl(resource: Resource, name: str) -> None:
    assert NameLines(resource).of(EVENTS[:1], NOW) == f"{name}\n"


def test_outage_line_has_cause() -> None:
    line = outage_line(status(TransportError("gone.")), was_out=False)

    assert line == "connection lost, retrying: gone."


@pytest.mark.parametrize("was_out", [False, True])
def test_outage_line_is_empty_for_a_history_reset(was_out: bool) -> None:
    assert outage_line(status(HistoryReset("older")), was_out=was_out) == ""


@pytest.mark.parametrize("error", [None, TransportError("gone.")])
def test_outage_line_is_empty_without_change(error: Exception | None) -> None:
    assert outage_line(status(error), was_out=error is not None) == ""


def test_outage_line_reports_restored_connection() -> None:
    assert outage_line(status(None), was_out=True) == "connection restored"
