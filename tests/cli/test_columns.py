"""Cells and widths of columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from aioinformer.cli.columns import (
    Columns,
    cut,
    fitted,
    line_of_cells,
    printable,
    widened,
)
from aioinformer.model import KubeObject, resources
from aioinformer.model.resource import Resource

NOW = datetime(2026, 1, 1, tzinfo=UTC)


BORN = "2025-12-27T00:00:00Z"


def shown(
    resource: Resource, body: dict[str, Any], *, wide: bool = False
) -> dict[str, str]:
    """Return the cells of a row by column name."""
    metadata = {"name": "it", "namespace": "shop", "creationTimestamp": BORN}
    metadata |= body.pop("metadata", {})
    columns = Columns(resource, wide=wide, namespaces=False)
    cells = columns.cells(KubeObject.of({**body, "metadata": metadata}), NOW)
    return dict(zip(columns.head, cells, strict=True))


def pod_with(
    *containers: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    phase: str = "Running",
    deleted: bool = False,
) -> dict[str, Any]:
    return {
        "metadata": {"deletionTimestamp": BORN} if deleted else {},
        "spec": {
            "containers": [{"name": f"c{n}"} for n, _ in enumerate(containers)],
            "initContainers": [{"name": f"i{n}"} for n, _ in enumerate(init)],
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": f"c{n}", **it} for n, it in enumerate(containers)
            ],
            "initContainerStatuses": [
                {"name": f"i{n}", **it} for n, it in enumerate(init)
            ],
        },
    }


RUNS = {"ready": True, "restartCount": 0, "state": {"running": {}}}


CRASHES = {
    "ready": False,
    "restartCount": 3,
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"finishedAt": "2025-12-31T23:55:00Z"}},
}


WAITS = {
    "ready": False,
    "restartCount": 0,
    "state": {"waiting": {"reason": "PodInitializing"}},
}


@pytest.mark.parametrize(
    ("body", "ready", "status", "restarts"),
    [
        pytest.param(pod_with(RUNS), "1/1", "Running", "0", id="running"),
        pytest.param(
            pod_with(RUNS, CRASHES), "1/2", "CrashLoopBackOff", "3 (5m ago)", id="crash"
        ),
        pytest.param(
            pod_with(RUNS, deleted=True), "1/1", "Terminating", "0", id="deleted"
        ),
        pytest.param(
            pod_with(WAITS, init=(RUNS,), phase="Pending"),
            "0/1",
            "Init:0/1",
            "0",
            id="init",
        ),
    ],
)
def test_pod_cells_equal_those_of_kubectl(
    body: dict[str, Any], ready: str, status: str, restarts: str
) -> None:
    assert shown(resources.PODS, body) == {
        "NAME": "it",
        "READY": ready,
        "STATUS": status,
        "RESTARTS": restarts,
        "AGE": "5d",
    }


@pytest.mark.parametrize(
    ("resource", "body", "expected"),
    [
        pytest.param(
            resources.DEPLOYMENTS,
            {
                "spec": {"replicas": 3},
                "status": {
                    "readyReplicas": 2,
                    "updatedReplicas": 3,
                    "availableReplicas": 2,
                },
            },
            {"READY": "2/3", "UP-TO-DATE": "3", "AVAILABLE": "2", "AGE": "5d"},
            id="deployment",
        ),
        pytest.param(
            resources.SERVICES,
            {"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": []}},
            {
                "TYPE": "ClusterIP",
                "CLUSTER-IP": "10.0.0.7",
                "EXTERNAL-IP": "<none>",
                "PORT(S)": "<none>",
                "AGE": "5d",
            },
            id="service",
        ),
        pytest.param(
            resources.NODES,
            {
                "status": {
                    "conditions": [{"type": "Ready", "status": "False"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.0"},
                }
            },
            {
                "STATUS": "NotReady",
                "ROLES": "<none>",
                "AGE": "5d",
                "VERSION": "v1.36.0",
            },
            id="node",
        ),
        pytest.param(
            resources.NAMESPACES,
            {"status": {"phase": "Active"}},
            {"STATUS": "Active", "AGE": "5d"},
            id="namespace",
        ),
        pytest.param(
            resources.CONFIG_MAPS,
            {"data": {"a": "1", "b": "2"}, "binaryData": {"c": ""}},
            {"DATA": "3", "AGE": "5d"},
            id="config-map",
        ),
        pytest.param(
            resources.SECRETS,
            {"type": "Opaque", "data": {"password": "aHVudGVyMg=="}},
            {"TYPE": "Opaque", "DATA": "1", "AGE": "5d"},
            id="secret",
        ),
        pytest.param(
            Resource("example.com", "v1", "widgets"),
            {"spec": {}},
            {"AGE": "5d"},
            id="custom",
        ),
    ],
)
def test_cells_of_each_kind_equal_those_of_kubectl(
    resource: Resource, body: dict[str, Any], expected: dict[str, str]
) -> None:
    assert shown(resource, body) == {"NAME": "it", **expected}


def test_wide_output_has_more_columns() -> None:
    row = shown(resources.PODS, pod_with(RUNS), wide=True)

    assert list(row)[-4:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]


def test_namespace_is_first_column_on_request() -> None:
    columns = Columns(resources.PODS, wide=False, namespaces=True)
    body = {"metadata": {"name": "it", "namespace": "shop"}}

    assert columns.head[:2] == ["NAMESPACE", "NAME"]
    assert columns.cells(KubeObject.of(body), NOW)[:2] == ["shop", "it"]


def test_cells_have_no_control_characters() -> None:
    row = shown(resources.EVENTS, {"message": "\x1b[2Jgone\nsecond line"})

    assert row["MESSAGE"] == "\N{REPLACEMENT CHARACTER}[2Jgone…"


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        pytest.param("web-0", 5, "web-0", id="fits"),
        pytest.param("web-10", 5, "web-…", id="too-long"),
        pytest.param("日本語", 6, "日本語", id="wide-fits"),
        pytest.param("日本語", 5, "日本…", id="wide-cut"),
        pytest.param("日本語", 4, "日…", id="wide-cut-inside-of-a-character"),
        pytest.param("web", 1, "…", id="one-cell"),
        pytest.param("web", 0, "", id="no-cell"),
    ],
)
def test_long_text_is_cut_with_ellipsis(text: str, width: int, expected: str) -> None:
    assert cut(text, width) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain", "plain", id="plain"),
        pytest.param("first\nsecond", "first…", id="lines"),
        pytest.param("a\x1b[2Jb", "a\N{REPLACEMENT CHARACTER}[2Jb", id="escape"),
        pytest.param("a\tb", "a\N{REPLACEMENT CHARACTER}b", id="tab"),
        pytest.param("\u202eevil", "\N{REPLACEMENT CHARACTER}evil", id="bidi-override"),
    ],
)
def test_printable_text_has_no_control_characters(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_column_widths_never_shrink() -> None:
    widths = widened(widened([], ["NAME", "AGE"]), ["web", "5d4h"])

    assert widths == [4, 4]


@pytest.mark.parametrize(
    ("widths", "room", "expected"),
    [
        pytest.param([5, 5], 20, [5, 5], id="fits"),
        pytest.param([5, 63, 5], 40, [5, 24, 5], id="the-widest-gives"),
        pytest.param([20, 30, 5], 36, [13, 12, 5], id="then-the-next"),
        pytest.param([30, 30, 30], 42, [12, 12, 12], id="to-the-least"),
        pytest.param([30, 30, 30], 40, [19, 18, 0], id="then-the-last-goes"),
        pytest.param([30, 30, 30], 3, [3, 0, 0], id="one-stays"),
        pytest.param([], 3, [], id="none"),
    ],
)
def test_columns_are_cut_to_fit_room(
    widths: list[int], room: int, expected: list[int]
) -> None:
    assert fitted(widths, room) == expected


@given(st.lists(st.integers(1, 300), max_size=12), st.integers(0, 250))
def test_fitted_columns_fit_and_never_grow(widths: list[int], room: int) -> None:
    given_widths = fitted(widths, room)
    cells = ["x" * width for width in widths]

    assert cell_len(line_of_cells(cells, given_widths)) <= room
    assert all(new <= old for new, old in zip(given_widths, widths, strict=True))


def test_wide_characters_count_as_two_cells() -> None:
    assert line_of_cells(["日本", "x"], [6, 1]) == "日本     x"
