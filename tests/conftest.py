"""What every test relies on: nothing is left behind, and nothing blocks the loop.

`pod()` makes the objects that most tests are about; import it: `from conftest import pod`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import inspect
import os
from typing import TYPE_CHECKING, Any

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import settings

import aioinformer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from types import ModuleType

# The fixtures `target` and `http`, of the tests that run against two servers.
pytest_plugins = ["contract_servers"]

# The same examples in every run. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("ci", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# looptime asks for the current loop before plain tests too. Saying that there is none
# keeps asyncio from making one, which nobody would close, and from warning about it.
asyncio.set_event_loop(None)

# Closing a transport takes a few turns of the loop: its own call, the peer's reading of
# the end, and the peer's own closing. Turns cost no time, so there may be plenty.
_TURNS = 50

# Files whose tests call plain functions that read files, as a user does in a thread.
_MAY_BLOCK = {"test_client_config.py"}


def _unloaded(name: str) -> ModuleType:
    """The module without what it would import; it only says which folder is meant."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


# Both run beside a user's program, not inside of it.
_NOT_WATCHED = [_unloaded("aioinformer.testing"), _unloaded("aioinformer.cli")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names that differ from process to process: xdist could not share them."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"a test is named by an address: {item.nodeid}")


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a coroutine test that leaves a task or a connection, or blocks the loop.

    Other tests need no loop, and get none.
    """
    function = getattr(request, "function", None)
    # Hypothesis wraps the coroutine function in a plain one.
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    if not inspect.iscoroutinefunction(inner):
        yield
        return

    loop = request.getfixturevalue("_watched_loop")
    yield
    _hold_timers(loop)


@pytest.fixture
async def _watched_loop(
    request: pytest.FixtureRequest,
) -> AsyncIterator[asyncio.AbstractEventLoop]:
    loop = asyncio.get_running_loop()
    tasks_before = asyncio.all_tasks()
    sockets_before = _sockets_of(loop)

    if request.path.name in _MAY_BLOCK:
        yield loop
    else:
        with blockbuster_ctx(aioinformer, excluded_modules=_NOT_WATCHED):
            yield loop

    # The other process takes its time, which is real then.
    pause = 0.01 if request.node.get_closest_marker("realtime") else 0.0
    tasks: set[asyncio.Task[Any]] = set()
    sockets: dict[int, str] = {}
    for _ in range(_TURNS):
        await asyncio.sleep(pause)
        current = asyncio.current_task()
        tasks = asyncio.all_tasks() - tasks_before - ({current} if current else set())
        sockets = {
            number: owner
            for number, owner in _sockets_of(loop).items()
            if number not in sockets_before
        }
        if not tasks and not sockets:
            break

    assert not tasks, f"tasks still running: {tasks}"
    assert not sockets, f"connections still open: {sockets}"


def _hold_timers(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the timers that the test left from firing.

    Its time was virtual and began at 0; from here on it is real again, hours on perhaps,
    and a task left sleeping would wake up and be gone before it is seen.
    """
    for timer in loop._scheduled:  # type: ignore[attr-defined]
        timer._when += loop.time()


def _sockets_of(loop: asyncio.AbstractEventLoop) -> dict[int, str]:
    """What the loop waits for: its wake-up pipe, servers and connections."""
    registered = loop._selector.get_map()  # type: ignore[attr-defined]
    return {key.fd: repr(key.data) for key in registered.values()}


def pod(
    name: str,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Make a small but realistic pod, equal for equal arguments.

    Args:
        name: `metadata.name`; the uid is derived from it and the namespace.
        namespace: `metadata.namespace`.
        labels: `metadata.labels`.
        **more: Merged into the object, mappings key by key and anything else as it
            is: `metadata={"resourceVersion": "7"}`, `spec={"nodeName": "node-2"}`.
    """
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()
    base: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-"
            f"{digest[20:32]}",
            "resourceVersion": "1",
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": dict(labels or {}),
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "registry.example/app:1"}],
        },
        "status": {"phase": "Running", "podIP": f"10.0.0.{int(digest[:2], 16)}"},
    }
    return _merged(base, more)


def _merged(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            base[key] = _merged(base[key], value)
        else:
            base[key] = value

    return base
