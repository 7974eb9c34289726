"""What the tests of other people's clients share: how to reach a server, and bodies.

The clients are used as their own documentation shows, and by nothing but their public
names. Those that block run in a thread, beside the loop that our server lives in.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, ParamSpec

import yaml

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from contract_servers import ServerUnderTest

__all__ = [
    "ADDED_CHANGED_DELETED",
    "config_map",
    "definition",
    "deployment",
    "gadget",
    "in_a_thread",
    "kubeconfig_of",
    "short_name",
]

P = ParamSpec("P")

# What each watch of one object's short life tells.
ADDED_CHANGED_DELETED = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def kubeconfig_of(
    target: ServerUnderTest, folder: Path, *, token: str | None = None
) -> Path:
    """Write the file that a user would have; its namespace is that of the test."""
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
    """Make a test of plain calls, which block, into one beside the loop of a server."""

    @functools.wraps(test)
    async def beside(*args: P.args, **kwargs: P.kwargs) -> None:
        await asyncio.to_thread(test, *args, **kwargs)

    return beside


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a new object, labelled with its own name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"is": name}},
        "data": data,
    }


def deployment(name: str) -> dict[str, Any]:
    """Return a new object with two containers, which a strategic patch tells apart."""
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
    """Describe gadgets, with a status and a scale, in a group of this test alone."""
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
    """Return the short name of gadgets; also that of no other test."""
    return f"gg-{target.namespace[-6:]}"


def gadget(target: ServerUnderTest, name: str) -> dict[str, Any]:
    """Return a new object of what `definition()` describes."""
    return {
        "apiVersion": f"{target.namespace}.example.org/v1",
        "kind": "Gadget",
        "metadata": {"name": name, "namespace": target.namespace},
        "spec": {"replicas": 2},
    }
