"""Helpers for the tests of other clients: connections and bodies.

Tests use only public names of the clients, as their documentation shows. Blocking clients
run in a thread, because our server runs in the loop of the test.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from typing import TYPE_CHECKING, Any, ParamSpec

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import aiohttp
    from contract_servers import ServerUnderTest

__all__ = [
    "ADDED_CHANGED_DELETED",
    "SHARED_SSL",
    "config_map",
    "definition",
    "deployment",
    "discovered",
    "gadget",
    "in_a_thread",
    "kubeconfig_of",
    "settled_groups",
    "short_name",
]

P = ParamSpec("P")

# Events of a watch of one object that is created, changed and deleted.
ADDED_CHANGED_DELETED = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


SHARED_SSL = pytest.mark.usefixtures("shared_ssl_contexts")

# Polls in a row that must agree. The real server updates the list of its groups, and then
# the documents of the groups, some time after it has accepted or removed a definition.
_SETTLED = 3
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 20.0


@pytest.fixture
def shared_ssl_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create each SSL context once.

    Clients create one even for plain HTTP, which takes longer than most tests.
    """
    monkeypatch.setattr(ssl, "create_default_context", _ssl_context)


_ssl_context = functools.cache(ssl.create_default_context)


@pytest.fixture
async def settled_groups(target: ServerUnderTest) -> AsyncIterator[None]:
    """Wait, after a test that defines gadgets, until the server lists no such group."""
    yield
    await _discovery_settles(target, listed=False)


async def discovered(target: ServerUnderTest) -> None:
    """Wait until discovery shows the group of `definition()` and its kind."""
    await _discovery_settles(target, listed=True)


async def _discovery_settles(target: ServerUnderTest, *, listed: bool) -> None:
    if not target.real:
        return

    agreeing = 0
    async with asyncio.timeout(_PATIENCE_SECONDS), target.session() as session:
        while agreeing < _SETTLED:
            agrees = await _discovery(session, target) == (listed, listed)
            agreeing = agreeing + 1 if agrees else 0
            await asyncio.sleep(_POLL_SECONDS)


async def _discovery(
    session: aiohttp.ClientSession, target: ServerUnderTest
) -> tuple[bool, bool]:
    """Return whether the list of groups has the group, and whether it has its kind."""
    group = f"{target.namespace}.example.org"
    async with session.get("/apis") as answer:
        groups = (await answer.json())["groups"]

    async with session.get(f"/apis/{group}/v1") as answer:
        kinds = (await answer.json())["resources"] if answer.ok else []

    in_list = any(it["name"] == group for it in groups)
    return in_list, any(it["name"] == "gadgets" for it in kinds)


def kubeconfig_of(
    target: ServerUnderTest, folder: Path, *, token: str | None = None
) -> Path:
    """Write a kubeconfig file for the namespace of the test."""
    file = folder / "kubeconfig"
    if target.ours is not None and token is None:
        return target.ours.kubeconfig(file, namespace=target.namespace)

    cluster = {"server": target.url}
    if target.ca:
        cluster["certificate-authority"] = target.ca

    context = {"cluster": "test", "user": "test", "namespace": target.namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token or target.token}}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def in_a_thread(test: Callable[P, None]) -> Callable[P, Awaitable[None]]:
    """Run a blocking test in a thread, while the loop runs the server."""

    @functools.wraps(test)
    async def run(*args: P.args, **kwargs: P.kwargs) -> None:
        await asyncio.to_thread(test, *args, **kwargs)

    return run


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap with a label that holds its name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"is": name}},
        "data": data,
    }


def deployment(name: str) -> dict[str, Any]:
    """Return a Deployment with two containers, for strategic patches."""
    containers = [
        {"name": part, "image": f"registry.example/{part}:1"} for part in ("web", "log")
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": containers},
            },
        },
    }


def definition(target: ServerUnderTest) -> dict[str, Any]:
    """Return a definition of gadgets with status and scale, in a group of this test."""
    group = f"{target.namespace}.example.org"
    count = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    fields = {"spec": count, "status": count}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
            },
        },
    }
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {**names, "shortNames": [short_name(target)]},
            "versions": [version],
        },
    }


def short_name(target: ServerUnderTest) -> str:
    """Return the short name of gadgets, unique for each test."""
    return f"gg-{target.namespace[-6:]}"


def gadget(target: ServerUnderTest, name: str) -> dict[str, Any]:
    """Return an object of the kind in `definition()`."""
    return {
        "apiVersion": f"{target.namespace}.example.org/v1",
        "kind": "Gadget",
        "metadata": {"name": name, "namespace": target.namespace},
        "spec": {"replicas": 2},
    }
