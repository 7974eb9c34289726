"""Evictions and disruption budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import a_pod, ask, make, named, patch
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

BUDGETS = "apis/policy/v1"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", **named("web")}
REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."
RUNNING = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
}


@pytest.fixture
async def pod(target: ServerUnderTest, http: aiohttp.ClientSession) -> str:
    """Create a running and ready pod, and return its path."""
    body = a_pod("web", labels={"app": "web"}, spec={"nodeName": "node"})
    await make(http, target.path("pods"), body)
    path = f"{target.path('pods')}/web"
    code, answer = await patch(http, f"{path}/status", {"status": RUNNING})
    assert code == 200, answer
    return path


async def budget(
    target: ServerUnderTest, http: aiohttp.ClientSession, name: str = "pdb", **spec: Any
) -> str:
    selector = {"matchLabels": {"app": "web"}}
    body = named(name, spec={"minAvailable": 1, "selector": selector, **spec})
    await make(http, target.path("poddisruptionbudgets", BUDGETS), body)
    return f"{target.path('poddisruptionbudgets', BUDGETS)}/{name}"


async def report(http: aiohttp.ClientSession, path: str, **status: Any) -> None:
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    whole = {"observedGeneration": 1, "disruptionsAllowed": 0, **counts, **status}
    code, answer = await patch(http, f"{path}/status", {"status": whole})
    assert code == 200, answer


async def evict(
    http: aiohttp.ClientSession, pod: str, body: object = EVICTION, **params: str
) -> tuple[int, dict[str, Any]]:
    return await ask(http, "POST", f"{pod}/eviction", body, **params)


async def is_marked(http: aiohttp.ClientSession, pod: str) -> bool:
    """Return whether a pod is marked for deletion, or removed by our server."""
    code, found = await ask(http, "GET", pod)
    return code == 404 or "deletionTimestamp" in found["metadata"]


async def test_eviction_deletes_pod(http: aiohttp.ClientSession, pod: str) -> None:
    code, answer = await evict(http, pod)

    assert (code, answer["status"], answer["code"]) == (201, "Success", 201)
    assert answer.keys() == {"kind", "apiVersion", "metadata", "status", "code"}
    assert await is_marked(http, pod)


@pytest.mark.parametrize("where", ["query", "body"])
async def test_dry_run_eviction_deletes_nothing(
    http: aiohttp.ClientSession, pod: str, where: str
) -> None:
    params = {"dryRun": "All"} if where == "query" else {}
    options = {"deleteOptions": {"dryRun": ["All"]}} if where == "body" else {}

    assert (await evict(http, pod, EVICTION | options, **params))[0] == 201
    assert not await is_marked(http, pod)


async def test_exhausted_budget_rejects_eviction_with_429(
    target: ServerUnderTest, http: aiohttp.ClientSession, pod: str
) -> None:
    await report(http, await budget(target, http))

    code, answer = await evict(http, pod, dryRun="All")

    why = "The disruption budget pdb needs 1 healthy pods and has 1 currently"
    assert (code, answer["reason"], answer["message"]) == (
        429,
        "TooManyRequests",
        REFUSAL,
    )
    assert answer["details"] == {
        "causes": [{"reason": "DisruptionBudget", "message": why}]
    }


async def test_unobserved_budget_rejects_eviction_with_retry_after(
    target: ServerUnderTest, http: aiohttp.ClientSession, pod: str
) -> None:
    await budget(target, http)

    async with http.post(f"{pod}/eviction", json=EVICTION) as reply:
        answer = await reply.json()

    assert (reply.status, reply.headers["Retry-After"]) == (429, "10")
    assert answer["details"]["retryAfterSeconds"] == 10
    assert "still being processed" in answer["details"]["causes"][0]["message"]


async def test_eviction_decrements_allowed_disruptions(
    target: ServerUnderTest, http: aiohttp.ClientSession, pod: str
) -> None:
    path = await budget(target, http)
    await report(http, path, disruptionsAllowed=1)

    assert (await evict(http, pod, dryRun="All"))[0] == 201
    _, before = await ask(http, "GET", path)
    assert (await evict(http, pod))[0] == 201
    _, after = await ask(http, "GET", path)

    (condition,) = after["status"]["conditions"]
    assert before["status"]["disruptionsAllowed"] == 1
    assert after["status"]["disruptionsAllowed"] == 0
    assert [*after["status"]["disruptedPods"]] == ["web"]
    assert (condition["status"], condition["reason"]) == ("False", "InsufficientPods")
    assert after["metadata"]["managedFields"][-1]["manager"] == "kube-apiserver"


@pytest.mark.parametrize(
    ("code", "policy", "healthy"),
    [(201, None, 1), (429, None, 0), (201, "AlwaysAllow", 0)],
)
async def test_unready_pod_can_be_evicted(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    pod: str,
    code: int,
    policy: str | None,
    healthy: int,
) -> None:
    conditions = [{"type": "Ready", "status": "False"}]
    await patch(http, f"{pod}/status", {"status": {"conditions": conditions}})
    spec = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    await report(http, await budget(target, http, **spec), currentHealthy=healthy)

    assert (await evict(http, pod))[0] == code


async def test_pod_that_is_not_running_ignores_budget(
    target: ServerUnderTest, http: aiohttp.ClientSession, pod: str
) -> None:
    await patch(http, f"{pod}/status", {"status": {"phase": "Succeeded"}})
    await report(http, await budget(target, http))

    assert (await evict(http, pod))[0] == 201


async def test_eviction_with_two_budgets_is_500(
    target: ServerUnderTest, http: aiohttp.ClientSession, pod: str
) -> None:
    await budget(target, http)
    await budget(target, http, "other", selector={})

    code, answer = await evict(http, pod)

    assert (code, "reason" in answer) == (500, False)
    assert "more than one PodDisruptionBudget" in answer["message"]


async def test_budget_without_selector_matches_no_pod(
    target: ServerUnderTest, http: aiohttp.ClientSession, pod: str
) -> None:
    await budget(target, http, selector=None)

    assert (await evict(http, pod))[0] == 201


@each_case(
    "code, body",
    [
        pytest.param(400, named("other"), id="other name"),
        pytest.param(400, {}, id="no name"),
        pytest.param(400, {"apiVersion": "v1", "kind": "Pod"}, id="other kind"),
        pytest.param(
            409,
            EVICTION | {"deleteOptions": {"preconditions": {"uid": "x"}}},
            id="other uid",
        ),
        pytest.param(
            422, EVICTION | {"deleteOptions": {"propagationPolicy": "x"}}, id="options"
        ),
    ],
)
async def test_invalid_eviction_is_rejected(
    http: aiohttp.ClientSession, pod: str, code: int, body: object
) -> None:
    assert (await evict(http, pod, body))[0] == code


async def test_eviction_of_missing_pod_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    code, answer = await evict(http, f"{target.path('pods')}/web")

    assert (code, answer["message"]) == (404, 'pods "web" not found')


@each_case("method", ["GET", "PUT", "DELETE"])
async def test_eviction_supports_only_create(
    http: aiohttp.ClientSession, pod: str, method: str
) -> None:
    assert (await ask(http, method, f"{pod}/eviction", EVICTION))[0] == 405
