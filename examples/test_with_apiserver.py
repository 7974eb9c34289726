"""Tests of a program that uses Kubernetes, without cluster, container or mocks.

Run:   pip install 'aioinformer[test]'
       pytest examples/test_with_apiserver.py
The package provides the fixture `apiserver`: an API server over HTTP for each test.
"""

from typing import Any

import pytest

from aioinformer import ApiError, Client, Forbidden
from aioinformer.model.resources import NODES
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse

pytestmark = pytest.mark.asyncio


async def cordon(client: Client, zone: str) -> list[str]:
    """The program under test: cordon the nodes of a zone, and return them."""
    nodes = await client.list(NODES, label_selector=f"zone={zone}")
    for node in nodes:
        await client.patch(NODES, node.name, {"spec": {"unschedulable": True}})

    return [node.name for node in nodes]


def node(name: str, zone: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"zone": zone}}}


async def test_cordon_changes_only_nodes_of_the_zone(apiserver: APIServer) -> None:
    apiserver.create(NODES, node("one", zone="a"))
    apiserver.create(NODES, node("two", zone="b"))
    async with apiserver.client() as client:
        assert await cordon(client, "b") == ["two"]

    assert "unschedulable" not in apiserver.get(NODES, "one")["spec"]
    assert apiserver.get(NODES, "two")["spec"]["unschedulable"]


@pytest.mark.apiserver(token="secret", users={"hers": "alice"})
async def test_cordon_needs_permission_to_list_nodes(apiserver: APIServer) -> None:
    async with apiserver.client(token="hers") as client:
        with pytest.raises(Forbidden, match='"alice" cannot list resource "nodes"'):
            await cordon(client, "b")


async def test_cordon_raises_if_a_patch_is_refused(apiserver: APIServer) -> None:
    apiserver.create(NODES, node("two", zone="b"))
    apiserver.faults.add(Refuse(verb="patch", status=503))
    async with apiserver.client() as client:
        with pytest.raises(ApiError, match="503"):
            await cordon(client, "b")
