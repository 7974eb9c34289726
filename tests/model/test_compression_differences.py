"""Bodies that are stored as their difference from the body of the state before."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import random
import sys
import tracemalloc
from contextlib import suppress

import pytest
from compression_helpers import compressed, compressor_of, differing, web
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinformer.errors import InternalError
from aioinformer.informer.store.compressor import BodyCompressor
from aioinformer.informer.store.stored_bytes import body_bytes
from aioinformer.model import KubeObject
from aioinformer.model.compression import Codec, Compressor, DifferenceCodec
from aioinformer.model.views import DifferenceContext, ObjectContext


def codec_of(obj: KubeObject) -> Codec:
    codec = obj.context.codec
    assert isinstance(codec, Codec)
    return codec


def context_of(obj: KubeObject) -> ObjectContext:
    assert isinstance(obj.context, ObjectContext)
    return obj.context


def test_object_stored_as_a_difference_is_the_same_object() -> None:
    old, new = compressed(web("web-0", 1)), web("web-0", 2, generation=7)
    obj = differing(new, old)

    assert len(obj.body) < 100 < len(old.body) < len(new.body) // 2
    assert obj.raw == new.raw
    assert obj == new != old
    assert obj["spec"] == new["spec"]
    assert obj.generation == 7
    assert obj.context.resource is None
    assert (obj.key, obj.uid, obj.resource_version) == (old.key, old.uid, "2")
    for same in (copy.deepcopy(obj), pickle.loads(pickle.dumps(obj))):
        assert same == new
        assert same["metadata"]["generation"] == 7


def test_equal_differences_to_different_states_are_different_bodies() -> None:
    """The cache of decoded bodies knows them by their stored bodies alone."""
    plain = ObjectContext()
    found = []
    for name in ("web-1", "web-2"):
        old = compressed(KubeObject.of(web(name, 1).raw))
        context = ObjectContext(codec_of(old), plain)
        body = DifferenceCodec(old.body, codec_of(old)).pack(old.raw)
        assert body is not None
        made = DifferenceContext(old.body, context)
        found.append(KubeObject(body, old.key, "", "1", {}, made))

    assert [it["metadata"]["name"] for it in found] == ["web-1", "web-2"]
    assert all(it.context.decoded_bodies is plain.decoded_bodies for it in found)


def test_state_with_little_in_common_is_compressed_as_usual() -> None:
    compressor = BodyCompressor("zstd")
    compressor.differs = True
    compressor.resume(compressor_of().codec.dictionary, [])
    old = compressed(web("web-0", 1))
    made = compressor.pack_listed(web("web-0", 2, kind="other"), old)

    assert isinstance(made.context, ObjectContext)
    assert made == web("web-0", 2, kind="other")


@pytest.mark.parametrize("size", [500, 100_000, 900_000])
def test_difference_of_a_body_of_any_size_is_small(size: int) -> None:
    text = [random.Random(it).randbytes(16).hex() for it in range(size // 36)]
    old, new = (json.dumps({"v": v, "data": text}).encode() for v in (1, 2))
    compressor = Compressor()
    base = compressor.pack(old)
    assert base is not None
    codec = DifferenceCodec(base, compressor.codec)
    made = codec.pack(new)
    assert made is not None
    assert len(made) < 150
    assert codec.read(made, "it") == new
    assert codec.size_of(made) == len(new)


def test_very_large_body_is_no_difference() -> None:
    raw = json.dumps({"text": "x" * 2**20}).encode()
    compressor = Compressor()
    base = compressor.pack(raw)
    assert base is not None
    assert DifferenceCodec(base, compressor.codec).pack(raw) is None


def test_difference_is_no_base_of_another_one() -> None:
    compressor = BodyCompressor("zstd")
    compressor.differs = True
    compressor.resume(compressor_of().codec.dictionary, [])
    second = differing(web("web-0", 2), compressed(web("web-0", 1)))
    third = compressor.pack_listed(web("web-0", 3), second)

    assert isinstance(third.context, ObjectContext)
    assert third == web("web-0", 3)


@given(place=st.integers(min_value=0), bit=st.integers(0, 7), base=st.booleans())
@settings(max_examples=100)
def test_flipped_bit_never_yields_another_body(
    place: int, bit: int, base: bool
) -> None:
    good = differing(web("web-0", 2), compressed(web("web-0", 1)))
    assert isinstance(good.context, DifferenceContext)
    changed = bytearray(good.context.base if base else good.body)
    # The number in front of a difference tells bodies apart, and is not read.
    first = 0 if base else 8
    changed[first + place % (len(changed) - first)] ^= 1 << bit
    bad = KubeObject(
        good.body if base else bytes(changed),
        good.key,
        good.uid,
        good.resource_version,
        good.label_set,
        DifferenceContext(bytes(changed), good.context.shared)
        if base
        else good.context,
    )
    with suppress(InternalError):
        assert bad.raw == good.raw


def test_damaged_state_before_is_no_base() -> None:
    old = compressed(web("web-0", 1))
    bad = KubeObject(old.body[:-9], old.key, old.uid, "1", {}, old.context)
    compressor = BodyCompressor("zstd")
    compressor.differs = True
    compressor.resume(compressor_of().codec.dictionary, [])
    new = web("web-0", 2)

    assert compressor.pack_listed(new, bad) == new
    with pytest.raises(InternalError, match="default/web-0"):
        DifferenceContext(bad.body, context_of(bad)).raw(b"", bad.key)


def test_differences_are_small_and_not_tracked_by_the_garbage_collector() -> None:
    olds = [compressed(web(f"web-{it}", 1)) for it in range(1000)]
    news = [web(f"web-{it}", 2) for it in range(1000)]
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = [differing(new, old) for new, old in zip(news, olds, strict=True)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert not any(gc.is_tracked(it.context) or gc.is_tracked(it) for it in made)
    bodies = sum(sys.getsizeof(it) + sys.getsizeof(it.body) for it in made)
    contexts = sum(body_bytes(it) - len(it.body) for it in made)
    assert after - before == pytest.approx(bodies + contexts, rel=0.15)
