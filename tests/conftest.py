"""Checks for every test: it leaves nothing behind and does not block the loop.

`pod()` makes the objects of most tests: `from conftest import pod`.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import hashlib
import importlib.util
import inspect
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from blockbuster import BlockBuster
from hypothesis import settings
from looptime._internal import plugin as looptime_plugin

import aioinformer

# Tests as on a Python for which orjson has no wheels.
if os.environ.get("WITHOUT_ORJSON"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "orjson", None)
        importlib.import_module("aioinformer.json_codec")

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

# Fixtures of the tests against two servers (`target`, `http`) and with other clients. For
# `make e2e` also the plugins that record logs and recovery times.
pytest_plugins = ["contract_servers", "disclosures", "peer_servers", "recovery_table"]

# The same examples in every run. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("ci", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Tests start hundreds of processes, and each would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A background job ignores Ctrl-C, and so would the processes it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# looptime gets the current loop for plain tests too. Without a loop set, asyncio would
# create one that nobody closes, and warn about it.
asyncio.set_event_loop(None)

# Closing a transport takes a few turns of the loop: its own call, the peer's read of
# the end, and the peer's close. Turns cost no time, so many are allowed.
_TURNS = 50

# Files whose tests call plain functions that read files, as users do in a thread.
_MAY_BLOCK = {
    "tests/cli/test_cache.py",
    "tests/client/test_config.py",
    "tests/informer/cached/test_follower.py",
    "tests/informer/cached/test_follower_model.py",
    "tests/recording/test_log_files.py",
    "tests/recording/test_redaction.py",
}


def _unloaded(name: str) -> ModuleType:
    """Return a module without executing it; only its folder is needed."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


# These run beside a user's program, not inside it.
_NOT_WATCHED = [
    _unloaded(name)
    for name in ("aioinformer_apiserver", "aioinformer.testing", "aioinformer.cli")
]


# Functions that read and write small files of a store on disk in the loop, in microseconds.
_QUICK = {
    "aioinformer/cache/disk/directory.py": {"acquire", "release"},
    "aioinformer/cache/disk/environment.py": {"check"},
    "aioinformer/cache/disk/readers.py": {
        "__init__",
        "_wake_now",
        "close",
        "positions",
    },
}


# Polls of the selector before virtual time advances; looptime's default is 42. Client and
# server share the loop, so sent data can be read at the first poll.
_POLLS = 8


def _creates_loop(fixturedef: pytest.FixtureDef[Any], _: pytest.FixtureRequest) -> bool:
    return fixturedef.func.__module__ == "pytest_asyncio.plugin"


# looptime's own function searches a module of 130 names on each setup of each fixture: a
# fifth of the overhead of a coroutine test.
looptime_plugin._should_patch = _creates_loop


# Allocations, and collections of younger generations, before a collection. With Python's
# defaults, full collections of the many objects of pytest take a twelfth of the CPU time.
_GC_THRESHOLDS = (5_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Pause garbage collection: the collected tests stay, and are many objects."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.enable()


def pytest_collection_modifyitems(
    session: pytest.Session, items: list[pytest.Item]
) -> None:
    """Refuse test names that differ between processes, which xdist could not share."""
    session.add_marker(pytest.mark.looptime(noop_cycles=_POLLS))
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"a test is named by an address: {item.nodeid}")

        if isinstance(item, pytest.Function) and _is_coroutine(item):
            _use_first(item, nothing_left_behind.__name__)

    if "PYTEST_XDIST_WORKER" in os.environ:
        # The first process starts with them and mostly waits for other processes. The
        # others compute meanwhile, and later take over the rest of its tests.
        items.sort(key=lambda it: it.get_closest_marker("realtime") is None)


def _is_coroutine(item: pytest.Function) -> bool:
    # Hypothesis wraps the coroutine function in a plain one.
    function = getattr(item.obj, "hypothesis", None)
    return inspect.iscoroutinefunction(getattr(function, "inner_test", item.obj))


def _use_first(item: pytest.Function, fixture: str) -> None:
    """Add a fixture first, as autouse does, but only for coroutine tests.

    Tests of one function share the list.
    """
    if fixture not in item.fixturenames:
        item.fixturenames.insert(0, fixture)


@pytest.fixture(autouse=True, scope="module")
def young_garbage() -> None:
    """Collect the garbage of the modules before, and exempt the other objects.

    So a collection within the module, which some tests request, looks at its objects
    only. Collections took a tenth of the CPU time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def nothing_blocks_the_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail tests in which the package calls a blocking function while a loop runs."""
    if request.path.relative_to(request.config.rootpath).as_posix() in _MAY_BLOCK:
        yield
        return

    watch = _watch()
    watch.activate()
    yield
    watch.deactivate()


@functools.cache
def _watch() -> BlockBuster:
    """Create the detector once: it looks up some 60 functions and their modules."""
    watch = BlockBuster(aioinformer, excluded_modules=_NOT_WATCHED)
    for function in watch.functions.values():
        for filename, names in _QUICK.items():
            function.can_block_in(filename, names)

    return watch


@pytest.fixture
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a task or a connection; each coroutine test uses it."""
    # The fixture of pytest-asyncio. A coroutine fixture of ours would run the loop.
    runner: asyncio.Runner = request.getfixturevalue("_function_scoped_runner")
    loop = runner.get_loop()
    tasks = asyncio.all_tasks(loop)
    sockets = _sockets_of(loop)
    yield
    # The test's virtual time began at 0. From here on, time is real again.
    _hold_timers(loop)
    if asyncio.all_tasks(loop) - tasks or _sockets_of(loop).keys() - sockets.keys():
        # Another process takes real time.
        pause = 0.01 if request.node.get_closest_marker("realtime") else 0.0
        loop.run_until_complete(_until_closed(tasks, sockets, pause))


async def _until_closed(
    tasks_before: set[asyncio.Task[Any]], sockets_before: dict[int, str], pause: float
) -> None:
    """Give ending tasks and connections the turns they need.

    Raises:
        AssertionError: A task or connection is still there afterwards.
    """
    loop = asyncio.get_running_loop()
    expected = {*tasks_before, asyncio.current_task()}
    tasks: set[asyncio.Task[Any]] = set()
    sockets: dict[int, str] = {}
    for _ in range(_TURNS):
        await asyncio.sleep(pause)
        tasks = asyncio.all_tasks() - expected
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
    """Postpone the timers that the test left.

    Its virtual time began at 0, and from here on it is real again, perhaps hours later.
    A sleeping task would wake up and end before it is seen.
    """
    for timer in getattr(loop, "_scheduled", ()):
        timer._when += loop.time()


def _sockets_of(loop: asyncio.AbstractEventLoop) -> dict[int, str]:
    """Return the files the loop watches: its wake-up pipe, servers and connections."""
    selector = getattr(loop, "_selector", None)
    if selector is None:  # a loop of another library
        return {}

    return {key.fd: repr(key.data) for key in selector.get_map().values()}


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
