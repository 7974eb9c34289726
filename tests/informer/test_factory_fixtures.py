"""`SharedInformerFactory` in pytest fixtures, which are torn down by other tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doc_blocks import run_as_tests

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
import asyncio
import pytest
import pytest_asyncio
from aioinformer import SharedInformerFactory
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

pytestmark = pytest.mark.asyncio(loop_scope="{scope}")
tasks = set()

@pytest_asyncio.fixture(loop_scope="{scope}", scope="{scope}")
async def factory():
    before = asyncio.all_tasks()
    async with APIServer() as server:
        server.create(PODS, {{
            "metadata": {{"name": "web"}},
            "spec": {{"containers": [{{"name": "a", "image": "b"}}]}},
        }})
        factory = SharedInformerFactory(server.client())
        factory.informer("v1", "pods")
        async with factory:
            tasks.add(asyncio.current_task())
            yield factory
        assert factory.not_ready() == {{"pods": "stopped"}}
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() - before <= {{asyncio.current_task()}}

@pytest.mark.parametrize("number", range(3))
async def test_reads(factory, number):
    assert asyncio.current_task() not in tasks
    await factory.wait_for_cache_sync(timeout=10)
    (pods,) = factory.informers
    assert [obj.name for obj in pods.lister.list()] == ["web"]

async def test_uses(factory):
    async with factory.use("v1", "nodes") as nodes:
        await nodes.wait_synced(timeout=10)
        assert nodes.lister.list() == []
    assert len(factory.informers) == 1
"""


def test_fixture_of_any_scope_can_run_a_factory(tmp_path: Path) -> None:
    scopes = ("function", "module", "session")
    files = {f"test_{scope}.py": FILE.format(scope=scope) for scope in scopes}

    loops = ("-o", "asyncio_default_fixture_loop_scope=function")
    outcome = run_as_tests(tmp_path, files, "-p", "no:cacheprovider", *loops)

    assert all(map(outcome.has_passed, files)), outcome.out
    assert outcome.passed == dict.fromkeys(files, 4)
