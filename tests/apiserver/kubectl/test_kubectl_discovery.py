"""kubectl with discovery, OpenAPI and health checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubectl_pair import Pair

pytest_plugins = ["kubectl_pair"]
pytestmark = pytest.mark.e2e


def rows(table: str) -> set[tuple[str, ...]]:
    return {tuple(line.split()) for line in table.splitlines()[1:]}


def test_kubectl_lists_kinds_as_the_real_server_does(kubectl: Pair) -> None:
    ours, real = kubectl.each("api-resources", "-o", "wide")

    # Our server has fewer of them, and no additional ones.
    assert (ours.status, ours.err) == (0, "")
    assert len(rows(ours.out)) > 20
    assert rows(ours.out) <= rows(real.out)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--namespaced=false",), id="cluster-scoped"),
        pytest.param(("--api-group=apps",), id="group"),
        pytest.param(("--categories=all",), id="category"),
    ],
)
def test_kubectl_lists_some_kinds(kubectl: Pair, options: tuple[str, ...]) -> None:
    ours, real = kubectl.each("api-resources", "-o", "wide", *options)

    assert rows(ours.out)
    assert rows(ours.out) <= rows(real.out)


def test_kubectl_lists_versions_of_the_api(kubectl: Pair) -> None:
    ours, real = kubectl.each("api-versions")

    assert {"v1", "apps/v1", "batch/v1"} <= set(ours.out.split())
    assert set(ours.out.split()) <= set(real.out.split())


@pytest.mark.parametrize(
    "alias", ["po", "deploy.apps", "deployments.v1.apps", "ns", "cm", "crd", "ev"]
)
def test_kubectl_finds_kinds_by_their_short_names(kubectl: Pair, alias: str) -> None:
    ours, real = kubectl.each("get", alias, "-o", "name", "-l", "app=x")

    assert (ours.status, real.status) == (0, 0)


def test_kubectl_prints_server_version(kubectl: Pair) -> None:
    ours, real = (json.loads(it.out) for it in kubectl.each("version", "-o", "json"))

    assert ours["clientVersion"] == real["clientVersion"]
    assert ours["serverVersion"].keys() == real["serverVersion"].keys()
    for part in ("major", "minor"):
        assert ours["serverVersion"][part] == real["serverVersion"][part]


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_kubectl_prints_server_health(kubectl: Pair, path: str) -> None:
    assert kubectl("get", "--raw", path) == "ok"


def test_kubectl_gets_a_raw_path(kubectl: Pair) -> None:
    printed = kubectl("get", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/pods")

    assert json.loads(printed)["items"] == []


def test_kubectl_get_raw_of_missing_path_fails(kubectl: Pair) -> None:
    printed = kubectl.fails("get", "--raw", "/nothing/here")

    assert "the server could not find the requested resource" in printed


# ---------------------------------------------------------------- explain


@pytest.mark.parametrize(
    "field",
    [
        "configmap.data",
        "pod.spec.restartPolicy",
        "pod.spec.containers.ports",
        "deployment.spec.replicas",
        "deployment.spec.strategy",
    ],
)
def test_kubectl_explains_the_type_of_a_field(kubectl: Pair, field: str) -> None:
    # Our schemas have no descriptions.
    ours, real = kubectl.each("explain", field)

    assert (ours.status, ours.err) == (0, "")
    assert _heads(ours.out) == _heads(real.out)


def test_kubectl_explains_all_fields(kubectl: Pair) -> None:
    ours, real = kubectl.each("explain", "deployment", "--recursive")

    assert _tree(ours.out) == _tree(real.out)
    assert len(_tree(ours.out)) > 500


def test_kubectl_explain_of_missing_field_fails(kubectl: Pair) -> None:
    printed = kubectl.fails("explain", "pod.spec.nothing")

    assert 'field "nothing" does not exist' in printed


def _heads(text: str) -> list[str]:
    words = ("KIND:", "VERSION:", "GROUP:", "FIELD:")
    return [line for line in text.splitlines() if line.startswith(words)]


def _tree(text: str) -> list[str]:
    """Return the fields with their types, indented by nesting."""
    return text.partition("FIELDS:")[2].splitlines()


# ---------------------------------------------------------------- permissions


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(("create", "deployments.apps"), id="verb"),
        pytest.param(("get", "pods", "--subresource=log"), id="subresource"),
        pytest.param(("get", "/metrics"), id="path"),
    ],
)
def test_kubectl_user_may_do_everything(
    kubectl: Pair, question: tuple[str, ...]
) -> None:
    assert kubectl("auth", "can-i", *question) == "yes\n"


def test_kubectl_lists_permissions_of_only_user(kubectl: Pair) -> None:
    ours, _ = kubectl.each("auth", "can-i", "--list")

    assert ours.status == 0
    assert ["*.*", "[]", "[]", "[*]"] in [
        line.split() for line in ours.out.splitlines()
    ]


def test_kubectl_auth_can_i_warns_of_unknown_resource(kubectl: Pair) -> None:
    kubectl("auth", "can-i", "get", "gadgets")
