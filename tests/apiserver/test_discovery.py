"""Discovery: parts that contract tests do not cover."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from aioinformer.model.resource import Resource
from aioinformer_apiserver.discovery.discovery import VERSION, document_at, health_at
from aioinformer_apiserver.registry.registry import Registry
from aioinformer_apiserver.requests.request import APIRequest
from aioinformer_apiserver.storage.kinds import custom_kind, version_order
from aioinformer_apiserver.storage.storage import Storage

if TYPE_CHECKING:
    from aioinformer_apiserver.serialization.responses import APIResponse


def a_storage(*resources: Resource) -> Storage:
    storage = Storage()
    Registry(storage)
    for resource in resources:
        storage.serve(custom_kind(resource))

    return storage


def content_of(response: APIResponse) -> bytes:
    return b"".join(response.body)


def ask(storage: Storage, path: str, **fields: Any) -> APIResponse:
    found = document_at(storage, APIRequest(method="GET", path=path, **fields))
    assert found is not None
    return found


def test_discovery_returns_yaml_on_request() -> None:
    document = ask(a_storage(), "/apis/apps", headers={"Accept": "application/yaml"})

    assert document.content_type == "application/yaml"
    assert yaml.safe_load(content_of(document))["name"] == "apps"


def test_discovery_omits_group_that_is_no_longer_served() -> None:
    storage = a_storage(Resource("x.org", "v1", "as", "A"))

    paths = ["/apis/x.org/v1/as", "/apis/x.org/v1/namespaces/n/as/a/status"]
    missing = ["/apis/x.org/v2", "/apis/x.org/v1/bs", "/apis/x.org/v1/namespaces/n/bs"]

    calls = [
        document_at(storage, APIRequest(method="GET", path=path)) for path in paths
    ]
    pages = [ask(storage, path).status for path in missing]
    assert (calls, pages) == ([None, None], [404, 404, 404])


def test_discovery_ignores_resource_paths() -> None:
    for path in ("/api/v1/pods", "/apis/apps/v1/namespaces/x/deployments/a"):
        assert document_at(a_storage(), APIRequest(method="GET", path=path)) is None


def test_discovery_sorts_versions_of_group() -> None:
    names = ["v1beta1", "x", "v1", "v10", "v2", "v2beta1", "v1alpha1", "v1beta2", "a"]

    assert sorted(names, key=version_order) == [
        "v10",
        "v2",
        "v1",
        "v2beta1",
        "v1beta2",
        "v1beta1",
        "v1alpha1",
        "a",
        "x",
    ]


def test_discovery_git_version_matches_version() -> None:
    assert VERSION["gitVersion"].startswith(f"v{VERSION['major']}.{VERSION['minor']}.")


def test_discovery_omits_version_that_is_only_stored() -> None:
    storage = a_storage()
    hidden = replace(custom_kind(Resource("x.org", "v1", "as", "A")), served=False)
    storage.serve(hidden)

    groups = json.loads(content_of(ask(storage, "/apis")))["groups"]
    assert "x.org" not in {group["name"] for group in groups}
    assert storage.find("x.org", "v1", "as") is None


def test_health_check_can_exclude_check() -> None:
    query = {"verbose": "", "exclude": "ping"}
    document = health_at(APIRequest(method="GET", path="/livez", query=query))

    assert document is not None
    assert content_of(document) == b"[+]ping excluded: ok\nlivez check passed\n"


@pytest.mark.parametrize("path", ["/livez/nope", "/livez/ping/x", "/livez/", "/nope"])
def test_health_check_ignores_other_paths(path: str) -> None:
    assert health_at(APIRequest(method="GET", path=path)) is None
