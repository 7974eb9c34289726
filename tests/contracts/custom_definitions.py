"""CustomResourceDefinitions, for the tests that run against two servers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from api_calls import ask, patch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

OPEN: dict[str, Any] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
}

SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}

# For definitions that are only validated.
GROUP = "checks.example.org"

# A real server establishes and removes CRDs within seconds, usually at once.
_PATIENCE_SECONDS = 20.0


def version(
    name: str = "v1", schema: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """Describe a served version; `v1` is the storage version."""
    return {
        "name": name,
        "served": True,
        "storage": name == "v1",
        "schema": {"openAPIV3Schema": OPEN if schema is None else schema},
        **fields,
    }


def definition(group: str, kind: str = "Gadget", **spec: Any) -> dict[str, Any]:
    """Describe a CRD with one schemaless version; fields of `spec` replace its own."""
    plural = f"{kind.lower()}s"
    names = {"plural": plural, "kind": kind, **spec.pop("names", {})}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version()],
            **spec,
        },
    }


def group_of(target: ServerUnderTest) -> str:
    """Return an API group that no other test uses."""
    return f"{target.namespace}.example.org"


@asynccontextmanager
async def defined(
    http: aiohttp.ClientSession, *bodies: dict[str, Any]
) -> AsyncIterator[None]:
    """Create CRDs, wait until all are served, and remove them at the end."""
    for body in bodies:
        code, answer = await ask(http, "POST", DEFINITIONS, body)
        assert code == 201, answer

    try:
        for body in bodies:
            await served(http, body)

        yield
    finally:
        for body in bodies:
            await undefine(http, body)


async def served(http: aiohttp.ClientSession, body: dict[str, Any]) -> None:
    """Wait until a CRD is established, and all its versions can be listed and watched.

    A real server creates a watch cache for each version, and refuses watches with a 429
    until it is filled.
    """
    spec = body["spec"]
    names = [it["name"] for it in spec["versions"] if it["served"]]
    paths = [f"/apis/{spec['group']}/{it}/{spec['names']['plural']}" for it in names]
    async with asyncio.timeout(_PATIENCE_SECONDS):
        for path in paths:
            while await status_of(http, path) != 200 or not await watchable(http, path):
                pass


async def watchable(http: aiohttp.ClientSession, path: str) -> bool:
    """Return whether the server accepts a watch, and close it."""
    async with http.get(path, params={"watch": "1"}) as answer:
        return answer.status == 200


async def undefine(http: aiohttp.ClientSession, body: dict[str, Any]) -> None:
    """Delete a CRD and wait until it is removed."""
    path = f"{DEFINITIONS}/{body['metadata']['name']}"
    await ask(http, "DELETE", path)
    await gone(http, path)


async def gone(http: aiohttp.ClientSession, path: str) -> None:
    """Wait until a path returns 404."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while await status_of(http, path) != 404:
            pass


async def status_of(http: aiohttp.ClientSession, path: str) -> int:
    """Send a GET request and return the HTTP status."""
    async with http.get(path) as answer:
        await answer.read()
        return answer.status


async def condition(
    http: aiohttp.ClientSession, body: dict[str, Any], kind: str, *, reason: str
) -> dict[str, Any]:
    """Wait until a CRD has a condition with this reason, and return its status."""
    path = f"{DEFINITIONS}/{body['metadata']['name']}"
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            _, found = await ask(http, "GET", path)
            status: dict[str, Any] = found["status"]
            for it in status.get("conditions") or ():
                if (it["type"], it["reason"]) == (kind, reason):
                    return status


async def changed(
    http: aiohttp.ClientSession, body: dict[str, Any], spec: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Change the spec of a CRD with a merge patch."""
    path = f"{DEFINITIONS}/{body['metadata']['name']}"
    return await patch(http, path, {"spec": spec})


def gadget(
    group: str, name: str, version_: str = "v1", **fields: Any
) -> dict[str, Any]:
    """Make an object of the kind that `definition()` describes."""
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {
        "apiVersion": f"{group}/{version_}",
        "kind": "Gadget",
        "metadata": metadata,
        **fields,
    }


async def refusal_of(http: aiohttp.ClientSession, body: dict[str, Any]) -> list[str]:
    """Try to create a CRD and return the causes of its refusal, if any."""
    code, answer = await ask(http, "POST", DEFINITIONS, body, dryRun="All")
    if code == 201:
        return []

    assert code == 422, answer
    causes = answer["details"]["causes"]
    told = [f"{it['field']}: {it['message']}" for it in causes]
    why = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    assert answer["message"].endswith(f'"{body["metadata"]["name"]}" is invalid: {why}')
    return told


def of_schema(text: dict[str, Any]) -> dict[str, Any]:
    return definition(GROUP, versions=[version(schema=text)])


def of_field(text: dict[str, Any]) -> dict[str, Any]:
    return of_schema({"type": "object", "properties": {"spec": text}})


def array_of(items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **fields}
