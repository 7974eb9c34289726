"""Tests of a program that uses Kubernetes: no cluster, no container, no mocks.

Run:   pip install 'aioinformer[test]'
       pytest examples/test_with_apiserver.py
The fixture `apiserver` comes with the package: an API server for each test, over HTTP.
"""

from typing import Any

import pytest

from aioinformer import ApiError, Client, Forbidden
from aioinformer.model.resources import NODES
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse

pytestmark = pytest.mark.asyncio


async def cordon(client: Client, zone: str) -> list[str]:
    """The program: let nothing new be scheduled in a zone; returns the nodes."""
    nodes = await client.list(NODES, label_selector=f"zone={zone}")
    for node in nodes:
        await client.patch(NODES, node.name, {"spec": {"unschedulable": True}})

    return [node.name for node in nodes]


def node(name: str, zone: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"zone": zone}}}


async def test_only_the_nodes_of_the_zone_are_cordoned(apiserver: APIServer) -> None:
    apiserver.create(NODES, node("one", zone="a"))
    apiserver.create(NODES, node("two", zone="b"))
    async with apiserver.client() as client:
        assert await cordon(client, "b") == ["two"]

    assert "unschedulable" not in apiserver.get(NODES, "one")["spec"]
    assert apiserver.get(NODES, "two")["spec"]["unschedulable"]


@pytest.mark.apiserver(token="secret", users={"hers": "alice"})
async def test_it_needs_the_right_to_list_nodes(apiserver: APIServer) -> None:
    async with apiserver.client(token="hers") as client:
        with pytest.raises(Forbidden, match='"alice" cannot list resource "nodes"'):
            await cordon(client, "b")


async def test_a_refused_change_is_not_passed_over(apiserver: APIServer) -> None:
    apiserver.create(NODES, node("two", zone="b"))
    apiserver.faults.add(Refuse(verb="patch", status=503))
    async with apiserver.client() as client:
        with pytest.raises(ApiError, match="503"):
            await cordon(client, "b")
