"""`shutdown_signals()`: SIGINT and SIGTERM as calls in the event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["shutdown_signals"]


@contextmanager
def shutdown_signals(handle: Callable[[], None]) -> Iterator[None]:
    """Call a function in this loop on SIGINT and SIGTERM, within a block.

    Previous signal handlers are restored at its end.

    Args:
        handle: Function called for each signal. It must not raise.

    Raises:
        OptionsError: If called outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise OptionsError("signals can be handled in the main thread only")

    loop = asyncio.get_running_loop()

    def received(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(handle)  # wakes the loop, too

    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, received) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
