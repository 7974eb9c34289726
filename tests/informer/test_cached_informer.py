"""Informers with a store on disk, in one process: restarts, readers, takeovers."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from cached_informers import (
    INITIAL,
    Log,
    cached,
    drop,
    name_of,
    names,
    open_files,
    put,
    value_of,
    verbs,
    without_data,
)
from informer_helpers import text_of

from aioinformer import KubeObject, Resource, SharedInformerFactory, Updated
from aioinformer.cache.disk.environment import Environment
from aioinformer.errors import (
    CacheError,
    InformerStopped,
    NotSynced,
    OptionsError,
    TransportError,
)
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.web.health import readyz, report_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        for name in ("a", "b", "c"):
            put(server, name)

        yield server


# ---------------------------------------------------------------- one process


async def test_cached_informer_lists_and_follows_changes(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (maps, log):
        status = maps.status
        assert (names(maps), log.take()) == (["a", "b", "c"], INITIAL)
        assert status.synced
        assert status.cache is not None
        assert (status.cache.role, status.cache.writer) == ("writer", os.getpid())

        put(server, "a", "2")
        put(server, "d")
        drop(server, "b")
        await maps.wait_for_version(server.resource_version, timeout=5)
        await asyncio.sleep(0.1)
        a = maps.lister.get("default/a")
        assert a is not None
        assert a.at("data.value") == "2"
        assert names(maps) == ["a", "c", "d"]
        assert log.take() == ["added d", "deleted b", "updated a"]


async def test_restart_resumes_the_watch_without_a_list(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        assert verbs(server) == ["list", "watch"]

    async with cached(server, tmp_path) as (maps, log):
        assert verbs(server) == ["watch"]
        assert (names(maps), log.take()) == (["a", "b", "c"], INITIAL)
        put(server, "a", "2")
        await asyncio.sleep(0.1)
        assert log.take() == ["updated a"]


async def test_restart_tells_what_changed_while_the_program_was_down(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        pass

    put(server, "a", "2")
    put(server, "d")
    drop(server, "b")
    verbs(server)
    async with cached(server, tmp_path) as (maps, log):
        assert verbs(server) == ["watch"]
        assert names(maps) == ["a", "c", "d"]
        assert log.take() == ["initial a", "initial c", "initial d", "missed b"]


async def test_restart_after_compaction_lists_once_and_compares(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        pass

    put(server, "a", "2")
    drop(server, "b")
    server.compact()
    verbs(server)
    async with cached(server, tmp_path) as (maps, log):
        assert verbs(server) == ["watch", "list", "watch"]
        assert names(maps) == ["a", "c"]
        assert log.take() == ["initial a", "initial c", "missed b"]


async def test_unconfirmed_objects_are_read_on_request_only(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        pass

    client = server.client()
    await server.stop()
    factory = SharedInformerFactory(client, cache_dir=tmp_path)
    maps = factory.informer("v1", "configmaps", namespace="default")
    log = Log(maps)
    with pytest.raises(NotSynced):
        maps.lister.get("default/a", allow_unconfirmed=True)

    async with factory:
        await asyncio.sleep(0.5)
        with pytest.raises(NotSynced):
            maps.lister.get("default/a")

        assert names(maps, allow_unconfirmed=True) == ["a", "b", "c"]
        assert names(maps, max_staleness=60) == ["a", "b", "c"]
        assert not maps.has_synced
        await asyncio.sleep(5)
        assert (maps.has_synced, log.take()) == (False, [])
        await server.start()
        await maps.wait_synced(timeout=120)
        await asyncio.sleep(0.1)
        assert (names(maps), log.take()) == (["a", "b", "c"], INITIAL)


async def test_another_transform_compares_with_one_list(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        pass

    drop(server, "b")
    verbs(server)
    async with cached(server, tmp_path, transform=without_data) as (maps, log):
        assert verbs(server) == ["list", "watch"]
        a = maps.lister.get("default/a")
        assert a is not None
        assert a.at("data") is None
        assert log.take() == ["initial a", "initial c", "missed b"]


async def test_indexes_of_a_cached_informer_find_objects(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path, indexers={"value": value_of}) as (maps, _):
        await maps.build_indexers({"late": name_of})
        put(server, "a", "2")
        await asyncio.sleep(0.1)
        found = [[obj.name for obj in maps.lister.by_index("value", it)] for it in "12"]
        assert found == [["b", "c"], ["a"]]
        assert len(maps.indexer.by_index("late", "c")) == 1

    async with cached(server, tmp_path, indexers={"value": value_of}) as (maps, _):
        assert [obj.name for obj in maps.lister.by_index("value", "2")] == ["a"]


async def test_handler_added_later_is_told_everything_once(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (maps, _):
        late = Log(maps)
        put(server, "a", "2")
        put(server, "d")
        await asyncio.sleep(0.2)
        told = late.take()
        assert sorted({it.rpartition(" ")[2] for it in told}) == ["a", "b", "c", "d"]
        assert sum(it.startswith(("initial", "added")) for it in told) == 4


async def test_waits_of_a_cached_informer_see_its_changes(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (maps, _):
        wait = asyncio.create_task(
            maps.wait_until(lambda it: it is None, key="default/a", timeout=5)
        )
        await asyncio.sleep(0.1)
        drop(server, "a")
        assert await wait is None
        created = server.create(
            CONFIG_MAPS, {"metadata": {"name": "e"}}, namespace="default"
        )
        await maps.wait_for_version(created["metadata"]["resourceVersion"], timeout=5)
        assert maps.lister.get("default/e") is not None


async def test_ended_informer_leaves_nothing_and_refuses_reads(
    server: APIServer, tmp_path: Path
) -> None:
    before = open_files()
    async with cached(server, tmp_path) as (maps, _):
        during = open_files()

    assert during > before
    assert open_files() == before
    assert len(maps.indexer) == 3
    with pytest.raises(InformerStopped):
        maps.lister.get("default/a")

    with pytest.raises(InformerStopped, match="closed"):
        maps.indexer.get_by_key("default/a")


# ---------------------------------------------------------------- two informers


async def test_second_factory_reads_what_the_first_writes(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (one, _):
        verbs(server)
        async with cached(server, tmp_path) as (two, log):
            assert verbs(server) == []
            cache = two.status.cache
            assert cache is not None
            assert cache.role == "reader"
            assert (names(two), log.take()) == (["a", "b", "c"], INITIAL)
            put(server, "a", "2")
            await two.wait_for_version(server.resource_version, timeout=5)
            await asyncio.sleep(0.1)
            assert log.take() == ["updated a"]
            assert two.status.age == pytest.approx(one.status.age, abs=2)
            assert two.status.phase == "watching"


async def test_index_of_a_reader_has_what_a_wait_for_version_saw(
    server: APIServer, tmp_path: Path
) -> None:
    async with (
        cached(server, tmp_path, indexers={"last": name_of}),
        cached(server, tmp_path, indexers={"last": last_of}) as (two, _),
    ):
        for number in range(10):
            put(server, f"new-{number}")
            version = server.resource_version
            while two.store.resource_version != version:  # no turn of the follower
                await asyncio.sleep(0)

            await two.wait_for_version(version, timeout=5)
            found = two.lister.by_index("last", str(number))
            assert [obj.name for obj in found] == [f"new-{number}"]


async def test_index_of_a_reader_has_what_a_predicate_of_the_store_saw(
    server: APIServer, tmp_path: Path
) -> None:
    indexers = {"last": last_of}
    async with (
        cached(server, tmp_path),
        cached(server, tmp_path, indexers=indexers) as (two, _),
    ):
        for number in range(10):
            key = f"default/new-{number}"
            put(server, f"new-{number}")
            while not two.store.get_by_key(key):  # no turn of the follower
                await asyncio.sleep(0)

            await two.wait_until(partial(_has, key))
            assert str(number) in two.indexer.list_index_func_values("last")


async def test_has_seen_waits_until_a_reader_knows_what_left_the_selection(
    server: APIServer, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"label_selector": "app=web"}
    label_all(server, "web")
    async with (
        cached(server, tmp_path, **options),
        cached(server, tmp_path, **options, indexers={"last": last_of}) as (two, _),
    ):
        for name in ("a", "b", "c"):
            body = {"metadata": {"labels": {"app": "db"}}}
            written = server.patch(CONFIG_MAPS, name, body, namespace="default")
            while two.store.get_by_key(f"default/{name}"):  # no turn of the follower
                await asyncio.sleep(0)

            await two.has_seen(KubeObject.of(written), timeout=5)
            assert name not in two.indexer.list_index_func_values("last")


def label_all(server: APIServer, app: str) -> None:
    for it in server.objects(CONFIG_MAPS):
        name, body = it["metadata"]["name"], {"metadata": {"labels": {"app": app}}}
        server.patch(CONFIG_MAPS, name, body, namespace="default")


def _has(key: str, store: Any) -> bool:
    return store.get_by_key(key) is not None


def last_of(obj: Any) -> list[str]:
    return [obj.name[-1]]


async def test_reader_takes_over_without_a_list(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (_, first):
        second = cached(server, tmp_path)
        two, log = await second.__aenter__()
        assert first.take() == log.take() == INITIAL
        verbs(server)

    put(server, "a", "2")
    drop(server, "b")
    await asyncio.sleep(2)
    assert verbs(server) == ["watch"]
    assert names(two) == ["a", "c"]
    assert log.take() == ["deleted b", "updated a"]
    cache = two.status.cache
    assert cache is not None
    assert (cache.role, cache.writers_so_far) == ("writer", 2)
    await second.__aexit__(None, None, None)


async def test_restart_builds_an_index_that_the_store_lacks(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path):
        pass

    async with (
        cached(server, tmp_path, indexers={"value": value_of}) as (maps, _),
        cached(server, tmp_path, indexers={"value": value_of}) as (other, _),
    ):
        await asyncio.sleep(1)
        put(server, "a", "2")
        await asyncio.sleep(0.1)
        for informer in (maps, other):
            found = informer.lister.by_index("value", "1")
            assert sorted(it.name for it in found) == ["b", "c"]

        cache = maps.status.cache
        assert cache is not None
        env = Environment.open(cache.path)
        assert "value" in env.header.indexes
        env.close()


async def test_relist_reaches_handlers_of_all_informers(
    server: APIServer, tmp_path: Path
) -> None:
    async with (
        cached(server, tmp_path) as (_, first),
        cached(server, tmp_path) as (two, second),
    ):
        assert first.take() == second.take() == INITIAL
        await server.stop()
        put(server, "a", "2")
        drop(server, "b")
        put(server, "d")
        server.compact()
        await server.start()
        await two.wait_for_version(server.resource_version, timeout=120)
        await asyncio.sleep(0.1)
        assert first.take() == second.take() == ["added d", "missed b", "updated a"]


async def test_readers_see_the_errors_of_the_writer(
    server: APIServer, tmp_path: Path
) -> None:
    async with (
        cached(server, tmp_path) as (one, _),
        cached(server, tmp_path) as (two, _),
    ):
        await server.stop()
        await asyncio.sleep(5)
        for informer in (one, two):
            status = informer.status
            assert isinstance(status.last_error, TransportError)
            assert status.last_error.unreachable
            assert status.failures > 0
            assert status.phase == "backing off"
            assert report_of(informer, reasons=False)["trouble"] == "unreachable"

        await server.start()
        await asyncio.sleep(60)
        assert (one.status.last_error, two.status.last_error) == (None, None)


async def test_readiness_fails_if_the_writer_is_silent(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        cached(server, tmp_path) as (one, _),
        cached(server, tmp_path) as (two, _),
    ):
        assert readyz(one, two).status == 200
        environment = "aioinformer.cache.disk.environment.Environment"
        monkeypatch.setattr(f"{environment}.set_writer_state", lambda *_: None)
        await asyncio.sleep(12)
        status = two.status
        assert isinstance(status.last_error, CacheError)
        assert f"process {os.getpid()}, has not written for" in str(status.last_error)
        assert names(two) == ["a", "b", "c"]
        assert (readyz(one).status, readyz(two).status) == (200, 503)
        monkeypatch.undo()
        await asyncio.sleep(2)
        assert readyz(two).status == 200


async def test_events_and_resyncs_of_a_cached_informer(
    server: APIServer, tmp_path: Path
) -> None:
    async with (
        cached(server, tmp_path) as (maps, _),
        maps.events(resync_period=60) as events,
    ):
        seen = [text_of(await anext(events)) for _ in range(3)]
        assert sorted(seen) == INITIAL
        put(server, "a", "2")
        assert text_of(await anext(events)) == "updated a"
        again = [await anext(events) for _ in range(3)]
        assert all(isinstance(it, Updated) and it.resync for it in again)


async def test_restart_of_metadata_and_custom_resources_lists_nothing(
    tmp_path: Path,
) -> None:
    widgets = Resource.of("example.com/v1", "widgets", "Widget")
    async with APIServer(resources=[widgets]) as server:
        server.create(widgets, {"metadata": {"name": "w", "namespace": "default"}})
        put(server, "a")
        for expected in (["list", "watch"], ["watch"]):
            server.requests.clear()
            factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
            found = factory.informer("example.com/v1", "Widget")
            maps = factory.informer("v1", "configmaps", metadata_only=True)
            async with factory:
                await factory.wait_for_cache_sync(timeout=30)
                (widget,) = found.lister.list()
                (a,) = [it for it in maps.lister.list() if it.name == "a"]
                assert (widget.kind, a.kind) == ("Widget", "PartialObjectMetadata")

            for plural in ("widgets", "configmaps"):
                made = [it.verb for it in server.requests if it.resource == plural]
                assert made == expected


async def test_informer_stopped_while_it_opens_leaves_nothing(
    server: APIServer, tmp_path: Path
) -> None:
    before = open_files()
    for turns in range(12):
        factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
        factory.informer("v1", "configmaps", namespace="default")
        await factory.start()
        for _ in range(turns):
            await asyncio.sleep(0)

        await factory.shutdown()
        assert open_files() == before


# ---------------------------------------------------------------- options


async def test_secrets_and_several_namespaces_stay_in_memory(
    server: APIServer, tmp_path: Path
) -> None:
    factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
    informers = [
        factory.informer("v1", "secrets"),
        factory.informer("v1", "pods", namespace=["a", "b"]),
        factory.informer("v1", "services", cached=False),
    ]
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        assert [it.status.cache for it in informers] == [None, None, None]

    assert os.listdir(tmp_path) == []


async def test_secrets_are_stored_on_request(server: APIServer, tmp_path: Path) -> None:
    factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
    secrets = factory.informer("v1", "secrets", cached=True)
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        assert secrets.status.cache is not None

    (name,) = os.listdir(tmp_path)
    assert name.startswith("secrets-")


def test_options_of_the_cache_are_checked(tmp_path: Path) -> None:
    for path in ("", "with\0null", b"bytes", 5, True):
        with pytest.raises(OptionsError, match="cache_dir must be the path"):
            SharedInformerFactory(fake_client(), cache_dir=cast("str", path))

    with pytest.raises(
        OptionsError, match="cannot find the home directory of '~nobody"
    ):
        SharedInformerFactory(fake_client(), cache_dir="~nobody-has-this-name/cache")

    with pytest.raises(OptionsError, match="cache_dir"):
        SharedInformerFactory(fake_client()).informer("v1", "pods", cached=True)

    factory = SharedInformerFactory(fake_client(), cache_dir=tmp_path)
    with pytest.raises(OptionsError, match="several namespaces"):
        factory.informer("v1", "pods", namespace=["a", "b"], cached=True)

    factory.informer("v1", "pods")
    with pytest.raises(OptionsError, match="cached=True"):
        factory.informer("v1", "pods", cached=False)


def test_tilde_in_the_path_of_the_cache_is_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    factory = SharedInformerFactory(fake_client(), cache_dir="~/cache")

    cache = factory.informer("v1", "pods").status.cache

    assert cache is not None
    assert cache.path.parent == tmp_path / "cache"


def fake_client() -> Any:
    from factory_helpers import FakeClient

    return FakeClient()


@pytest.mark.parametrize("package", ["lmdb", "zstandard"])
def test_missing_package_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OptionsError, match=rf"{package}.*aioinformer\[shared\]"):
        SharedInformerFactory(fake_client(), cache_dir=tmp_path)


async def test_each_selection_has_a_directory_of_its_own(
    server: APIServer, tmp_path: Path
) -> None:
    factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
    requests: list[dict[str, Any]] = [
        {},
        {"namespace": "default"},
        {"label_selector": "app=web"},
        {"field_selector": "metadata.name=web"},
        {"metadata_only": True},
        {"name": "again"},
    ]
    informers = [factory.informer("v1", "configmaps", **it) for it in requests]
    informers.append(factory.informer("apps/v1", "deployments"))
    async with factory:
        await factory.wait_for_cache_sync(timeout=30)
        caches = [it.status.cache for it in informers]
        paths = {it.path.name for it in caches if it is not None}

    assert len(paths) == len(informers)
    assert {it.partition("-")[0] for it in paths} == {"configmaps", "deployments.apps"}
    again = SharedInformerFactory(server.client(), cache_dir=tmp_path)
    maps = again.informer("v1", "configmaps", label_selector=" app = web ")
    async with again:
        await maps.wait_synced(timeout=30)
        assert maps.status.cache is not None
        assert maps.status.cache.path.name in paths
