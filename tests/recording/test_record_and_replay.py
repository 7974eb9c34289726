"""What is replayed equals what was recorded: notifications, states and times."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from conftest import pod
from hypothesis import given, settings
from hypothesis import strategies as st
from informer_helpers import running, settle

from aioinformer import KubeObject, SharedInformer, SharedInformerFactory, budget
from aioinformer.errors import OptionsError, RecordingError, TransportError
from aioinformer.informer import ReflectorOptions
from aioinformer.model import drop
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.recording import Digest, record, replay
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.testing.replayed import ReplayedServer
from aioinformer.watch import ListOptions, WatchOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from aioinformer import Resource
    from aioinformer.recording import Replay


@asynccontextmanager
async def recorded(
    source: Any, path: Path, **options: Any
) -> AsyncIterator[tuple[SharedInformer, Digest]]:
    """Record an informer from before its first list."""
    informer = SharedInformer(source, name="pods", **options)
    told = Digest()
    informer.add_event_handler(on_event=told)
    async with record(informer, path), running(informer.run()):
        await informer.wait_synced(10)
        yield informer, told
        await settle()


@asynccontextmanager
async def all_recorded(
    sources: Iterable[Any], path: Path
) -> AsyncIterator[list[SharedInformer]]:
    """Record informers `pods 0`, `pods 1` and so on."""
    informers = [
        SharedInformer(it, name=f"pods {number}") for number, it in enumerate(sources)
    ]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(record(informers, path))
        for informer in informers:
            await stack.enter_async_context(running(informer.run()))
            await informer.wait_synced(10)

        yield informers


async def served(path: Path, resource: Resource) -> APIServer:
    """Play everything to a server, and return it."""
    server = APIServer(auto_namespaces=True)
    async with replay(path) as played:
        target = ReplayedServer(server)
        target.serve([resource])
        played.add(target)
        await played.run()

    return server


@asynccontextmanager
async def replayed(
    path: Path, speed: float | None = None, **options: Any
) -> AsyncIterator[tuple[Replay, SharedInformer, Digest]]:
    """Run an informer of a recording."""
    async with replay(path, speed=speed) as played:
        informer = played.informer(**options)
        told = Digest()
        informer.add_event_handler(on_event=told)
        async with running(informer.run()):
            yield played, informer, told
            await settle()


async def play(path: Path, **options: Any) -> tuple[dict[str, Any], str, int]:
    """Play everything; return the objects, and digest and number of notifications."""
    async with replayed(path, **options) as (played, informer, told):
        await played.run()
        assert played.ended

    return states(informer), told.hexdigest(), told.count


def states(informer: SharedInformer) -> dict[str, Any]:
    return {it.key: it.to_dict() for it in informer.indexer.list()}


def phase(name: str, text: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": text}}


async def test_replay_repeats_changes_a_missed_deletion_and_a_replaced_object(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(*(pod(it) for it in "abcd"))
    async with recorded(source, path) as (informer, told):
        source.modify(phase("a", "Running"))
        await settle()
        source.modify(phase("a", "Failed"))
        source.delete(pod("b"))
        await settle()
        source.gone()  # the next two are found by a list
        source.delete(pod("c"))
        source.delete(pod("d"))
        source.add({"metadata": {"name": "d"}})
        await informer.wait_for_version(source.resource_version, 10)
        source.add(pod("e"))
        await informer.wait_for_version(source.resource_version, 10)

    assert told.count == 4 + 2 + 1 + 3 + 1
    assert await play(path) == (states(informer), told.hexdigest(), told.count)
    assert await play(path) == await play(path)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(
            ["put", "leave", "delete", "gone", "cut", "end", "bookmark", "wait"]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


def unless_done(obj: KubeObject) -> KubeObject | None:
    return None if obj.at("status.phase") == "Done" else obj


@given(changes=CHANGES, streams=st.booleans())
@settings(max_examples=60)
async def test_replay_repeats_any_sequence(
    changes: list[tuple[str, int]],
    streams: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("recording") / "it.alog"
    options = ReflectorOptions(streaming_list=streams)
    source = FakeListerWatcher(pod("p0"))
    present = {"p0"}
    async with recorded(source, path, options=options, transform=unless_done) as (
        informer,
        told,
    ):
        for number, (what, which) in enumerate(changes):
            name = f"p{which}"
            match what:
                case "leave" if name in present:
                    source.modify(phase(name, "Done"))
                case "put" if name in present:
                    source.modify(phase(name, str(number)))
                case "put":
                    source.add({"metadata": {"name": name}})
                    present.add(name)
                case "delete" if name in present:
                    source.delete(pod(name))
                    present.remove(name)
                case "gone":
                    source.gone()
                case "cut":
                    source.cut()
                case "end":
                    source.end()
                case "bookmark":
                    source.bookmark()
                case _:
                    await settle()

        source.bookmark()
        await informer.wait_for_version(source.resource_version, 300)
        await settle()

    expected = (states(informer), told.hexdigest(), told.count)
    assert await play(path, options=options) == expected


@pytest.mark.parametrize(
    "options", [{"transform": drop("status.phase")}, {"compression": "zstd"}], ids=str
)
async def test_objects_are_recorded_as_they_are_stored(
    options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(*(phase(f"p{it}", "Pending") for it in range(300)))
    async with recorded(source, path, **options) as (informer, told):
        source.modify(phase("p0", "Running") | {"spec": {"nodeName": "n" * 500}})
        await settle()

    assert await play(path) == (states(informer), told.hexdigest(), told.count)


async def test_several_namespaces_are_replayed_each_with_its_own_versions(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    sources = {it: FakeListerWatcher() for it in ("one", "two", "empty")}

    def make(namespace: str, name: str) -> None:
        sources[namespace].add({"metadata": {"name": name, "namespace": namespace}})

    make("one", "a")
    make("two", "b")
    async with recorded(sources, path) as (informer, told):
        for number in range(5):
            make("two", f"b{number}")  # their versions grow faster

        await settle()
        make("one", "late")
        await settle()
        sources["two"].gone()
        make("two", "found")
        await sources_seen(informer, "two/found")

    assert len(informer.indexer) == 9
    assert await play(path) == (states(informer), told.hexdigest(), told.count)


async def test_ring_of_several_namespaces_is_replayed(tmp_path: Path) -> None:
    sources = {it: FakeListerWatcher() for it in ("one", "two")}
    sources["one"].add({"metadata": {"name": "a", "namespace": "one"}})
    informer = SharedInformer(sources, name="pods")
    ring = tmp_path / "it.alog"
    async with record(informer, ring, last=60) as recorder, running(informer.run()):
        await informer.wait_synced(10)
        await asyncio.sleep(100)
        sources["two"].add({"metadata": {"name": "b", "namespace": "two"}})
        await settle()
        path = await recorder.save()
        expected = states(informer)

    assert (await play(path))[0] == expected


async def test_ring_saved_before_the_first_list_is_not_synced(tmp_path: Path) -> None:
    source = FakeListerWatcher(pod("a"))
    source.refuse(TransportError("no route"), times=100)
    informer = SharedInformer(source, name="pods")
    ring = tmp_path / "it.alog"
    async with record(informer, ring, last=60) as recorder, running(informer.run()):
        await asyncio.sleep(3)
        path = await recorder.save()

    async with replayed(path) as (played, again, _):
        await played.run()
        assert not again.has_synced


async def test_informer_that_gets_other_namespaces_is_another_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    sources = {it: FakeListerWatcher() for it in ("one", "two", "three")}
    for namespace, source in sources.items():
        source.add({"metadata": {"name": "a", "namespace": namespace}})

    for names in (["one", "two"], ["two"], ["one", "three"]):
        async with recorded({it: sources[it] for it in names}, path):
            pass

    async with replay(path) as played:
        assert [it.name for it in played.informers] == ["pods", "pods #2"]
        informer = played.informer("pods #2")
        async with running(informer.run()):
            await played.run()
            await informer.wait_synced(10)
            assert sorted(states(informer)) == ["one/a", "three/a"]

    sources["one"].delete({"metadata": {"name": "a", "namespace": "one"}})
    async with recorded({it: sources[it] for it in ("one", "three")}, path):
        pass

    server = await served(path, PODS)
    found = [it["metadata"]["namespace"] for it in server.objects(PODS)]
    assert found == ["three"], "what the former one had is gone"


async def test_server_serves_the_newest_state_of_several_informers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    sources = FakeListerWatcher(pod("a")), FakeListerWatcher(pod("a"))
    async with all_recorded(sources, path):
        for number in range(3):
            sources[0].modify(phase("a", str(number)))

        await settle()
        sources[1].modify(phase("a", "0"))  # its watch is slow
        await settle()

    server = await served(path, PODS)
    assert server.get(PODS, "a")["status"]["phase"] == "2"


@pytest.mark.parametrize("metadata_first", [True, False])
async def test_server_serves_whole_objects_if_an_informer_has_them(
    metadata_first: bool, tmp_path: Path
) -> None:
    path = tmp_path / "it.alog"
    async with APIServer(auto_namespaces=True) as server, server.client() as client:
        server.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"n": "1"}})
        factory = SharedInformerFactory(client, namespace="default")
        for metadata_only in (metadata_first, not metadata_first):
            factory.informer(CONFIG_MAPS, metadata_only=metadata_only)

        async with record(factory, path), factory:
            await factory.wait_for_cache_sync(5)
            server.patch(CONFIG_MAPS, "a", {"data": {"n": "2"}})
            await settle()

    replayed = await served(path, CONFIG_MAPS)
    assert replayed.get(CONFIG_MAPS, "a")["data"] == {"n": "2"}


async def sources_seen(informer: SharedInformer, key: str) -> None:
    await informer.wait_until(lambda obj: obj is not None, key=key, timeout=300)


async def test_recording_of_a_running_informer_begins_with_its_objects(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(*(pod(it) for it in "abc"))
    informer = SharedInformer(source, name="pods")
    async with running(informer.run()):
        await informer.wait_synced(10)
        source.modify(phase("a", "Running"))
        await settle()
        async with record(informer, path):
            told = Digest()
            informer.add_event_handler(on_event=told)
            await settle()
            source.delete(pod("b"))
            await settle()

    assert await play(path) == (states(informer), told.hexdigest(), told.count)


async def test_replay_keeps_the_times_and_stops_where_it_is_asked_to(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(pod("a"))
    loop = asyncio.get_running_loop()
    async with recorded(source, path):
        for number in range(4):
            await asyncio.sleep(100)
            source.modify(phase("a", str(number)))

        await settle()

    seen: list[tuple[int, str]] = []
    async with replayed(path, speed=10) as (played, informer, _):
        began = loop.time()
        informer.add_event_handler(
            on_update=lambda _, new: seen.append(
                (round(loop.time() - began), new.at("status.phase"))
            )
        )
        await played.run(until=250)
        assert (round(loop.time() - began), played.time) == (20, 250)
        await asyncio.sleep(1000)
        assert seen == [(10, "0"), (20, "1")]
        await played.seek(350)
        await informer.wait_until(
            lambda obj: obj is not None and obj.at("status.phase") == "2",
            key="default/a",
            timeout=300,
        )
        with pytest.raises(OptionsError, match="forwards only"):
            await played.seek(10)

        step = await played.step()
        assert step is not None
        assert step.kind == "CHANGE"
        await settle()
        assert seen[-1][1] == "3"
        while (step := await played.step()) is not None:
            assert step.kind in {"STATUS", "END"}


async def test_sources_of_several_informers_play_in_the_recorded_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, the handlers of one informer would have to wait for their turn.
    monkeypatch.setattr(budget, "perf_counter", lambda: 0.0)
    path = tmp_path / "it.alog"
    sources = [FakeListerWatcher(pod("first")), FakeListerWatcher(pod("second"))]
    async with all_recorded(sources, path) as informers:
        for number in range(50):
            source, informer = sources[number % 2], informers[number % 2]
            source.add(pod(f"p{number}"))
            await informer.wait_for_version(source.resource_version, timeout=10)
            await asyncio.sleep(0.01)  # changes of one moment have no order

    order: list[str] = []
    async with AsyncExitStack() as stack:
        played = await stack.enter_async_context(replay(path))
        assert [it.name for it in played.informers] == ["pods 0", "pods 1"]
        with pytest.raises(OptionsError, match="more than one informer 'pods'"):
            played.source("pods")

        with pytest.raises(
            OptionsError, match="no informer 'nodes': it has 'pods 0', "
        ):
            played.source("nodes")

        for name in ("pods 0", "pods 1"):
            informer = played.informer(name)
            informer.add_event_handler(on_add=lambda obj: order.append(obj.name))
            await stack.enter_async_context(running(informer.run()))

        await played.run()
        await settle()
        with pytest.raises(OptionsError, match="before playing"):
            played.add(played.source("pods 0"))

    assert order == ["first", "second", *(f"p{it}" for it in range(50))]


async def test_informer_that_is_never_run_delays_no_other(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    async with recorded(FakeListerWatcher(pod("a")), path) as (informer, _):
        pass

    loop = asyncio.get_running_loop()
    async with replay(path) as played:
        played.source()
        began = loop.time()
        await played.run()
        assert played.ended
        assert loop.time() - began < 200

    assert len(informer.indexer) == 1


async def test_recorder_does_not_mind_its_informers_ends(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(pod("a"))
    informer = SharedInformer(source, name="pods")
    async with record(informer, path) as recorder:
        async with running(informer.run()):
            await informer.wait_synced(10)

        later = SharedInformer(FakeListerWatcher(pod("b")), name="more pods")
        recorder.add(later)
        recorder.add(later)
        async with running(later.run()):
            await later.wait_synced(10)

    async with replayed(path, name="pods") as (played, _, _):
        await played.run()
        assert [it.name for it in played.informers] == ["pods", "more pods"]


async def test_wrong_use_is_refused(tmp_path: Path) -> None:
    source = FakeListerWatcher()
    informer = SharedInformer(source, name="pods")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"last": 0}, "last must be more than 0 s"),
        ({"rotate_bytes": 0}, "rotate_bytes must be a whole number from 1 on"),
        ({"rotate_every": -1}, "rotate_every must be more than 0 s"),
        ({"last": 10, "keep": 1}, "they are not rotated"),
        ({"redact": "spec.x"}, "redact must be a list of paths"),
        ({"redact": ["spec..x"]}, "no path of a field"),
    ]
    for options, message in refused:
        with pytest.raises(OptionsError, match=message):
            record(informer, tmp_path / "it.alog", **options)

    recorder = record(informer, tmp_path / "it.alog")
    with pytest.raises(OptionsError, match="while it is entered"):
        recorder.add(informer)

    async with recorder:
        with pytest.raises(OptionsError, match="path only with last="):
            await recorder.save(tmp_path / "other.alog")

        assert await recorder.save() == tmp_path / "it.alog"
        with pytest.raises(OptionsError, match="runs only once"):
            await recorder.start()

    with pytest.raises(OptionsError, match="while it is entered"):
        await recorder.save()

    with pytest.raises(RecordingError, match="No such file or directory"):
        await record(informer, tmp_path / "missing" / "it.alog").start()

    with pytest.raises(OptionsError, match="enter the replay first"):
        replay(tmp_path / "it.alog").source()

    with pytest.raises(OptionsError, match="speed must be more than 0"):
        replay(tmp_path / "it.alog", speed=0)


async def test_informer_with_a_store_on_disk_is_refused_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    async with APIServer() as server:
        cached = SharedInformerFactory(server.client(), cache_dir=tmp_path / "cache")
        cached.informer(PODS)
        recorder = record(cached, tmp_path / "it.alog")
        with pytest.raises(OptionsError, match="has its objects on disk"):
            await recorder.start()

    # All threads have ended, see conftest.py.
    with pytest.raises(OptionsError, match="while it is entered"):
        await recorder.save()


async def test_relist_with_many_changes_is_one_relist_again(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(*(pod(f"p{number}") for number in range(400)))
    async with recorded(source, path) as (informer, told):
        source.gone()
        for number in range(300):
            source.modify(phase(f"p{number}", "Running"))

        await informer.wait_for_version(source.resource_version, 30)
        await settle()

    loop = asyncio.get_running_loop()
    async with replayed(path) as (played, again, told_again):
        sizes: list[set[str]] = []
        again.add_event_handler(
            on_update=lambda _, new: sizes.append(
                {it.at("status.phase") or "" for it in again.indexer.list()}
            )
        )
        began = loop.time()
        await played.run()
        assert loop.time() - began < 5

    # No handler has seen a part of it.
    assert len(sizes) == 300
    phases = [{it.at("status.phase") for it in again.indexer.list()}]
    assert sizes == phases * 300
    assert (told_again.hexdigest(), told_again.count) == (told.hexdigest(), told.count)


async def test_informers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    sources = [FakeListerWatcher(pod("a")), FakeListerWatcher(pod("b"))]
    informers = [SharedInformer(it, name="pods") for it in sources]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(record(informers, path))
        for it in informers:
            await stack.enter_async_context(running(it.run()))
            await it.wait_synced(10)

    async with replayed(path, name="pods") as (played, again, _):
        other = played.informer("pods #2")
        async with running(other.run()):
            await played.run()
            await settle()

    assert (list(states(again)), list(states(other))) == (["default/a"], ["default/b"])


async def test_watch_may_begin_at_an_earlier_version_of_the_recording(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(pod("a"))
    async with recorded(source, path):
        for number in range(5):
            source.modify(phase("a", str(number)))
            await settle()

    async with replay(path) as played:
        it = played.source()
        running_ = asyncio.create_task(played.run())
        async with it.list(ListOptions()) as page:
            version = page.resource_version

        async with it.watch(WatchOptions(resource_version=version)) as watch:
            seen = [event.object.at("status.phase") async for event in first(watch, 5)]

        assert seen == [str(number) for number in range(5)]
        async with it.watch(WatchOptions(resource_version="4")) as watch:
            seen = [event.object.at("status.phase") async for event in first(watch, 3)]

        assert seen == ["2", "3", "4"]
        async with it.watch(WatchOptions(resource_version="1")) as watch:
            (error,) = [event async for event in first(watch, 1)]

        assert error.error().status == 410
        running_.cancel()
        await asyncio.wait({running_})


async def first(watch: Any, count: int) -> AsyncIterator[Any]:
    async for event in watch:
        yield event
        count -= 1
        if not count:
            return


async def test_namespace_that_has_become_empty_is_replayed_after_a_restart(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    sources = {it: FakeListerWatcher() for it in ("one", "two")}
    for namespace, source in sources.items():
        source.add({"metadata": {"name": "a", "namespace": namespace}})

    async with recorded(sources, path):
        pass

    sources["two"].delete({"metadata": {"name": "a", "namespace": "two"}})
    async with recorded(sources, path) as (informer, _):
        pass

    objects, _, _ = await play(path)
    assert list(objects) == list(states(informer)) == ["one/a"]
