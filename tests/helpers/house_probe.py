"""Figures of this code base that require running it; `house_table` starts this.

It measures the `aioinformer` that is imported, by public entry points alone, and prints
JSON: how deep classes are, and which functions an event and a key pass. The server runs
in another thread, so that its calls are not seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import queue
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aioinformer
from aioinformer import (
    Client,
    Context,
    Controller,
    KubeObject,
    ReconcileRequest,
    Resource,
    SharedInformerFactory,
    WorkQueue,
)
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from types import CodeType, FrameType

PACKAGE = Path(aioinformer.__file__ or "").resolve().parent
PODS = Resource("", "v1", "pods", "Pod")
POD = "web"

# The first changes fill caches. Functions that only some of the other runs enter, such
# as timers, do not count.
WARM_UPS, RUNS = 10, 20
PAUSE_SECONDS = 0.03
PATIENCE_SECONDS = 60.0


# ---------------------------------------------------------------- classes


def depth_of(cls: type) -> int:
    """Return the number of project classes in its MRO, without protocols."""
    own = [it for it in cls.__mro__ if it.__module__.startswith("aioinformer")]
    return sum(not it.__dict__.get("_is_protocol", False) for it in own)


def depth_by_name(name: str, modules: Sequence[str]) -> int:
    """Return the depth of the exported class, else the greatest; 0 if there is none."""
    exported = getattr(aioinformer, name, None)
    if exported is not None:
        return depth_of(exported)

    found = [getattr(importlib.import_module(it), name) for it in modules]
    return max(map(depth_of, found), default=0)


# ---------------------------------------------------------------- calls


class Recorder:
    """A profiler that records each entry into a function of the package, in this thread.

    A resumption after an `await` is an entry, too.
    """

    def __init__(self) -> None:
        self._entered: list[CodeType] = []
        self._package = f"{PACKAGE}/"
        # If the server has its own package, this is a small part of the library.
        self._left_out = f"{PACKAGE}/testing/"
        if (PACKAGE.parent / "aioinformer_apiserver").is_dir():
            self._left_out = f"{PACKAGE.parent}/aioinformer_apiserver/"

    def start(self) -> None:
        self._entered = []
        sys.setprofile(self._note)

    def stop(self) -> list[CodeType]:
        """Stop recording; return the entered functions in order."""
        sys.setprofile(None)
        return [it for it in self._entered if self._is_counted(it)]

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._entered.append(frame.f_code)

    def _is_counted(self, code: CodeType) -> bool:
        """Return whether a function counts; comprehensions, lambdas and modules do not."""
        path, anonymous = code.co_filename, code.co_name.startswith("<")
        ours = path.startswith(self._package) and not path.startswith(self._left_out)
        return ours and not anonymous


def common(runs: Sequence[Sequence[CodeType]]) -> list[dict[str, Any]]:
    """Return the functions that every run entered, in the order of the shortest."""
    counts = [Counter(run) for run in runs]
    shortest = min(runs, key=len)
    return [
        {
            "file": str(Path(code.co_filename).relative_to(PACKAGE.parent)),
            "function": code.co_qualname,
            "entries": min(it[code] for it in counts),
        }
        for code in dict.fromkeys(shortest)
        if all(code in it for it in counts)
    ]


def since_queueing(run: Sequence[CodeType]) -> Sequence[CodeType]:
    """Return the entries from the first one into controllers and work queues on."""
    homes = {_home(it) for it in (Controller, WorkQueue)}
    for at, code in enumerate(run):
        path = Path(code.co_filename).relative_to(PACKAGE)
        if path.with_suffix("").parts[0] in homes:
            return run[at:]

    return []


def _home(cls: type) -> str:
    """Return the top-level part of the package that a class is in."""
    return cls.__module__.split(".")[1]


# ---------------------------------------------------------------- a server, and users


@contextlib.contextmanager
def served() -> Iterator[tuple[str, Callable[[int], None]]]:
    """Run a server in another thread; yield its address and a function to change its pod."""
    started: queue.Queue[tuple[str, Callable[[int], None], Callable[[], None]]]
    started = queue.Queue()

    async def serve() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        async with APIServer() as server:
            server.create(PODS, {"metadata": {"name": POD}})

            def change(number: int) -> None:
                body = {"metadata": {"labels": {"number": str(number)}}}
                loop.call_soon_threadsafe(lambda: server.patch(PODS, POD, body))

            started.put((server.url, change, lambda: end(loop, ended)))
            await ended.wait()

    def end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
        loop.call_soon_threadsafe(ended.set)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    url, change, stop = started.get(timeout=PATIENCE_SECONDS)
    try:
        yield url, change
    finally:
        stop()
        thread.join(PATIENCE_SECONDS)


async def runs_of(
    change: Callable[[int], None], recorder: Recorder, seen: asyncio.Queue[Any]
) -> list[list[CodeType]]:
    """Change the pod repeatedly; return the functions entered until each was seen."""
    runs: list[list[CodeType]] = []
    for number in range(WARM_UPS + RUNS):
        await asyncio.sleep(PAUSE_SECONDS)
        recorder.start()
        change(number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            runs.append(await seen.get())

    return runs[WARM_UPS:]


@contextlib.asynccontextmanager
async def informers(url: str) -> AsyncIterator[SharedInformerFactory]:
    """Run a factory with a client over HTTP, as programs do."""
    async with Client.from_url(url) as client, SharedInformerFactory(client) as factory:
        yield factory


async def way_of_event(url: str, change: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return the functions from a change in the server to the handler's call."""
    recorder, seen = Recorder(), asyncio.Queue[Any]()

    def updated(_: KubeObject, __: KubeObject) -> None:
        seen.put_nowait(recorder.stop())

    async with informers(url) as factory:
        factory.informer(PODS).add_event_handler(on_update=updated)
        await factory.wait_for_cache_sync(timeout=PATIENCE_SECONDS)
        return common(await runs_of(change, recorder, seen))


async def way_of_key(url: str, change: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return the functions from a change in a controller to the reconcile."""
    recorder, seen = Recorder(), asyncio.Queue[Any]()

    async def reconcile(_: ReconcileRequest, __: Context) -> None:
        seen.put_nowait(recorder.stop())

    async with informers(url) as factory:
        controller = Controller("pods", reconcile, for_=factory.informer(PODS))
        await controller.start()
        try:
            await seen.get()  # of the first list
            runs = await runs_of(change, recorder, seen)
            return common([since_queueing(run) for run in runs])
        finally:
            await controller.shutdown()


def main(wanted: dict[str, list[str]]) -> None:
    """Print all figures.

    Args:
        wanted: Names of classes, and the modules that define one of that name.
    """
    depths = {name: depth_by_name(name, wanted[name]) for name in wanted}
    with served() as (url, change):
        event = asyncio.run(way_of_event(url, change))

    with served() as (url, change):
        key = asyncio.run(way_of_key(url, change))

    root = str(PACKAGE.parent)
    print(json.dumps({"root": root, "depths": depths, "event": event, "key": key}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
