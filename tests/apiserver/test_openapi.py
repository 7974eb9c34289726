"""OpenAPI: parts that contract tests do not cover."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from each_case import each_case

from aioinformer.model import resources
from aioinformer.model.resource import Resource
from aioinformer_apiserver.discovery import openapi
from aioinformer_apiserver.discovery.openapi import definition_name, paths_of
from aioinformer_apiserver.protobuf.decoding import fields
from aioinformer_apiserver.requests.request import APIRequest
from aioinformer_apiserver.storage.kinds import Kind, built_in_kinds, custom_kind

if TYPE_CHECKING:
    from aioinformer_apiserver.serialization.responses import APIResponse

BUILT_IN = {kind.resource: kind for kind in built_in_kinds()}
THINGS = custom_kind(Resource("x.org", "v1", "things", "Thing"))


def content_of(response: APIResponse) -> bytes:
    return b"".join(response.body)


def ask(*kinds: Kind, path: str = "", **fields: Any) -> APIResponse:
    request = APIRequest(method="GET", path=f"/openapi/v3{path}", **fields)
    return openapi.document_at(kinds, request)


def index(*kinds: Kind) -> dict[str, str]:
    paths = json.loads(content_of(ask(*kinds)))["paths"]
    return {api: it["serverRelativeURL"] for api, it in paths.items()}


@each_case("kind", built_in_kinds())
def test_openapi_defines_every_kind_and_its_list(kind: Kind) -> None:
    schemas = openapi.schemas_of((kind,))

    assert {definition_name(kind), definition_name(kind, listed=True)} <= set(schemas)


def test_openapi_url_changes_with_kinds() -> None:
    other = custom_kind(Resource("x.org", "v1", "others", "Other"))

    before, after = index(THINGS), index(THINGS, other)

    assert before.keys() == after.keys() == {"apis/x.org/v1"}
    assert before != after


def test_openapi_document_is_cached() -> None:
    first = ask(THINGS, path="/apis/x.org/v1")

    assert content_of(ask(THINGS, path="/apis/x.org/v1")) == content_of(first)


def test_openapi_document_of_built_in_kinds_is_shared() -> None:
    assert built_in_kinds() is built_in_kinds()


def test_openapi_paths_have_verbs_of_kind() -> None:
    namespaces = paths_of(BUILT_IN[resources.NAMESPACES])

    assert list(namespaces) == [
        "/api/v1/namespaces",
        "/api/v1/namespaces/{name}",
        "/api/v1/namespaces/{name}/finalize",
        "/api/v1/namespaces/{name}/status",
    ]
    assert set(namespaces["/api/v1/namespaces"]) == {"get", "post", "parameters"}


def test_openapi_operation_ids_are_unique() -> None:
    names = [
        operation["operationId"]
        for kind in built_in_kinds()
        for item in paths_of(kind).values()
        for method, operation in item.items()
        if method != "parameters"
    ]

    assert len(set(names)) == len(names)
    assert "createCoordinationV1NamespacedLease" in names
    assert "listRbacAuthorizationV1ClusterRole" in names


def test_openapi_v2_protobuf_has_info() -> None:
    headers = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    request = APIRequest(method="GET", path="/openapi/v2", headers=headers)

    found = dict(fields(content_of(openapi.document_at([THINGS], request))))
    info = found[2]

    assert (found[1], found[8]) == (b"2.0", b"")
    assert isinstance(info, bytes)
    assert dict(fields(info)) == {1: b"Kubernetes", 2: b"1.36"}


def test_openapi_defines_custom_resource_without_schema() -> None:
    schemas = openapi.schemas_of((THINGS,))

    assert list(schemas["org.x.v1.Thing"]["properties"]) == [
        "apiVersion",
        "kind",
        "metadata",
    ]
    assert "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" in schemas
