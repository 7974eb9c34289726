"""`KubeObject`: memory, garbage collection and threads."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import pod
from json_helpers import written

from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import PODS
from aioinformer.model.views import DECODED_BODIES_KEPT
from aioinformer.watch.decoding import ObjectDecoder


def sample() -> KubeObject:
    return KubeObject.of(pod("web-0", "shop", {"app": "web"}))


# ---------------------------------------------------------------- memory


def test_object_is_not_tracked_by_garbage_collector() -> None:
    obj = sample()
    assert obj["spec"]

    assert not gc.is_tracked(obj)


def reachable(start: object) -> list[object]:
    found: dict[int, object] = {}
    waiting = [start]
    while waiting:
        it = waiting.pop()
        if id(it) not in found and not isinstance(it, type):
            found[id(it)] = it
            waiting += gc.get_referents(it)

    return list(found.values())


def test_context_does_not_refer_to_objects() -> None:
    """The garbage collector does not look into objects, so a cycle would stay."""
    obj = sample()
    assert obj["spec"]["containers"][0]["name"] == "main"

    inside = reachable(obj.context)

    assert obj.raw in inside
    assert not any(isinstance(it, KubeObject) for it in inside)


def test_objects_leave_no_garbage() -> None:
    def use() -> None:
        obj = sample()
        assert obj["spec"] == obj.at("spec")
        assert obj.labels == obj["metadata"]["labels"]
        assert obj.to_dict() == dict(obj)

    use()
    gc.collect()
    gc.disable()
    try:
        use()
        garbage = gc.collect()
    finally:
        gc.enable()

    assert garbage == 0


def test_body_is_freed_with_object() -> None:
    body = written(pod("web-0"))
    before = sys.getrefcount(body)
    obj = ObjectDecoder(PODS).decode(body)
    assert obj.at("spec.nodeName") == "node-1"
    held = sys.getrefcount(body)

    del obj

    assert held == before + 1
    assert sys.getrefcount(body) == before


# ---------------------------------------------------------------- threads


@pytest.mark.realtime
def test_objects_can_be_read_in_threads() -> None:
    decoder = ObjectDecoder(PODS)
    names = [f"web-{n}" for n in range(DECODED_BODIES_KEPT + 40)]
    objects = [decoder.decode(written(pod(name))) for name in names]

    def read(start: int) -> bool:
        order = objects[start:] + objects[:start]
        return all(
            obj["metadata"]["name"] == obj.name == obj.at("metadata.name")
            for obj in order * 3
        )

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(read, range(0, len(objects), 21)))
    finally:
        sys.setswitchinterval(interval)

    assert all(results)
    assert len(objects[0].context.decoded_bodies) == DECODED_BODIES_KEPT
