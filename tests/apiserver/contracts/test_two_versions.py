"""Kinds with two versions of different fields: events and autoscalers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    an_event,
    ask,
    make,
    named,
    names,
    next_events,
    patch,
    version_of,
    watching,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

EVENTS, FIRST, SECOND = (
    "apis/events.k8s.io/v1",
    "apis/autoscaling/v1",
    "apis/autoscaling/v2",
)
TIME, MICRO = "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000000Z"
SOURCE = {"component": "c", "host": "h"}
CARRIED = "autoscaling.alpha.kubernetes.io/"


def essence(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object without its type and metadata."""
    return {k: v for k, v in body.items() if k not in {"kind", "metadata"}}


# -------------------------------------------------------------------- events


@pytest.fixture
def core(target: ServerUnderTest) -> str:
    return target.path("events")


@pytest.fixture
def newer(target: ServerUnderTest) -> str:
    return target.path("events", EVENTS)


def a_newer_event(namespace: str, **fields: Any) -> dict[str, Any]:
    reported = {
        "eventTime": MICRO,
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "A",
        "reason": "R",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "web"},
        "note": "N",
        "type": "Normal",
    }
    return named("web", **{**reported, **fields})


async def test_core_event_is_readable_as_events_v1(
    target: ServerUnderTest, http: aiohttp.ClientSession, core: str, newer: str
) -> None:
    body = an_event("web", target.namespace, message="M", source=SOURCE, count=3)
    made = await make(http, core, body | {"firstTimestamp": TIME, "type": "Normal"})

    _, found = await ask(http, "GET", f"{newer}/web")

    assert version_of(found) == version_of(made)
    assert essence(found) == {
        "apiVersion": "events.k8s.io/v1",
        "eventTime": None,
        "regarding": made["involvedObject"],
        "note": "M",
        "type": "Normal",
        "deprecatedSource": SOURCE,
        "deprecatedFirstTimestamp": TIME,
        "deprecatedLastTimestamp": None,
        "deprecatedCount": 3,
    }


async def test_events_v1_event_is_readable_as_core_event(
    target: ServerUnderTest, http: aiohttp.ClientSession, core: str, newer: str
) -> None:
    made = await make(http, newer, a_newer_event(target.namespace))

    _, found = await ask(http, "GET", f"{core}/web")

    assert made["deprecatedSource"] == {}
    assert essence(found) == {
        "apiVersion": "v1",
        "involvedObject": made["regarding"],
        "reason": "R",
        "message": "N",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "type": "Normal",
        "eventTime": MICRO,
        "action": "A",
        "reportingComponent": "example.com/c",
        "reportingInstance": "i",
    }


async def test_both_event_versions_share_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession, core: str, newer: str
) -> None:
    await make(http, newer, a_newer_event(target.namespace))
    selector = "regarding.name=web,reportingController=example.com/c"

    async with watching(http, newer, resourceVersion="0") as answer:
        (seen,) = await next_events(answer, 1)
        _, listed = await ask(http, "GET", newer, fieldSelector=selector)
        code, _ = await ask(http, "GET", newer, fieldSelector="involvedObject.name=web")
        assert (await ask(http, "DELETE", f"{core}/web"))[0] == 200
        (gone,) = await next_events(answer, 1)

    assert (names(listed), code) == (["web"], 400)
    assert seen["object"]["note"] == gone["object"]["note"] == "N"
    assert (seen["type"], gone["type"]) == ("ADDED", "DELETED")


async def test_managed_fields_of_other_event_group_are_dropped(
    target: ServerUnderTest, http: aiohttp.ClientSession, core: str, newer: str
) -> None:
    await make(http, core, an_event("web", target.namespace))

    code, found = await patch(
        http, f"{newer}/web", {"metadata": {"labels": {"a": "b"}}}
    )

    (entry,) = found["metadata"]["managedFields"]
    assert code == 200
    assert entry["apiVersion"] == "events.k8s.io/v1"
    assert [*entry["fieldsV1"]] == ["f:metadata"]


@each_case(
    "fields, problems",
    [
        ({"eventTime": None}, ["eventTime: Required value"]),
        ({"type": "x"}, ['type: Invalid value: "": has invalid value: x']),
        (
            {"deprecatedCount": 3, "deprecatedSource": SOURCE},
            [
                'count: Invalid value: "": needs to be unset',
                'source: Invalid value: "": needs to be unset',
            ],
        ),
        ({"reportingController": ""}, ["reportingController: Required value"]),
        ({"action": ""}, ["action: Required value"]),
    ],
)
async def test_events_v1_event_is_validated_more_strictly(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    newer: str,
    fields: dict[str, Any],
    problems: list[str],
) -> None:
    body = a_newer_event(target.namespace, **fields)

    code, answer = await ask(http, "POST", newer, body)

    assert (code, answer["details"]["kind"]) == (422, "Event")
    assert answer["message"].startswith('Event "web" is invalid: ')
    assert [it for it in problems if it not in answer["message"]] == []


@pytest.mark.parametrize("name", ["Web", "a_b", "a..b"])
async def test_only_events_v1_requires_dns_names(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    core: str,
    newer: str,
    name: str,
) -> None:
    body = a_newer_event(target.namespace) | named(name)

    code, answer = await ask(http, "POST", newer, body)

    problem = f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain'
    assert code == 422
    assert answer["message"].startswith(f'Event "{name}" is invalid: {problem} must')
    await make(http, core, an_event(name, target.namespace))


async def test_events_v1_update_may_only_change_series(
    target: ServerUnderTest, http: aiohttp.ClientSession, newer: str
) -> None:
    await make(http, newer, a_newer_event(target.namespace))

    series = {"count": 2, "lastObservedTime": MICRO}
    code, found = await patch(http, f"{newer}/web", {"series": series})
    refused, answer = await patch(http, f"{newer}/web", {"note": "other"})

    assert (code, found["series"]) == (200, series)
    assert refused == 422
    assert 'message: Invalid value: "other": field is immutable' in answer["message"]


# -------------------------------------------------------------------- autoscalers


@pytest.fixture
def first(target: ServerUnderTest) -> str:
    return target.path("horizontalpodautoscalers", FIRST)


@pytest.fixture
def second(target: ServerUnderTest) -> str:
    return target.path("horizontalpodautoscalers", SECOND)


def an_autoscaler(**spec: Any) -> dict[str, Any]:
    aim = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    return named("web", spec={"scaleTargetRef": aim, "maxReplicas": 3, **spec})


def cpu(percentage: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


@pytest.mark.parametrize(
    ("spec", "percentage"), [({"targetCPUUtilizationPercentage": 50}, 50), ({}, 80)]
)
async def test_autoscaler_v1_target_is_cpu_metric(
    http: aiohttp.ClientSession,
    first: str,
    second: str,
    spec: dict[str, int],
    percentage: int,
) -> None:
    made = await make(http, first, an_autoscaler(**spec))

    _, found = await ask(http, "GET", f"{second}/web")

    assert made["spec"]["targetCPUUtilizationPercentage"] == percentage
    assert made["spec"]["minReplicas"] == 1
    assert made["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
    assert found["spec"]["metrics"] == [cpu(percentage)]
    assert found["status"] == {"desiredReplicas": 0, "currentMetrics": None}


SERVICE = {"kind": "Service", "name": "s", "apiVersion": "v1"}
METRICS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "resource",
        {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
        {"name": "memory", "targetAverageValue": "1Gi"},
    ),
    (
        "external",
        {
            "metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "Value", "value": "30"},
        },
        {
            "metricName": "q",
            "metricSelector": {"matchLabels": {"a": "b"}},
            "targetValue": "30",
        },
    ),
    (
        "pods",
        {
            "metric": {"name": "p", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "AverageValue", "averageValue": "1500m"},
        },
        {
            "metricName": "p",
            "targetAverageValue": "1500m",
            "selector": {"matchLabels": {"a": "b"}},
        },
    ),
    (
        "object",
        {
            "describedObject": SERVICE,
            "target": {"type": "AverageValue", "averageValue": "2"},
            "metric": {"name": "o"},
        },
        {
            "target": SERVICE,
            "metricName": "o",
            "targetValue": "0",
            "averageValue": "2",
        },
    ),
    (
        "containerResource",
        {
            "name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 10},
            "container": "c",
        },
        {"name": "cpu", "targetAverageUtilization": 10, "container": "c"},
    ),
]


def of_type(holder: str, held: object) -> dict[str, Any]:
    return {"type": holder[0].upper() + holder[1:], holder: held}


@pytest.mark.parametrize(
    ("holder", "new", "old"), METRICS, ids=[holder for holder, *_ in METRICS]
)
async def test_autoscaler_v1_keeps_other_metrics_in_annotation(
    http: aiohttp.ClientSession,
    first: str,
    second: str,
    holder: str,
    new: dict[str, Any],
    old: dict[str, Any],
) -> None:
    metric = of_type(holder, new)
    await make(http, second, an_autoscaler(metrics=[metric, cpu(60)]))

    _, found = await ask(http, "GET", f"{first}/web")
    code, _ = await patch(http, f"{first}/web", {"spec": {"maxReplicas": 5}})
    _, back = await ask(http, "GET", f"{second}/web")

    text = found["metadata"]["annotations"][f"{CARRIED}metrics"]
    assert text == json.dumps([of_type(holder, old)], separators=(",", ":"))
    assert found["spec"]["targetCPUUtilizationPercentage"] == 60
    assert (code, back["spec"]["maxReplicas"]) == (200, 5)
    assert back["spec"]["metrics"] == [metric, cpu(60)]
    assert "annotations" not in back["metadata"]


async def test_autoscaler_v1_keeps_behavior_and_status_in_annotations(
    http: aiohttp.ClientSession, first: str, second: str
) -> None:
    policies = [{"type": "Pods", "value": 4, "periodSeconds": 60}]
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 5, "policies": policies}}
    made = await make(http, second, an_autoscaler(behavior=behavior))
    condition = {"type": "AbleToScale", "status": "True", "lastTransitionTime": TIME}
    used = {"averageValue": "5m", "averageUtilization": 7}
    status = {
        "desiredReplicas": 2,
        "conditions": [condition],
        "currentMetrics": [of_type("resource", {"name": "cpu", "current": used})],
    }
    await patch(http, f"{second}/web/status", {"status": status})

    _, found = await ask(http, "GET", f"{first}/web")
    await patch(http, f"{first}/web", {"spec": {"maxReplicas": 5}})
    _, back = await ask(http, "GET", f"{second}/web")

    texts = found["metadata"]["annotations"]
    carried = {key.removeprefix(CARRIED): it for key, it in texts.items()}
    assert carried["behavior"].startswith(
        '{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":'
        '[{"Type":"Pods","Value":4,"PeriodSeconds":15},'
    )
    assert carried["current-metrics"] == (
        '[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":7,'
        '"currentAverageValue":"5m"}}]'
    )
    assert json.loads(carried["conditions"]) == [condition]
    assert found["status"]["currentCPUUtilizationPercentage"] == 7
    assert back["spec"]["behavior"] == made["spec"]["behavior"]
    assert back["status"] == {**status, "currentMetrics": status["currentMetrics"]}


async def test_autoscaler_v1_drops_malformed_annotations(
    http: aiohttp.ClientSession, first: str
) -> None:
    body = an_autoscaler()
    body["metadata"]["annotations"] = {f"{CARRIED}metrics": "no JSON", "a": "b"}

    made = await make(http, first, body)

    assert made["metadata"]["annotations"] == {"a": "b"}


async def test_autoscaler_v1_errors_use_paths_of_v2(
    http: aiohttp.ClientSession, first: str
) -> None:
    body = an_autoscaler(maxReplicas=0, targetCPUUtilizationPercentage=50)

    code, answer = await ask(http, "POST", first, body)

    assert code == 422
    assert answer["message"] == (
        'HorizontalPodAutoscaler.autoscaling "web" is invalid: [spec.maxReplicas: '
        "Required value: must be set and greater than 0, spec.maxReplicas: Invalid "
        "value: 0: must be greater than or equal to `minReplicas`]"
    )


@pytest.mark.parametrize("group_version", [EVENTS, FIRST])
async def test_autoscaler_v1_table_has_columns_of_v2(
    target: ServerUnderTest, http: aiohttp.ClientSession, group_version: str
) -> None:
    plural = "events" if group_version == EVENTS else "horizontalpodautoscalers"
    other = "api/v1" if group_version == EVENTS else SECOND
    event = an_event("web", target.namespace, message="M", type="Normal")
    body = event if group_version == EVENTS else an_autoscaler()
    await make(http, target.path(plural, other), body)

    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    cells = []
    for it in (group_version, other):
        path = f"{target.path(plural, it)}/web"
        async with http.get(path, headers=accept) as answer:
            cells.append((await answer.json())["rows"][0]["cells"][1:7])

    assert cells[0] == cells[1]
    assert {"pod/web", "Deployment/web"} & set(map(str, cells[0]))
