"""Typed models of other clients read incomplete arranged objects of every kind."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aiohttp
import kubernetes.client
import kubernetes_asyncio.client
import pytest
from api_calls import ask
from kind_samples import SAMPLES
from lightkube import codecs

from aioinformer.cli.workload import Workload
from aioinformer.model.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NODES,
    PODS,
)
from aioinformer.testing import APIServer
from aioinformer_apiserver.schema.openapi_schema import schema_of
from aioinformer_apiserver.storage.kinds import built_in_kinds

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.schema import Schema

Object = dict[str, Any]

# ---------------------------------------------------------------- incomplete bodies


def with_empty_leaves(schema: Schema, within: frozenset[str] = frozenset()) -> Any:
    """Return a value whose lists, maps and structs have one entry, without leaves."""
    if schema.items is not None:
        item = with_empty_leaves(schema.items, within)
        return None if item is None else [item]

    if schema.values is not None:
        value = with_empty_leaves(schema.values, within)
        return None if value is None else {"x": value}

    if schema.name in within or not schema.fields:
        return None

    inner = within | {schema.name}
    fields = {name: schema.field(name) for name in schema.fields}
    found = {
        k: with_empty_leaves(it, inner) for k, it in fields.items() if it is not None
    }
    return {k: it for k, it in found.items() if it is not None}


def incomplete_bodies(resource: Resource) -> dict[str, Object]:
    """Return incomplete bodies of a kind by the names of their objects."""
    if resource == CUSTOM_RESOURCE_DEFINITIONS:
        # An arranged definition must be valid, too.
        spec = SAMPLES[resource.plural].content["spec"]
        return {"things.example.com": {"spec": {**spec, "group": "example.com"}}}

    schema = schema_of(resource)
    assert schema is not None
    full = with_empty_leaves(schema)
    full.pop("metadata")
    return {
        "named": {},
        "skeleton": {name: {} for name, it in full.items() if isinstance(it, dict)},
        "empty-leaves": full,
        "sample": SAMPLES[resource.plural].content if in_samples(resource) else {},
    }


def in_samples(resource: Resource) -> bool:
    sample = SAMPLES.get(resource.plural)
    return sample is not None and sample.resource == resource


# ---------------------------------------------------------------- models


def model_of(resource: Resource) -> str:
    """Return the name of a kind's model in the generated clients."""
    if resource.kind == "Event":
        return "EventsV1Event" if resource.group else "CoreV1Event"

    return f"{resource.version.capitalize()}{resource.kind}"


class Readers:
    """Decoder of responses by each of the typed clients.

    Args:
        api: Open API client of `kubernetes_asyncio`.
    """

    def __init__(self, api: Any) -> None:
        self._asynchronous = api
        self._official = kubernetes.client.ApiClient()

    def read(self, resource: Resource, body: Object) -> dict[str, Any]:
        """Return the models of an object or a list, by the names of the clients."""
        text, model = json.dumps(body), model_of(resource)
        model += "List" if "items" in body else ""
        official = self._official.deserialize(text, model, "application/json")
        answer = SimpleNamespace(data=text)
        return {
            "kubernetes": official,
            "kubernetes_asyncio": self._asynchronous.deserialize(answer, model),
            "lightkube": self._read_by_lightkube(resource, body),
        }

    def _read_by_lightkube(self, resource: Resource, body: Object) -> Any:
        if "items" not in body:
            return codecs.from_dict(body)

        # Like its client, item by item.
        type_ = {"apiVersion": resource.api_version, "kind": resource.kind}
        items = [codecs.from_dict({**type_, **it}) for it in body["items"]]
        return SimpleNamespace(items=items)


@pytest.mark.parametrize("resource", [CONFIG_MAPS, NODES, PODS], ids=str)
async def test_typed_models_read_objects_of_command(resource: Resource) -> None:
    async with (
        APIServer(auto_namespaces=True) as server,
        aiohttp.ClientSession(server.url) as http,
        kubernetes_asyncio.client.ApiClient() as api,
    ):
        workload = Workload(server, objects=60, changes_per_second=0)
        workload.populate()
        for _ in range(60):
            workload.change()

        _, many = await ask(http, "GET", resource.path(None))

        for client, models in Readers(api).read(resource, many).items():
            assert len(models.items) == len(server.objects(resource)) > 4, client


async def test_typed_models_read_incomplete_objects_of_every_kind() -> None:
    async with (
        APIServer() as server,
        aiohttp.ClientSession(server.url) as http,
        kubernetes_asyncio.client.ApiClient() as api,
    ):
        readers = Readers(api)
        for kind in built_in_kinds():
            await check_kind(server, http, readers, kind.resource)


async def check_kind(
    server: APIServer, http: aiohttp.ClientSession, readers: Readers, resource: Resource
) -> None:
    """Check that each client reads incomplete objects of a kind, and their list."""
    bodies = incomplete_bodies(resource)
    for name, body in bodies.items():
        made = server.create(resource, {**body, "metadata": {"name": name}})
        path = resource.path(made["metadata"].get("namespace"), name)
        _, one = await ask(http, "GET", path)

        for client, model in readers.read(resource, one).items():
            assert model.metadata.name == name, (client, str(resource))

    _, many = await ask(http, "GET", resource.path(None))
    for client, models in readers.read(resource, many).items():
        names = {it.metadata.name for it in models.items}
        assert names >= {*bodies}, (client, str(resource))

    # The versions of a kind share their objects.
    for name in bodies:
        server.delete(resource, name)
