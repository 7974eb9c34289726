"""`kubectl apply` and `kubectl diff`, by the client and by the server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from kubectl_objects import CONFIG_MAP, DEPLOYMENT, POD, SERVICE

if TYPE_CHECKING:
    from kubectl_pair import Pair

pytest_plugins = ["kubectl_pair"]
pytestmark = pytest.mark.e2e

ALL = "\n---\n".join([CONFIG_MAP, DEPLOYMENT, POD, SERVICE])
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def apply(kubectl: Pair, text: str, *options: str) -> str:
    return kubectl("apply", *options, "-f", "-", stdin=text)


# ---------------------------------------------------------------- client-side apply


def test_kubectl_apply_creates_missing_object(kubectl: Pair) -> None:
    printed = apply(kubectl, ALL)

    assert printed.count(" created\n") == 4
    assert LAST_APPLIED in kubectl.body("cm", "settings")["metadata"]["annotations"]


def test_kubectl_apply_leaves_equal_object_unchanged(kubectl: Pair) -> None:
    apply(kubectl, ALL)
    before = kubectl.each("get", "cm,deploy,pod,svc", "-o", "json")

    assert apply(kubectl, ALL).count(" unchanged\n") == 4
    assert kubectl.each("get", "cm,deploy,pod,svc", "-o", "json") == before


def test_kubectl_apply_changes_different_fields(kubectl: Pair) -> None:
    apply(kubectl, DEPLOYMENT)

    printed = apply(
        kubectl, DEPLOYMENT.replace("example.com/side:1", "example.com/side:2")
    )
    assert printed == "deployment.apps/web configured\n"
    assert "example.com/side:2" in json.dumps(kubectl.body("deploy", "web"))


def test_kubectl_apply_removes_fields_no_longer_applied(kubectl: Pair) -> None:
    apply(kubectl, DEPLOYMENT)
    without, _, _ = DEPLOYMENT.partition("      - name: side")

    apply(kubectl, without)
    spec = kubectl.body("deploy", "web")["spec"]["template"]["spec"]
    assert [it["name"] for it in spec["containers"]] == ["main"]


def test_kubectl_apply_keeps_fields_added_by_others(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP)
    kubectl("patch", "cm", "settings", "-p", '{"data":{"added":"1"}}')

    apply(kubectl, CONFIG_MAP.replace('  size: "3"\n', ""))
    data = kubectl.body("cm", "settings")["data"]
    assert data == {"colour": "green", "added": "1"}


def test_kubectl_apply_reverts_fields_changed_by_others(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP)
    kubectl("patch", "cm", "settings", "-p", '{"data":{"colour":"red"}}')

    assert apply(kubectl, CONFIG_MAP) == "configmap/settings configured\n"
    assert kubectl.body("cm", "settings")["data"]["colour"] == "green"


def test_kubectl_apply_warns_about_object_created_otherwise(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)

    ours, real = kubectl.each("apply", "-f", "-", stdin=CONFIG_MAP)
    assert "is missing the kubectl.kubernetes.io/last-applied" in ours.err
    assert ours.all == real.all


def test_kubectl_apply_rejects_immutable_field(kubectl: Pair) -> None:
    apply(kubectl, DEPLOYMENT)

    text = DEPLOYMENT.replace("app: web", "app: other")
    printed = kubectl.fails("apply", "-f", "-", stdin=text)
    assert "field is immutable" in printed


def test_kubectl_apply_dry_run_changes_nothing(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP)

    text = CONFIG_MAP.replace("green", "blue")
    assert "(server dry run)" in apply(kubectl, text, "--dry-run=server")
    assert kubectl.body("cm", "settings")["data"]["colour"] == "green"


def test_kubectl_prunes(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP)
    another = CONFIG_MAP.replace("name: settings", "name: another")
    kinds = "--prune-allowlist=core/v1/ConfigMap"

    printed = apply(kubectl, another, "--prune", "-l", "app=web", kinds)
    assert "configmap/settings pruned" in printed


def test_kubectl_views_and_sets_last_applied_configuration(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP)

    kubectl("apply", "view-last-applied", "cm", "settings")
    text = CONFIG_MAP.replace("green", "blue")
    kubectl("apply", "set-last-applied", "-f", "-", stdin=text)
    assert "blue" in kubectl("apply", "view-last-applied", "cm", "settings")


# ---------------------------------------------------------------- server-side apply

SERVER_SIDE = "--server-side"
OTHER = ("--server-side", "--field-manager=other")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(CONFIG_MAP, id="configmap"),
        pytest.param(DEPLOYMENT, id="deployment"),
        pytest.param(POD, id="pod"),
        pytest.param(SERVICE, id="service"),
    ],
)
def test_kubectl_server_side_apply_is_idempotent(kubectl: Pair, text: str) -> None:
    name = apply(kubectl, text, SERVER_SIDE).split()[0]
    before = kubectl.each("get", name, "-o", "json", "--show-managed-fields")

    apply(kubectl, text, SERVER_SIDE)
    assert kubectl.each("get", name, "-o", "json", "--show-managed-fields") == before
    kubectl.body(name)


def test_kubectl_server_side_conflicts_with_another_manager(kubectl: Pair) -> None:
    apply(kubectl, DEPLOYMENT, SERVER_SIDE)

    text = DEPLOYMENT.replace("replicas: 2", "replicas: 3").replace("green", "blue")
    printed = kubectl.fails("apply", *OTHER, "-f", "-", stdin=text)
    assert "2 conflicts" in printed
    assert ".spec.replicas" in printed


def test_kubectl_server_side_takes_fields_by_force(kubectl: Pair) -> None:
    apply(kubectl, DEPLOYMENT, SERVER_SIDE)

    text = DEPLOYMENT.replace("replicas: 2", "replicas: 3")
    apply(kubectl, text, *OTHER, "--force-conflicts")
    assert kubectl.body("deploy", "web")["spec"]["replicas"] == 3


def test_kubectl_server_side_conflicts_with_an_update(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP, SERVER_SIDE)
    kubectl("patch", "cm", "settings", "-p", '{"data":{"colour":"red"}}')

    printed = kubectl.fails("apply", SERVER_SIDE, "-f", "-", stdin=CONFIG_MAP)
    assert 'conflict with "kubectl-patch" using v1: .data.colour' in printed


def test_kubectl_server_side_shares_equal_fields(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP, SERVER_SIDE)
    apply(kubectl, CONFIG_MAP, *OTHER)

    managers = kubectl.body("cm", "settings")["metadata"]["managedFields"]
    assert [it["manager"] for it in managers] == ["kubectl", "other"]


def test_kubectl_server_side_apply_removes_fields_no_longer_applied(
    kubectl: Pair,
) -> None:
    apply(kubectl, DEPLOYMENT, SERVER_SIDE)
    without, _, _ = DEPLOYMENT.partition("      - name: side")

    apply(kubectl, without, SERVER_SIDE)
    spec = kubectl.body("deploy", "web")["spec"]["template"]["spec"]
    assert [it["name"] for it in spec["containers"]] == ["main"]


def test_kubectl_server_side_apply_keeps_fields_of_other_appliers(
    kubectl: Pair,
) -> None:
    apply(kubectl, CONFIG_MAP, SERVER_SIDE)
    apply(kubectl, CONFIG_MAP, *OTHER)

    apply(kubectl, CONFIG_MAP.replace('  size: "3"\n', ""), SERVER_SIDE)
    assert kubectl.body("cm", "settings")["data"]["size"] == "3"


def test_kubectl_server_side_takes_over_from_the_client(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP)

    apply(kubectl, CONFIG_MAP.replace("green", "blue"), SERVER_SIDE)
    kubectl.body("cm", "settings")


def test_kubectl_server_side_merges_lists_by_their_keys(kubectl: Pair) -> None:
    apply(kubectl, DEPLOYMENT, SERVER_SIDE)
    side = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - name: side
        env: [{name: NEW, value: "1"}]
"""

    apply(kubectl, side, *OTHER)
    assert '"NEW"' in json.dumps(kubectl.body("deploy", "web"))


def test_kubectl_server_side_apply_rejects_invalid_object(kubectl: Pair) -> None:
    for old, new in (
        ("web:1", "web:1\n        imagex: 1"),
        ("- name: side", "- name: S"),
    ):
        text = DEPLOYMENT.replace(old, new)
        kubectl.fails("apply", SERVER_SIDE, "-f", "-", stdin=text)


def test_kubectl_server_side_apply_dry_run_changes_nothing(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP, SERVER_SIDE, "--dry-run=server")

    kubectl.fails("get", "cm", "settings")


# ---------------------------------------------------------------- diff


def test_kubectl_diff_shows_changes_of_apply(kubectl: Pair) -> None:
    apply(kubectl, DEPLOYMENT)
    text = DEPLOYMENT.replace("replicas: 2", "replicas: 3")

    ours, real = kubectl.each("diff", "-f", "-", stdin=text)
    assert (ours.status, real.status) == (1, 1)
    assert _changes(ours.out) == _changes(real.out)
    assert "+  replicas: 3" in _changes(ours.out)


def test_kubectl_diff_shows_changes_of_server_side_apply(kubectl: Pair) -> None:
    apply(kubectl, CONFIG_MAP, SERVER_SIDE)
    text = CONFIG_MAP.replace("green", "blue")

    ours, real = kubectl.each("diff", SERVER_SIDE, "-f", "-", stdin=text)
    assert (ours.status, real.status) == (1, 1)
    assert _changes(ours.out) == _changes(real.out)
    assert "+  colour: blue" in _changes(ours.out)


def test_kubectl_diff_without_changes_prints_nothing(kubectl: Pair) -> None:
    apply(kubectl, ALL)

    assert kubectl("diff", "-f", "-", stdin=ALL) == ""


def _changes(diff: str) -> list[str]:
    """Return the differing lines, without the names of temporary files."""
    lines = diff.splitlines()
    return [it for it in lines if it[:1] in "+-" and it[:3] not in {"+++", "---"}]
