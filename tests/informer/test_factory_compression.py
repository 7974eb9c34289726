"""Option `compression=` of factories: requests, conflicts and refusals."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from factory_helpers import FakeClient

from aioinformer.errors import OptionsError
from aioinformer.informer import SharedInformer, SharedInformerFactory
from aioinformer.informer.factory import DynamicInformerFactory, MetadataInformerFactory


@pytest.fixture
def factory() -> SharedInformerFactory:
    return SharedInformerFactory(FakeClient())


def compression_of(informer: SharedInformer) -> str | None:
    return informer._compressor.compression


def test_informer_is_compressed_only_on_request(factory: SharedInformerFactory) -> None:
    pods = factory.informer("v1", "pods", compression="zstd")
    nodes = factory.informer("v1", "nodes")

    assert compression_of(pods) == "zstd"
    assert compression_of(nodes) is None
    assert factory.informer("v1", "pods", compression="zstd") is pods
    assert factory.informer("v1", "nodes", compression=None) is nodes


@pytest.mark.parametrize(
    ("first", "then"), [("zstd", None), (None, "zstd")], ids=["without", "with"]
)
def test_conflicting_compression_is_refused(
    factory: SharedInformerFactory, first: Any, then: Any
) -> None:
    pods = factory.informer("v1", "pods", compression=first)

    with pytest.raises(OptionsError) as info:
        factory.informer("v1", "pods", compression=then)

    text = str(info.value)
    assert "informer 'pods' exists, requested at " in text
    assert f"with compression={first!r}, and is requested at" in text
    assert f"with compression={then!r}: pass name= for a second informer" in text
    assert text.count(f"{__file__}:") == 2
    assert factory.informers == (pods,)


def test_second_informer_may_have_another_compression(
    factory: SharedInformerFactory,
) -> None:
    pods = factory.informer("v1", "pods")
    packed = factory.informer("v1", "pods", name="packed", compression="zstd")

    assert (compression_of(pods), compression_of(packed)) == (None, "zstd")


@pytest.mark.parametrize("compression", ["gzip", "", True])
def test_unknown_compression_is_refused_at_once(
    factory: SharedInformerFactory, compression: Any
) -> None:
    with pytest.raises(OptionsError, match="compression must be 'zstd' or None, not "):
        factory.informer("v1", "pods", compression=compression)

    with pytest.raises(OptionsError, match="compression must be 'zstd' or None, not "):
        factory.use("v1", "pods", compression=compression)

    assert not factory.informers


def test_missing_zstd_package_is_named_at_once(
    factory: SharedInformerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)

    with pytest.raises(OptionsError, match=r"pip install 'aioinformer\[zstd\]'"):
        factory.informer("v1", "pods", compression="zstd")

    assert not factory.informers
    factory.informer("v1", "pods")


@pytest.mark.parametrize("kind", [DynamicInformerFactory, MetadataInformerFactory])
def test_other_factories_pass_compression_on(kind: type[SharedInformerFactory]) -> None:
    pods = kind(FakeClient()).informer("v1", "pods", compression="zstd")

    assert compression_of(pods) == "zstd"
