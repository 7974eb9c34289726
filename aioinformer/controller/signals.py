"""Signals that end a program, told to something that runs in its loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ending_signals"]


@contextmanager
def ending_signals(handle: Callable[[], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM call a function in this loop, for the length of a block.

    Those who were told before are not; they are again afterwards.

    Args:
        handle: Called for each signal; it must not raise.

    Raises:
        OptionsError: Outside of the main thread, where Python handles no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise OptionsError("signals can be handled in the main thread only")

    loop = asyncio.get_running_loop()

    def noticed(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(handle)  # wakes the loop, too

    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, noticed) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
