"""Parts of the process that a run of a simulation replaces, and restores afterwards.

Randomness, clocks, threads' waits, signals. So there is one run at a time in a process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import contextlib
import contextvars
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
import uuid
import warnings
from concurrent.futures import Future
from functools import partial
from random import Random
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aioinformer._extras import import_extra
from aioinformer.testing.simulation.loop import ALONE, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from aioinformer.testing.simulation.loop import Program, SimulatedLoop

__all__ = [
    "counted_threads",
    "determined",
    "restored_signals",
    "silent",
    "virtual_clocks",
]


@contextlib.contextmanager
def restored_signals() -> Iterator[None]:
    """Restore the handlers of signals that a program has replaced."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    signals = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(it) for it in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, handlers, strict=True):
            if handler is not None:  # else of another language
                signal.signal(number, handler)


@contextlib.contextmanager
def determined(seed: int, started: datetime) -> Iterator[Any]:
    """Take all randomness of the process from a seed, and stop its wall clock.

    Yields:
        Clock, whose `move_to()` sets it.
    """
    time_machine = import_extra("time_machine", "test", "simulations need time-machine")
    rng = Random(f"{seed}/process")
    seed_of, make_uuid, hook = Random.seed, uuid.uuid4, sys.unraisablehook
    urandom = os.urandom

    def seeded(self: Random, a: Any = None, version: int = 2) -> None:
        seed_of(self, rng.getrandbits(64) if a is None else a, version)

    state = random.getstate()
    random.seed(f"{seed}/module")
    Random.seed = seeded  # type: ignore[method-assign]
    uuid.uuid4 = lambda: uuid.UUID(int=rng.getrandbits(128), version=4)
    os.urandom = vars(random)["_urandom"] = rng.randbytes
    # Coroutines of killed programs complain when they are freed.
    sys.unraisablehook = lambda _: None
    # When it runs depends on the process; it ends coroutines and calls weak references.
    collects = gc.isenabled()
    gc.disable()
    try:
        with time_machine.travel(started, tick=False) as wall:
            yield wall
    finally:
        Random.seed = seed_of  # type: ignore[method-assign]
        uuid.uuid4 = make_uuid
        os.urandom = vars(random)["_urandom"] = urandom
        sys.unraisablehook = hook
        random.setstate(state)
        if collects:
            gc.enable()


class _Clock:
    """Clock of the module `time` that shows the time of a simulated loop.

    In other threads, it goes on from there in real time, as they may wait by it. Outside
    of a run it shows the real time, as modules that a program imports keep it. It is no
    function: in the body of a class that would become a method.
    """

    loop: ClassVar[SimulatedLoop | None] = None
    thread: ClassVar[threading.local] = threading.local()
    # Not in the module, where it would be replaced, too.
    now: ClassVar[Callable[[], float]] = time.monotonic

    def __init__(self, real: Callable[[], float], unit: type[int | float]) -> None:
        self._real = real
        self._unit = unit

    def __call__(self) -> int | float:
        loop = _Clock.loop
        if loop is None:
            return self._real()

        seconds = loop.time()
        if not loop.is_current_thread:
            now = _Clock.now()
            began: float = _Clock.thread.__dict__.setdefault("began", now)
            seconds += now - began

        return round(seconds * 1e9) if self._unit is int else seconds


# Those that `time_machine` leaves alone.
_CLOCKS: Final[dict[object, _Clock]] = {
    it: _Clock(it, unit)
    for it, unit in (
        (time.monotonic, float),
        (time.monotonic_ns, int),
        (time.perf_counter, float),
        (time.perf_counter_ns, int),
    )
}


def _names_of(module: object) -> dict[str, object]:
    """Return the names of a module, without loading it if it is lazy."""
    try:
        names: dict[str, object] = object.__getattribute__(module, "__dict__")
    except AttributeError:  # such as None
        return {}

    return names


@contextlib.contextmanager
def virtual_clocks(loop: SimulatedLoop) -> Iterator[None]:
    """Let all clocks show the time of a loop, except in the standard library.

    There, threads wait by them. Elsewhere, names such as those of
    `from time import monotonic` are replaced.
    """
    replaced = [
        (names, name, value)
        for place, module in list(sys.modules.items())
        if module is time or place.partition(".")[0] not in sys.stdlib_module_names
        for names in [_names_of(module)]
        for name, value in list(names.items())
        if isinstance(value, BuiltinFunctionType) and value in _CLOCKS
    ]
    for names, name, value in replaced:
        names[name] = _CLOCKS[value]

    _Clock.loop, _Clock.thread = loop, threading.local()
    try:
        yield
    finally:
        _Clock.loop = None
        for names, name, value in replaced:
            names[name] = value


@contextlib.contextmanager
def counted_threads(loop: SimulatedLoop) -> Iterator[None]:
    """Let virtual time stand still while a task waits for a thread.

    Executors, handlers with `thread=True` and others wait by `asyncio.wrap_future()`.
    Threads belong to the program that starts them, by a copy of the context.
    """
    wrap, start = asyncio.futures.wrap_future, threading.Thread.start

    def ended(program: Program | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            context = contextvars.Context()
            loop.call_soon_threadsafe(loop.thread_ended, program, context=context)

    def counted(future: Any, **options: Any) -> Any:
        waiting = wrap(future, **options)
        if isinstance(future, Future):
            program = PROGRAM.get()
            loop.thread_began(program)
            # Called after that of `wrap`, which hands the result over.
            future.add_done_callback(lambda _: ended(program))

        return waiting

    def start_in_context(thread: Any) -> None:
        # Those of an executor work for whoever submits.
        if getattr(thread, "_target", None) is not concurrent.futures.thread._worker:  # noqa: SLF001
            context = contextvars.copy_context()
            context.run(ALONE.set, True)  # calls have contexts of their own
            thread.run = partial(context.run, thread.run)

        start(thread)

    threads: Any = threading.Thread
    modules: tuple[Any, ...] = (asyncio, asyncio.futures)
    threads.start = start_in_context
    for module in modules:
        module.wrap_future = counted

    try:
        yield
    finally:
        threads.start = start
        for module in modules:
            module.wrap_future = wrap


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Drop what coroutines complain about when they are closed."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
