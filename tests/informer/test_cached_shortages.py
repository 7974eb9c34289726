"""Informers with a store on disk while the system lacks descriptors or memory."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

import pytest
from cached_informers import INITIAL, cached, drop, put, verbs
from shortages import no_descriptors

from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.locks import Locks
from aioinformer.errors import CacheError
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer import SharedInformer

AGAIN = "tries again"


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as server:
        for name in ("a", "b", "c"):
            put(server, name)

        yield server


def role(informer: SharedInformer) -> str:
    assert informer.status.cache is not None
    return informer.status.cache.role


async def test_shortage_of_descriptors_does_not_end_the_cache(
    server: APIServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        cached(server, tmp_path) as (one, _),
        cached(server, tmp_path) as (two, log),
    ):
        verbs(server)
        with no_descriptors():
            await asyncio.sleep(3)
            put(server, "d")
            await asyncio.sleep(3)

        put(server, "e")
        await asyncio.sleep(3)
        assert [role(one), role(two)] == ["writer", "reader"]
        assert log.take() == ["added d", "added e", *INITIAL]
        assert "list" not in verbs(server)

    assert caplog.text.count(AGAIN) == 1


async def test_store_is_opened_once_there_are_descriptors(
    server: APIServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cached(server, tmp_path):
        pass

    verbs(server)
    with no_descriptors():
        running = cached(server, tmp_path, synced=False)
        maps, log = await running.__aenter__()
        await asyncio.sleep(3)
        assert not maps.has_synced

    await maps.wait_synced(timeout=5)
    await asyncio.sleep(0.1)
    assert (role(maps), log.take(), verbs(server)) == ("writer", INITIAL, ["watch"])
    await running.__aexit__(None, None, None)
    assert "listed again" not in caplog.text
    assert caplog.text.count(AGAIN) == 1


async def test_shortage_of_locks_delays_a_takeover(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Locks) -> bool:
        raise CacheError("cannot lock") from OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(Locks, "acquire", refuse)
        async with cached(server, tmp_path, synced=False) as (maps, log):
            await asyncio.sleep(3)
            patch.undo()
            await maps.wait_synced(timeout=5)
            await asyncio.sleep(0.1)
            assert (role(maps), log.take()) == ("writer", INITIAL)


def lacks_memory() -> CacheError:
    error = CacheError("cannot use the cache: there is not enough memory")
    error.__cause__ = OSError(errno.ENOMEM, "Cannot allocate memory")
    return error


# The first transactions open the databases: without memory, the cache is not used.
@pytest.mark.parametrize(("restarted", "opening"), [(False, 10), (True, 3)])
async def test_writer_begins_again_after_any_write_without_memory(
    server: APIServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    restarted: bool,
    opening: int,
) -> None:
    write = Environment.write
    for good in range(opening, opening + 12):
        path = tmp_path / str(good)
        put(server, "a", f"old {good}")
        if restarted:
            async with cached(server, path):
                pass

        calls = 0

        def fail(env: Environment, first: int = good) -> Any:
            nonlocal calls
            calls += 1
            if first < calls <= first + 3:
                raise lacks_memory()

            return write(env)

        with monkeypatch.context() as patch:
            patch.setattr(Environment, "write", fail)
            async with cached(server, path) as (maps, log):
                put(server, "a", f"new {good}")
                await asyncio.sleep(20)
                put(server, f"d{good}")
                await asyncio.sleep(1)
                assert calls > good + 3
                assert role(maps) == "writer", good
                told = log.take()

        drop(server, f"d{good}")
        assert told == [f"added d{good}", *INITIAL, "updated a"], good


async def test_follower_reads_on_once_there_is_memory(
    server: APIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Environment.read
    async with cached(server, tmp_path) as (maps, log):

        def fail(env: Environment) -> Any:
            if env._transactions.thread.depth:
                return read(env)

            raise lacks_memory()

        with monkeypatch.context() as patch:
            patch.setattr(Environment, "read", fail)
            put(server, "d")
            await asyncio.sleep(3)

        await asyncio.sleep(3)
        assert (role(maps), log.take()) == ("writer", ["added d", *INITIAL])
