"""Deletion: preconditions, options, and grace periods of pods."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    a_pod,
    ask,
    change,
    make,
    named,
    next_events,
    types_and_names,
    version_of,
    versions,
    watching,
)
from contract_servers import REAL
from kind_samples import SAMPLES

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


# -------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("field", "what", "why"),
    [
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ],
)
async def test_delete_checks_preconditions(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    field: str,
    what: str,
    why: str,
) -> None:
    sample = SAMPLES["deployments"]
    name = sample.name(target)
    one = f"{sample.path(target)}/{name}"
    made = await make(http, sample.path(target), sample.body(target))
    found = made["metadata"][field]

    wrong = {"preconditions": {field: "1"}}
    refused, status = await ask(http, "DELETE", one, wrong)
    code, _ = await ask(http, "DELETE", one, {"preconditions": {field: found}})

    assert (refused, status["reason"], code) == (409, "Conflict", 200)
    assert status["message"] == (
        f'Operation cannot be fulfilled on Deployment.apps "{name}": the {what} in the '
        f"precondition (1) does not match the {what} in record ({found}). The object "
        f"might have been {why}"
    )
    assert status["details"] == {"name": name, "group": "apps", "kind": "Deployment"}


async def test_namespace_delete_checks_preconditions(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    one = f"/api/v1/namespaces/{target.namespace}"
    _, found = await ask(http, "GET", one)

    code, status = await ask(http, "DELETE", one, {"preconditions": {"uid": "1"}})

    assert code == 409
    assert status["message"] == (
        f'Operation cannot be fulfilled on namespaces "{target.namespace}": Precondition '
        "failed: UID in precondition: 1, UID in object meta: "
        f"{found['metadata']['uid']}"
    )


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        pytest.param(
            {"propagationPolicy": "Frob"},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported '
            'value: "Frob": supported values: "Foreground", "Background", "Orphan", '
            '"nil"',
            id="policy",
        ),
        pytest.param(
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: '
            '"Orphan": orphanDependents and deletionPropagation cannot be both set',
            id="twice",
        ),
        pytest.param(
            {"dryRun": ["x"]},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: '
            'supported values: "All"',
            id="dry-run",
        ),
        pytest.param(
            {"gracePeriodSeconds": "x"},
            400,
            "json: cannot unmarshal string into Go struct field "
            "DeleteOptions.gracePeriodSeconds of type int64",
            id="grace",
        ),
        pytest.param(
            [1],
            400,
            "couldn't get version/kind; json parse error: json: cannot unmarshal array "
            r'into Go value of type struct { APIVersion string "json:\"apiVersion,'
            r'omitempty\""; Kind string "json:\"kind,omitempty\"" }',
            id="list",
        ),
    ],
)
async def test_invalid_delete_options_are_rejected(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    options: object,
    code: int,
    text: str,
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    answered, status = await ask(http, "DELETE", f"{path}/a", options)

    assert (answered, status["message"]) == (code, text)
    assert (await ask(http, "GET", f"{path}/a"))[0] == 200


async def test_delete_options_can_be_in_url(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    broken, status = await ask(http, "DELETE", f"{path}/a", gracePeriodSeconds="x")
    _, marked = await ask(http, "DELETE", f"{path}/a", orphanDependents="true")
    await change(http, f"{path}/a", {"metadata": {"finalizers": None}})

    assert broken == 400
    assert status["message"] == 'strconv.ParseInt: parsing "x": invalid syntax'
    assert marked["metadata"]["finalizers"] == ["orphan"]


# -------------------------------------------------------------------- pods


def grace(body: dict[str, Any]) -> int:
    """Return the grace period of a pod, and check that its timestamp agrees."""
    metadata = body["metadata"]
    seconds: int = metadata["deletionGracePeriodSeconds"]
    begins = datetime.fromisoformat(metadata["creationTimestamp"])
    ends = datetime.fromisoformat(metadata["deletionTimestamp"])
    assert 0 <= (ends - begins).total_seconds() - seconds < 5
    return seconds


async def test_unscheduled_pod_is_deleted_at_once(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    made = await make(http, path, a_pod("web"))

    version = str(version_of(made))
    async with watching(http, path, resourceVersion=version) as watch:
        code, gone = await ask(http, "DELETE", f"{path}/web", {"gracePeriodSeconds": 9})
        events = await next_events(watch, 2)

    assert (code, gone["kind"], grace(gone)) == (200, "Pod", 0)
    assert types_and_names(events) == [("MODIFIED", "web"), ("DELETED", "web")]
    assert [grace(it["object"]) for it in events] == [0, 0]
    assert [it["object"]["metadata"]["generation"] for it in events] == [2, 2]
    assert versions(events)[1] == version_of(gone)
    assert (await ask(http, "GET", f"{path}/web"))[0] == 404


@pytest.mark.parametrize(
    ("spec", "options", "seconds"),
    [
        pytest.param({}, {}, 30, id="usual"),
        pytest.param({"terminationGracePeriodSeconds": 7}, {}, 7, id="of-the-pod"),
        pytest.param({}, {"gracePeriodSeconds": 5}, 5, id="asked-for"),
        pytest.param({}, {"gracePeriodSeconds": -1}, 1, id="negative"),
    ],
)
async def test_scheduled_pod_gets_grace_period(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    spec: dict[str, Any],
    options: dict[str, Any],
    seconds: int,
) -> None:
    path = target.path("pods")
    pod = a_pod("web", spec={"nodeName": "nowhere", **spec})
    made = await make(http, path, pod)

    version = str(version_of(made))
    async with watching(http, path, resourceVersion=version) as watch:
        code, marked = await ask(http, "DELETE", f"{path}/web", options)
        (event,) = await next_events(watch, 1)

    await ask(http, "DELETE", f"{path}/web", {"gracePeriodSeconds": 0})
    assert (code, grace(marked)) == (200, seconds)
    assert marked["metadata"]["generation"] == 2
    assert (event["type"], event["object"]) == ("MODIFIED", marked)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pod_is_deleted_at_once(
    target: ServerUnderTest, http: aiohttp.ClientSession, phase: str
) -> None:
    path = target.path("pods")
    await make(http, path, a_pod("web", spec={"nodeName": "nowhere"}))
    await change(http, f"{path}/web/status", {"status": {"phase": phase}})

    _, gone = await ask(http, "DELETE", f"{path}/web")

    assert grace(gone) == 0
    assert (await ask(http, "GET", f"{path}/web"))[0] == 404


# Our server acts as the kubelet, so its pod has stopped.
@pytest.mark.parametrize("target", [REAL], indirect=True)
async def test_second_delete_can_only_shorten_grace_period(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    await make(http, path, a_pod("web", spec={"nodeName": "nowhere"}))

    found = [
        (await ask(http, "DELETE", f"{path}/web", options))[1]
        for options in ({}, {"gracePeriodSeconds": 3}, {"gracePeriodSeconds": 9})
    ]
    _, gone = await ask(http, "DELETE", f"{path}/web", {"gracePeriodSeconds": 0})

    assert [grace(it) for it in (*found, gone)] == [30, 3, 3, 0]
    assert found[2] == found[1]
    assert (await ask(http, "GET", f"{path}/web"))[0] == 404


@pytest.mark.parametrize("target", ["ours"], indirect=True)
async def test_our_server_removes_pods_like_kubelet(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    made = await make(http, path, a_pod("web", spec={"nodeName": "nowhere"}))

    version = str(version_of(made))
    async with watching(http, path, resourceVersion=version) as watch:
        await ask(http, "DELETE", f"{path}/web")
        events = await next_events(watch, 3)

    assert types_and_names(events) == [("MODIFIED", "web")] * 2 + [("DELETED", "web")]
    assert [grace(it["object"]) for it in events] == [30, 0, 0]


async def test_pod_with_finalizer_waits_after_grace_period(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    body = a_pod("web", metadata={"finalizers": ["example.com/x"]})
    await make(http, path, body)

    _, marked = await ask(http, "DELETE", f"{path}/web")
    code, found = await ask(http, "GET", f"{path}/web")
    await change(http, f"{path}/web", {"metadata": {"finalizers": None}})

    assert (code, found) == (200, marked)
    assert grace(marked) == 0
    assert (await ask(http, "GET", f"{path}/web"))[0] == 404
