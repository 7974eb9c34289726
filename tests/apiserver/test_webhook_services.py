"""Addresses of webhook services, and writes that concern webhooks without HTTP."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from webhook_hosts import a_rule, allow, deny, patching

from aioinformer import Resource
from aioinformer.errors import ApiError, OptionsError, ServerError
from aioinformer.model.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BODY = {"metadata": {"name": "a", "namespace": "default"}}
SERVICE = {"namespace": "shop", "name": "operator", "path": "/hook"}


def configure(
    server: APIServer, *, mutating: bool = False, **fields: Any
) -> dict[str, Any]:
    """Create a configuration with one webhook for config maps."""
    resource = (
        MUTATING_WEBHOOK_CONFIGURATIONS
        if mutating
        else VALIDATING_WEBHOOK_CONFIGURATIONS
    )
    webhook = {
        "name": "maps.example.com",
        "clientConfig": {"service": SERVICE},
        "rules": [a_rule("configmaps")],
        "sideEffects": "None",
        **fields,
    }
    return server.create(resource, {"metadata": {"name": "x"}, "webhooks": [webhook]})


def app_of(handle: Callable[[web.Request], Awaitable[web.Response]]) -> web.Application:
    app = web.Application()
    app.router.add_post("/hook", handle)
    return app


async def test_service_is_called_at_its_address(apiserver: APIServer) -> None:
    async def handle(incoming: web.Request) -> web.Response:
        request = (await incoming.json())["request"]
        return web.json_response(deny(request, message="by the service"))

    configure(apiserver)
    async with TestServer(app_of(handle)) as hooks, apiserver.client() as client:
        apiserver.webhook_services["shop/operator"] = str(hooks.make_url("/"))
        with pytest.raises(ApiError, match="denied the request: by the service"):
            await client.create(CONFIG_MAPS, BODY)


async def test_unknown_service_fails_with_advice(apiserver: APIServer) -> None:
    configure(apiserver)
    async with apiserver.client() as client:
        with pytest.raises(
            ServerError, match="service shop/operator has no address"
        ) as it:
            await client.create(CONFIG_MAPS, BODY)

    assert 'webhook_services={"shop/operator": "https://127.0.0.1:9443"}' in str(
        it.value
    )


async def test_match_conditions_fail_with_a_reason(apiserver: APIServer) -> None:
    configure(apiserver, matchConditions=[{"name": "a", "expression": "true"}])
    async with apiserver.client() as client:
        with pytest.raises(ServerError, match="this server cannot evaluate CEL"):
            await client.create(CONFIG_MAPS, BODY)


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ({"allowed": "false"}, "string into .*response.allowed of type bool"),
        ({"warnings": 5}, r"number into .*response.warnings of type \[\]string"),
        ({"warnings": [5]}, "number into .*response.warnings of type string"),
        ({"auditAnnotations": {"a": 5}}, "number into .*Annotations of type string"),
        ({"status": "no"}, "string into .*response.status of type v1.Status"),
        ({"status": {"code": "abc"}}, "string into .*status.code of type int32"),
        ({"status": {"code": True}}, "bool into .*status.code of type int32"),
        ({"status": {"message": [5]}}, "array into .*status.message of type string"),
        ({"status": {"details": 5}}, "number into .*details of type v1.StatusDetails"),
        (
            {"status": {"details": {"causes": [{"field": 5}]}}},
            "number into .*StatusCause.response.status.details.causes.field",
        ),
        ({"patch": [{"op": "add"}], "patchType": "JSONPatch"}, "array into .*patch"),
    ],
)
async def test_response_of_wrong_types_is_decided_by_the_failure_policy(
    apiserver: APIServer, response: dict[str, Any], problem: str, policy: str
) -> None:
    async def handle(incoming: web.Request) -> web.Response:
        request = (await incoming.json())["request"]
        return web.json_response(allow(request, **response))

    configure(apiserver, mutating=True, failurePolicy=policy)
    async with TestServer(app_of(handle)) as hooks, apiserver.client() as client:
        apiserver.webhook_services["shop/operator"] = str(hooks.make_url("/"))
        if policy == "Ignore":
            await client.create(CONFIG_MAPS, BODY)
            return

        with pytest.raises(
            ServerError, match=f"failed to call webhook: json.*{problem}"
        ):
            await client.create(CONFIG_MAPS, BODY)

    assert not apiserver.objects(CONFIG_MAPS)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (patching({"op": "replace", "path": "", "value": 5}), "unmarshal number into"),
        (lambda it: deny(it, code=9999), "invalid status code 9999"),
    ],
)
async def test_impossible_answer_fails_the_write(
    apiserver: APIServer, reply: Any, problem: str
) -> None:
    async def handle(incoming: web.Request) -> web.Response:
        return web.json_response(reply((await incoming.json())["request"]))

    configure(apiserver, mutating=True, failurePolicy="Ignore")
    async with TestServer(app_of(handle)) as hooks, apiserver.client() as client:
        apiserver.webhook_services["shop/operator"] = str(hooks.make_url("/"))
        with pytest.raises(ServerError, match=problem):
            await client.create(CONFIG_MAPS, BODY)


async def test_ca_bundle_that_is_no_certificate_fails_with_a_reason(
    apiserver: APIServer,
) -> None:
    bundle = base64.b64encode("é".encode()).decode()
    configure(apiserver, clientConfig={"service": SERVICE, "caBundle": bundle})
    apiserver.webhook_services["shop/operator"] = "https://127.0.0.1:1"
    async with apiserver.client() as client:
        with pytest.raises(ServerError, match="failed to call webhook: Post"):
            await client.create(CONFIG_MAPS, BODY)


async def test_arranged_writes_call_no_webhook(apiserver: APIServer) -> None:
    configure(apiserver)
    made = apiserver.create(CONFIG_MAPS, BODY)
    apiserver.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}})
    apiserver.delete(CONFIG_MAPS, "a")

    assert made["metadata"]["name"] == "a"


async def test_write_sees_changes_made_while_a_webhook_was_called(
    apiserver: APIServer,
) -> None:
    seen: list[Any] = []

    async def handle(incoming: web.Request) -> web.Response:
        request = (await incoming.json())["request"]
        seen.append(request["oldObject"]["data"])
        if len(seen) == 1:
            apiserver.patch(CONFIG_MAPS, "a", {"data": {"meanwhile": "1"}})

        return web.json_response(allow(request))

    apiserver.create(CONFIG_MAPS, {**BODY, "data": {"first": "1"}})
    configure(apiserver)
    async with TestServer(app_of(handle)) as hooks, apiserver.client() as client:
        apiserver.webhook_services["shop/operator"] = str(hooks.make_url("/"))
        patch = {"data": {"mine": "1"}}
        await client.patch(CONFIG_MAPS, "a", patch, namespace="default")

    assert seen == [{"first": "1"}, {"first": "1", "meanwhile": "1"}]
    stored = apiserver.get(CONFIG_MAPS, "a")["data"]
    assert stored == {"first": "1", "meanwhile": "1", "mine": "1"}


async def test_webhook_that_changes_the_object_of_the_write_does_not_hang(
    apiserver: APIServer,
) -> None:
    calls = 0

    async def handle(incoming: web.Request) -> web.Response:
        nonlocal calls
        request, calls = (await incoming.json())["request"], calls + 1
        apiserver.patch(CONFIG_MAPS, "a", {"data": {"calls": str(calls)}})
        return web.json_response(allow(request))

    apiserver.create(CONFIG_MAPS, BODY)
    configure(apiserver)
    async with TestServer(app_of(handle)) as hooks, apiserver.client() as client:
        apiserver.webhook_services["shop/operator"] = str(hooks.make_url("/"))
        change = {"data": {"a": "b"}}
        with pytest.raises(ServerError, match=r"504 .*did not complete within"):
            await client.patch(CONFIG_MAPS, "a", change, namespace="default")

    assert apiserver.get(CONFIG_MAPS, "a")["data"] == {"calls": str(calls)}


async def test_other_requests_are_served_while_a_webhook_is_called(
    apiserver: APIServer,
) -> None:
    called, proceed = asyncio.Event(), asyncio.Event()

    async def handle(incoming: web.Request) -> web.Response:
        called.set()
        await proceed.wait()
        request = (await incoming.json())["request"]
        patch = patching({"op": "add", "path": "/data", "value": {"k": "v"}})
        return web.json_response(patch(request))

    configure(apiserver, mutating=True)
    async with (
        TestServer(app_of(handle)) as hooks,
        apiserver.client() as client,
        asyncio.TaskGroup() as group,
    ):
        apiserver.webhook_services["shop/operator"] = str(hooks.make_url("/"))
        writing = group.create_task(client.create(CONFIG_MAPS, BODY))
        await called.wait()
        assert await client.list(CONFIG_MAPS) == []
        proceed.set()

    assert writing.result()["data"] == {"k": "v"}


@pytest.mark.parametrize(
    "services",
    ["shop/operator", {"operator": "https://x"}, {"a/b": "x"}, {"a/b/c": "http://x"}],
)
def test_malformed_services_are_rejected(services: Any) -> None:
    with pytest.raises(
        OptionsError, match="webhook_services must map services to URLs"
    ):
        APIServer(webhook_services=services)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"result": "Success"}, "string into .*response.result of type v1.Status"),
        ({"convertedObjects": 5}, "number into .*response.convertedObjects"),
        ({"convertedObjects": [5]}, "invalid groupVersion"),
        ({}, "number into .*metadata.labels"),
    ],
)
async def test_conversion_of_wrong_types_fails_the_write(
    apiserver: APIServer, changes: dict[str, Any], problem: str
) -> None:
    async def handle(incoming: web.Request) -> web.Response:
        asked = (await incoming.json())["request"]
        obj = asked["objects"][0]
        metadata = {**obj["metadata"], "labels": 5}
        found = {**obj, "apiVersion": "example.com/v2", "metadata": metadata}
        response = {
            "uid": asked["uid"],
            "result": {"status": "Success"},
            "convertedObjects": [found],
            **changes,
        }
        kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
        return web.json_response({**kind, "response": response})

    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {
            "name": it,
            "served": True,
            "storage": it == "v2",
            "schema": {"openAPIV3Schema": schema},
        }
        for it in ("v1", "v2")
    ]
    async with TestServer(app_of(handle)) as hooks, apiserver.client() as client:
        apiserver.webhook_services["shop/operator"] = str(hooks.make_url("/"))
        webhook = {
            "clientConfig": {"service": SERVICE},
            "conversionReviewVersions": ["v1"],
        }
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.example.com"},
            "spec": {
                "group": "example.com",
                "names": {"plural": "gadgets", "kind": "Gadget"},
                "scope": "Namespaced",
                "versions": versions,
                "conversion": {"strategy": "Webhook", "webhook": webhook},
            },
        }
        apiserver.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        gadgets = Resource("example.com", "v1", "gadgets", "Gadget")
        with pytest.raises(ServerError, match=f"conversion webhook .*{problem}"):
            await client.create(gadgets, BODY)
