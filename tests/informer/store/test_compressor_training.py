"""`BodyCompressor`: new dictionaries, and compression with other options."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from compression_helpers import (
    a_rig,
    applied,
    compressed,
    damaged,
    is_compressed,
    noted_trainings,
    web,
    webs,
)
from fake_source import FakeSource, Page, Stream, added, modified
from informer_helpers import pods_of, running, settle
from pipeline_helpers import Rig, update

from aioinformer.errors import InternalError, OptionsError
from aioinformer.informer import SharedInformer
from aioinformer.informer.store.compressor import WINDOW, BodyCompressor
from aioinformer.model import KubeObject, strip_managed_fields
from aioinformer.model.compression import LEAST_SAMPLES, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

# Training runs in a thread, so the clock must be real.
pytestmark = [pytest.mark.realtime, pytest.mark.looptime(False)]


@pytest.fixture
def trainings() -> Iterator[list[str]]:
    with noted_trainings() as found:
        yield found


# ---------------------------------------------------------------- trainings


async def change_all(rig: Rig, objects: list[KubeObject]) -> None:
    """Change the objects one by one, as a watch does."""
    for obj in objects:
        await rig.change(update(obj), version=obj.resource_version)
        await settle()

    await applied(rig)


async def test_changed_bodies_get_another_dictionary(
    trainings: list[str],
) -> None:
    async with a_rig(*webs(SAMPLES)) as rig:
        old = rig.indexer.get_by_key("default/web-0499")
        await change_all(rig, webs(WINDOW, 10, "other"))
        assert len(trainings) == 1
        badly = rig.indexer.get_by_key(f"default/web-{WINDOW - 1:04}")

        await change_all(rig, webs(100, 11, "other", start=WINDOW))
        well = rig.indexer.get_by_key("default/web-0300")

        assert len(trainings) == 2
        assert badly is not None
        assert well is not None
        assert len(well.body) < len(badly.body) / 2
        assert rig.indexer.get_by_key("default/web-0499") is old
        for obj in rig.indexer.list():
            number = int(obj.name.removeprefix("web-"))
            changed = number < WINDOW + 100
            version = 1 if not changed else (10 if number < WINDOW else 11)
            kind = "other" if changed else "web"
            assert obj.raw == web(obj.name, version, kind).raw


async def test_relist_with_changed_bodies_gets_another_dictionary(
    trainings: list[str],
) -> None:
    """The dictionary is trained on the list, not on the store."""
    async with a_rig(*webs(SAMPLES)) as rig:
        await rig.relist(*webs(2 * SAMPLES, 9, "other"), version=9)
        await applied(rig)

        # One after the first window, and one with twice as many samples.
        assert [line.split()[-1] for line in trainings] == ["500", "250", "500"]
        large = [obj for obj in rig.indexer.list() if len(obj.body) > 1000]
        assert WINDOW <= len(large) <= WINDOW + 2
        assert rig.indexer.list() == webs(2 * SAMPLES, 9, "other")


async def test_growing_store_gets_a_dictionary(trainings: list[str]) -> None:
    async with a_rig() as rig:
        await change_all(rig, webs(2 * WINDOW))

        # None at first, then one with half of the samples, and none for a few more.
        assert [line.split()[-1] for line in trainings] == ["0", str(WINDOW)]
        assert rig.indexer.list() == webs(2 * WINDOW)


async def test_few_objects_that_always_change_are_trained_on_once(
    trainings: list[str],
) -> None:
    async with a_rig(*webs(LEAST_SAMPLES)) as rig:
        for version in range(2, 12):
            await change_all(rig, webs(LEAST_SAMPLES, version))

        assert len(trainings) == 1
        assert len({id(obj.context) for obj in rig.indexer.list()}) == 1


async def test_informer_stopped_during_a_training_ends_at_once() -> None:
    pods = pods_of(Page(webs(SAMPLES), piece=SAMPLES), compression="zstd")
    async with running(pods.run()) as run:
        while not pods._compressor._turn.locked():
            await asyncio.sleep(0)

    assert run.cancelled()
    assert pods.status.phase == "stopped"
    assert not pods.has_synced
    assert not pods._compressor._turn.locked()
    assert len(pods.store) == 0


async def test_waiter_for_a_training_does_not_start_another(
    trainings: list[str],
) -> None:
    """The pipelines of several namespaces share a compressor."""
    compressing = BodyCompressor("zstd")
    for _ in range(2):
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(compressing.begin(webs(3, start=3 * number)))

        assert len(trainings) == 1

    compressing.due = True
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(compressing.renew(lambda _: None))

    assert len(trainings) == 2
    assert not compressing.due


async def test_damaged_sample_raises_internal_error() -> None:
    compressing = BodyCompressor("zstd")
    await compressing.begin([])
    compressing.due = True
    compressing._recent.append("default/web-0")

    with pytest.raises(InternalError):
        await compressing.renew(lambda key: damaged(web(key)))


async def test_informer_without_compression_trains_nothing(
    trainings: list[str],
) -> None:
    rig = Rig()
    expected = webs(SAMPLES + 1)
    async with running(rig.run()):
        await rig.relist(*expected, version=5)
        await applied(rig)

        assert all(
            one is it for one, it in zip(rig.indexer.list(), expected, strict=True)
        )
        assert trainings == []
        assert not rig.compressing.waits


# ---------------------------------------------------------------- other options


async def informed(pods: SharedInformer) -> list[KubeObject]:
    async with running(pods.run()):
        await pods.wait_synced(timeout=30)
        return pods.lister.list()


async def test_readers_see_the_same_with_compression() -> None:
    objects = webs(SAMPLES)
    plain, packed = pods_of(Page(objects)), pods_of(Page(objects), compression="zstd")
    async with running(plain.run()), running(packed.run()):
        await plain.wait_synced(timeout=30)
        await packed.wait_synced(timeout=30)
        one, other = packed.lister, plain.lister

        assert one.list() == other.list()
        assert one.json() == other.json()
        assert orjson.loads(one.json())["items"] == [obj.to_dict() for obj in objects]
        assert one.get("default/web-0007") == objects[7]
        assert one.list("app=web") == other.list("app=web")
        assert one.namespace("default").json(limit=3) == other.json(limit=3)
        assert all(map(is_compressed, one.list()))


async def test_result_of_the_transform_is_compressed() -> None:
    objects = [
        web(f"web-{n}", managedFields=[{"manager": "kubectl"}])
        for n in range(LEAST_SAMPLES)
    ]
    source = Page(objects)
    found = await informed(
        pods_of(source, transform=strip_managed_fields, compression="zstd")
    )

    assert all(map(is_compressed, found))
    assert found == [strip_managed_fields(obj) for obj in objects]


async def test_object_left_out_by_the_transform_is_no_sample(
    trainings: list[str],
) -> None:
    def only_even(obj: KubeObject) -> KubeObject | None:
        return None if int(obj.name[-1]) % 2 else obj

    found = await informed(
        pods_of(Page(webs(2 * SAMPLES)), transform=only_even, compression="zstd")
    )

    assert len(found) == SAMPLES
    assert trainings[0].split()[-1] == str(SAMPLES)


async def test_transform_may_return_a_compressed_object() -> None:
    kept: dict[str, KubeObject] = {}

    def known(obj: KubeObject) -> KubeObject:
        return kept.setdefault(obj.key, compressed(obj))

    found = await informed(pods_of(Page(webs(5)), transform=known, compression="zstd"))

    assert found == webs(5)
    assert all(map(is_compressed, found))


async def test_object_that_arrives_compressed_is_stored_so() -> None:
    """A source may be an informer itself."""
    objects = [compressed(obj) for obj in webs(3)]
    for compression in ("zstd", None):
        pods = pods_of(Page(objects), compression=compression)
        found = await informed(pods)
        assert all(one is it for one, it in zip(found, objects, strict=True))


async def test_compressed_object_is_not_compressed_again() -> None:
    compressing = BodyCompressor("zstd")
    await compressing.begin(webs(3))
    obj = compressed(web("web"))

    assert compressing(obj) is obj
    assert compressing._fit.bodies == 0

    assert is_compressed(compressing(web("web")))
    assert compressing._fit.bodies == 1


async def test_several_namespaces_share_one_dictionary(trainings: list[str]) -> None:
    def of(namespace: str) -> list[KubeObject]:
        return [web(f"web-{n}", namespace=namespace) for n in range(SAMPLES + 1)]

    names = ("a", "b", "c")
    pods = SharedInformer(
        {name: FakeSource([Page(of(name))]) for name in names}, compression="zstd"
    )
    found = await informed(pods)

    assert len(trainings) == 1
    assert len({id(obj.context) for obj in found}) == 1
    assert sorted(obj.key for obj in found) == sorted(
        obj.key for name in names for obj in of(name)
    )
    assert all(obj.raw for obj in found)


async def test_thread_handler_reads_compressed_bodies() -> None:
    stream = Stream()
    pods = pods_of(Page(webs(SAMPLES)), watches=(stream,), compression="zstd")
    seen: dict[str, str] = {}

    def read(obj: KubeObject) -> None:
        seen[obj.name] = obj["spec"]["own"][0] + obj.at("spec.own.1")

    pods.add_event_handler(on_add=read, thread=True)
    async with running(pods.run()):
        stream.send(added(web("new", 6)), modified(web("web-0001", 7)))
        while len(seen) < SAMPLES + 1:
            pods.lister.json() if pods.has_synced else None
            await asyncio.sleep(0.005)

    assert seen == {
        obj.name: obj.at("spec.own.0") + obj.at("spec.own.1")
        for obj in (*webs(SAMPLES), web("new"))
    }


def test_unknown_compression_is_refused() -> None:
    with pytest.raises(OptionsError, match="not 'gzip'"):
        pods_of(compression="gzip")


@pytest.mark.parametrize("compression", ["zstd", None])
def test_repr_names_the_compression(compression: Any) -> None:
    assert (compression or "nothing") in repr(BodyCompressor(compression))
