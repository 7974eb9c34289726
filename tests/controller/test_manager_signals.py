"""`shutdown_signals()`: handlers of SIGINT and SIGTERM."""

from __future__ import annotations

import asyncio
import signal

import pytest

from aioinformer.controller.signals import shutdown_signals
from aioinformer.errors import OptionsError

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", SIGNALS)
async def test_signal_calls_function_in_loop(number: signal.Signals) -> None:
    called = asyncio.Event()
    with shutdown_signals(called.set):
        signal.raise_signal(number)
        assert not called.is_set(), "not in the middle of something"
        await called.wait()


async def test_previous_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]

    def block() -> None:
        with shutdown_signals(lambda: None):
            assert not {signal.getsignal(number) for number in SIGNALS} & {*before}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()

    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_signals_outside_of_main_thread_are_refused() -> None:
    async def elsewhere() -> None:
        with shutdown_signals(lambda: None):
            raise AssertionError

    with pytest.raises(OptionsError, match="main thread"):
        await asyncio.to_thread(asyncio.run, elsewhere())
