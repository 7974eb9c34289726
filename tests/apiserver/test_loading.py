"""`APIServer.load()`: manifests as objects."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import Resource
from aioinformer.errors import OptionsError
from aioinformer.model.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    PODS,
)
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
DEFINITION = """
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: widgets.example.com}
    spec:
      group: example.com
      scope: Namespaced
      names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
      versions:
      - name: v1
        served: true
        storage: true
        subresources: {status: {}}
        schema:
          openAPIV3Schema:
            type: object
            properties:
              spec: {type: object, properties: {size: {type: integer}}}
              status: {type: object, properties: {ready: {type: boolean}}}
"""
WIDGET = """
    apiVersion: example.com/v1
    kind: Widget
    metadata: {name: one}
    spec: {size: 3}
    status: {ready: true}
"""
SETTINGS = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}"


def write(path: Path, *documents: str) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    text = "\n---\n".join(dedent(it) for it in documents)
    path.write_text(text, encoding="utf-8")
    return path


def names(bodies: list[dict[str, Any]]) -> list[str]:
    return [it["metadata"]["name"] for it in bodies]


# ---------------------------------------------------------------- objects


def test_load_creates_crds_before_objects_and_returns_all_in_order(
    tmp_path: Path,
) -> None:
    server = APIServer()
    path = write(tmp_path / "all.yaml", WIDGET, "", SETTINGS, "# no object", DEFINITION)
    made = server.load(path)

    assert names(made) == ["one", "settings", "widgets.example.com"]
    assert made[0] == server.get(WIDGETS, "one")
    assert (made[0]["spec"], made[0]["status"]) == ({"size": 3}, {"ready": True})
    assert server.get(CONFIG_MAPS, "settings")["metadata"]["namespace"] == "default"


def test_load_creates_namespaces_before_objects_in_them(tmp_path: Path) -> None:
    server = APIServer()
    inside = SETTINGS.replace("settings", "settings, namespace: shop")
    shop = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {a: b}}}"
    server.load(write(tmp_path / "all.yaml", inside, shop))

    assert names(server.objects(CONFIG_MAPS, namespace="shop")) == ["settings"]


def test_load_changes_existing_objects(tmp_path: Path) -> None:
    server = APIServer()
    path = write(tmp_path / "a.yaml", DEFINITION, WIDGET)
    default = (
        "{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {a: b}}}"
    )
    (_, first) = server.load(path)
    write(path, DEFINITION, WIDGET.replace("size: 3", "size: 4"), default)
    (_, second, namespace) = server.load(path)

    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert second["spec"] == {"size": 4}
    assert namespace["metadata"]["labels"]["a"] == "b"
    assert namespace["status"] == {"phase": "Active"}


@pytest.mark.parametrize(
    "head", ["apiVersion: v1\nkind: List", "apiVersion: v1\nkind: PodList"]
)
def test_list_stands_for_its_items(tmp_path: Path, head: str) -> None:
    typed = "" if "PodList" in head else "apiVersion: v1, kind: Pod, "
    spec = "spec: {containers: [{name: c, image: i}]}"
    items = [f"- {{{typed}metadata: {{name: {it}}}, {spec}}}" for it in ("a", "b")]
    server = APIServer()
    path = write(tmp_path / "pods.yaml", "\n".join([head, "items:", *items]))

    assert names(server.load(path)) == names(server.objects(PODS)) == ["a", "b"]


async def test_copy_of_served_objects_can_be_loaded(tmp_path: Path) -> None:
    async with APIServer() as server, server.client() as client:
        server.load(write(tmp_path / "a.yaml", DEFINITION, WIDGET))
        made = await client.list(WIDGETS)
        copy = write(tmp_path / "b.json", made[0].raw.decode())

    other = APIServer(resources=[WIDGETS])
    (widget,) = other.load(copy)
    assert widget["spec"] == {"size": 3}
    assert widget["metadata"]["resourceVersion"] == other.resource_version


def test_copy_of_deleted_object_can_be_loaded_twice(tmp_path: Path) -> None:
    deleted = "deletionTimestamp: 2026-01-01T00:00:00Z, deletionGracePeriodSeconds: 30"
    path = write(tmp_path / "a.yaml", SETTINGS.replace("{name:", f"{{{deleted}, name:"))
    server = APIServer()

    for _ in range(2):
        (settings,) = server.load(path)
        assert "deletionTimestamp" not in settings["metadata"]


async def test_loaded_crd_is_served_at_once(tmp_path: Path) -> None:
    server = APIServer(load=write(tmp_path / "crd.yaml", DEFINITION))
    async with server, server.client() as client:
        found = await client.discovery.resource("widgets")
        assert await client.list(WIDGETS) == []

    assert found == WIDGETS
    (crd,) = server.objects(CUSTOM_RESOURCE_DEFINITIONS)
    states = {it["type"]: it["status"] for it in crd["status"]["conditions"]}
    assert states["Established"] == "True"


def test_dates_in_manifests_are_strings(tmp_path: Path) -> None:
    """kubectl parses them as strings, too."""
    body = SETTINGS.removesuffix("}") + ", data: {x: 2026-01-01}}"
    (made,) = APIServer().load(write(tmp_path / "a.yaml", body))

    assert made["data"] == {"x": "2026-01-01"}


# ---------------------------------------------------------------- paths


def test_paths_are_files_folders_and_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.yaml", "a.yml", "c.json", "deep/er/d.yaml"):
        letter = name.rpartition("/")[2][0]
        write(tmp_path / "maps" / name, SETTINGS.replace("settings", f'"{letter}"'))

    (tmp_path / "maps" / "notes.txt").write_text("no manifest")
    (tmp_path / "maps" / "folder.yaml").mkdir()
    monkeypatch.chdir(tmp_path)

    assert names(APIServer().load("maps")) == ["a", "b", "c"]
    assert names(APIServer().load("maps/b.yaml", "maps/*.y*ml")) == ["b", "a"]
    assert names(APIServer().load("maps/**/*.yaml")) == ["b", "d"]
    assert names(APIServer(root="maps").load("a.yml", tmp_path / "maps/c.json")) == [
        "a",
        "c",
    ]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.yaml", "none.yaml does not exist in /"),
        ("none/*.yaml", "no file matches none/*.yaml in /"),
        ("empty", "the folder empty has no YAML or JSON files"),
        ("", "paths must be paths or patterns, such as 'crds/*.yaml', not ('',)"),
        (
            "apiVersion: v1\nkind: Pod",
            "paths must be paths of files, not YAML text: write the text to a file",
        ),
        (7, "paths must be paths or patterns, such as 'crds/*.yaml', not (7,)"),
    ],
)
def test_path_without_manifests_is_refused(
    tmp_path: Path, path: Any, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    server = APIServer(root=tmp_path)

    with pytest.raises(OptionsError) as raised:
        server.load(path)

    assert str(raised.value).startswith(message)


def test_load_without_paths_is_refused() -> None:
    with pytest.raises(OptionsError, match="needs at least one path, such as 'crds/"):
        APIServer().load()


def test_load_of_template_names_line_and_helm(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}"
    (tmp_path / "a.yaml").write_text(text)

    with pytest.raises(OptionsError, match=r"Line 3 has '{{': render .* `helm templ"):
        APIServer().load(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "a.yaml contains no objects", id="empty"),
        pytest.param("# none\n---\n", "a.yaml contains no objects", id="comments"),
        pytest.param(
            "a: b: c",
            "a.yaml is not YAML: mapping values are not allowed here at line 1",
            id="no-yaml",
        ),
        pytest.param(
            "[" * 200_000,
            "a.yaml is not YAML: document is nested deeper than 100",
            id="deep",
        ),
        pytest.param(
            "x: !!set {a}", "a.yaml is not YAML: json: unsupported type: set", id="set"
        ),
        pytest.param(
            "just words",
            "a.yaml: expected an object with apiVersion and kind, not 'just words'",
            id="text",
        ),
        pytest.param(
            "apiVersion: v1\n{{- if .x }}\na: b",
            "a.yaml is not YAML: while scanning a simple key",
            id="template",
        ),
        pytest.param("kind: Pod", "a.yaml: apiVersion is missing. A", id="no-version"),
        pytest.param(
            "apiVersion: [1]\nkind: Pod", "a.yaml: apiVersion is missing", id="odd"
        ),
        pytest.param(
            f"{SETTINGS}\n---\napiVersion: v1",
            "a.yaml, document 2: kind is missing. A manifest starts with",
            id="no-kind",
        ),
        pytest.param(
            "{apiVersion: v1, kind: List, items: [5]}",
            "a.yaml, items[0]: expected an object with apiVersion and kind, not 5",
            id="item",
        ),
        pytest.param(
            f"{SETTINGS}\n---\n{dedent(WIDGET)}",
            "a.yaml, document 2 (Widget one): the server has no kind Widget in "
            "example.com/v1. Load its CRD, too.",
            id="no-crd",
        ),
        pytest.param(
            SETTINGS.replace("v1", "v2"),
            "a.yaml (ConfigMap settings): the server has no kind ConfigMap in v2. It has "
            "one in v1.",
            id="other-version",
        ),
        pytest.param(
            SETTINGS.replace("ConfigMap", "Configmap"),
            "a.yaml (Configmap settings): the server has no kind Configmap in v1. Check "
            "apiVersion and kind.",
            id="typo",
        ),
        pytest.param(
            dedent(DEFINITION) + "---" + dedent(WIDGET).replace("3", "big"),
            "a.yaml, document 2 (Widget one): 422 Invalid: Widget.example.com "
            '"one" is invalid: spec.size: Invalid value: "string"',
            id="schema",
        ),
        pytest.param(
            dedent(DEFINITION).replace("served", "serve"),
            "a.yaml (CustomResourceDefinition widgets.example.com): 400",
            id="unknown-field",
        ),
        pytest.param(
            SETTINGS.replace("settings", "settings, namespace: shop"),
            'a.yaml (ConfigMap settings): 404 NotFound: namespaces "shop" not found. '
            "Load its Namespace, too.",
            id="no-namespace",
        ),
        pytest.param(
            "{apiVersion: v1, kind: ConfigMap, metadata: 7}",
            "a.yaml (ConfigMap): 400",
            id="metadata",
        ),
    ],
)
def test_invalid_manifest_is_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    server = APIServer(root=tmp_path)

    with pytest.raises(OptionsError) as raised:
        server.load("a.yaml")

    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_unreadable_path_is_refused() -> None:
    # The latter on Python 3.14, whose `Path.exists()` does not raise.
    message = r"cannot read x+: File name too long|^x+ does not exist"
    with pytest.raises(OptionsError, match=message):
        APIServer().load("x" * 300)
