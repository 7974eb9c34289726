"""Changed objects as YAML documents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from json_helpers import nested

from aioinformer.cli.yaml_output import YAMLDocuments
from aioinformer.informer import Added, Deleted, Updated
from aioinformer.model import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.tables.columns import harmless
from aioinformer.watch.decoding import ObjectDecoder

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def config(**data: str) -> KubeObject:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
    born = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return KubeObject.of({**body, "metadata": {"name": "one", **born}, "data": data})


def test_yaml_documents_are_kubectls_after_a_comment() -> None:
    before, after = config(size="1"), config(text="first\nsecond\n", on="yes")
    text = YAMLDocuments().of([Added(before), Updated(before, after)], NOW)

    assert text == (
        "---\n# ADDED\n"
        "apiVersion: v1\nkind: ConfigMap\n"
        "metadata:\n  name: one\n  creationTimestamp: '2026-01-01T00:00:00Z'\n"
        "data:\n  size: '1'\n"
        "---\n# MODIFIED\n"
        "apiVersion: v1\nkind: ConfigMap\n"
        "metadata:\n  name: one\n  creationTimestamp: '2026-01-01T00:00:00Z'\n"
        "data:\n  text: |\n    first\n    second\n  'on': 'yes'\n"
    )


@pytest.mark.parametrize("depth", [250, 400, 5000])
def test_yaml_documents_leave_out_values_nested_too_deeply(depth: int) -> None:
    body = b'{"metadata":{"name":"one"},"deep":%b,"last":1}' % nested(depth)
    obj = ObjectDecoder(PODS).decode(body)
    text = YAMLDocuments().of([Added(obj)], NOW)

    assert "\nlast: 1\n" in text
    assert text.endswith("levels are left out.\n") == (depth > 250)


@pytest.mark.parametrize(
    "value", ["1e3", "12e4567", "+.1", "1.e5", "089", "0o17", "y", "N", "+_5", "7E_2"]
)
def test_yaml_documents_quote_what_kubectl_reads_as_no_text(value: str) -> None:
    text = YAMLDocuments().of([Added(config(key=value))], NOW)

    assert f"key: '{value}'" in text


@pytest.mark.parametrize(
    "value",
    ["日本語", "x" * 300, " a  b ", "a\x1b[2J\u202eb", "---\n# DELETED\n", "1e3", "~"],
)
def test_yaml_documents_keep_any_value_without_control_characters(value: str) -> None:
    obj = config(key=value)
    text = YAMLDocuments().of([Deleted(obj)], NOW)

    assert harmless(text) == text
    assert list(yaml.safe_load_all(text)) == [obj.to_dict()]
    assert ("日本語" in text) == (value == "日本語")
