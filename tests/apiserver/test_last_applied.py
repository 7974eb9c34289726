"""Last applied: kubectl's server-side apply takes over from its client-side one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from patching_helpers import applied, config_map, entry, owned_by

from aioinformer.errors import Conflict
from aioinformer_apiserver.patches.server_side_apply import LAST_APPLIED


def client_side(text: str, **data: str) -> dict[str, Any]:
    """Make a ConfigMap as client-side apply leaves it."""
    body = config_map(**data)
    body["metadata"]["annotations"] = {LAST_APPLIED: text}
    owned: dict[str, Any] = {"f:data": {f"f:{key}": {} for key in data}}
    body["metadata"]["managedFields"] = [entry("kubectl-client-side-apply", owned)]
    return body


def test_kubectl_takes_over_from_client_side_apply() -> None:
    live = client_side(json.dumps(config_map(a="1")), a="1")

    found = applied(live, config_map(a="2"), "kubectl")

    assert found["data"] == {"a": "2"}
    assert owned_by(found) == {"kubectl!": {"f:data": {"f:a": {}}}}
    assert found["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"2"},"kind":"ConfigMap",'
        '"metadata":{"name":"a"}}\n'
    )


def test_only_kubectl_takes_over() -> None:
    live = client_side(json.dumps(config_map(a="1")), a="1")

    with pytest.raises(Conflict):
        applied(live, config_map(a="2"), "helm")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(config_map(a="0")), id="another value"),
        pytest.param(
            json.dumps({**config_map(a="1"), "apiVersion": "v2"}), id="version"
        ),
        pytest.param(json.dumps({**config_map(a="1"), "x": 1}), id="unknown field"),
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param("", id="empty"),
    ],
)
def test_kubectl_takes_over_only_what_still_holds(text: str) -> None:
    with pytest.raises(Conflict):
        applied(client_side(text, a="1"), config_map(a="2"), "kubectl")


def test_only_the_conflicts_that_are_not_taken_over_are_told() -> None:
    live = client_side(json.dumps(config_map(a="1")), a="1", b="1")

    with pytest.raises(Conflict, match=r"with 1 conflict: .*\.data\.b"):
        applied(live, config_map(a="2", b="2"), "kubectl")


def test_an_annotation_that_would_be_too_long_is_dropped() -> None:
    body = config_map(a="x" * 262_144)
    body["metadata"]["annotations"] = {"mine": "1"}
    live = client_side(json.dumps(config_map(a="1")), a="1")

    found = applied(live, body, "kubectl")

    assert found["metadata"]["annotations"] == {"mine": "1"}


def test_the_annotation_does_not_contain_itself() -> None:
    body = config_map(a="1")
    body["metadata"]["annotations"] = {LAST_APPLIED: "old", "mine": "<"}

    found = applied(None, body, "kubectl")

    written = json.loads(found["metadata"]["annotations"][LAST_APPLIED])
    assert written["metadata"]["annotations"] == {"mine": "<"}
    assert r"\u003c" in found["metadata"]["annotations"][LAST_APPLIED]


def test_an_object_without_the_annotation_gets_none() -> None:
    found = applied(None, config_map(a="1"), "kubectl")

    assert "annotations" not in found["metadata"]
