"""A custom resource, and servers that tell what they have in one form or the other."""

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
    """A CustomResourceDefinition of the group example.com."""
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
    """Create the definition of widgets, and wait until the server has them."""
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
    """Have the files of a folder written so much earlier."""
    for path in folder.rglob("*.json"):
        changed = path.stat().st_mtime - seconds
        os.utime(path, (changed, changed))


# ------------------------------------------------------------------ documents


def listed(plural: str, kind: str, **more: Any) -> dict[str, Any]:
    """A resource as the older form has it."""
    return {
        "name": plural,
        "singularName": "",
        "namespaced": True,
        "kind": kind,
        "verbs": ["list", "watch"],
        **more,
    }


def named(group: str, *versions: str, preferred: str = "") -> dict[str, Any]:
    """A group as the older form has it."""
    several = [{"groupVersion": f"{group}/{it}", "version": it} for it in versions]
    first = preferred or versions[0]
    head = {"groupVersion": f"{group}/{first}", "version": first}
    return {"name": group, "versions": several, "preferredVersion": head}


def aggregated(*groups: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An aggregated document: of each group the versions, by name, and their resources.

    A resource is a plural and a kind; None in the place of them is a stale version.
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
    """Answers with the documents that it was given by their paths, and counts.

    What is not there is 404; a number in the place of a document is refused so. An
    `ETag` is given to what has one, and what it names is not told again.
    """

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents: dict[str, Any] = dict(documents)
        self.tags: dict[str, str] = {}
        self.asked: list[str] = []
        self.unchanged = 0
        self.accepted: list[str] = []
        self.hold: asyncio.Event | None = None
        """What has `held_paths` in its path is not told before it is set."""
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
