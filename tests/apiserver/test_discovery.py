"""Discovery, beyond what both servers are asked in the contract tests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from aioinformer.model.resource import Resource
from aioinformer_apiserver.discovery.discovery import VERSION, document_at
from aioinformer_apiserver.discovery.document import health_at
from aioinformer_apiserver.registry.registry import Registry
from aioinformer_apiserver.requests.request import Request
from aioinformer_apiserver.storage.kinds import custom_kind, version_order
from aioinformer_apiserver.storage.storage import Storage

if TYPE_CHECKING:
    from aioinformer_apiserver.serialization.responses import Response


def a_storage(*resources: Resource) -> Storage:
    storage = Storage()
    Registry(storage)
    for resource in resources:
        storage.serve(custom_kind(resource))

    return storage


def content_of(response: Response) -> bytes:
    return b"".join(response.body)


def ask(storage: Storage, path: str, **fields: Any) -> Response:
    found = document_at(storage, Request(method="GET", path=path, **fields))
    assert found is not None
    return found


def test_documents_come_as_yaml_to_those_who_ask_for_it() -> None:
    document = ask(a_storage(), "/apis/apps", headers={"Accept": "application/yaml"})

    assert document.content_type == "application/yaml"
    assert yaml.safe_load(content_of(document))["name"] == "apps"


def test_a_custom_group_is_missing_once_it_is_not_served() -> None:
    storage = a_storage(Resource("x.org", "v1", "as", "A"))

    paths = ["/apis/x.org/v1/as", "/apis/x.org/v1/namespaces/n/as/a/status"]
    missing = ["/apis/x.org/v2", "/apis/x.org/v1/bs", "/apis/x.org/v1/namespaces/n/bs"]

    calls = [document_at(storage, Request(method="GET", path=path)) for path in paths]
    pages = [ask(storage, path).status for path in missing]
    assert (calls, pages) == ([None, None], [404, 404, 404])


def test_paths_of_resources_are_left_to_others() -> None:
    for path in ("/api/v1/pods", "/apis/apps/v1/namespaces/x/deployments/a"):
        assert document_at(a_storage(), Request(method="GET", path=path)) is None


def test_versions_of_a_group_stand_best_first() -> None:
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


def test_the_version_of_git_fits_to_the_others() -> None:
    assert VERSION["gitVersion"].startswith(f"v{VERSION['major']}.{VERSION['minor']}.")


def test_a_version_that_only_keeps_objects_is_not_discovered() -> None:
    storage = a_storage()
    hidden = replace(custom_kind(Resource("x.org", "v1", "as", "A")), served=False)
    storage.serve(hidden)

    groups = json.loads(content_of(ask(storage, "/apis")))["groups"]
    assert "x.org" not in {group["name"] for group in groups}
    assert storage.find("x.org", "v1", "as") is None


def test_a_health_check_can_leave_one_out() -> None:
    query = {"verbose": "", "exclude": "ping"}
    document = health_at(Request(method="GET", path="/livez", query=query))

    assert document is not None
    assert content_of(document) == b"[+]ping excluded: ok\nlivez check passed\n"


@pytest.mark.parametrize("path", ["/livez/nope", "/livez/ping/x", "/livez/", "/nope"])
def test_other_paths_are_no_health_checks(path: str) -> None:
    assert health_at(Request(method="GET", path=path)) is None
