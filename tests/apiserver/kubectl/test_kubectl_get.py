"""`kubectl get` in all output formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from kubectl_objects import CONFIG_MAP, DEPLOYMENT, POD, SERVICE

if TYPE_CHECKING:
    from kubectl_pair import Pair

pytest_plugins = ["kubectl_pair"]
pytestmark = pytest.mark.e2e

KINDS = ["pods", "configmaps", "deployments", "services"]


@pytest.fixture(scope="module")
def filled(kubectl_servers: Pair) -> Pair:
    """Create one object of each kind, and more config maps, for reading only."""
    kubectl = kubectl_servers.with_namespace()
    maps = [
        CONFIG_MAP.replace("settings", f"settings-{number}").replace(
            "web", f"a{number}"
        )
        for number in range(3)
    ]
    body = "\n---\n".join([POD, DEPLOYMENT, SERVICE, *maps])
    kubectl("create", "-f", "-", stdin=body)
    return kubectl


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_prints_a_table(filled: Pair, kind: str) -> None:
    assert filled("get", kind).startswith("NAME ")


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_prints_a_wide_table(filled: Pair, kind: str) -> None:
    filled("get", kind, "-o", "wide")


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_prints_yaml(filled: Pair, kind: str) -> None:
    document = yaml.safe_load(filled("get", kind, "-o", "yaml"))

    assert document["kind"] == "List"
    assert document["items"]


def test_kubectl_prints_json_of_one(filled: Pair) -> None:
    document = json.loads(filled("get", "pod", "web-1", "-o", "json"))

    assert document["status"]["phase"] == "Pending"


def test_kubectl_prints_managed_fields(filled: Pair) -> None:
    printed = filled("get", "deploy", "web", "-o", "yaml", "--show-managed-fields")

    assert "manager: kubectl-create" in printed


def test_kubectl_prints_names(filled: Pair) -> None:
    printed = filled("get", "pods,deploy,svc", "-o", "name")

    assert printed.split() == ["pod/web-1", "deployment.apps/web", "service/web"]


def test_kubectl_prints_a_json_path(filled: Pair) -> None:
    path = "jsonpath={range .items[*]}{.metadata.name}={.data.colour} {end}"

    printed = filled("get", "cm", "-o", path)
    assert printed == "settings-0=green settings-1=green settings-2=green "


def test_kubectl_prints_a_go_template(filled: Pair) -> None:
    template = "go-template={{range .items}}{{.metadata.name}} {{end}}"

    assert filled("get", "pods", "-o", template) == "web-1 "


def test_kubectl_prints_custom_columns(filled: Pair) -> None:
    columns = "custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image"

    assert "example.com/web:1" in filled("get", "pods", "-o", columns)


def test_kubectl_prints_labels_as_columns(filled: Pair) -> None:
    filled("get", "pods", "-L", "app,tier", "--show-labels")


def test_kubectl_prints_no_headers(filled: Pair) -> None:
    assert not filled("get", "pods", "--no-headers").startswith("NAME")


def test_kubectl_prints_the_kinds_of_several(filled: Pair) -> None:
    printed = filled("get", "pods,svc,cm", "--show-kind")

    assert "configmap/settings-0" in printed


def test_kubectl_prints_all(filled: Pair) -> None:
    printed = filled("get", "all")

    assert "pod/web-1" in printed
    assert "deployment.apps/web" in printed
    assert "configmap" not in printed


# ---------------------------------------------------------------- selection


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param("app=a1", "settings-1", id="equal"),
        pytest.param("app!=a1", "settings-0 settings-2", id="unequal"),
        pytest.param("app in (a0,a2)", "settings-0 settings-2", id="in"),
        pytest.param("app notin (a0,a2)", "settings-1", id="not-in"),
        pytest.param("app,app!=a0", "settings-1 settings-2", id="exists"),
        pytest.param("!app", "", id="does-not-exist"),
    ],
)
def test_kubectl_selects_by_labels(filled: Pair, selector: str, names: str) -> None:
    printed = filled("get", "cm", "-l", selector, "-o", "name")

    assert printed.split() == [f"configmap/{name}" for name in names.split()]


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        pytest.param("metadata.name=web-1", 1, id="name"),
        pytest.param("status.phase=Pending", 1, id="phase"),
        pytest.param("status.phase!=Pending", 0, id="another-phase"),
        pytest.param("spec.nodeName=", 1, id="unscheduled"),
        pytest.param("spec.restartPolicy=Always,metadata.name!=x", 1, id="two"),
    ],
)
def test_kubectl_selects_by_fields(filled: Pair, selector: str, count: int) -> None:
    printed = filled("get", "pods", "--field-selector", selector, "-o", "name")

    assert len(printed.split()) == count


def test_kubectl_get_rejects_unselectable_field(filled: Pair) -> None:
    printed = filled.fails("get", "pods", "--field-selector", "spec.foo=1")

    assert "field label not supported" in printed


def test_kubectl_reads_in_chunks(filled: Pair) -> None:
    printed = filled("get", "cm", "--chunk-size=1", "-o", "name")

    assert len(printed.split()) == 3


def test_kubectl_sorts(filled: Pair) -> None:
    printed = filled("get", "cm", "--sort-by=.metadata.labels.app", "-o", "name")

    assert printed.split()[0] == "configmap/settings-0"


def test_kubectl_sorts_a_table(filled: Pair) -> None:
    filled("get", "cm", "--sort-by=.metadata.name")


def test_kubectl_gets_several_by_name(filled: Pair) -> None:
    filled("get", "cm", "settings-2", "settings-0")


def test_kubectl_gets_objects_in_file(filled: Pair) -> None:
    printed = filled("get", "-f", "-", stdin=f"{POD}\n---\n{SERVICE}")

    assert "pod/web-1" in printed


def test_kubectl_get_of_missing_object_fails(filled: Pair) -> None:
    printed = filled.fails("get", "pod", "nothing")

    assert printed == 'Error from server (NotFound): pods "nothing" not found\n'


def test_kubectl_get_can_ignore_missing_object(filled: Pair) -> None:
    assert filled("get", "pod", "nothing", "--ignore-not-found") == ""


def test_kubectl_get_reports_empty_namespace(kubectl: Pair) -> None:
    ours, real = kubectl.each("get", "pods")

    assert ours.err.startswith("No resources found in ")
    assert ours == real


def test_kubectl_get_of_unknown_resource_fails(kubectl: Pair) -> None:
    printed = kubectl.fails("get", "gadgets")

    assert 'the server doesn\'t have a resource type "gadgets"' in printed


def test_kubectl_gets_from_all_namespaces(filled: Pair) -> None:
    selector = f"metadata.namespace={filled.namespace}"

    printed = filled("get", "cm", "-A", "--field-selector", selector)
    assert printed.startswith("NAMESPACE ")
    assert printed.count(filled.namespace) == 3


def test_kubectl_gets_a_namespace(kubectl: Pair) -> None:
    kubectl("get", "namespace", kubectl.namespace)
    kubectl("get", "namespace", kubectl.namespace, "-o", "yaml")


# ---------------------------------------------------------------- watches


def test_kubectl_watches_names(kubectl: Pair) -> None:
    kubectl("create", "configmap", "a")
    with kubectl.watching("get", "cm", "-w", "-o", "name") as watches:
        assert watches.lines(1) == ["configmap/a"]

        kubectl("create", "configmap", "b")
        kubectl("label", "configmap", "a", "x=y")
        assert watches.lines(2) == ["configmap/b", "configmap/a"]


def test_kubectl_watches_as_a_table(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)
    arguments = ("get", "deploy", "-w", "--output-watch-events")
    with kubectl.watching(*arguments) as watches:
        assert watches.lines(2)[1].startswith("ADDED  web  0/2")

        kubectl("scale", "deploy", "web", "--replicas=3")
        assert watches.lines(1)[0].startswith("MODIFIED  web  0/3")

        kubectl("delete", "deploy", "web")
        assert watches.lines(1)[0].startswith("DELETED  web  0/3")


def test_kubectl_watches_by_labels(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)
    arguments = ("get", "cm", "-w", "-l", "app=web", "--output-watch-events")
    with kubectl.watching(*arguments) as watches:
        assert watches.lines(2)[1].startswith("ADDED  settings  2")

        kubectl("label", "cm", "settings", "app=other", "--overwrite")
        assert watches.lines(1)[0].startswith("DELETED  settings  2")
