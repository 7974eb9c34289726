"""Claims of the docs about requests, direct writes and RBAC are true."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from api_calls import WIDGETS
from doc_blocks import blocks_of
from processes import ROOT

from aioinformer import Invalid, Resource
from aioinformer.model.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer import Client
    from aioinformer.testing import APIServer

BACKUPS = Resource("example.com", "v1", "backups", "Backup")
TEXT = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


async def events_of(client: Client, deed: Callable[[], Any]) -> str:
    """Return the types of the events that an action causes, up to DELETED."""
    seen: list[str] = []
    async with client.watch(PODS) as events, asyncio.timeout(5):
        assert (await anext(events)).type == "ADDED"
        done = deed()
        if inspect.isawaitable(done):
            await done

        while seen[-1:] != ["DELETED"]:
            seen.append((await anext(events)).type)

    return " ".join(seen)


@pytest.mark.parametrize("node", [None, "node-1"])
@pytest.mark.parametrize("way", ["arranged", "by request"])
async def test_pod_deletion_works_as_documented(
    apiserver: APIServer, way: str, node: str | None
) -> None:
    row = re.search(
        r"^\| the deletion of a pod \| (.*) \| (.*) \|$", TEXT, re.MULTILINE
    )
    assert row is not None
    assert row.groups() == ("two events; three, if it has a node", "one event")
    spec = {"containers": [{"name": "main", "image": "web:1"}], "nodeName": node}
    async with apiserver.client() as client:
        body = {"metadata": {"name": "web"}, "spec": spec}
        await client.create(PODS, body, namespace="default")
        if way == "arranged":
            happened = await events_of(client, lambda: apiserver.delete(PODS, "web"))
            assert happened == "DELETED"
        else:
            happened = await events_of(
                client, lambda: client.delete(PODS, "web", namespace="default")
            )
            more = "MODIFIED " if node else ""
            assert happened == f"{more}MODIFIED DELETED"


@pytest.mark.apiserver(resources=[WIDGETS])
async def test_only_custom_resources_need_a_kind(apiserver: APIServer) -> None:
    apiserver.create(WIDGETS, {"metadata": {"name": "arranged"}})
    path = "/apis/example.com/v1/namespaces/default/widgets"
    body = {"metadata": {"name": "asked"}}
    async with aiohttp.ClientSession(apiserver.url) as http:
        async with http.post("/api/v1/namespaces/default/configmaps", json=body) as it:
            assert it.status == 201

        async with http.post(path, json=body) as it:
            assert it.status == 400


async def test_unreadable_body_is_invalid(apiserver: APIServer) -> None:
    body = {"metadata": {"name": "a"}, "data": 5}
    async with apiserver.client() as client:
        with pytest.raises(Invalid, match=r"^400 BadRequest"):
            await client.create(CONFIG_MAPS, body, namespace="default")


async def test_custom_resources_ignore_unchanged_invalid_fields(
    apiserver: APIServer,
) -> None:
    (definition,) = blocks_of(TEXT, "yaml")
    apiserver.create(CUSTOM_RESOURCE_DEFINITIONS, yaml.safe_load(definition.text))
    apiserver.create(BACKUPS, {"metadata": {"name": "a"}, "spec": {"keep": -1}})
    apiserver.create(PODS, {"metadata": {"name": "sketch"}})
    async with apiserver.client() as client:
        change: dict[str, Any] = {"spec": {"source": "db"}}
        await client.patch(BACKUPS, "a", change, namespace="default")
        change = {"spec": {"keep": -2}}
        with pytest.raises(Invalid, match=r"spec\.keep: Invalid value: -2"):
            await client.patch(BACKUPS, "a", change, namespace="default")

        change = {"spec": {"activeDeadlineSeconds": 5}}
        with pytest.raises(Invalid, match=r"spec\.containers: Required value"):
            await client.patch(PODS, "sketch", change, namespace="default")


async def test_without_tokens_only_impersonated_requests_are_authorized(
    apiserver: APIServer,
) -> None:
    async with aiohttp.ClientSession(apiserver.url) as http:
        async with http.get("/api/v1/secrets") as answer:
            assert answer.status == 200

        played = {"Impersonate-User": "alice"}
        async with http.get("/api/v1/secrets", headers=played) as answer:
            assert answer.status == 403
