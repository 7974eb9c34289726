"""`KubeObject.into`: typed copies of objects."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from conftest import pod
from each_case import each_case
from json_helpers import nested, written
from kubernetes_asyncio.client import (
    V1ConfigMap,
    V1Pod,
    V1PodTemplate,
)
from pydantic import BaseModel, ConfigDict, Field

from aioinformer.errors import DecodeError
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.watch.decoding import ObjectDecoder

SECRET = "c2VjcmV0"


def sample() -> KubeObject:
    return KubeObject.of(pod("web-0", "shop", {"app": "web"}))


class SpecStruct(msgspec.Struct, rename="camel"):
    node_name: str


class PodStruct(msgspec.Struct):
    spec: SpecStruct


@dataclass
class SpecData:
    nodeName: str  # noqa: N815 - the name on the wire


@dataclass
class PodData:
    spec: SpecData
    tags: list[str] = field(default_factory=list)


class SpecDict(TypedDict):
    nodeName: str


class PodDict(TypedDict):
    spec: SpecDict


class SpecModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    node_name: str = Field(alias="nodeName")
    containers: list[dict[str, Any]]


class PodModel(BaseModel):
    spec: SpecModel


class KeysStruct(msgspec.Struct):
    data: dict[Literal["x"], str]


class LiteralStruct(msgspec.Struct):
    data: dict[str, Literal["x"]]


class NumberModel(BaseModel):
    data: dict[str, int]


class NumberStruct(msgspec.Struct):
    data: dict[str, int]


# ---------------------------------------------------------------- types


def test_into_struct() -> None:
    assert sample().into(PodStruct) == PodStruct(SpecStruct("node-1"))


def test_into_dataclass() -> None:
    assert sample().into(PodData) == PodData(SpecData("node-1"))


def test_into_typed_dict() -> None:
    assert sample().into(PodDict) == {"spec": {"nodeName": "node-1"}}


def test_into_pydantic_model() -> None:
    found = sample().into(PodModel)

    assert isinstance(found, PodModel)
    assert found.spec.node_name == "node-1"
    assert found.spec.containers[0]["name"] == "main"


def test_into_plain_dict() -> None:
    assert sample().into(dict[str, Any]) == sample().to_dict()


def test_into_kubernetes_asyncio_model() -> None:
    found = sample().into(V1Pod)

    assert isinstance(found, V1Pod)
    assert found.api_version == "v1"
    assert found.metadata.name == "web-0"
    assert found.metadata.labels == {"app": "web"}
    assert found.metadata.creation_timestamp.isoformat() == "2025-01-01T00:00:00+00:00"
    assert found.spec.containers[0].image == "registry.example/app:1"
    assert found.status.pod_ip.startswith("10.0.0.")


@pytest.mark.parametrize("kind", [V1ConfigMap, V1PodTemplate], ids=["other", "prefix"])
def test_into_model_of_another_kind_raises_decode_error(kind: type[Any]) -> None:
    with pytest.raises(
        DecodeError, match=f"not fit {kind.__name__}: its kind is 'Pod'"
    ):
        sample().into(kind)


def test_into_model_accepts_object_without_kind() -> None:
    obj = KubeObject.of({"metadata": {"name": "a"}, "data": {"key": "value"}})

    assert obj.into(V1ConfigMap).data == {"key": "value"}


@pytest.mark.parametrize(
    "library",
    ["kubernetes_asyncio.client", "kubernetes.client", "kubernetes.aio.client"],
)
def test_into_builds_all_models_of_the_library_of_the_kind(library: str) -> None:
    client: Any = import_module(library)

    class Mine(client.V1Pod):  # type: ignore[misc]
        pass

    for kind in (client.V1Pod, Mine):
        found = sample().into(kind)

        assert type(found) is kind
        assert type(found.metadata) is client.V1ObjectMeta
        assert type(found.spec.containers[0]) is client.V1Container


@each_case("kind", [PodStruct, PodData, PodDict, PodModel, V1Pod])
def test_into_returns_new_object(kind: type[Any]) -> None:
    obj = sample()

    assert obj.into(kind) is not obj.into(kind)
    assert len(obj.context.decoded_bodies) == 0


def test_into_creates_decoder_once() -> None:
    checked: list[str] = []

    class Watched(type):
        @property
        def model_validate_json(cls) -> Any:
            checked.append(cls.__name__)
            return lambda raw: raw

    class Model(metaclass=Watched):
        pass

    first = sample().into(Model)
    before = len(checked)

    assert sample().into(Model) == first
    assert len(checked) == before


def test_into_type_that_is_not_hashable() -> None:
    kind: Any = Annotated[dict[str, Any], ["notes"]]

    assert sample().into(kind) == sample().to_dict()


def test_into_rejects_value_that_is_no_type() -> None:
    kind: Any = "V1Pod | None"

    with pytest.raises(TypeError):
        sample().into(kind)


# ---------------------------------------------------------------- decoding errors


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        pytest.param(NumberStruct, r"\$\.data\[\.\.\.\]", id="struct"),
        pytest.param(
            KeysStruct, r"enum value - at `key` in `\$\.data`", id="literal-key"
        ),
        pytest.param(NumberModel, r"data\.password: ", id="pydantic"),
        pytest.param(dict[str, str], r"Expected `str`", id="generic"),
        pytest.param(
            LiteralStruct, r"enum value - at `\$\.data\[\.\.\.\]`", id="literal"
        ),
        pytest.param(int | str, r"Expected `int \| str`", id="union"),
    ],
)
def test_into_error_names_field(kind: Any, where: str) -> None:
    obj = KubeObject.of({"metadata": {"name": "a"}, "data": {"password": SECRET}})

    with pytest.raises(
        DecodeError, match=rf"^object 'a' does not fit .*: .*{where}"
    ) as caught:
        obj.into(kind)

    assert SECRET not in str(caught.value)
    assert SECRET not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"containers": None}}, id="a-required-field"),
        pytest.param({"spec": {"containers": 7}}, id="no-array"),
        pytest.param({"metadata": {"annotations": ["a"]}}, id="no-object"),
        pytest.param({"metadata": {"creationTimestamp": "?"}}, id="no-time"),
    ],
)
def test_into_kubernetes_asyncio_model_raises_decode_error(change: Any) -> None:
    obj = KubeObject.of(pod("web-0", **change))

    with pytest.raises(DecodeError, match=r"'default/web-0' does not fit V1Pod: .+"):
        obj.into(V1Pod)


def test_into_raises_decode_error_for_deep_nesting() -> None:
    raw = written(pod("web-0", labels={"app": "web"}))
    obj = ObjectDecoder(PODS).decode(raw[:-1] + b',"x":' + nested(1_000_000) + b"}")

    for kind in (dict, PodStruct, PodModel, V1Pod):
        with pytest.raises(DecodeError, match="'default/web-0' does not fit "):
            obj.into(kind)


def test_kubernetes_asyncio_is_imported_only_for_its_models() -> None:
    code = (
        "import sys, aioinformer.model.objects as m;"
        "m.KubeObject.of(b'{}').into(dict);"
        "print('kubernetes_asyncio' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "False"
