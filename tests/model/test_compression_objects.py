"""Objects with compressed bodies."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import pytest
from compression_helpers import (
    bodies,
    compressed,
    compressor_of,
    is_compressed,
    sample,
    web,
)
from each_case import each_case
from hypothesis import given, settings
from hypothesis import strategies as st
from json_helpers import styles, values, written

from aioinformer.errors import InternalError
from aioinformer.model import KubeObject, drop, strip_managed_fields, transform_dict
from aioinformer.model.compression import Compressor, train
from aioinformer.model.views import DECODED_BODIES_KEPT, ObjectContext

if TYPE_CHECKING:
    from aioinformer.model.transforms import Transform


class Pod(msgspec.Struct):
    kind: str
    spec: dict[str, Any]


PLAIN = sample()

# ---------------------------------------------------------------- reading


@each_case(
    "read",
    [
        pytest.param(lambda it: it.raw, id="raw"),
        pytest.param(lambda it: it["spec"].to_dict(), id="item"),
        pytest.param(lambda it: it.at("spec.containers.0.name"), id="at"),
        pytest.param(lambda it: it.at("spec.absent", 3), id="at-default"),
        pytest.param(lambda it: it.to_dict(), id="to-dict"),
        pytest.param(lambda it: it.into(Pod), id="into"),
        pytest.param(lambda it: (list(it), len(it), "spec" in it, "x" in it), id="all"),
        pytest.param(lambda it: (it.key, it.name, it.namespace, it.uid), id="identity"),
        pytest.param(lambda it: (it.resource_version, dict(it.labels)), id="parsed"),
        pytest.param(lambda it: (it.api_version, it.kind), id="type"),
        pytest.param(lambda it: (dict(it.annotations), it.finalizers), id="metadata"),
        pytest.param(lambda it: it.owner_references, id="owners"),
        pytest.param(lambda it: (it.generation, it.creation_timestamp), id="numbers"),
        pytest.param(lambda it: it.deletion_timestamp, id="absent"),
        pytest.param(repr, id="repr"),
        pytest.param(bool, id="bool"),
    ],
)
def test_compressed_object_reads_like_plain_object(read: Any) -> None:
    assert read(compressed(PLAIN)) == read(PLAIN)


def test_metadata_is_read_without_decompression() -> None:
    obj = compressed(PLAIN)
    broken = msgspec.structs.replace(obj, body=b"nonsense")

    assert broken.key == "shop/web-0"
    assert (broken.name, broken.namespace) == ("web-0", "shop")
    assert broken.uid == PLAIN.uid
    assert broken.resource_version == "1"
    assert broken.labels == {"app": "web"}
    assert broken


@each_case(
    "read",
    [
        pytest.param(lambda it: it.raw, id="raw"),
        pytest.param(lambda it: it["spec"], id="item"),
        pytest.param(lambda it: it.at("spec"), id="at"),
        pytest.param(lambda it: it.to_dict(), id="to-dict"),
        pytest.param(lambda it: it.into(Pod), id="into"),
        pytest.param(lambda it: it == PLAIN, id="equal"),
        pytest.param(pickle.dumps, id="pickle"),
        pytest.param(strip_managed_fields, id="strip"),
        pytest.param(drop("spec"), id="drop"),
    ],
)
def test_damaged_body_error_names_object(read: Any) -> None:
    obj = compressed(PLAIN)
    damaged = msgspec.structs.replace(obj, body=obj.body[:-1])

    with pytest.raises(
        InternalError, match=r"^object 'shop/web-0': cannot decompress "
    ):
        read(damaged)


def test_compressed_object_equals_plain_object() -> None:
    obj = compressed(PLAIN)
    other = compressed(PLAIN, compressor_of("other"))
    reordered = dict(reversed(PLAIN.to_dict().items()))

    assert obj == PLAIN
    assert sample() == obj
    assert obj == other == compressed(KubeObject.of(reordered))
    assert obj == PLAIN.to_dict()
    assert obj != compressed(web("web-0"))
    assert obj != {"kind": "Pod"}


def test_pickled_object_has_no_dictionary() -> None:
    obj = compressed(PLAIN)

    assert copy.copy(obj) is obj
    assert copy.deepcopy([obj])[0] is obj
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        restored = pickle.loads(pickle.dumps(obj, protocol))
        assert restored.raw == restored.body == PLAIN.raw
        assert restored == obj
        assert (restored.key, restored.uid) == (obj.key, obj.uid)
        assert restored.labels == obj.labels
        assert restored.resource_version == obj.resource_version


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(strip_managed_fields, id="strip"),
        pytest.param(drop("spec.containers", "metadata.labels"), id="drop"),
        pytest.param(transform_dict(lambda it: it | {"mark": 1}), id="dict"),
    ],
)
def test_transforms_accept_compressed_objects(transform: Transform) -> None:
    result, expected = transform(compressed(PLAIN)), transform(PLAIN)

    assert result is not None
    assert expected is not None
    assert result.raw == expected.raw
    assert result.labels == expected.labels
    assert not is_compressed(result)


def test_transforms_without_effect_return_same_object() -> None:
    obj = compressed(web("a"))

    assert strip_managed_fields(obj) is obj
    assert drop("status.images")(obj) is obj


# ---------------------------------------------------------------- any body


compressors = st.lists(
    st.sampled_from([None, Compressor(), compressor_of("web"), compressor_of("other")]),
    min_size=1,
    max_size=8,
)


@given(
    contents=st.lists(values, min_size=1, max_size=8),
    style=styles,
    chosen=compressors,
    repeats=st.integers(0, 30),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=50)
def test_any_json_survives_compression(
    contents: list[object],
    style: str,
    chosen: list[Compressor | None],
    repeats: int,
    order: Any,
) -> None:
    """Objects are small or large, and use several dictionaries in any order."""
    plain = ObjectContext()
    put: list[tuple[bytes, KubeObject]] = []
    for number, content in enumerate(contents):
        raw = written({"it": content, "more": [content] * repeats}, style)
        compressor = chosen[number % len(chosen)]
        body = None if compressor is None else compressor.pack(raw)
        context = plain
        if compressor is not None and body is not None:
            context = ObjectContext(compressor.codec, plain)

        put.append((raw, KubeObject(body or raw, "a", "", "", {}, context)))

    read = put * 2
    order.shuffle(read)
    for raw, obj in read:
        assert obj.raw == raw
        assert obj.to_dict() == orjson.loads(raw)
        assert obj == orjson.loads(raw)
        assert obj.at("it") == orjson.loads(raw)["it"]


# ---------------------------------------------------------------- cost


def test_compressed_object_takes_memory_of_its_body() -> None:
    obj = compressed(PLAIN)

    assert not gc.is_tracked(obj)
    assert sys.getsizeof(obj) == sys.getsizeof(PLAIN)
    assert type(obj) is type(PLAIN)
    assert sys.getsizeof(obj.body) - len(obj.body) == sys.getsizeof(b"")


def test_compressed_objects_leave_no_garbage() -> None:
    compressor = compressor_of()

    def use() -> None:
        obj = compressed(web("a"), compressor)
        assert obj["spec"] == obj.at("spec")
        assert pickle.loads(pickle.dumps(obj)) == obj

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        use()
        gc.collect()
        garbage = [it for it in gc.garbage if is_ours(it)]
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()

    assert garbage == []


def is_ours(it: object) -> bool:
    return type(it).__module__.startswith(("aioinformer", "zstandard"))


class Counting:
    """Codec that counts reads."""

    def __init__(self, compressor: Compressor) -> None:
        self._codec = compressor.codec
        self.count = 0

    def read(self, body: bytes, what: str) -> bytes:
        self.count += 1
        return self._codec.read(body, what)


def test_cached_body_is_not_decompressed_again() -> None:
    counting = Counting(compressor_of())
    context = ObjectContext(counting, ObjectContext())  # type: ignore[arg-type]
    obj = msgspec.structs.replace(compressed(PLAIN), context=context)

    assert obj["spec"] == PLAIN["spec"]
    assert obj["status"] == PLAIN["status"]
    assert obj == PLAIN.to_dict()
    assert counting.count == 1

    assert obj.at("spec.hostname") is None
    assert obj.raw == PLAIN.raw
    assert counting.count == 3


def test_contexts_of_informer_share_decoded_bodies() -> None:
    """Compressed bodies with any dictionary, and JSON bodies, share one cache."""
    plain = ObjectContext()
    contexts = [plain]
    for number in range(DECODED_BODIES_KEPT + 40):
        raw = web(f"web-{number}").raw
        for compressor in (None, compressor_of("web"), compressor_of("other")):
            codec = None if compressor is None else compressor.codec
            body = raw if compressor is None else compressor.pack(raw)
            assert body is not None
            context = plain if codec is None else ObjectContext(codec, plain)
            obj = KubeObject(body, "a", "", "", {}, context)
            assert obj["metadata"]["name"] == f"web-{number}"
            contexts.append(context)

    assert all(it.decoded_bodies is plain.decoded_bodies for it in contexts)
    assert all(it.plain is plain for it in contexts)
    assert len(plain.decoded_bodies) == DECODED_BODIES_KEPT


def test_dictionary_is_freed_with_its_last_object() -> None:
    codec = train(bodies()).codec
    before = sys.getrefcount(codec)
    context = ObjectContext(codec, ObjectContext())
    objects = [KubeObject(b"", str(n), "", "", {}, context) for n in range(3)]
    del context
    assert sys.getrefcount(codec) == before + 1

    objects.pop()
    assert sys.getrefcount(codec) == before + 1

    objects.clear()
    assert sys.getrefcount(codec) == before


# ---------------------------------------------------------------- threads


@pytest.mark.realtime
def test_compressed_objects_can_be_read_in_threads() -> None:
    compressor = train(bodies())
    plain = ObjectContext()
    objects = [
        msgspec.structs.replace(
            compressed(KubeObject.of(it), compressor),
            context=ObjectContext(compressor.codec, plain),
        )
        for it in bodies()
    ]

    def read(start: int) -> bool:
        order = objects[start:] + objects[:start]
        return all(
            obj["metadata"]["name"] == obj.name == obj.at("metadata.name")
            and obj.raw == bodies()[int(obj.name.removeprefix("web-"))]
            for obj in order
        )

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            results = list(threads.map(read, range(0, 200, 7)))
    finally:
        sys.setswitchinterval(interval)

    assert all(results)
    assert len(plain.decoded_bodies) == DECODED_BODIES_KEPT
