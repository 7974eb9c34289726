"""`Client.apply`: resources by kind, and arguments."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from contract_servers import WIDGETS

from aioinformer import Client, KubeObject
from aioinformer.errors import Conflict, NotFound, OptionsError
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SETTINGS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "default"},
    "data": {"colour": "blue"},
}
WIDGET: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {"size": 1},
}


@asynccontextmanager
async def served() -> AsyncIterator[tuple[APIServer, Client]]:
    async with APIServer(resources=[WIDGETS]) as server, server.client() as client:
        yield server, client


def paths(server: APIServer) -> list[str]:
    return [it.path for it in server.requests]


async def test_apply_of_built_in_kind_sends_one_request() -> None:
    async with served() as (server, client):
        made = await client.apply(SETTINGS, field_manager="me")
        assert paths(server) == ["/api/v1/namespaces/default/configmaps/a"]

    assert made.at("data.colour") == "blue"
    assert made.at("metadata.managedFields.0.manager") == "me"


async def test_apply_discovers_other_kinds_once() -> None:
    async with served() as (server, client):
        await client.apply(WIDGET, field_manager="me")
        before = len(server.requests)
        made = await client.apply(WIDGET | {"spec": {"x": 1}}, field_manager="me")
        assert paths(server)[before:] == [
            "/apis/example.com/v1/namespaces/default/widgets/a"
        ]

    assert made.at("spec") == {"x": 1}, "the manager has given up the other field"


async def test_apply_with_resource_needs_neither_discovery_nor_type() -> None:
    async with served() as (server, client):
        body = {"metadata": {"name": "a"}}
        made = await client.apply(
            body, field_manager="me", resource=WIDGETS, namespace="default"
        )
        assert len(server.requests) == 1

    assert (made.kind, made.key) == ("Widget", "default/a")


async def test_apply_reports_conflict_of_managers_unless_forced() -> None:
    async with served() as (_, client):
        await client.apply(SETTINGS, field_manager="them")
        mine = SETTINGS | {"data": {"colour": "red"}}
        with pytest.raises(Conflict, match="conflict with"):
            await client.apply(mine, field_manager="me")

        taken = await client.apply(mine, field_manager="me", force=True)
        assert taken.at("data.colour") == "red"


async def test_apply_of_status_and_dry_run() -> None:
    async with served() as (server, client):
        tried = await client.apply(WIDGET, field_manager="me", dry_run=True)
        assert tried.name == "a"
        assert server.objects(WIDGETS) == []

        await client.apply(WIDGET, field_manager="me")
        status = WIDGET | {"status": {"ready": 1}}
        done = await client.apply(status, field_manager="me", subresource="status")
        assert done.at("status.ready") == 1


class Meta(msgspec.Struct):
    name: str
    namespace: str = "default"


class Settings(msgspec.Struct):
    metadata: Meta
    data: dict[str, str]
    kind: str = "ConfigMap"
    apiVersion: str = "v1"  # noqa: N815 - the name in JSON


@pytest.mark.parametrize(
    "body",
    [KubeObject.of(SETTINGS), Settings(Meta("a"), {"colour": "blue"})],
    ids=["object", "struct"],
)
async def test_apply_takes_any_body(body: Any) -> None:
    async with served() as (_, client):
        made = await client.apply(body, field_manager="me")

    assert made.at("data.colour") == "blue"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": ""}, "the body has no kind: add it, or pass resource="),
        ({"apiVersion": None}, "the body has no apiVersion: add it, or pass resource="),
        ({"metadata": {}}, "the body of an apply needs metadata.name"),
        (
            {"metadata": {"name": "a"}},
            "configmaps is namespaced: 'a' needs a namespace",
        ),
    ],
    ids=["kind", "version", "name", "namespace"],
)
async def test_apply_refuses_incomplete_body(
    change: dict[str, Any], message: str
) -> None:
    async with served() as (server, client):
        with pytest.raises(OptionsError) as caught:
            await client.apply(SETTINGS | change, field_manager="me")

        assert str(caught.value) == message
        assert paths(server) == []


async def test_apply_of_unknown_kind_is_not_found() -> None:
    async with served() as (_, client):
        with pytest.raises(NotFound, match="the server has no resource 'Gadget'"):
            await client.apply(WIDGET | {"kind": "Gadget"}, field_manager="me")
