"""Lookup of resources by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from discovery_helpers import define_widgets

from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.resource_names import (
    built_in,
    find_resource,
    known_names,
    selected,
)
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
        pytest.param("all", "categories such as 'all' are not supported", id="all"),
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


@pytest.mark.parametrize(
    ("arguments", "resource", "names"),
    [
        (["pods"], "pods", ()),
        (["pods", "a"], "pods", ("a",)),
        (["pods", "a", "b", "a"], "pods", ("a", "b")),
        (["pods/a"], "pods", ("a",)),
        (["pods/a", "pods/b"], "pods", ("a", "b")),
        (["widgets.v1.example.com/a"], "widgets.v1.example.com", ("a",)),
    ],
)
def test_names_are_selected_as_in_kubectl(
    arguments: list[str], resource: str, names: tuple[str, ...]
) -> None:
    assert selected(arguments[0], tuple(arguments[1:])) == (resource, names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pods,nodes"], "watch one resource at a time"),
        (["pods/a", "b"], "write 'pods web-0 web-1' or"),
        (["pods", "pods/b"], "write 'pods web-0 web-1' or"),
        (["pods/a", "nodes/b"], "all of one resource"),
        (["pods/"], "cannot tell the names in 'pods/'"),
        (["pods/a", "pods/"], "cannot tell the names"),
    ],
)
def test_names_of_several_resources_are_refused(
    arguments: list[str], words: str
) -> None:
    with pytest.raises(CommandError, match=words):
        selected(arguments[0], tuple(arguments[1:]))
