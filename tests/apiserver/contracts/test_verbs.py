"""Verbs of discovery: every path supports exactly the listed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api_calls import ask
from each_case import each_case

from aioinformer_apiserver.storage.kinds import built_in_kinds

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

# These requests change nothing, as no object has that label or name.
CALLS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "create": ("POST", "", {}),
    "deletecollection": ("DELETE", "", None),
    "get": ("GET", "/missing-by-far", None),
    "delete": ("DELETE", "/missing-by-far", None),
    "update": ("PUT", "/missing-by-far", {}),
}
NOWHERE = {"labelSelector": "nothing-has-this", "dryRun": "All"}


@each_case("api_version", sorted({it.resource.api_version for it in built_in_kinds()}))
async def test_paths_support_discovered_verbs(
    target: ServerUnderTest, http: aiohttp.ClientSession, api_version: str
) -> None:
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    _, document = await ask(http, "GET", root)
    reported = {it["name"]: it["verbs"] for it in document["resources"]}

    taken = {}
    for kind in built_in_kinds():
        resource = kind.resource
        if resource.api_version == api_version:
            path = resource.path(target.namespace if resource.namespaced else None)
            taken[resource.plural] = await verbs_of(http, path)

    assert taken == {
        plural: [it for it in CALLS if it in reported[plural]] for plural in taken
    }


async def verbs_of(http: aiohttp.ClientSession, path: str) -> list[str]:
    """Return the verbs that a path supports, by requests without effect."""
    taken = []
    for verb, (method, name, body) in CALLS.items():
        options: dict[str, Any] = {} if body is None else {"json": body}
        query = {} if method == "GET" else NOWHERE
        async with http.request(method, path + name, params=query, **options) as answer:
            if answer.status != 405:
                taken.append(verb)

    return taken


async def test_namespaces_do_not_support_deletecollection(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    code, refusal = await ask(http, "DELETE", "/api/v1/namespaces", **NOWHERE)
    still, _ = await ask(http, "GET", f"/api/v1/namespaces/{target.namespace}")

    assert (code, refusal["reason"], still) == (405, "MethodNotAllowed", 200)
