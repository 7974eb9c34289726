"""Scales of objects."""

from __future__ import annotations

from typing import Any

import pytest

from aioinformer.model.resources import DEPLOYMENTS
from aioinformer_apiserver.registry.scale import scale_of, selector_text
from aioinformer_apiserver.storage.kinds import Kind, ScalePaths


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"app": "web"}, "app=web"),
        ("a=b,c in (d)", "a=b,c in (d)"),
        (
            {
                "matchExpressions": [
                    {"key": "x", "operator": "In", "values": ["z", "y"]},
                    {"key": "w", "operator": "DoesNotExist"},
                    {"key": "v", "operator": "NotIn", "values": ["u"]},
                    {"key": "t", "operator": "Exists"},
                ]
            },
            "t,v notin (u),!w,x in (y,z)",
        ),
    ],
)
def test_selector_is_formatted_as_text(selector: object, text: str) -> None:
    assert selector_text(selector) == text


def test_scale_shows_available_fields() -> None:
    paths = ScalePaths(
        replicas=("spec", "a", "b"), current=("status", "c"), selector=()
    )
    kind = Kind(resource=DEPLOYMENTS, scale=paths)
    metadata = {"name": "x", "uid": "u", "labels": {"a": "b"}}
    owner: dict[str, Any] = {"metadata": metadata, "spec": {"a": {"b": 2}}, "status": 1}

    scale = scale_of(kind, owner)

    assert scale["metadata"] == {"name": "x", "uid": "u"}
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0}
