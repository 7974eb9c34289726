"""Subresource `finalize` of namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import ask, make, named, patch
from each_case import each_case

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
async def path(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> AsyncIterator[str]:
    """Yield the path of a namespace, and remove it after the test."""
    name = f"{target.namespace}-f"
    await make(http, NAMESPACES, named(name))

    yield f"{NAMESPACES}/{name}"

    await ask(http, "DELETE", f"{NAMESPACES}/{name}")
    await ask(http, "PUT", f"{NAMESPACES}/{name}/finalize", named(name))


def finalized(path: str, *finalizers: str, **fields: Any) -> dict[str, Any]:
    """Return the body that leaves a namespace with these finalizers."""
    name = path.rpartition("/")[2]
    return named(name, spec={"finalizers": [*finalizers]}, **fields)


async def test_finalize_writes_finalizers_and_metadata_without_status(
    http: aiohttp.ClientSession, path: str
) -> None:
    body = finalized(
        path, "example.com/x", labels={"a": "b"}, status={"phase": "Terminating"}
    )

    code, found = await ask(http, "PUT", f"{path}/finalize", body)

    entry = found["metadata"]["managedFields"][-1]
    assert code == 200
    assert found["spec"] == {"finalizers": ["example.com/x"]}
    assert found["status"] == {"phase": "Active"}
    assert found["metadata"]["labels"]["a"] == "b"
    assert entry["subresource"] == "finalize"
    assert entry["fieldsV1"]["f:spec"] == {"f:finalizers": {}}


async def test_other_writes_keep_namespace_finalizers(
    http: aiohttp.ClientSession, path: str
) -> None:
    _, put = await ask(http, "PUT", path, finalized(path, "example.com/x"))
    change = {"spec": {"finalizers": ["example.com/x"]}}
    _, patched = await patch(http, path, change)

    assert put["spec"] == patched["spec"] == {"finalizers": ["kubernetes"]}


async def test_deleted_namespace_is_removed_with_last_finalizer(
    http: aiohttp.ClientSession, path: str
) -> None:
    both = finalized(path, "kubernetes", "example.com/x")
    await ask(http, "PUT", f"{path}/finalize", both)
    await ask(http, "DELETE", path)

    kept, _ = await ask(http, "GET", path)
    code, last = await ask(http, "PUT", f"{path}/finalize", finalized(path))
    gone, _ = await ask(http, "GET", path)

    assert (kept, code, gone) == (200, 200, 404)
    assert last["spec"] == {}
    assert last["status"] == {"phase": "Terminating"}


@each_case(
    "code, body",
    [
        pytest.param(409, {"metadata": {"resourceVersion": "1"}}, id="stale"),
        pytest.param(400, {"metadata": {"name": "other"}}, id="other"),
        pytest.param(422, {"spec": {"finalizers": ["bogus"]}}, id="invalid"),
    ],
)
async def test_finalize_rejects_invalid_update(
    http: aiohttp.ClientSession, path: str, code: int, body: dict[str, Any]
) -> None:
    whole = finalized(path)
    metadata = {**whole["metadata"], **body.get("metadata", {})}
    sent = {**whole, **body, "metadata": metadata}

    assert (await ask(http, "PUT", f"{path}/finalize", sent))[0] == code


@each_case("method", ["GET", "POST", "PATCH", "DELETE"])
async def test_finalize_supports_only_put(
    http: aiohttp.ClientSession, path: str, method: str
) -> None:
    code, _ = await ask(
        http,
        method,
        f"{path}/finalize",
        {},
        content_type="application/merge-patch+json",
    )

    assert code == 405


async def test_finalize_is_discovered(http: aiohttp.ClientSession) -> None:
    _, found = await ask(http, "GET", "/api/v1")

    assert {
        "name": "namespaces/finalize",
        "singularName": "",
        "namespaced": False,
        "kind": "Namespace",
        "verbs": ["update"],
    } in found["resources"]


async def test_only_namespaces_have_finalize(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = f"{target.path('configmaps')}/a/finalize"

    assert (await ask(http, "PUT", path, named("a")))[0] == 404
