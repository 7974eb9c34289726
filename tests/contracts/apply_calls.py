"""Helpers of the contract tests: apply requests, and field owners."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from api_calls import ask, named, patch

if TYPE_CHECKING:
    import aiohttp


async def apply(
    http: aiohttp.ClientSession,
    collection: str,
    body: dict[str, Any],
    manager: str = "one",
    *,
    part: str = "",
    **params: str,
) -> tuple[int, dict[str, Any]]:
    path = f"{collection}/{body['metadata']['name']}{part}"
    return await ask(
        http,
        "PATCH",
        path,
        body,
        content_type="application/apply-patch+yaml",
        fieldManager=manager,
        **params,
    )


async def applied(
    http: aiohttp.ClientSession,
    collection: str,
    body: dict[str, Any],
    manager: str = "one",
    **params: str,
) -> dict[str, Any]:
    code, found = await apply(http, collection, body, manager, **params)
    assert code in {200, 201}, found
    return found


async def made(
    http: aiohttp.ClientSession, collection: str, body: dict[str, Any]
) -> dict[str, Any]:
    code, found = await ask(http, "POST", collection, body, fieldManager="maker")
    assert code == 201, found
    return found


async def changed(
    http: aiohttp.ClientSession,
    path: str,
    body: dict[str, Any],
    manager: str = "editor",
) -> dict[str, Any]:
    code, found = await patch(http, path, body, fieldManager=manager)
    assert code == 200, found
    return found


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", **named(name), "data": data}


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": list(containers)},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        **named("web"),
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def owned(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields by manager: appliers as `name!`, of a subresource `name/x`."""
    found = {}
    for entry in body["metadata"].get("managedFields", ()):
        assert entry["fieldsType"] == "FieldsV1"
        name = entry["manager"] + ("!" if entry["operation"] == "Apply" else "")
        if entry.get("subresource"):
            name += f"/{entry['subresource']}"

        assert name not in found
        found[name] = entry["fieldsV1"]

    return found


def same_time(one: str, other: str) -> bool:
    """Return whether two times may be of one write, which may cross a second."""
    between = datetime.fromisoformat(one) - datetime.fromisoformat(other)
    return abs(between) <= timedelta(seconds=1)
