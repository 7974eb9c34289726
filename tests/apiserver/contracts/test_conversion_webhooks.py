"""Conversion webhooks of custom resources: reads and writes in another version."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import ask, change, make, named, next_events, remove, watching
from canned import make_certificates
from custom_definitions import DEFINITIONS, defined, definition, group_of, version
from webhook_hosts import a_hook_server, a_rule, configured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from canned import Certificates
    from contract_servers import ServerUnderTest
    from webhook_hosts import HookServer

PATH = "/convert"
INVALID = "returned invalid object at index 0: "


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def hooks(certificates: Certificates) -> AsyncIterator[HookServer]:
    async with a_hook_server(certificates) as server:
        server.handlers[PATH] = convert
        yield server


def convert(request: dict[str, Any]) -> dict[str, Any]:
    """Convert between `spec.size` of v1 and `spec.height` of v2."""
    desired = request["desiredAPIVersion"]
    return answer(request, [_converted(it, desired) for it in request["objects"]])


def _converted(body: dict[str, Any], desired: str) -> dict[str, Any]:
    before, after = ("size", "height") if desired.endswith("v2") else ("height", "size")
    spec = dict(body.get("spec") or {})
    if before in spec:
        spec[after] = spec.pop(before)

    return {**body, "apiVersion": desired, "spec": spec}


def answer(
    request: dict[str, Any], converted: list[Any], **result: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {
            "uid": request["uid"],
            "result": result or {"status": "Success"},
            "convertedObjects": converted,
        },
    }


def conversion(hooks: HookServer) -> dict[str, Any]:
    return {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": hooks.config(PATH),
            "conversionReviewVersions": ["v1"],
        },
    }


@asynccontextmanager
async def gadgets(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> AsyncIterator[tuple[str, str]]:
    """Define a kind with two versions; yield their paths. v1 is stored."""
    body = definition(
        group_of(target),
        versions=[version("v1"), version("v2")],
        conversion=conversion(hooks),
    )
    async with defined(http, body):
        yield paths(target)


def paths(target: ServerUnderTest) -> tuple[str, str]:
    group = group_of(target)
    return (
        target.path("gadgets", f"apis/{group}/v1"),
        target.path("gadgets", f"apis/{group}/v2"),
    )


def gadget(target: ServerUnderTest, version_: str, name: str, **spec: Any) -> Any:
    return {
        "apiVersion": f"{group_of(target)}/{version_}",
        "kind": "Gadget",
        **named(name, spec=spec),
    }


async def test_object_is_read_in_the_other_version(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    async with gadgets(target, http, hooks) as (first, second):
        made = await make(http, first, gadget(target, "v1", "a", size=3))
        _, found = await ask(http, "GET", f"{second}/a")
        _, listed = await ask(http, "GET", second)

    assert made["spec"] == {"size": 3}
    assert found["apiVersion"] == f"{group_of(target)}/v2"
    assert found["spec"] == {"height": 3}
    # Managed fields name the version of their fields.
    assert found["metadata"] == made["metadata"]
    assert [it["spec"] for it in listed["items"]] == [{"height": 3}]
    assert {it["desiredAPIVersion"] for it in hooks.requests} == {
        f"{group_of(target)}/v2"
    }


async def test_object_is_written_in_the_other_version(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    async with gadgets(target, http, hooks) as (first, second):
        made = await make(http, second, gadget(target, "v2", "a", height=3))
        _, stored = await ask(http, "GET", f"{first}/a")
        changed = await change(http, f"{second}/a", {"spec": {"height": 4}})
        code, replaced = await ask(
            http,
            "PUT",
            f"{first}/a",
            {**stored, "spec": {"size": 5}, "metadata": changed["metadata"]},
        )
        _, last = await ask(http, "GET", f"{second}/a")

    assert (made["spec"], stored["spec"]) == ({"height": 3}, {"size": 3})
    assert changed["spec"] == {"height": 4}
    assert (code, replaced["spec"], last["spec"]) == (200, {"size": 5}, {"height": 5})


async def test_watch_sends_events_in_its_version(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    async with gadgets(target, http, hooks) as (first, second):
        await make(http, first, gadget(target, "v1", "a", size=1))
        async with watching(http, second) as events:
            found = await next_events(events, 1)
            await change(http, f"{first}/a", {"spec": {"size": 2}})
            await change(http, f"{second}/a", {"spec": {"height": 3}})
            found += await next_events(events, 2)
            await remove(http, f"{first}/a")
            found += await next_events(events, 1)

    assert [(it["type"], it["object"]["spec"]) for it in found] == [
        ("ADDED", {"height": 1}),
        ("MODIFIED", {"height": 2}),
        ("MODIFIED", {"height": 3}),
        ("DELETED", {"height": 3}),
    ]
    assert {it["object"]["apiVersion"] for it in found} == {f"{group_of(target)}/v2"}


async def test_objects_are_converted_when_a_version_is_added(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    body = definition(group_of(target))
    path = f"{DEFINITIONS}/{body['metadata']['name']}"
    async with defined(http, body):
        first, second = paths(target)
        for name in ("a", "b"):
            await make(http, first, gadget(target, "v1", name, size=3))

        versions = [version("v1"), version("v2")]
        await change(
            http,
            path,
            {"spec": {"versions": versions, "conversion": conversion(hooks)}},
        )
        # A real server uses the new definition with some delay.
        async with asyncio.timeout(20):
            while await specs(http, second) != [{"height": 3}] * 2:
                await asyncio.sleep(0.1)


async def specs(http: aiohttp.ClientSession, path: str) -> list[Any]:
    """Return the specs in a list; empty if the resource is not served."""
    async with http.get(path) as found:
        items = (await found.json())["items"] if found.status == 200 else ()
        return [it["spec"] for it in items]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (
            lambda it: answer(it, [], status="Failure", message="cannot convert"),
            "failed: cannot convert",
        ),
        (
            lambda it: answer(it, [], status="Failure"),
            "failed: response.result.status was 'Failure', not 'Success'",
        ),
        (lambda it: answer(it, []), "returned 0 objects, expected 1"),
        (
            lambda it: {**answer(it, []), "response": None},
            "failed: no response provided",
        ),
        (
            lambda it: answer(
                it,
                [
                    {**_converted(body, "x/v2"), "kind": "Gadget"}
                    for body in it["objects"]
                ],
            ),
            f"{INVALID}invalid groupVersion (expected {{group}}/v2, received x/v2)",
        ),
        (
            lambda it: answer(
                it,
                [
                    {**body, "metadata": {**body["metadata"], "name": "b"}}
                    for body in convert(it)["response"]["convertedObjects"]
                ],
            ),
            "returned invalid object: must have the same name: a != b",
        ),
    ],
)
async def test_failed_conversion_fails_the_read(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    reply: Any,
    why: str,
) -> None:
    hooks.handlers[PATH] = reply
    async with gadgets(target, http, hooks) as (first, second):
        await make(http, first, gadget(target, "v1", "a", size=1))
        code, failed = await ask(http, "GET", f"{second}/a")

    group = group_of(target)
    start = f"conversion webhook for {group}/v1, Kind=Gadget "
    assert (code, failed["message"]) == (500, start + why.format(group=group))


async def test_failed_conversion_fails_a_write_in_the_other_version(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    hooks.handlers[PATH] = lambda it: answer(it, [], status="Failure", message="no")
    async with gadgets(target, http, hooks) as (first, second):
        code, failed = await ask(
            http, "POST", second, gadget(target, "v2", "a", height=1)
        )
        _, listed = await ask(http, "GET", first)

    group = group_of(target)
    why = f"conversion webhook for {group}/v2, Kind=Gadget failed: no"
    assert (code, failed["message"], listed["items"]) == (500, why, [])


async def test_webhook_may_change_labels_but_no_other_metadata(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    def relabel(request: dict[str, Any]) -> dict[str, Any]:
        found = convert(request)
        for body in found["response"]["convertedObjects"]:
            metadata = {"labels": {"a": "b"}, "finalizers": ["example.com/x"]}
            body["metadata"] = {**body["metadata"], **metadata}

        return found

    hooks.handlers[PATH] = relabel
    async with gadgets(target, http, hooks) as (first, second):
        await make(http, first, gadget(target, "v1", "a", size=1))
        _, found = await ask(http, "GET", f"{second}/a")

    assert found["metadata"]["labels"] == {"a": "b"}
    assert "finalizers" not in found["metadata"]


async def test_admission_webhook_gets_the_version_of_its_rule(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    rule = a_rule("gadgets", group=group_of(target), apiVersions=["v2"])
    async with (
        gadgets(target, http, hooks) as (first, _),
        configured(target, http, hooks, {"rules": [rule]}),
    ):
        await make(http, first, gadget(target, "v1", "a", size=3))

    (request,) = [request for path, request in hooks.calls if path == "/hook"]
    assert request["object"]["spec"] == {"height": 3}
    assert (request["kind"]["version"], request["requestKind"]["version"]) == (
        "v2",
        "v1",
    )
