"""OpenAPI documents.

The documents of a real server have more paths, and descriptions. Common parts are
equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api_calls import ask
from custom_definitions import SCALE, defined, definition, group_of, version
from each_case import each_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aiohttp
    from contract_servers import ServerUnderTest

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
BINARY = "application/com.github.proto-openapi.spec.v2"
REFERENCE = "#/components/schemas/"

# Paths of deployments, with operation names by method.
DEPLOYMENTS = {
    "/apis/apps/v1/deployments": {"get": "listAppsV1DeploymentForAllNamespaces"},
    "/apis/apps/v1/namespaces/{namespace}/deployments": {
        "get": "listAppsV1NamespacedDeployment",
        "post": "createAppsV1NamespacedDeployment",
        "delete": "deleteAppsV1CollectionNamespacedDeployment",
    },
    "/apis/apps/v1/namespaces/{namespace}/deployments/{name}": {
        "get": "readAppsV1NamespacedDeployment",
        "put": "replaceAppsV1NamespacedDeployment",
        "delete": "deleteAppsV1NamespacedDeployment",
        "patch": "patchAppsV1NamespacedDeployment",
    },
    "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale": {
        "get": "readAppsV1NamespacedDeploymentScale",
        "put": "replaceAppsV1NamespacedDeploymentScale",
        "patch": "patchAppsV1NamespacedDeploymentScale",
    },
    "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status": {
        "get": "readAppsV1NamespacedDeploymentStatus",
        "put": "replaceAppsV1NamespacedDeploymentStatus",
        "patch": "patchAppsV1NamespacedDeploymentStatus",
    },
}


async def document(http: aiohttp.ClientSession, api: str) -> dict[str, Any]:
    """Return a document by its address in the index."""
    async with http.get("/openapi/v3") as answer:
        paths = (await answer.json(content_type=None))["paths"]

    _, found = await ask(http, "GET", paths[api]["serverRelativeURL"])
    return found


def operations(item: dict[str, Any]) -> dict[str, str]:
    return {
        method: operation["operationId"]
        for method, operation in item.items()
        if method != "parameters"
    }


def parameters(operation: dict[str, Any]) -> dict[str, str]:
    return {it["name"]: it["schema"]["type"] for it in operation.get("parameters", [])}


def references(text: object) -> Iterator[str]:
    if isinstance(text, dict):
        if isinstance(text.get("$ref"), str):
            yield text["$ref"].removeprefix(REFERENCE)

        for value in text.values():
            yield from references(value)
    elif isinstance(text, list):
        for value in text:
            yield from references(value)


def silent(text: Any) -> Any:
    """Return a document without descriptions."""
    if isinstance(text, list):
        return [silent(it) for it in text]

    if not isinstance(text, dict):
        return text

    return {
        key: silent(value)
        for key, value in text.items()
        if key != "description" or not isinstance(value, str)
    }


async def test_index_has_cacheable_document_addresses(
    http: aiohttp.ClientSession,
) -> None:
    async with http.get("/openapi/v3") as answer:
        assert answer.content_type == "text/plain"
        paths = (await answer.json(content_type=None))["paths"]

    assert {"api/v1", "apis/apps/v1", "apis/batch/v1"} <= set(paths)
    url = paths["apis/apps/v1"]["serverRelativeURL"]
    path, _, tag = url.partition("?hash=")
    assert path == "/openapi/v3/apis/apps/v1"
    async with http.get(url) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert answer.headers["Cache-Control"] == "public, immutable"
        assert answer.headers["ETag"] == f'"{tag}"'

    async with http.get(path, headers={"If-None-Match": f'"{tag}"'}) as answer:
        assert (answer.status, await answer.read()) == (304, b"")


@each_case(
    "path, accept, reported",
    [
        ("v3/apis/apps/v1", "application/yaml", (406, "")),
        ("v3/apis/apps/v1", "application/yaml, */*;q=0.1", (200, "application/json")),
        ("v2", "text/html", (406, "")),
        ("v2", "application/yaml, application/json", (200, "application/json")),
        ("v2", f"{BINARY}@v1.0+protobuf", (200, f"{BINARY}.v1.0+protobuf")),
    ],
)
async def test_document_is_negotiated(
    http: aiohttp.ClientSession, path: str, accept: str, reported: tuple[int, str]
) -> None:
    headers = {"Accept": accept}
    async with http.get(f"/openapi/{path}", headers=headers) as answer:
        body = await answer.read()
        assert "Accept" in answer.headers.getall("Vary")

    assert (answer.status, answer.content_type if body else "") == reported


async def test_index_is_readable_without_permissions(
    http: aiohttp.ClientSession,
) -> None:
    async with http.get("/openapi/v3", headers={"Accept": "text/html"}) as answer:
        assert "api/v1" in (await answer.json(content_type=None))["paths"]


async def test_outdated_document_address_redirects(
    http: aiohttp.ClientSession,
) -> None:
    path = "/openapi/v3/api/v1"
    async with http.get(f"{path}?hash=OLD", allow_redirects=False) as answer:
        assert answer.status == 301
        assert answer.headers["Location"].startswith(f"{path}?hash=")


async def test_unserved_group_has_no_document(
    http: aiohttp.ClientSession,
) -> None:
    async with http.get("/openapi/v3/apis/nope/v1") as answer:
        assert (answer.status, await answer.read()) == (404, b"")


async def test_all_paths_of_kind_are_described(http: aiohttp.ClientSession) -> None:
    found = (await document(http, "apis/apps/v1"))["paths"]

    assert {path: operations(found[path]) for path in DEPLOYMENTS} == DEPLOYMENTS
    for path in DEPLOYMENTS:
        for method in DEPLOYMENTS[path]:
            named = found[path][method]["x-kubernetes-group-version-kind"]
            expected = ("autoscaling", "v1", "Scale")
            if not path.endswith("/scale"):
                expected = ("apps", "v1", "Deployment")

            assert (named["group"], named["version"], named["kind"]) == expected


async def test_write_operations_describe_parameters(
    http: aiohttp.ClientSession,
) -> None:
    item = (await document(http, "api/v1"))["paths"][
        "/api/v1/namespaces/{namespace}/pods/{name}"
    ]

    writing = {
        "dryRun": "string",
        "fieldManager": "string",
        "fieldValidation": "string",
    }
    assert parameters(item["put"]) == writing
    assert parameters(item["patch"]) == {**writing, "force": "boolean"}
    assert [it["name"] for it in item["parameters"]] == ["name", "namespace", "pretty"]
    assert item["patch"]["x-kubernetes-action"] == "patch"
    assert set(item["patch"]["requestBody"]["content"]) >= {
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    }


@each_case("api", ["api/v1", "apis/apps/v1", "apis/networking.k8s.io/v1"])
async def test_all_references_are_resolvable(
    http: aiohttp.ClientSession, api: str
) -> None:
    found = await document(http, api)

    schemas = found["components"]["schemas"]
    assert set(references(found)) <= set(schemas)


async def test_schemas_have_patch_extensions(http: aiohttp.ClientSession) -> None:
    schemas = (await document(http, "apis/apps/v1"))["components"]["schemas"]

    spec = silent(schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"])
    assert spec["x-kubernetes-patch-strategy"] == "merge"
    assert spec["x-kubernetes-patch-merge-key"] == "name"
    deployment = silent(schemas["io.k8s.api.apps.v1.Deployment"])
    assert deployment["x-kubernetes-group-version-kind"] == [
        {"group": "apps", "kind": "Deployment", "version": "v1"}
    ]
    assert deployment["properties"]["metadata"] == {
        "default": {},
        "allOf": [{"$ref": f"{REFERENCE}{META}.ObjectMeta"}],
    }


async def test_custom_resource_is_described_by_definition(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    size = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": size}}
    whole = version(
        schema=schema,
        subresources={"scale": SCALE},
        selectableFields=[{"jsonPath": ".spec.size"}],
    )
    async with defined(http, definition(group, versions=[whole])):
        found = await _eventually(http, f"apis/{group}/v1")

    base = f"/apis/{group}/v1/namespaces/{{namespace}}/gadgets"
    domain = ".".join(reversed(group.split(".")))
    gadget = silent(found["components"]["schemas"][f"{domain}.v1.Gadget"])
    assert f"{domain}.v1.GadgetList" in found["components"]["schemas"]
    assert set(references(found["components"])) <= set(found["components"]["schemas"])
    assert set(found["paths"]) == {
        f"/apis/{group}/v1/gadgets",
        base,
        f"{base}/{{name}}",
        f"{base}/{{name}}/scale",
    }
    assert gadget == {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": f"{REFERENCE}{META}.ObjectMeta"}]},
            "spec": size,
        },
        "x-kubernetes-group-version-kind": [
            {"group": group, "kind": "Gadget", "version": "v1"}
        ],
        "x-kubernetes-selectable-fields": [{"fieldPath": "spec.size"}],
    }
    patches = found["paths"][f"{base}/{{name}}"]["patch"]["requestBody"]["content"]
    assert set(patches) == {
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    }


async def _eventually(http: aiohttp.ClientSession, api: str) -> dict[str, Any]:
    """Return a document that a real server makes a moment after the definition."""
    while True:
        async with http.get(f"/openapi/v3/{api}") as answer:
            if answer.status == 200:
                found: dict[str, Any] = await answer.json()
                return found
