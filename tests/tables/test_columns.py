"""Cells of columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aioinformer.model import KubeObject, resources
from aioinformer.model.resource import Resource
from aioinformer.model.views import ObjectContext
from aioinformer.tables.columns import Columns, printable

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


def test_long_text_is_cut_to_a_number_of_characters() -> None:
    assert printable("x" * 1000, 4) == "xxx…"
    assert printable("xxx\nmore", 4) == "xxx…"
    assert printable("xxxx", 4) == "xxxx"


@pytest.mark.parametrize(
    "obj",
    [
        KubeObject.of({"kind": "PartialObjectMetadata", "metadata": {"name": "it"}}),
        KubeObject(b"not JSON", "it", "", "", {}, ObjectContext()),
    ],
    ids=["metadata-only", "undecodable"],
)
def test_unknown_body_gives_empty_cells(obj: KubeObject) -> None:
    columns = Columns(resources.PODS, wide=False, namespaces=False)

    assert columns.cells(obj, NOW) == ["it", "", "", "", "<unknown>"]
