"""Functions in new processes: nothing is warmed up, and memory holds nothing else."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

__all__ = ["alone", "companion", "reserved_core"]

T = TypeVar("T")


def alone(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a new interpreter, and return its result.

    Args:
        function: Function of a module, with a result that can be pickled.
        arguments: Its arguments, which are pickled, too.

    Raises:
        EOFError: The function failed. Its process printed the reason to stderr.
    """
    with companion(_tell, function, *arguments) as pipe:
        result: T = pipe.recv()
        return result


def _tell(
    pipe: Connection, function: Callable[..., object], *arguments: object
) -> None:
    pipe.send(function(*arguments))


@contextmanager
def companion(
    function: Callable[..., None], *arguments: object
) -> Iterator[Connection]:
    """Run a function in a new interpreter for the time of a block, then kill it.

    Args:
        function: Function of a module. It gets its end of a pipe, then the arguments.
        arguments: Further arguments, which are pickled.

    Yields:
        The other end of the pipe. It raises EOFError once the process has ended.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=function, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        process.kill()
        process.join()
        here.close()


@contextmanager
def reserved_core() -> Iterator[tuple[int | None, str]]:
    """Reserve a core for the app for the time of a block.

    Yields:
        The core, or None without a choice, and a description of the use of the cores.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(cores) < 2:
        yield None, "app, client and server share the cores"
        return

    core = min(cores)
    os.sched_setaffinity(0, cores - {core})
    others = "one core" if len(cores) == 2 else f"{len(cores) - 1} cores"
    try:
        yield core, f"the app on a core of its own, client and server on {others}"
    finally:
        os.sched_setaffinity(0, cores)
