"""The files with which `aioinformer apiserver --crd` begins."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from aioinformer.cli.explain import CommandError
from aioinformer.cli.manifests import create_all
from aioinformer.model.resource import Resource
from aioinformer.model.resources import CONFIG_MAPS
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
        schema:
          openAPIV3Schema:
            type: object
            properties: {spec: {type: object, properties: {size: {type: integer}}}}
"""
WIDGET = """
    apiVersion: example.com/v1
    kind: Widget
    metadata: {name: one}
    spec: {size: 3}
"""


def written(folder: Path, *documents: str) -> str:
    path = folder / "some.yaml"
    text = "\n---".join(dedent(it) for it in documents)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_creates_definitions_and_their_objects(tmp_path: Path) -> None:
    server = APIServer()
    settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}"
    path = written(tmp_path, DEFINITION, "", WIDGET, f"\n{settings}\n", "")

    assert create_all(server, path) == 3
    assert server.get(WIDGETS, "one")["spec"] == {"size": 3}
    assert server.get(CONFIG_MAPS, "settings")["metadata"]["namespace"] == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: b: c", "is no YAML: mapping values are not", id="no-yaml"),
        pytest.param("just words", "holds what no served kind is", id="no-object"),
        pytest.param("kind: Pod", "no served kind is: 'apiVersion'", id="no-version"),
        pytest.param("[1]", "holds what no served kind is", id="list"),
        pytest.param("apiVersion: [1]\nkind: Pod", "no served kind is", id="odd"),
        pytest.param(WIDGET, "definitions stand before their objects", id="order"),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: nowhere}}",
            'namespaces "nowhere" not found',
            id="refused",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {x: !!set {a}}}",
            "unsupported type: set",
            id="no-json",
        ),
        pytest.param(
            "[" * 200_000, "is no YAML: document is nested deeper than 100", id="deep"
        ),
    ],
)
def test_what_cannot_be_created_is_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = written(tmp_path, text)

    with pytest.raises(CommandError) as raised:
        create_all(APIServer(), path)

    assert str(raised.value).startswith(path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none\.yaml cannot be read: No such file"):
        create_all(APIServer(), str(tmp_path / "none.yaml"))


def test_an_unquoted_date_is_a_text(tmp_path: Path) -> None:
    """kubectl reads it the same way."""
    server = APIServer()
    text = (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default},"
        " data: {x: 2026-01-01}}"
    )

    assert create_all(server, written(tmp_path, text)) == 1
    assert server.objects(CONFIG_MAPS)[0]["data"] == {"x": "2026-01-01"}
