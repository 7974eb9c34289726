"""What the work queues tell a metrics sink."""

from __future__ import annotations

import asyncio

from queue_helpers import DisabledSink, Sink

from aioinformer.workqueue import DelayingQueue, WorkQueue


async def test_metrics_count_effective_adds() -> None:
    sink = Sink()
    queue = WorkQueue[str]("pods", metrics=sink)

    queue.add("a")
    queue.add("a")  # queued already
    await queue.get()
    queue.add("a")  # in work: counts
    queue.add("a")  # asked for already
    queue.done("a")

    assert sink.counts == {("workqueue_adds_total", "pods"): 2}


async def test_metrics_show_the_depth() -> None:
    sink = Sink()
    queue = WorkQueue[str]("pods", metrics=sink)
    depths: list[float] = []

    def look() -> None:
        depths.append(sink.gauges["workqueue_depth", "pods"])

    queue.add("a")
    queue.add("b")
    look()
    await queue.get()
    look()
    queue.add("a")
    queue.done("a")
    look()
    queue.get_nowait()
    look()
    await queue.shut_down_with_drain(0)
    look()

    assert depths == [2, 1, 2, 1, 0]


async def test_a_sink_that_is_not_enabled_is_never_called() -> None:
    sink = DisabledSink()
    queue = WorkQueue[str]("pods", metrics=sink)

    queue.add("a")
    queue.done(await queue.get())
    await queue.shut_down_with_drain()

    assert not sink.counts
    assert not sink.gauges


async def test_metrics_count_retries_of_an_open_queue() -> None:
    sink = Sink()
    queue = DelayingQueue[str]("pods", metrics=sink)

    queue.add_after("a", 1)
    queue.add_after("a", 2)
    queue.add_after("b", 0)
    queue.shut_down()
    queue.add_after("c", 1)

    assert sink.counts["workqueue_retries_total", "pods"] == 3
    assert sink.counts["workqueue_adds_total", "pods"] == 1


async def test_a_sink_that_raises_does_not_make_delayed_items_forgotten() -> None:
    class Broken(Sink):
        def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
            if name == "workqueue_adds_total" and not self.counts:
                super().count(name, amount, **labels)
                raise ZeroDivisionError

    loop = asyncio.get_running_loop()
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    queue = DelayingQueue[str]("pods", metrics=Broken())

    queue.add_after("a", 1)
    queue.add_after("b", 2)

    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert [type(error) for error in reported] == [ZeroDivisionError]
