"""`SharedInformerFactory` in pytest fixtures, whose ends are run by other tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
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


@pytest.mark.parametrize("scope", ["function", "module", "session"])
def test_a_fixture_of_any_scope_may_hold_it(tmp_path: Path, scope: str) -> None:
    files = {"test_it.py": FILE.format(scope=scope)}

    loops = ("-o", "asyncio_default_fixture_loop_scope=function")
    outcome = run_as_tests(tmp_path, files, "-p", "no:cacheprovider", *loops)

    assert outcome.has_passed("test_it.py"), outcome.out
    assert outcome.passed == {"test_it.py": 4}
