"""Writes of kubectl: create, replace, patch, label, edit, scale."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from kubectl_objects import CONFIG_MAP, DEPLOYMENT, POD, SERVICE

if TYPE_CHECKING:
    from kubectl_pair import Pair

pytest_plugins = ["kubectl_pair"]
pytestmark = pytest.mark.e2e


# ---------------------------------------------------------------- create


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(CONFIG_MAP, id="configmap"),
        pytest.param(POD, id="pod"),
        pytest.param(DEPLOYMENT, id="deployment"),
        pytest.param(SERVICE, id="service"),
    ],
)
def test_kubectl_creates_from_a_file(kubectl: Pair, text: str) -> None:
    kubectl("create", "-f", "-", "-o", "yaml", stdin=text)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("configmap", "x", "--from-literal=a=1"), id="configmap"),
        pytest.param(("secret", "generic", "x", "--from-literal=a=1"), id="secret"),
        pytest.param(("deployment", "x", "--image=example.com/x"), id="deployment"),
        pytest.param(("job", "x", "--image=example.com/x"), id="job"),
        pytest.param(
            ("cronjob", "x", "--image=example.com/x", "--schedule=* * * * *"), id="cron"
        ),
        pytest.param(("service", "clusterip", "x", "--tcp=80"), id="service"),
        pytest.param(("serviceaccount", "x"), id="serviceaccount"),
        pytest.param(("role", "x", "--verb=get", "--resource=pods"), id="role"),
        pytest.param(
            ("rolebinding", "x", "--role=x", "--user=alice"), id="rolebinding"
        ),
        pytest.param(("quota", "x", "--hard=pods=2"), id="quota"),
        pytest.param(("ingress", "x", "--rule=a.example.com/=web:80"), id="ingress"),
        pytest.param(("pdb", "x", "--selector=a=b", "--min-available=1"), id="pdb"),
    ],
)
def test_kubectl_creates_a_kind(kubectl: Pair, arguments: tuple[str, ...]) -> None:
    assert kubectl("create", *arguments).endswith("/x created\n")
    kind = arguments[0]
    kubectl("get", kind, "-o", "wide")
    kubectl.body(kind, "x")


def test_kubectl_create_fails_for_existing_object(kubectl: Pair) -> None:
    kubectl("create", "configmap", "x")

    printed = kubectl.fails("create", "configmap", "x")
    assert 'configmaps "x" already exists' in printed


def test_kubectl_create_dry_run_creates_nothing(kubectl: Pair) -> None:
    printed = kubectl("create", "configmap", "x", "--dry-run=server")

    assert printed == "configmap/x created (server dry run)\n"
    kubectl.fails("get", "configmap", "x")


def test_kubectl_creates_a_generated_name(kubectl: Pair) -> None:
    text = CONFIG_MAP.replace("name: settings", "generateName: settings-")
    ours, real = kubectl.each("create", "-f", "-", "-o", "name", stdin=text)

    assert ours.out.startswith("configmap/settings-")
    assert len(ours.out) == len(real.out)


def test_kubectl_create_rejects_unknown_field(kubectl: Pair) -> None:
    printed = kubectl.fails("create", "-f", "-", stdin=POD.replace("ports:", "portz:"))

    assert 'unknown field "spec.containers[0].portz"' in printed


def test_kubectl_create_warns_of_unknown_field(kubectl: Pair) -> None:
    arguments = ("create", "--validate=warn", "-f", "-")
    kubectl(*arguments, stdin=POD.replace("ports:", "portz:"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("name: web-1", "name: Web_1", id="name"),
        pytest.param("name: main", "name: Main", id="container-name"),
        pytest.param("image: example.com/web:1", "image: ''", id="image"),
        pytest.param("containerPort: 8080", "containerPort: 0", id="port"),
        pytest.param("app: web", "app: '-'", id="label"),
        pytest.param("cpu: 500m", "cpu: much", id="quantity"),
        pytest.param("containers:", "restartPolicy: Maybe\n  containers:", id="enum"),
        pytest.param("containerPort: 8080", "containerPort: many", id="type"),
    ],
)
def test_kubectl_create_rejects_invalid_object(
    kubectl: Pair, old: str, new: str
) -> None:
    assert old in POD

    kubectl.fails("create", "-f", "-", stdin=POD.replace(old, new))


def test_kubectl_create_rejects_unknown_kind(kubectl: Pair) -> None:
    printed = kubectl.fails("create", "-f", "-", stdin=POD.replace("Pod", "Gadget"))

    assert 'no matches for kind "Gadget"' in printed


def test_kubectl_create_reports_missing_namespace(kubectl: Pair) -> None:
    printed = kubectl.fails("create", "configmap", "x", "-n", "nowhere")

    assert 'namespaces "nowhere" not found' in printed


def test_kubectl_runs_a_pod(kubectl: Pair) -> None:
    kubectl("run", "x", "--image=example.com/x", "--port=80", "--labels=a=b")
    kubectl.body("pod", "x")


def test_kubectl_exposes_a_deployment(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)
    kubectl("expose", "deployment", "web", "--port=80")
    kubectl.body("service", "web")


# ---------------------------------------------------------------- replace, edit


def test_kubectl_replaces(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)

    printed = kubectl("replace", "-f", "-", stdin=CONFIG_MAP.replace("green", "blue"))
    assert printed == "configmap/settings replaced\n"
    assert kubectl.body("cm", "settings")["data"]["colour"] == "blue"


def test_kubectl_replaces_by_force(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)

    kubectl("replace", "--force", "-f", "-", stdin=CONFIG_MAP)
    kubectl.body("cm", "settings")


def test_kubectl_replaces_no_other_version(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)
    old = CONFIG_MAP.replace(
        "  name: settings", '  name: settings\n  resourceVersion: "1"'
    )

    printed = kubectl.fails("replace", "-f", "-", stdin=old)
    assert "the object has been modified" in printed


def test_kubectl_replace_fails_for_missing_object(kubectl: Pair) -> None:
    assert "not found" in kubectl.fails("replace", "-f", "-", stdin=CONFIG_MAP)


EDITOR = {"KUBE_EDITOR": "sed -i s/green/blue/"}


def test_kubectl_edits(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)

    printed = kubectl("edit", "deployment", "web", environment=EDITOR)
    assert printed == "deployment.apps/web edited\n"
    assert '"value": "blue"' in json.dumps(kubectl.body("deploy", "web"))


def test_kubectl_edit_without_change_is_cancelled(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)

    environment = {"KUBE_EDITOR": "true"}
    kubectl("edit", "deployment", "web", environment=environment)


# ---------------------------------------------------------------- patch


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        pytest.param(
            "strategic",
            '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"x:2"}]}}}}',
            id="strategic",
        ),
        pytest.param(
            "merge",
            '{"spec":{"template":{"spec":{"containers":[{"name":"only","image":"x"}]}}}}',
            id="merge",
        ),
        pytest.param(
            "json",
            '[{"op":"replace","path":"/spec/template/spec/containers/0/image",'
            '"value":"x:3"},{"op":"remove","path":"/metadata/labels/app"}]',
            id="json",
        ),
        pytest.param(
            "strategic",
            '{"spec":{"template":{"spec":{"containers":'
            '[{"name":"side","$patch":"delete"}]}}}}',
            id="strategic-delete",
        ),
        pytest.param("merge", '{"metadata":{"labels":null}}', id="merge-null"),
    ],
)
def test_kubectl_patches(kubectl: Pair, kind: str, patch: str) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)

    printed = kubectl("patch", "deploy", "web", "--type", kind, "-p", patch)
    assert printed == "deployment.apps/web patched\n"
    kubectl.body("deploy", "web")


def test_kubectl_patch_without_change_changes_nothing(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)

    printed = kubectl("patch", "cm", "settings", "-p", '{"data":{"colour":"green"}}')
    assert printed == "configmap/settings patched (no change)\n"


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        pytest.param(
            "json", '[{"op":"test","path":"/data/colour","value":"x"}]', id="test"
        ),
        pytest.param("json", '[{"op":"remove","path":"/data/nothing"}]', id="missing"),
        pytest.param("json", '[{"op":"dance","path":"/data"}]', id="operation"),
        pytest.param("merge", '{"data":{"colour":3}}', id="type"),
        pytest.param("merge", '{"metadata":{"name":"other"}}', id="name"),
        pytest.param("strategic", '{"data":[1]}', id="strategic-type"),
    ],
)
def test_kubectl_patch_fails_for_invalid_patch(
    kubectl: Pair, kind: str, patch: str
) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)

    kubectl.fails("patch", "cm", "settings", "--type", kind, "-p", patch)


def test_kubectl_patches_a_status(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    patch = '{"metadata":{"labels":{"new":"1"}},"status":{"phase":"Running"}}'

    kubectl("patch", "pod", "web-1", "--subresource=status", "-p", patch)
    assert kubectl.body("pod", "web-1")["status"]["phase"] == "Running"


# ---------------------------------------------------------------- other writes


def test_kubectl_labels(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)

    assert kubectl("label", "cm", "settings", "a=b").endswith(" labeled\n")
    assert kubectl("label", "cm", "settings", "a=b").endswith(" not labeled\n")
    kubectl.fails("label", "cm", "settings", "a=c")
    kubectl("label", "cm", "settings", "a=c", "--overwrite")
    kubectl("label", "cm", "settings", "a-")
    kubectl.body("cm", "settings")


def test_kubectl_labels_all(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=f"{CONFIG_MAP}\n---\n{POD}")

    kubectl("label", "cm,pods", "--all", "a=b")
    assert len(kubectl("get", "cm,pods", "-l", "a=b", "-o", "name").split()) == 2


def test_kubectl_label_fails_for_invalid_label(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)

    kubectl.fails("label", "cm", "settings", "a=-")


def test_kubectl_annotates(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)

    kubectl("annotate", "cm", "settings", "example.com/note=hello world")
    kubectl("annotate", "cm", "settings", "example.com/note=new", "--overwrite")
    notes = kubectl.body("cm", "settings")["metadata"]["annotations"]
    assert notes == {"example.com/note": "new"}


def test_kubectl_scales(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)

    kubectl("scale", "deploy", "web", "--replicas=5")
    kubectl.fails("scale", "deploy", "web", "--current-replicas=2", "--replicas=1")
    kubectl.fails("scale", "deploy", "nothing", "--replicas=1")
    kubectl.fails("scale", "cm", "web", "--replicas=1")
    assert kubectl.body("deploy", "web")["spec"]["replicas"] == 5


def test_kubectl_sets_an_image(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)

    kubectl("set", "image", "deploy/web", "side=example.com/side:2")
    kubectl("set", "env", "deploy/web", "--containers=main", "COLOUR=blue", "NEW=1")
    kubectl("set", "resources", "deploy/web", "--limits=cpu=1")
    assert "example.com/side:2" in json.dumps(kubectl.body("deploy", "web"))


def test_kubectl_pauses_a_rollout(kubectl: Pair) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)

    kubectl("rollout", "pause", "deploy/web")
    kubectl.fails("rollout", "pause", "deploy/web")
    kubectl("rollout", "resume", "deploy/web")
