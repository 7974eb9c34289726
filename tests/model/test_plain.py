"""What may lie inside of a body that is written as JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest
from kubernetes_asyncio.client import V1Container, V1PodSpec
from pydantic import BaseModel, Field

from aioinformer.model.objects import KubeObject
from aioinformer.model.plain import plain

META = {"name": "a", "labels": {"b": "c"}, "finalizers": ["d"]}
OBJECT = KubeObject.of({"metadata": META})


class Named(msgspec.Struct, rename={"of": "name"}):
    of: str


class Model(BaseModel):
    node_name: str = Field(alias="nodeName")
    phase: str | None = None


CONTAINER = V1Container(name="c", image="i", image_pull_policy="Always")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param(OBJECT, {"metadata": META}, id="object"),
        pytest.param(OBJECT["metadata"], META, id="view"),
        pytest.param(OBJECT.at("metadata.finalizers"), ["d"], id="view-of-a-list"),
        pytest.param(Named("a"), {"name": "a"}, id="struct"),
        pytest.param(Model(nodeName="n"), {"nodeName": "n"}, id="pydantic"),
        pytest.param(
            V1PodSpec(node_name="n", containers=[CONTAINER]),
            {
                "nodeName": "n",
                "containers": [
                    {"name": "c", "image": "i", "imagePullPolicy": "Always"}
                ],
            },
            id="kubernetes-asyncio",
        ),
    ],
)
def test_writes_what_is_inside(value: object, written: Any) -> None:
    body = {"one": value, "many": [{"more": value}]}

    text = orjson.dumps(body, default=plain)

    assert orjson.loads(text) == {"one": written, "many": [{"more": written}]}


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes", 1j])
def test_refuses_what_is_not_json(value: object) -> None:
    with pytest.raises(TypeError, match=f"not JSON: {type(value).__name__}"):
        plain(value)
