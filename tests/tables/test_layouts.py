"""Table rows of built-in kinds, which contract tests compare with a real server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from each_case import each_case
from hypothesis import given
from hypothesis import strategies as st
from table_helpers import NOW, Row, ago
from table_rows_apps import APPS_ROWS
from table_rows_core import CORE_ROWS, event_rows
from table_rows_more import MORE_ROWS
from table_rows_pods import POD_ROWS

from aioinformer.model import resources
from aioinformer.model.resource import Resource
from aioinformer.model.resources import STORAGE_CLASSES
from aioinformer.tables import layout_of

ROWS = [*POD_ROWS, *CORE_ROWS, *APPS_ROWS, *MORE_ROWS, *event_rows("default")]
NO_NODE = ["<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]


@each_case("row", ROWS, ids=[row.key for row in ROWS])
def test_row_equals_that_of_real_server(row: Row) -> None:
    shown = layout_of(row.resource).cells(row.stored(), NOW)

    # Rows of events begin with other columns, so the name comes last.
    is_event = row.resource == resources.EVENTS
    assert shown == ([*row.cells, row.name] if is_event else [row.name, *row.cells])


@each_case("row", POD_ROWS, ids=[row.key for row in POD_ROWS])
def test_finished_pod_has_completed_condition(row: Row) -> None:
    conditions = layout_of(row.resource).conditions
    shown = [] if conditions is None else conditions(row.stored())

    assert [it["reason"] for it in shown] == row.conditions
    assert all(it["type"] == "Completed" and it["status"] == "True" for it in shown)


def test_every_layout_has_recorded_rows() -> None:
    plain = layout_of(resources.ROLES)
    recorded = {row.resource for row in ROWS}

    known = [
        it
        for it in resources.built_in_resources()
        if it not in {resources.EVENTS_V1, resources.HORIZONTAL_POD_AUTOSCALERS_V1}
    ]
    own = {it for it in known if layout_of(it) is not plain}
    missing = own - recorded
    assert missing == set()


@each_case(
    "resource, cells",
    [
        ("pods", ["", "0/0", "", "0", "<unknown>", *["<none>"] * 4]),
        ("deployments", ["", "0/0", 0, 0, "<unknown>", "", "", ""]),
        ("replicasets", ["", 0, 0, 0, "<unknown>", "", "", "<none>"]),
        ("jobs", ["", "Running", "0/1", "", "<unknown>", "", "", "<none>"]),
        (
            "cronjobs",
            ["", "", "<none>", "<unset>", 0, "<none>", "<unknown>", "", "", "<none>"],
        ),
        (
            "services",
            ["", "", "<none>", "<unknown>", "<none>", "<unknown>", "<none>"],
        ),
        (
            "events",
            ["<unknown>", "", "", "", "", "", "", "<unknown>", 1, ""],
        ),
        (
            "nodes",
            ["", "Unknown", "<none>", "<unknown>", "", *NO_NODE],
        ),
        (
            "horizontalpodautoscalers",
            ["", "/", "<none>", "<unset>", 0, 0, "<unknown>"],
        ),
        ("priorityclasses", ["", 0, False, "<unknown>", ""]),
        ("storageclasses", ["", "", "Delete", "Immediate", False, "<unknown>"]),
        ("roles", ["", "0001-01-01T00:00:00Z"]),
    ],
)
def test_bookmark_has_row_of_empty_object(resource: str, cells: list[Any]) -> None:
    known = next(it for it in resources.built_in_resources() if it.plural == resource)

    assert layout_of(known).cells({}, NOW) == cells


@pytest.mark.parametrize(
    "annotation",
    [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ],
)
def test_default_storage_class_is_marked(annotation: str) -> None:
    body = {"metadata": {"name": "fast", "annotations": {annotation: "true"}}}

    assert layout_of(STORAGE_CLASSES).cells(body, NOW)[0] == "fast (default)"


def test_node_port_follows_service_port() -> None:
    ports = [
        {"port": 80, "protocol": "TCP", "nodePort": 31777},
        {"port": 53, "protocol": "UDP", "nodePort": 31778},
    ]
    body = {"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": ports}}

    shown = layout_of(resources.SERVICES).cells(body, NOW)

    assert shown[4] == "80:31777/TCP,53:31778/UDP"


def test_event_of_events_group_shows_columns_of_core_event() -> None:
    metadata = {"name": "web.1"}
    core = {
        "metadata": metadata,
        "count": 3,
        "involvedObject": {"kind": "Pod", "name": "web"},
        "message": "Pulled image",
        "reportingComponent": "kubelet",
        "type": "Normal",
    }
    newer = {
        "metadata": metadata,
        "deprecatedCount": 3,
        "note": "Pulled image",
        "regarding": {"kind": "Pod", "name": "web"},
        "reportingController": "kubelet",
        "type": "Normal",
    }

    cells = layout_of(resources.EVENTS_V1).cells(newer, NOW)

    assert cells == layout_of(resources.EVENTS).cells(core, NOW)


@pytest.mark.parametrize(
    ("spec", "status", "targets"),
    [
        ({}, {}, "<none>"),
        ({"targetCPUUtilizationPercentage": 80}, {}, "cpu: <unknown>/80%"),
        (
            {"targetCPUUtilizationPercentage": 80},
            {"currentCPUUtilizationPercentage": 5},
            "cpu: 5%/80%",
        ),
    ],
)
def test_autoscaler_v1_shows_cpu_target(
    spec: dict[str, Any], status: dict[str, Any], targets: str
) -> None:
    body = {"spec": spec, "status": status}

    cells = layout_of(resources.HORIZONTAL_POD_AUTOSCALERS_V1).cells(body, NOW)

    assert cells[2] == targets


def test_custom_resource_shows_name_and_age() -> None:
    layout = layout_of(Resource("example.com", "v1", "sites", "Site"))

    assert [it.name for it in layout.columns] == ["Name", "Age"]
    body = {"metadata": {"name": "docs", "creationTimestamp": ago(hours=2)}}
    assert layout.cells(body, NOW) == ["docs", "120m"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "status",
                    "name",
                    "containers",
                    "conditions",
                    "containerStatuses",
                    "initContainerStatuses",
                    "state",
                    "terminated",
                    "ports",
                    "subsets",
                    "addresses",
                    "metrics",
                    "selector",
                    "type",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_metric_of_unknown_type_is_shown_as_unknown() -> None:
    body = {"spec": {"metrics": [{"type": "Weather"}]}}

    shown = layout_of(resources.HORIZONTAL_POD_AUTOSCALERS).cells(body, NOW)

    assert shown[2] == "<unknown type>"


BODIES = st.dictionaries(
    st.sampled_from(["metadata", "spec", "status", "subsets", "roleRef"]), JSON
)


@given(kind=st.sampled_from(resources.built_in_resources()), body=BODIES)
def test_any_object_has_a_row(kind: Resource, body: dict[str, Any]) -> None:
    shown = layout_of(kind)

    cells = shown.cells(body, datetime.now(tz=UTC))

    assert len(cells) == len(shown.columns)
