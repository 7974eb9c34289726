"""`ThreadCalls`: handlers in threads, controlled by gates instead of timing."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import Recorder, Stage, events, name_of, running

from aioinformer.informer.handlers import handler_calls
from aioinformer.informer.handlers.handler_calls import ThreadCalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer.informer.notifications import Notification

# Threads have no virtual time.
pytestmark = pytest.mark.looptime(False)

# Far more than needed, so that only a hanging thread fails.
PATIENCE_SECONDS = 60.0

WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def thread_of(name: str) -> threading.Thread | None:
    """Return the thread of a handler."""
    threads = [it for it in threading.enumerate() if it.name == f"handler {name}"]
    assert len(threads) <= 1, "one thread for one handler"
    return threads[0] if threads else None


class Gated:
    """A handler whose calls wait for a gate, and must not overlap."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self.gate = threading.Event()
        self.alone = threading.Lock()
        self.record: list[str] = []

    def __call__(self, event: Notification) -> None:
        assert self.alone.acquire(blocking=False), "called concurrently with itself"
        name = name_of(event)
        self.record.append(f"begin {name}")
        self.loop.call_soon_threadsafe(self.began.set)
        opened = self.gate.wait(PATIENCE_SECONDS)
        self.record.append(f"end {name}" if opened else "never opened")
        self.alone.release()
        self.loop.call_soon_threadsafe(self.ended.set)


@contextmanager
def gated() -> Iterator[Gated]:
    """Yield a gated handler, and open its gate at the end in any case."""
    handler = Gated()
    try:
        yield handler
    finally:
        handler.gate.set()


async def patiently(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await event.wait()


# ---------------------------------------------------------------- calls


async def test_calls_run_in_one_thread_in_order_one_at_a_time(stage: Stage) -> None:
    threads: set[threading.Thread] = set()
    with gated() as handler:
        handler.gate.set()

        def handle(event: Notification) -> None:
            threads.add(threading.current_thread())
            handler(event)

        listener = stage.listen(handle, thread=True)
        async with running(stage.run()):
            stage.publish(events("a", "b"))
            stage.publish(events("c"))
            await listener.wait_idle()

        assert handler.record == [f"{it} {name}" for name in "abc" for it in STEPS]
        assert len(threads) == 1
        assert threading.current_thread() not in threads
        assert stage.failures == []


STEPS = ["begin", "end"]


async def test_call_waits_until_the_system_can_start_a_thread(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handler_calls, "THREAD_RETRY_SECONDS", 0.01)
    start, attempts = threading.Thread.start, 0

    def starts(thread: threading.Thread) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise RuntimeError("can't start new thread")

        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with gated() as handler:
        handler.gate.set()
        listener = stage.listen(handler, name="it", thread=True)
        async with running(stage.run()):
            stage.publish(events("a"))
            await listener.wait_idle()

        assert handler.record == ["begin a", "end a"]
        assert stage.failures == []

    assert (
        caplog.messages
        == ["handler it waits for a thread: [Errno 11] can't start new thread"] * 2
    )


async def test_loop_and_other_handlers_continue_during_a_call(
    stage: Stage,
) -> None:
    other = Recorder()
    with gated() as handler:
        listener = stage.listen(handler, thread=True)
        prompt = stage.listen(other)
        async with running(stage.run()):
            stage.publish(events("a", "b"))
            await patiently(handler.began)
            await prompt.wait_idle()

            assert other.record == ["a", "b"]
            assert handler.record == ["begin a"]
            assert listener.depth == 2
            handler.gate.set()
            await listener.wait_idle()


async def test_hanging_thread_does_not_block_other_handlers(stage: Stage) -> None:
    count = 40  # more than the threads of the default executor
    with gated() as hangs:
        stage.listen(hangs, name="hangs", thread=True)
        together = threading.Barrier(count, timeout=PATIENCE_SECONDS)
        listeners = [
            stage.listen(lambda _: void(together.wait()), name=f"{it}", thread=True)
            for it in range(count)
        ]
        async with running(stage.run()):
            stage.publish(events("a", "b"))
            await patiently(hangs.began)
            for listener in listeners:
                await listener.wait_idle()

            assert stage.failures == [], "the barrier opens for all threads, or breaks"
            assert hangs.record == ["begin a"]
            hangs.gate.set()


def void(_: object) -> None:
    """Return nothing."""


async def test_thread_starts_with_the_first_call(stage: Stage) -> None:
    listener = stage.listen(Recorder(), name="lazy", thread=True)
    async with running(stage.run()):
        assert thread_of("lazy") is None
        stage.publish(events("a"))
        await listener.wait_idle()
        assert thread_of("lazy") is not None


async def test_calls_see_the_context_variables_of_the_processor(stage: Stage) -> None:
    seen: list[str] = []

    def handle(_: Notification) -> None:
        seen.append(WHO.get())
        WHO.set("changed in a call")

    WHO.set("the maker")
    listener = stage.listen(handle, thread=True)
    async with running(stage.run()):
        WHO.set("somebody later")
        stage.publish(events("a", "b"))
        await listener.wait_idle()

    assert seen == ["the maker", "the maker"]


async def test_finished_call_keeps_no_reference(stage: Stage) -> None:
    class Traced:
        """An object that the thread must not keep."""

    made: list[weakref.ref[Traced]] = []

    def handle(_: Notification) -> None:
        traced = Traced()
        made.append(weakref.ref(traced))

    calls = ThreadCalls("x", lambda *_: None)
    call = calls.wrap(handle)
    for event in events("a", "b"):
        await call(event)  # the second starts when the first is released

    calls.close()

    assert made[0]() is None


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        TimeoutError("late"),
        StopIteration("no"),
        StopAsyncIteration("no"),
        asyncio.CancelledError("no"),
    ],
    ids=lambda it: type(it).__name__,
)
async def test_error_of_a_call_is_reported_and_the_next_event_delivered(
    stage: Stage, error: BaseException
) -> None:
    record = []

    def handle(event: Notification) -> None:
        record.append(name_of(event))
        if name_of(event) == "a":
            raise error

    listener = stage.listen(handle, thread=True)
    async with running(stage.run()):
        stage.publish(events("a", "b"))
        await listener.wait_idle()

    assert record == ["a", "b"]
    (failure,) = stage.failures
    assert failure.__cause__ is error
    assert (failure.where, failure.subject) == ("handler", events("a")[0])


class Ends(SystemExit):
    """An exit of the program."""


async def test_system_exit_in_a_call_is_raised_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []

    def handle(_: Notification) -> None:
        threads.append(threading.current_thread())
        raise Ends

    complaints: list[type[BaseException]] = []
    monkeypatch.setattr(
        threading, "excepthook", lambda it: complaints.append(it.exc_type)
    )
    failures: list[object] = []
    calls = ThreadCalls("x", lambda *failure: failures.append(failure))

    with pytest.raises(Ends):
        await calls.wrap(handle)(events("a")[0])

    threads[0].join(PATIENCE_SECONDS)
    assert complaints == [Ends]
    assert failures == []


async def test_call_that_returns_an_awaitable_is_reported(stage: Stage) -> None:
    async def later() -> None:
        raise AssertionError

    listener = stage.listen(lambda _: later(), thread=True)
    async with running(stage.run()):
        stage.publish(events("a"))
        await listener.wait_idle()

    (failure,) = stage.failures
    assert "must be a plain function" in str(failure.__cause__)


async def test_call_that_returns_a_generator_is_reported(
    stage: Stage,
) -> None:
    def generates(_: object) -> Any:
        return (it for it in "a")

    listener = stage.listen(generates, thread=True)
    async with running(stage.run()):
        stage.publish(events("a"))
        await listener.wait_idle()

    (failure,) = stage.failures
    assert "which has not run" in str(failure.__cause__)


# ---------------------------------------------------------------- stop


async def test_removal_waits_for_the_running_call(
    stage: Stage,
) -> None:
    with gated() as handler:
        listener = stage.listen(handler, name="guest", thread=True)
        async with running(stage.run()):
            stage.publish(events("a", "b"))
            await patiently(handler.began)
            stage.remove(listener)

            assert not listener.ended
            handler.gate.set()
            await listener.wait_ended()
            assert handler.record == ["begin a", "end a"]

        thread = thread_of("guest")
        if thread is not None:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


async def test_thread_ends_with_its_handler(stage: Stage) -> None:
    listener = stage.listen(Recorder(), name="ends", thread=True)
    async with running(stage.run()):
        stage.publish(events("a"))
        await listener.wait_idle()
        thread = thread_of("ends")

    assert thread is not None
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


async def test_call_running_at_the_stop_is_abandoned_and_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with gated() as handler:
        listener = stage.listen(handler, name="hangs", thread=True)
        async with running(stage.run()):
            stage.publish(events("a", "b"))
            await patiently(handler.began)

        assert listener.ended
        assert handler.record == ["begin a"], "the stop did not wait for it"
        (message,) = caplog.messages
        assert message == (
            "handler hangs did not return from Added(obj=<KubeObject 'default/a' rv='1'>, "
            "initial=False) in time, abandoning its thread"
        )
        thread = thread_of("hangs")
        assert thread is not None
        handler.gate.set()
        await patiently(handler.ended)
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert handler.record == ["begin a", "end a"], "queued events are dropped"
        assert stage.failures == []


async def test_queued_call_is_not_made_after_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls, record = ThreadCalls("x", lambda *_: None), Recorder()
    with gated() as handler:
        first = asyncio.ensure_future(calls.wrap(handler)(events("a")[0]))
        await patiently(handler.began)
        second = asyncio.ensure_future(calls.wrap(record)(events("b")[0]))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second})
        handler.gate.set()
        await first
        # Queued after it in the same thread.
        await calls.wrap(record)(events("c")[0])
        calls.close()

    assert record.record == ["c"]
    assert caplog.messages == []


async def test_close_is_idempotent_and_needs_no_thread() -> None:
    calls = ThreadCalls("x", lambda *_: None)
    calls.close()
    await calls.wrap(Recorder())(events("a")[0])
    calls.close()
    calls.close()


HANGS = """
import asyncio, threading
from aioinformer.informer.handlers.handler_calls import ThreadCalls

began = threading.Event()

def hang(_):
    began.set()
    threading.Event().wait()

async def main():
    call = asyncio.ensure_future(ThreadCalls("x", print).wrap(hang)("an event"))
    while not began.is_set():
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    print("stopped")

asyncio.run(main())
"""


def test_call_that_never_returns_does_not_keep_the_process_alive() -> None:
    """The interpreter would wait forever for a thread that is no daemon."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )

    assert done.stdout == "stopped\n"
    assert "abandoning its thread" in done.stderr
