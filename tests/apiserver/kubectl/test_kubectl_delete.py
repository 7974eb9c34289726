"""`kubectl delete` and `kubectl wait`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubectl_objects import CONFIG_MAP, DEPLOYMENT, POD

if TYPE_CHECKING:
    from kubectl_pair import Pair

pytest_plugins = ["kubectl_pair"]
pytestmark = pytest.mark.e2e


@pytest.fixture
def maps(kubectl: Pair) -> Pair:
    """Create the config maps a, b and c; a has the label x=1."""
    texts = [CONFIG_MAP.replace("settings", name) for name in "abc"]
    texts[0] = texts[0].replace("app: web", "x: '1'")
    kubectl("create", "-f", "-", stdin="\n---\n".join(texts))
    return kubectl


def left(kubectl: Pair) -> list[str]:
    return kubectl("get", "cm", "-o", "name").split()


def test_kubectl_deletes_by_name(maps: Pair) -> None:
    maps("delete", "cm", "a", "b")

    assert left(maps) == ["configmap/c"]


def test_kubectl_deletes_by_labels(maps: Pair) -> None:
    maps("delete", "cm", "-l", "x=1")

    assert left(maps) == ["configmap/b", "configmap/c"]


def test_kubectl_deletes_all(maps: Pair) -> None:
    maps("delete", "cm", "--all")

    assert left(maps) == []


def test_kubectl_deletes_objects_in_file(maps: Pair) -> None:
    maps("delete", "-f", "-", stdin=CONFIG_MAP.replace("settings", "a"))

    assert left(maps) == ["configmap/b", "configmap/c"]


def test_kubectl_delete_dry_run_deletes_nothing(maps: Pair) -> None:
    maps("delete", "cm", "a", "--dry-run=server")

    assert len(left(maps)) == 3


def test_kubectl_delete_of_missing_object_fails(kubectl: Pair) -> None:
    kubectl.fails("delete", "cm", "a")
    kubectl("delete", "cm", "a", "--ignore-not-found")


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_kubectl_deletes_with_every_cascade(kubectl: Pair, cascade: str) -> None:
    # Neither server has a garbage collector, so the object stays marked.
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)

    kubectl("delete", "deploy", "web", f"--cascade={cascade}", "--wait=false")
    if cascade == "background":
        kubectl.fails("get", "deploy", "web")
        return

    metadata = kubectl.body("deploy", "web")["metadata"]
    finalizer = {"foreground": "foregroundDeletion"}.get(cascade, cascade)
    assert metadata["finalizers"] == [finalizer]
    assert metadata["deletionTimestamp"]


def test_kubectl_deletes_a_pod_at_once(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=POD)

    kubectl("delete", "pod", "web-1", "--force", "--grace-period=0")
    kubectl.fails("get", "pod", "web-1")


def test_kubectl_deletes_a_pod_that_runs_nowhere_at_once(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=POD)

    kubectl("delete", "pod", "web-1", "--grace-period=30")
    kubectl.fails("get", "pod", "web-1")


def test_kubectl_waits_for_a_finalizer_to_be_removed(kubectl: Pair) -> None:
    text = CONFIG_MAP.replace("  labels:", "  finalizers: [example.com/x]\n  labels:")
    kubectl("create", "-f", "-", stdin=text)

    kubectl("delete", "cm", "settings", "--wait=false")
    assert kubectl.body("cm", "settings")["metadata"]["deletionTimestamp"]
    with kubectl.watching("delete", "cm", "settings") as deletions:
        deletions.lines(1)
        patch = '{"metadata":{"finalizers":null}}'
        kubectl("patch", "cm", "settings", "--type=merge", "-p", patch)
        deletions.end()

    kubectl.fails("get", "cm", "settings")


def test_kubectl_deletes_a_namespace(kubectl: Pair) -> None:
    # Only our server has the namespace controller, which empties a namespace.
    ours, real = kubectl.each("delete", "namespace", kubectl.namespace, "--wait=false")

    assert ours.all == real.all
    assert kubectl.ours.say("get", "namespace", kubectl.namespace).status == 1
    real = kubectl.real.say("get", "namespace", kubectl.namespace)
    assert "Terminating" in real.out


# ---------------------------------------------------------------- kubectl wait


def status(kubectl: Pair, text: str) -> None:
    patch = f'{{"status":{text}}}'
    kubectl(
        "patch", "pod", "web-1", "--subresource=status", "--type=merge", "-p", patch
    )


def test_kubectl_waits_for_a_condition(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    with kubectl.watching("wait", "pod/web-1", "--for=condition=Ready") as waits:
        status(kubectl, '{"conditions":[{"type":"Ready","status":"True"}]}')
        assert waits.lines(1) == ["pod/web-1 condition met"]
        waits.end()


def test_kubectl_waits_for_a_json_path(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    condition = "--for=jsonpath={.status.phase}=Running"
    with kubectl.watching("wait", "pod/web-1", condition) as waits:
        status(kubectl, '{"phase":"Running"}')
        assert waits.lines(1) == ["pod/web-1 condition met"]
        waits.end()


def test_kubectl_waits_for_a_deletion(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    with kubectl.watching("wait", "pod", "--all", "--for=delete", "-v=6") as waits:
        waits.begun()
        kubectl("delete", "pod", "web-1")
        assert waits.lines(1) == ["pod/web-1 condition met"]
        waits.end()


def test_kubectl_wait_returns_at_once_if_condition_holds(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=POD)

    kubectl("wait", "pod/web-1", "--for=jsonpath={.status.phase}=Pending")


def test_kubectl_wait_fails_after_timeout(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=POD)

    arguments = ("--for=condition=Ready", "--timeout=100ms")
    assert "timed out" in kubectl.fails("wait", "pod/web-1", *arguments)


def test_kubectl_waits_for_a_rollout(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)
    with kubectl.watching("rollout", "status", "deploy/web") as rollouts:
        rollouts.lines(1)
        patch = (
            '{"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":2,'
            '"readyReplicas":2,"availableReplicas":2}}'
        )
        kubectl("patch", "deploy", "web", "--subresource=status", "-p", patch)
        assert "successfully rolled out" in rollouts.lines(1)[0]
        rollouts.end()
