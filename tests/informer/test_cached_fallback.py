"""Informers that leave their store on disk, and go on in memory."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

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
)
from informer_helpers import text_of
from store_processes import StoreProcess

from aioinformer import Added, Deleted, SharedInformerFactory, Updated
from aioinformer.cache.disk.environment import Environment
from aioinformer.errors import (
    CacheError,
)
from aioinformer.informer.cached.writer import CacheWriter
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer import SharedInformer
    from aioinformer.informer.notifications import Notification


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        for name in ("a", "b", "c"):
            put(server, name)

        yield server


async def test_unsafe_directory_leads_to_memory(
    server: APIServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = tmp_path / "cache"
    path.symlink_to(elsewhere)
    async with cached(server, path) as (maps, log):
        assert (names(maps), log.take()) == (["a", "b", "c"], INITIAL)
        status = maps.status
        assert status.degraded == 1
        assert status.cache is not None
        assert status.cache.role == "memory"
        assert "link" in status.cache.why_in_memory

    assert [it.message for it in caplog.records if "in memory" in it.message]


async def test_vanished_directory_leads_to_memory(
    server: APIServer, tmp_path: Path
) -> None:
    files = open_files()
    async with cached(server, tmp_path) as (maps, log):
        assert log.take() == INITIAL
        cache = maps.status.cache
        assert cache is not None
        os.rename(cache.path, tmp_path / "gone")
        drop(server, "b")
        put(server, "a", "2")
        await asyncio.sleep(5)
        status = maps.status
        assert status.cache is not None
        assert status.cache.role == "memory"
        assert maps.has_synced
        assert names(maps) == ["a", "c"]
        put(server, "c", "2")
        await asyncio.sleep(0.1)
        assert log.take() == ["deleted b", "updated a", "updated c"]
        late = Log(maps)
        await asyncio.sleep(0.1)
        assert late.take() == ["initial a", "initial c"]
        assert open_files() == files


async def test_damage_that_a_read_finds_leads_to_memory(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (maps, log):
        assert log.take() == INITIAL
        cache = maps.status.cache
        assert cache is not None
        await asyncio.to_thread(damage, cache.path, b"default/b")
        with pytest.raises(CacheError, match="record of 'default/b' is damaged"):
            maps.lister.get("default/b")

        await asyncio.sleep(3)
        status = maps.status
        assert status.cache is not None
        assert status.cache.role == "memory"
        assert "record of 'default/b' is damaged" in status.cache.why_in_memory
        assert names(maps) == ["a", "b", "c"]
        assert log.take() == INITIAL  # nobody knows what it was told

    async with cached(server, tmp_path) as (maps, _):
        assert maps.status.cache is not None
        assert maps.status.cache.role == "writer"
        assert names(maps) == ["a", "b", "c"]


def damage(path: Path, key: bytes) -> None:
    """Overwrite the record of an object."""
    env = Environment.open(path)
    objects = env.database(f"o{env.header.generation}")
    with env.write() as txn:
        txn.put(key, b"\x00\x01damaged", db=objects)

    env.close()


async def test_fallback_continues_the_watch_without_a_list(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path) as (maps, log), cached(server, tmp_path):
        cache = maps.status.cache
        assert cache is not None
        drop(server, "b")
        await asyncio.sleep(0.1)
        verbs(server)
        os.rename(cache.path, tmp_path / "gone")
        put(server, "a", "2")
        await asyncio.sleep(5)
        assert verbs(server) == ["watch", "watch"]
        put(server, "c", "2")
        await asyncio.sleep(0.1)
        assert log.take() == ["deleted b", *INITIAL, "updated a", "updated c"]
        assert maps.status.age is not None


async def test_fallback_notices_a_server_that_was_restored(
    server: APIServer, tmp_path: Path
) -> None:
    backup = server.snapshot()
    async with cached(server, tmp_path) as (maps, log):
        cache = maps.status.cache
        assert cache is not None
        put(server, "a", "2")
        put(server, "d")
        await asyncio.sleep(0.1)
        await server.stop()
        os.rename(cache.path, tmp_path / "gone")
        await asyncio.sleep(3)
        assert names(maps) == ["a", "b", "c", "d"]
        await server.restart(snapshot=backup)
        await asyncio.sleep(100)
        assert maps.status.history_resets == 1
        assert names(maps) == ["a", "b", "c"]
        assert log.take() == [
            "added d",
            *INITIAL,
            "missed d",
            "updated a",
            "updated a",
        ]


async def test_writer_frees_the_snapshot_of_a_killed_process(
    server: APIServer, tmp_path: Path
) -> None:
    """Otherwise the file grows with each change, until a process opens it again."""
    async with cached(server, tmp_path) as (maps, _):
        cache = maps.status.cache
        assert cache is not None
        env = await asyncio.to_thread(Environment.open, cache.path)
        with StoreProcess(cache.path) as other:
            other("start()")
            other("env.read().__enter__() and None")
            with env.write() as txn:
                newest = txn.id()

            assert env.processes_before(newest) == {other.pid}

        put(server, "a", "2")
        await asyncio.sleep(2)
        assert env.processes_before(newest) == set()
        await asyncio.to_thread(env.close)


async def test_process_that_is_stopped_while_it_reads_is_named(
    server: APIServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its snapshot keeps all pages that are replaced, so the file grows."""

    def stalled() -> list[tuple[int, ...]]:
        return [it.status.cache.stalled_readers for it in (one, two) if it.status.cache]

    async with (
        cached(server, tmp_path) as (one, _),
        cached(server, tmp_path) as (two, _),
    ):
        assert one.status.cache is not None
        with StoreProcess(one.status.cache.path) as other:
            other("start()")
            other("env.read().__enter__() and None")
            os.kill(other.pid, signal.SIGSTOP)
            await asyncio.sleep(29)
            assert stalled() == [(), ()]
            await asyncio.sleep(4)
            assert stalled() == [(other.pid,)] * 2
            await asyncio.sleep(60)

        await asyncio.sleep(3)
        assert stalled() == [(), ()]
        assert caplog.text.count(f"process {other.pid} has not ended a read") == 1


async def test_failing_writes_lead_to_memory_without_lost_or_repeated_events(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        cached(server, tmp_path) as (maps, log),
        cached(server, tmp_path) as (
            other,
            told,
        ),
    ):
        assert log.take() == told.take() == INITIAL

        def full(*_: object) -> None:
            raise CacheError("disk full")

        environment = "aioinformer.cache.disk.environment.Environment.write"
        monkeypatch.setattr(environment, full)
        put(server, "a", "2")
        drop(server, "b")
        await asyncio.sleep(5)
        for informer, its_log in ((maps, log), (other, told)):
            status = informer.status
            assert status.cache is not None
            assert (status.cache.role, status.degraded) == ("memory", 1)
            assert names(informer) == ["a", "c"]
            assert its_log.take() == ["deleted b", "updated a"]

        monkeypatch.undo()


async def test_informer_stops_although_its_cache_fails_meanwhile(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise CacheError("disk full")

    async with asyncio.timeout(60), cached(server, tmp_path) as (maps, _):
        monkeypatch.setattr(CacheWriter, "_end", fail)

    assert maps.status.phase == "stopped"
    assert maps.status.degraded == 0


class Ledger:
    """Handler that checks that each event follows from those before."""

    def __init__(self, informer: SharedInformer) -> None:
        self.known: dict[str, str] = {}
        self.wrong: list[str] = []
        informer.add_event_handler(on_event=self)

    def __call__(self, event: Notification) -> None:
        obj = event.new if isinstance(event, Updated) else event.obj
        before = self.known.get(obj.name)
        match event:
            case Added():
                expected = None
            case Updated():
                expected = event.old.resource_version
            case _:
                expected = before or "nothing"

        if before != expected:
            self.wrong.append(f"{text_of(event)} after {before}")

        if isinstance(event, Deleted):
            del self.known[obj.name]
        else:
            self.known[obj.name] = obj.resource_version


EAGER = pytest.param(
    True,
    marks=pytest.mark.skipif(
        sys.version_info < (3, 12), reason="there are no eager tasks"
    ),
    id="eager",
)


@pytest.mark.parametrize("eager", [False, EAGER])
@pytest.mark.parametrize("restarted", [False, True])
async def test_any_failing_write_leads_to_memory_with_the_right_events(
    server: APIServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    restarted: bool,
    eager: bool,
) -> None:
    if eager:
        loop: Any = asyncio.get_running_loop()
        loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - from 3.12

    write = Environment.write
    for good in range(24):
        path = tmp_path / str(good)
        if restarted:
            async with cached(server, path):
                pass

        left = good

        def fail(env: Environment) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise CacheError("no space left")

            return write(env)

        monkeypatch.setattr(Environment, "write", fail)
        put(server, "a", f"before {good}")
        factory = SharedInformerFactory(server.client(), cache_dir=path)
        maps = factory.informer("v1", "configmaps", namespace="default")
        ledger = Ledger(maps)
        async with factory:
            await maps.wait_synced(timeout=60)
            put(server, "a", f"after {good}")
            put(server, f"new-{good}")
            await asyncio.sleep(3)
            drop(server, f"new-{good}")
            put(server, "b", f"after {good}")
            await asyncio.sleep(30)
            stored = {it.name: it.resource_version for it in maps.lister.list()}
            assert maps.status.cache is not None
            assert maps.status.cache.role == "memory", good

        monkeypatch.undo()
        expected = {
            it["metadata"]["name"]: it["metadata"]["resourceVersion"]
            for it in server.objects(CONFIG_MAPS)
            if it["metadata"]["namespace"] == "default"
        }
        assert (ledger.wrong, ledger.known, stored) == ([], expected, expected), good


async def test_any_failing_read_leads_to_memory(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Environment.read
    async with cached(server, tmp_path):
        pass

    for good in range(0, 60, 3):
        left = good

        def fail(env: Environment) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise CacheError("a page is damaged")

            return read(env)

        monkeypatch.setattr(Environment, "read", fail)
        put(server, "a", f"before {good}")
        factory = SharedInformerFactory(server.client(), cache_dir=tmp_path)
        maps = factory.informer(
            "v1", "configmaps", namespace="default", indexers={"value": value_of}
        )
        async with factory:
            await asyncio.sleep(20)
            await maps.wait_synced(timeout=30)
            put(server, "a", f"after {good}")
            await asyncio.sleep(30)
            assert maps.status.cache is not None
            assert maps.status.cache.role == "memory", good
            assert names(maps) == ["a", "b", "c"]
            found = maps.lister.by_index("value", f"after {good}")
            assert [it.name for it in found] == ["a"]

        monkeypatch.undo()


async def test_deletion_ends_a_wait_although_the_store_was_lost(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Environment) -> Any:
        raise CacheError("a page is damaged")

    async with (
        cached(server, tmp_path) as (maps, _),
        asyncio.TaskGroup() as group,
    ):
        a = maps.lister.get("default/a")
        assert a is not None
        group.create_task(maps.wait_until(lambda it: it is None, "default/a", 60))
        group.create_task(maps.has_seen(a, 60, deleted=True))
        await asyncio.sleep(0.1)
        monkeypatch.setattr(Environment, "read", fail)
        drop(server, "a")
        await asyncio.sleep(5)
        cache = maps.status.cache
        assert cache is not None
        assert cache.role == "memory"


async def test_index_added_during_the_fallback_is_kept(
    server: APIServer, tmp_path: Path
) -> None:
    async with cached(server, tmp_path, indexers={"value": value_of}) as (maps, _):
        maps.add_indexers({"late": name_of})
        cache = maps.status.cache
        assert cache is not None
        os.rename(cache.path, tmp_path / "gone")
        put(server, "a", "2")
        await asyncio.sleep(5)
        assert [it.name for it in maps.lister.by_index("late", "a")] == ["a"]
        assert [it.name for it in maps.lister.by_index("value", "2")] == ["a"]
