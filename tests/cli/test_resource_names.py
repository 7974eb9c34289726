"""Lookup of resources by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from discovery_helpers import define_widgets

from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.resource_names import built_in, find_resource, known_names
from aioinformer.client import Client
from aioinformer.model.resources import DEPLOYMENTS, ENDPOINTS, NETWORK_POLICIES, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource


@pytest.mark.parametrize(
    ("word", "resource"),
    [
        pytest.param("pods", PODS, id="plural"),
        pytest.param("pod", PODS, id="singular"),
        pytest.param("Pod", PODS, id="kind"),
        pytest.param("po", PODS, id="short"),
        pytest.param("deploy", DEPLOYMENTS, id="short-of-a-group"),
        pytest.param("deploy.apps", DEPLOYMENTS, id="short-with-its-group"),
        pytest.param("pods.v1", PODS, id="core-with-version"),
        pytest.param("endpoints", ENDPOINTS, id="plural-is-singular"),
        pytest.param("networkpolicy", NETWORK_POLICIES, id="irregular-plural"),
        pytest.param("deployments.apps", DEPLOYMENTS, id="group"),
        pytest.param("deployment.apps", DEPLOYMENTS, id="singular-with-group"),
        pytest.param("deployments.v1.apps", DEPLOYMENTS, id="version-and-group"),
        pytest.param("deployments.v2.apps", None, id="newer"),
        pytest.param("widgets.v1.example.com", None, id="custom"),
        pytest.param("", None, id="empty"),
    ],
)
def test_built_in_resources_are_found_by_name(
    word: str, resource: Resource | None
) -> None:
    assert built_in(word) is resource


async def test_built_in_resource_needs_no_server() -> None:
    async with Client.from_url("http://127.0.0.1:1") as client:
        assert await find_resource("deploy", client) is DEPLOYMENTS


@pytest.mark.parametrize(
    "word",
    ["widgets", "Widget", "wd", "widgets.example.com", "widgets.v1.example.com"],
)
async def test_custom_resource_is_found_by_discovery(word: str) -> None:
    async with APIServer() as server, server.client() as client:
        await define_widgets(client)

        found = await find_resource(word, client)

    assert found.path("shop") == "/apis/example.com/v1/namespaces/shop/widgets"
    assert found.kind == "Widget"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        pytest.param("podz", "no resource 'podz'. Did you mean 'pods'?", id="mistyped"),
        pytest.param("deployments.aps", "'deployments.v1.apps'?", id="group"),
        pytest.param("xyzzy", "the server has no resource 'xyzzy'", id="nothing"),
        pytest.param("", "the server has no resource ''", id="empty"),
        pytest.param(".v1.b", "the server has no resource '.v1.b'", id="no-name"),
    ],
)
async def test_unknown_name_suggests_similar_ones(word: str, hint: str) -> None:
    async with APIServer() as server, server.client() as client:
        with pytest.raises(CommandError) as caught:
            await find_resource(word, client)

    assert hint in str(caught.value)


def test_known_names_are_plural_and_short_names() -> None:
    names = known_names()

    assert {"pods", "po", "deployments", "deploy", "svc"} <= set(names)
    assert names == sorted(set(names))
