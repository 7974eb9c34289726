"""kubectl drain, autoscale, and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubectl_objects import DEPLOYMENT

if TYPE_CHECKING:
    from kubectl_pair import Pair

pytest_plugins = ["kubectl_pair"]
pytestmark = pytest.mark.e2e


def pod(name: str, node: str) -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers: [{{name: main, image: "registry.example/app:1"}}]
"""


BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
"""


def test_kubectl_drains_a_node(kubectl: Pair) -> None:
    node = f"node-{kubectl.namespace}"
    kubectl(
        "create",
        "-f",
        "-",
        stdin=f"apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}",
    )
    try:
        kubectl("create", "-f", "-", stdin=pod("web-1", node))
        drain = ("drain", node, "--disable-eviction=false", "--ignore-daemonsets")
        printed = kubectl(*drain, "--force")
        assert f"node/{node} drained" in printed
        kubectl.fails("get", "pod", "web-1")
    finally:
        kubectl("delete", "node", node)


def test_disruption_budget_stops_kubectl_drain(kubectl: Pair) -> None:
    node = f"node-{kubectl.namespace}"
    kubectl(
        "create",
        "-f",
        "-",
        stdin=f"apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}",
    )
    try:
        kubectl("create", "-f", "-", stdin=f"{pod('web-1', node)}---{BUDGET}")
        ready = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
        part = ("--subresource=status", "--type=merge", "-p")
        kubectl("patch", "pod", "web-1", *part, ready)
        status = (
            '{"status":{"observedGeneration":1,"desiredHealthy":1,"currentHealthy":1}}'
        )
        kubectl("patch", "pdb", "web", *part, status)
        drain = ("drain", node, "--force", "--timeout=1s")
        ours, real = kubectl.each(*drain)
        why = "Cannot evict pod as it would violate the pod's disruption budget."
        assert why in ours.err
        assert why in real.err
        assert (ours.status, real.status) == (1, 1)
    finally:
        kubectl("delete", "node", node)


def test_kubectl_autoscales(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)

    kubectl("autoscale", "deploy/web", "--min=1", "--max=3", "--cpu-percent=50")
    kubectl("get", "hpa")
    kubectl("get", "hpa.v1.autoscaling", "web", "-o", "jsonpath={.spec}")
    assert kubectl.body("hpa", "web")["spec"]["maxReplicas"] == 3
    kubectl("describe", "hpa", "web")


def test_kubectl_prints_events(kubectl: Pair) -> None:
    event = f"""
apiVersion: events.k8s.io/v1
kind: Event
metadata: {{name: web}}
eventTime: "2020-01-01T00:00:00.000000Z"
reportingController: example.com/c
reportingInstance: i
action: A
reason: R
note: It happened.
type: Normal
regarding: {{kind: Pod, namespace: {kubectl.namespace}, name: web}}
"""
    kubectl("create", "-f", "-", stdin=event)

    assert "It happened." in kubectl("events")
    assert "It happened." in kubectl("get", "events")
    kubectl("get", "events.v1.events.k8s.io", "web", "-o", "yaml")


def test_kubectl_makes_a_token(kubectl: Pair) -> None:
    kubectl("create", "serviceaccount", "robot")

    ours, real = kubectl.each("create", "token", "robot")
    assert (ours.status, real.status) == (0, 0)
    assert ours.out.count(".") == real.out.count(".") == 2
    kubectl.fails("create", "token", "nobody")
