"""A custom resource, and servers with either form of discovery documents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from aioinformer.client import Client
from aioinformer.errors import NotFound
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "OldServer",
    "aggregated",
    "define_widgets",
    "definition",
    "listed",
    "make_files_older",
    "named",
]


def definition(plural: str = "widgets", kind: str = "Widget", **spec: Any) -> Any:
    """Make a CustomResourceDefinition of the group example.com."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    names = {
        "plural": plural,
        "singular": kind.lower(),
        "kind": kind,
        "shortNames": [f"{kind[0].lower()}d"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
            **spec,
        },
    }


async def define_widgets(client: Client, **spec: Any) -> None:
    """Create the definition of widgets, and wait until the server serves them."""
    body = definition(**spec)
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, body)
    path = f"/apis/example.com/v1/{body['spec']['names']['plural']}"
    while True:
        try:
            async with client.stream("GET", path) as answer:
                await answer.read()
                return
        except NotFound:
            continue


def make_files_older(folder: Path, seconds: float) -> None:
    """Move the modification times of the files in a folder back."""
    for path in folder.rglob("*.json"):
        changed = path.stat().st_mtime - seconds
        os.utime(path, (changed, changed))


# ------------------------------------------------------------------ documents


def listed(plural: str, kind: str, **more: Any) -> dict[str, Any]:
    """Return a resource in the older form."""
    return {
        "name": plural,
        "singularName": "",
        "namespaced": True,
        "kind": kind,
        "verbs": ["list", "watch"],
        **more,
    }


def named(group: str, *versions: str, preferred: str = "") -> dict[str, Any]:
    """Return a group in the older form."""
    several = [{"groupVersion": f"{group}/{it}", "version": it} for it in versions]
    first = preferred or versions[0]
    head = {"groupVersion": f"{group}/{first}", "version": first}
    return {"name": group, "versions": several, "preferredVersion": head}


def aggregated(*groups: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return an aggregated document of groups, their versions and resources.

    A resource is a plural and a kind. None instead of resources is a stale version.
    """
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [_version(it, found) for it, found in versions.items()],
        }
        for name, versions in groups
    ]
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    return {**head, "metadata": {}, "items": items}


def _version(name: str, found: Mapping[str, str] | None) -> dict[str, Any]:
    resources = [
        {
            "resource": plural,
            "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": "Namespaced",
            "singularResource": kind.lower(),
            "verbs": ["list", "watch"],
        }
        for plural, kind in (found or {"ghosts": "Ghost"}).items()
    ]
    freshness = "Stale" if found is None else "Current"
    return {"version": name, "resources": resources, "freshness": freshness}


# ------------------------------------------------------------------ servers


class OldServer:
    """A server that responds with given documents by path, and counts requests.

    Other paths are 404. A number instead of a document is the status of a refusal.
    A document with a tag is not sent again to a client that names its `ETag`.
    """

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents: dict[str, Any] = dict(documents)
        self.tags: dict[str, str] = {}
        self.asked: list[str] = []
        self.unchanged = 0
        self.accepted: list[str] = []
        self.hold: asyncio.Event | None = None
        """Event before which paths with `held_paths` in them get no response."""
        self.held_paths = "/v"
        self.waiting = 0
        self._runner: web.AppRunner | None = None
        self.url = ""

    def client(self) -> Client:
        return Client.from_url(self.url)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = "http://127.0.0.1:{1}".format(*self._runner.addresses[0])
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        self.accepted.append(request.headers["Accept"])
        if self.hold is not None and self.held_paths in request.path:
            self.waiting += 1
            await self.hold.wait()

        document = self.documents.get(request.path, 404)
        if isinstance(document, int):
            status = {"kind": "Status", "message": "no", "code": document}
            return web.json_response(status, status=document)

        tag = self.tags.get(request.path)
        if tag is None:
            return web.json_response(document)

        if request.headers.get("If-None-Match") == tag:
            self.unchanged += 1
            return web.Response(status=304, headers={"ETag": tag})

        return web.json_response(document, headers={"ETag": tag})
