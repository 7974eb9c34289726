"""Addresses of webhook services, and writes that concern webhooks without HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from webhook_hosts import a_rule, allow, deny, patching

from aioinformer.errors import ApiError, OptionsError, ServerError
from aioinformer.model.resources import (
    CONFIG_MAPS,
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
