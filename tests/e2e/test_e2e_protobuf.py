"""Protobuf bodies of a real server decode to the same objects as JSON."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from typing import TYPE_CHECKING

import pytest

from aioinformer.model import resources
from aioinformer_apiserver.protobuf.decoding import decode_object

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

pytestmark = [pytest.mark.e2e, pytest.mark.realtime]

# Including objects that every server creates.
KINDS = [
    resources.CLUSTER_ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
    resources.ENDPOINT_SLICES,
    resources.LEASES,
    resources.NAMESPACES,
    resources.PRIORITY_CLASSES,
    resources.ROLES,
    resources.SERVICES,
]


def get(path: str, media: str) -> bytes:
    request = urllib.request.Request(
        os.environ["AIOINFORMER_E2E_SERVER"] + path,
        headers={
            "Accept": media,
            "Authorization": f"Bearer {os.environ['AIOINFORMER_E2E_TOKEN']}",
        },
    )
    context = ssl.create_default_context(cafile=os.environ["AIOINFORMER_E2E_CA"])
    with urllib.request.urlopen(request, context=context) as answer:
        body: bytes = answer.read()
        return body


def paths(resource: Resource) -> list[str]:
    root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    found = json.loads(get(f"{root}/{resource.plural}?limit=20", "application/json"))
    return [path_in(root, resource, it["metadata"]) for it in found["items"]]


def path_in(root: str, resource: Resource, metadata: dict[str, str]) -> str:
    place = f"/namespaces/{metadata['namespace']}" if resource.namespaced else ""
    return f"{root}{place}/{resource.plural}/{metadata['name']}"


@pytest.mark.parametrize("resource", KINDS, ids=lambda it: it.plural)
def test_json_and_protobuf_describe_the_same_object(resource: Resource) -> None:
    found = paths(resource)

    assert found
    for path in found:
        binary = get(path, "application/vnd.kubernetes.protobuf")
        assert decode_object(binary) == json.loads(get(path, "application/json")), path
