"""`kubectl describe` and `kubectl events`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kubectl_objects import CONFIG_MAP, DEPLOYMENT, POD, SERVICE

if TYPE_CHECKING:
    from kubectl_pair import Pair

pytest_plugins = ["kubectl_pair"]
pytestmark = pytest.mark.e2e

EVENT = """
apiVersion: v1
kind: Event
metadata:
  name: web-1.1
involvedObject:
  apiVersion: v1
  kind: Pod
  name: web-1
  namespace: NAMESPACE
  uid: UID
reason: Pulled
message: The image is here.
type: Normal
count: 3
source: {component: kubelet}
firstTimestamp: "2025-01-01T00:00:00Z"
lastTimestamp: "2025-01-01T00:00:00Z"
"""


@pytest.fixture(scope="module")
def filled(kubectl_servers: Pair) -> Pair:
    kubectl = kubectl_servers.with_namespace()
    texts = [CONFIG_MAP, DEPLOYMENT, POD, SERVICE]
    kubectl("create", "-f", "-", stdin="\n---\n".join(texts))
    for server in (kubectl.ours, kubectl.real):
        place = ("-n", kubectl.namespace)
        uid = server.say(
            *place, "get", "pod/web-1", "-o", "jsonpath={.metadata.uid}"
        ).out
        event = EVENT.replace("NAMESPACE", kubectl.namespace).replace("UID", uid)
        assert server.say(*place, "create", "-f", "-", stdin=event).status == 0

    kubectl("create", "secret", "generic", "hidden", "--from-literal=a=1")
    kubectl("create", "job", "once", "--image=example.com/once")
    return kubectl


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("pod/web-1", "The image is here."),
        ("deploy/web", "example.com/side:1"),
        ("svc/web", "Selector:"),
        ("secret/hidden", "1 bytes"),
        ("job/once", "Parallelism:"),
    ],
)
def test_kubectl_describes(filled: Pair, what: str, word: str) -> None:
    assert word in filled("describe", what)


def test_kubectl_describes_a_config_map(filled: Pair) -> None:
    ours, real = filled.each("describe", "cm/settings")

    # kubectl prints data in random order.
    assert sorted(ours.all.splitlines()) == sorted(real.all.splitlines())
    assert "green" in ours.out


def test_kubectl_describes_a_namespace(filled: Pair) -> None:
    assert "Active" in filled("describe", "namespace", filled.namespace)


def test_kubectl_describes_by_labels(filled: Pair) -> None:
    assert "web-1" in filled("describe", "pods", "-l", "app=web")


def test_kubectl_describe_of_missing_object_fails(filled: Pair) -> None:
    filled.fails("describe", "pod", "nothing")


def test_kubectl_lists_events(filled: Pair) -> None:
    assert "The image is here." in filled("events")
    assert "pod/web-1" in filled("get", "events")
    filled("get", "events", "-o", "wide")


def test_kubectl_lists_the_events_of_one(filled: Pair) -> None:
    assert "Pulled" in filled("events", "--for", "pod/web-1")
    assert "No events found" in filled.each("events", "--for", "pod/other")[0].err


def test_kubectl_selects_events_by_involved_object(filled: Pair) -> None:
    selector = "involvedObject.name=web-1,reason=Pulled,type!=Warning"

    printed = filled("get", "events", "--field-selector", selector, "-o", "name")
    assert printed == "event/web-1.1\n"
