"""`Resource`: paths on the server, and built-in resources."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case
from kubernetes_asyncio.client import V1ConfigMap

from aioinformer.errors import OptionsError
from aioinformer.model import resources
from aioinformer.model.resource import Resource

WIDGETS = Resource("example.com", "v1beta1", "widgets", "Widget")


@each_case(
    "resource, arguments, path",
    [
        pytest.param(resources.PODS, (), "/api/v1/pods", id="all-namespaces"),
        pytest.param(
            resources.PODS, ("shop",), "/api/v1/namespaces/shop/pods", id="namespace"
        ),
        pytest.param(
            resources.PODS,
            ("shop", "web-0"),
            "/api/v1/namespaces/shop/pods/web-0",
            id="object",
        ),
        pytest.param(
            resources.PODS,
            ("shop", "web-0", "status"),
            "/api/v1/namespaces/shop/pods/web-0/status",
            id="subresource",
        ),
        pytest.param(
            resources.PODS,
            ("shop", "", "status"),
            "/api/v1/namespaces/shop/pods",
            id="subresource-without-name",
        ),
        pytest.param(
            resources.NODES, (None, "n1"), "/api/v1/nodes/n1", id="cluster-scoped"
        ),
        pytest.param(
            resources.NODES, ("", "n1"), "/api/v1/nodes/n1", id="empty-namespace"
        ),
        pytest.param(
            WIDGETS,
            ("shop",),
            "/apis/example.com/v1beta1/namespaces/shop/widgets",
            id="group",
        ),
        pytest.param(
            resources.NODES,
            (None, "a:b?c d"),
            "/api/v1/nodes/a%3Ab%3Fc%20d",
            id="quoted",
        ),
    ],
)
def test_resource_path(
    resource: Resource, arguments: tuple[str, ...], path: str
) -> None:
    assert resource.path(*arguments) == path


@each_case(
    "parts, message",
    [
        (("apps/v1", "deployments", "Deployment"), 'Resource.of("apps/v1", "deploy'),
        (("a/b", "v1", "widgets"), "invalid group of a resource: 'a/b'"),
        (("apps", "v1", "Deployment"), "invalid plural of a resource: 'Deployment'"),
        (("", "", "pods"), "invalid version"),
    ],
)
def test_invalid_resource_is_refused(parts: tuple[str, str, str], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Resource(*parts)

    assert message in str(caught.value)


@each_case(
    "words, found",
    [
        (("apps/v1/deployments",), resources.DEPLOYMENTS),
        (("v1/pods",), resources.PODS),
        (("deployments.apps",), resources.DEPLOYMENTS),
        (("v1", "Pod"), resources.PODS),
        ((V1ConfigMap,), resources.CONFIG_MAPS),
        ((V1ConfigMap(),), resources.CONFIG_MAPS),
        ((resources.NODES,), resources.NODES),
        (("widgets", None), None),
    ],
)
def test_meant_finds_resource_in_any_form(
    words: tuple[Any, ...], found: Resource | None
) -> None:
    assert resources.meant(*words) == found


@each_case(
    "words, code",
    [
        (("v1", "pods"), "PODS of aioinformer.model.resources"),
        (("example.com/v1", "widgets"), "Resource.of('example.com/v1', 'widgets')"),
        (("widgets",), "one of aioinformer.model.resources, such as PODS, or "),
    ],
)
def test_spelled_is_code_of_resource(words: tuple[str, ...], code: str) -> None:
    assert resources.spelled(*words).startswith(code)


@each_case("part", [".", "..", "a/b", "/", "a%2Fb"])
@each_case(
    "place",
    [
        pytest.param("{0}", id="namespace"),
        pytest.param("shop {0}", id="name"),
        pytest.param("shop web {0}", id="subresource"),
    ],
)
def test_resource_path_rejects_unsafe_parts(part: str, place: str) -> None:
    with pytest.raises(OptionsError, match="invalid path segment"):
        resources.PODS.path(*place.format(part).split())


@pytest.mark.parametrize("namespace", [5, ["shop"], b"shop"], ids=str)
def test_path_rejects_other_values_than_one_namespace(namespace: Any) -> None:
    with pytest.raises(OptionsError, match="a namespace must be a string, not"):
        resources.PODS.path(namespace)


@pytest.mark.parametrize("place", ["namespace", "name", "subresource"])
def test_path_rejects_objects_without_their_text(place: str) -> None:
    secret = {"metadata": {"name": "tls"}, "data": {"password": "aHVudGVyMg=="}}
    parts: dict[str, Any] = {"namespace": "shop", "name": "tls", place: secret}

    with pytest.raises(OptionsError, match="not dict") as caught:
        resources.SECRETS.path(**parts)

    assert "aHVudGVyMg" not in str(caught.value)


def test_cluster_scoped_path_rejects_namespace() -> None:
    with pytest.raises(OptionsError, match="nodes is cluster-scoped"):
        resources.NODES.path("shop")


def test_path_of_namespaced_object_requires_namespace() -> None:
    with pytest.raises(OptionsError, match="needs a namespace"):
        resources.DEPLOYMENTS.path(None, "web")


@pytest.mark.parametrize(
    ("api_version", "group", "version"),
    [
        pytest.param("v1", "", "v1", id="core"),
        pytest.param("apps/v1", "apps", "v1", id="group"),
        pytest.param("a.example.com/v2", "a.example.com", "v2", id="custom"),
    ],
)
def test_resource_of_api_version(api_version: str, group: str, version: str) -> None:
    resource = Resource.of(api_version, "things", "Thing", namespaced=False)

    assert resource == Resource(group, version, "things", "Thing", namespaced=False)
    assert resource.api_version == api_version


@pytest.mark.parametrize(
    ("api_version", "plural"),
    [
        pytest.param("", "pods", id="no-version"),
        pytest.param("apps/", "pods", id="empty-version"),
        pytest.param("v1", "", id="no-plural"),
        pytest.param("v1", "pods/status", id="subresource-in-plural"),
    ],
)
def test_resource_rejects_invalid_parts(api_version: str, plural: str) -> None:
    with pytest.raises(OptionsError, match=r"invalid (version|plural)"):
        Resource.of(api_version, plural)


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        pytest.param(resources.PODS, "pods", id="core"),
        pytest.param(WIDGETS, "widgets.example.com", id="group"),
    ],
)
def test_resource_str_is_that_of_kubectl(resource: Resource, text: str) -> None:
    assert str(resource) == text


def test_resource_is_hashable_value() -> None:
    same = Resource.of("example.com/v1beta1", "widgets", "Widget")

    assert same == WIDGETS
    assert hash(same) == hash(WIDGETS)
    assert Resource.of("v1", "widgets", "Widget") != WIDGETS


def test_lookup_finds_built_in_resources() -> None:
    assert resources.lookup("v1", "pods") is resources.PODS
    assert resources.lookup("apps/v1", "deployments") is resources.DEPLOYMENTS


@pytest.mark.parametrize(
    ("api_version", "plural"), [("v2", "pods"), ("v1", "Pods"), ("apps/v1", "pods")]
)
def test_lookup_of_other_name_returns_none(api_version: str, plural: str) -> None:
    assert resources.lookup(api_version, plural) is None


def test_built_in_resources_are_public_and_found_by_lookup() -> None:
    constants = {
        name: value
        for name, value in vars(resources).items()
        if isinstance(value, Resource)
    }

    assert set(constants) == {it for it in resources.__all__ if it.isupper()}
    assert set(constants.values()) == set(resources.built_in_resources())
    for name, value in constants.items():
        known = None if name.endswith("_V1") else value
        assert resources.lookup(value.api_version, value.plural) is known


def test_built_in_plurals_fit_kinds() -> None:
    for name in resources.__all__:
        if name.islower():
            continue

        resource: Resource = getattr(resources, name)
        assert resource.plural == name.removesuffix("_V1").replace("_", "").lower()
        singular = resource.kind.lower()
        assert resource.plural in {
            singular,
            f"{singular}s",
            f"{singular}es",
            f"{singular[:-1]}ies",
        }


@each_case(
    "word, found",
    [
        ("pods", resources.PODS),
        ("Pod", resources.PODS),
        ("DEPLOYMENT", resources.DEPLOYMENTS),
        ("deploy", resources.DEPLOYMENTS),
        ("widgets", None),
        ("", None),
    ],
)
def test_similar_finds_built_in_resource(word: str, found: Resource | None) -> None:
    assert resources.similar(word) == found
