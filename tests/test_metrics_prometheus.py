"""`PrometheusSink`: its measurements in the output of `generate_latest`."""

from __future__ import annotations

import ast
import asyncio
import gc
import re
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from aioinformer.errors import OptionsError
from aioinformer.metrics import CollectingSink, ForgettingSink
from aioinformer.metrics_prometheus import _HELP, PrometheusSink
from aioinformer.workqueue import PriorityQueue, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = Path(__file__).parents[1] / "aioinformer"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def sink(registry: CollectorRegistry) -> PrometheusSink:
    return PrometheusSink(registry)


def shown(registry: CollectorRegistry, *, comments: bool = False) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if comments or not line.startswith("#")]


# ---------------------------------------------------------------- removed series


def test_forget_removes_the_series_with_the_labels(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    assert isinstance(sink, ForgettingSink)
    for name in ("pods", "nodes"):
        sink.count("reflector_lists_total", name=name)
        sink.observe("seconds", 1.0, name=name)
        for priority in ("0", "1"):
            sink.gauge("workqueue_depth", 1, name=name, priority=priority)

    sink.forget("reflector_lists_total", name="pods")
    sink.forget("seconds", name="pods")
    sink.forget("workqueue_depth", name="pods")
    sink.forget("workqueue_depth", name="nodes", priority="1")
    sink.forget("workqueue_depth", team="shop")
    sink.forget("never_used", name="nodes")

    left = [line for line in shown(registry) if "bucket" not in line]
    assert left == [
        'reflector_lists_total{name="nodes"} 1.0',
        'seconds_count{name="nodes"} 1.0',
        'seconds_sum{name="nodes"} 1.0',
        'workqueue_depth{name="nodes",priority="0"} 1.0',
    ]


async def test_forgotten_queue_is_not_collected_again(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    kept = WorkQueue[str]("kept", metrics=sink)
    gone = PriorityQueue[str]("gone", metrics=sink)
    for queue in (kept, gone):
        queue.add("a")
        queue.done(await queue.get())

    assert any("gone" in line for line in shown(registry))
    gone.forget_metrics()
    gone.add("b")
    gone.done(await gone.get())

    assert not any("gone" in line for line in shown(registry))
    assert any("kept" in line for line in shown(registry))


# ---------------------------------------------------------------- kinds of metrics


def test_prometheus_sink_is_a_sink_and_a_collector(sink: PrometheusSink) -> None:
    assert isinstance(sink, CollectingSink)
    assert sink.enabled


def test_counter_adds_up_for_each_label(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    sink.count("reflector_lists_total", name="pods")
    sink.count("reflector_lists_total", 2.5, name="nodes")
    sink.count("reflector_lists_total", 2, name="pods")
    sink.count("reflector_lists_total", 0, name="jobs")

    assert shown(registry, comments=True) == [
        "# HELP reflector_lists_total Lists that were started.",
        "# TYPE reflector_lists_total counter",
        'reflector_lists_total{name="pods"} 3.0',
        'reflector_lists_total{name="nodes"} 2.5',
        'reflector_lists_total{name="jobs"} 0.0',
    ]


def test_gauge_has_its_last_value(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    sink.gauge("informer_queued_items", 3, name="pods")
    sink.gauge("informer_queued_items", -1.5, name="pods")

    assert shown(registry, comments=True) == [
        "# HELP informer_queued_items Changes waiting to be applied.",
        "# TYPE informer_queued_items gauge",
        'informer_queued_items{name="pods"} -1.5',
    ]


def test_histogram_counts_into_the_buckets_of_its_name(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    name = "workqueue_work_duration_seconds"
    sink.observe(name, 0.0, name="pods")
    sink.observe(name, 0.5, 1e-8, 99.0, 1.0, 5e-8, name="pods")

    bounds = ["1e-08", "1e-07", "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1"]
    bounds += ["1.0", "10.0", "+Inf"]
    counts = [2, 3, 3, 3, 3, 3, 3, 3, 5, 5, 6]
    labels = zip(bounds, counts, strict=True)
    *buckets, count, total = shown(registry)
    assert buckets == [
        f'{name}_bucket{{le="{le}",name="pods"}} {n:.1f}' for le, n in labels
    ]
    assert count == f'{name}_count{{name="pods"}} 6.0'
    assert total.startswith(f'{name}_sum{{name="pods"}} 100.50000')
    assert float(total.split()[-1]) == pytest.approx(100.50000006, rel=1e-12)


def test_values_observed_together_or_alone_fill_the_same_buckets() -> None:
    values = [((number * 7919) % 1000) ** 3 / 1e7 for number in range(1000)]
    together, alone = CollectorRegistry(), CollectorRegistry()

    PrometheusSink(together).observe("seconds", *values)
    for value in values:
        PrometheusSink(alone).observe("seconds", value)

    bucket = [line for line in shown(together) if "bucket" in line]
    assert bucket == [line for line in shown(alone) if "bucket" in line]
    assert len({line.split()[-1] for line in bucket}) > 10


def test_empty_observation_creates_the_series(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    sink.observe("workqueue_queue_duration_seconds", name="pods")

    assert {line.split()[-1] for line in shown(registry)} == {"0.0"}


def test_metric_without_labels_is_one_value(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    sink.count("things_done_total")

    assert (
        shown(registry, comments=True)[0]
        == "# HELP things_done_total things done total"
    )
    assert shown(registry) == ["things_done_total 1.0"]


def test_labels_may_be_in_any_order(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    sink.gauge("workqueue_depth", 1, name="pods", priority="")
    sink.gauge("workqueue_depth", 2, priority="", name="pods")

    assert shown(registry) == ['workqueue_depth{name="pods",priority=""} 2.0']


# ---------------------------------------------------------------- wrong use


def wrong_kind(sink: PrometheusSink) -> None:
    sink.gauge("reflector_lists_total", 1, name="pods")


def wrong_labels(sink: PrometheusSink) -> None:
    sink.count("reflector_lists_total", reason="none")


def missing_labels(sink: PrometheusSink) -> None:
    sink.count("reflector_lists_total")


def downwards(sink: PrometheusSink) -> None:
    sink.count("reflector_lists_total", -1, name="pods")


def no_name(sink: PrometheusSink) -> None:
    sink.count("")


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (wrong_kind, "reflector_lists_total is a counter, but was used as a gauge"),
        (wrong_labels, r"reflector_lists_total has the labels \('name',\), not"),
        (missing_labels, r"reflector_lists_total has the labels \('name',\), not"),
        (downwards, "reflector_lists_total cannot go down by 1"),
        (no_name, "cannot be"),
    ],
)
def test_wrong_use_raises_an_error_and_changes_nothing(
    registry: CollectorRegistry,
    sink: PrometheusSink,
    use: Callable[[PrometheusSink], None],
    says: str,
) -> None:
    sink.count("reflector_lists_total", name="pods")

    with pytest.raises(OptionsError, match=says):
        use(sink)

    assert shown(registry) == ['reflector_lists_total{name="pods"} 1.0']


def test_name_used_by_another_collector_raises_an_error(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    Gauge("workqueue_depth", "of somebody else", registry=registry).set(7)

    with pytest.raises(
        OptionsError, match=r"cannot register.*workqueue_depth: Duplicated"
    ):
        sink.gauge("workqueue_depth", 1, name="pods", priority="")

    assert shown(registry) == ["workqueue_depth 7.0"]


def test_error_without_the_library_names_what_to_install() -> None:
    code = """
import sys
sys.modules["prometheus_client"] = None
import aioinformer.metrics_prometheus as it
try:
    it.PrometheusSink()
except it.OptionsError as exc:
    print(exc)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)

    assert result.stdout.strip() == (
        "PrometheusSink needs prometheus-client: pip install 'aioinformer[metrics]'"
    )


# ---------------------------------------------------------------- registries


def test_sinks_of_one_registry_share_their_metrics(registry: CollectorRegistry) -> None:
    one, two = PrometheusSink(registry), PrometheusSink(registry)

    one.count("reflector_lists_total", name="pods")
    two.count("reflector_lists_total", name="pods")

    assert shown(registry) == ['reflector_lists_total{name="pods"} 2.0']
    assert repr(one) == repr(two) == "<PrometheusSink metrics=1>"


def test_sinks_of_two_registries_share_nothing() -> None:
    one, two = CollectorRegistry(), CollectorRegistry()

    PrometheusSink(one).count("reflector_lists_total", name="pods")
    PrometheusSink(two).gauge("reflector_lists_total", 5, name="pods")

    assert shown(one) == ['reflector_lists_total{name="pods"} 1.0']
    assert shown(two) == ['reflector_lists_total{name="pods"} 5.0']


def test_default_registry_is_that_of_the_library() -> None:
    code = """
import prometheus_client
from aioinformer.metrics_prometheus import PrometheusSink
PrometheusSink().count("reflector_lists_total", name="pods")
text = prometheus_client.generate_latest().decode()
print('reflector_lists_total{name="pods"} 1.0' in text.splitlines())
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "True"


def test_unused_registry_is_freed() -> None:
    registry = CollectorRegistry()
    PrometheusSink(registry).count("reflector_lists_total", name="pods")
    alive = weakref.ref(registry)

    del registry
    gc.collect()

    assert alive() is None


class Slow(float):
    """A number whose addition lets other threads run."""

    def __radd__(self, other: float) -> float:
        time.sleep(0.002)
        return float(self) + other


@pytest.mark.realtime
def test_concurrent_counts_in_threads_are_not_lost(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    def count() -> None:
        for _ in range(10):
            sink.count("things_total", Slow(1), name="a")
            sink.observe("seconds", Slow(0.5))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()

    for thread in threads:
        thread.join()

    lines = shown(registry)
    assert 'things_total{name="a"} 40.0' in lines
    assert "seconds_count 40.0" in lines
    assert "seconds_sum 20.0" in lines


# ---------------------------------------------------------------- queues


async def test_queue_exports_the_metrics_of_client_go(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    queue = WorkQueue[str]("pods", metrics=sink)
    at_first = shown(registry)
    for item in "abc":
        queue.add(item)

    await asyncio.sleep(0.5)
    queue.done(await queue.get())
    await queue.get()
    await asyncio.sleep(2)

    lines = shown(registry)
    names = {line.split("{")[0] for line in lines}
    assert {line.split("{")[0] for line in at_first} == names
    assert {line.split()[-1] for line in at_first} == {"0.0"}
    assert names == {
        "workqueue_adds_total",
        "workqueue_depth",
        "workqueue_longest_running_processor_seconds",
        *(
            f"workqueue_queue_duration_seconds_{it}"
            for it in ("bucket", "count", "sum")
        ),
        "workqueue_retries_total",
        "workqueue_unfinished_work_seconds",
        *(f"workqueue_work_duration_seconds_{it}" for it in ("bucket", "count", "sum")),
    }
    assert {
        'workqueue_adds_total{name="pods"} 3.0',
        'workqueue_depth{name="pods",priority=""} 1.0',
        'workqueue_longest_running_processor_seconds{name="pods"} 2.0',
        'workqueue_queue_duration_seconds_sum{name="pods"} 1.0',
        'workqueue_unfinished_work_seconds{name="pods"} 2.0',
        'workqueue_work_duration_seconds_count{name="pods"} 1.0',
    } <= set(lines)


async def test_single_collected_metric_is_up_to_date(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    queue = PriorityQueue[str]("pods", metrics=sink)
    queue.add("a", 3)
    queue.add("b")

    lines = shown(registry.restricted_registry(["workqueue_depth"]))  # type: ignore[arg-type]

    assert sorted(lines) == [
        'workqueue_depth{name="pods",priority="0"} 1.0',
        'workqueue_depth{name="pods",priority="3"} 1.0',
    ]


class Counted:
    """A component that counts its reports."""

    def __init__(self, sink: PrometheusSink) -> None:
        self.sink = sink
        self.reports = 0
        sink.register(self.report)

    def report(self) -> None:
        self.reports += 1
        for name in ("a", "b", "c"):
            self.sink.gauge(name, self.reports)


def test_components_report_once_for_each_read_of_all_metrics(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    reporter = Counted(sink)
    for number in (2, 3):
        assert shown(registry) == [f"a {number}.0", f"b {number}.0", f"c {number}.0"]

    assert registry.get_sample_value("b") == 4  # reads `a`, too
    assert registry.get_sample_value("b") == 5
    assert reporter.reports == 5


@pytest.mark.realtime
def test_read_of_other_metrics_later_gets_new_values(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    reporter = Counted(sink)
    generate_latest(registry.restricted_registry(["a"]))
    time.sleep(1.1)
    text = generate_latest(registry.restricted_registry(["b"])).decode()

    assert text.splitlines()[-1] == "b 3.0"
    assert reporter.reports == 3


async def test_freed_queue_is_not_collected_again(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    queue = WorkQueue[str]("pods", metrics=sink)
    queue.add("a")
    shown(registry)

    del queue
    gc.collect()

    assert 'workqueue_depth{name="pods",priority=""} 1.0' in shown(registry)
    assert sink._shared.reporters == []


class Reporter:
    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.calls = 0

    def report(self) -> None:
        self.calls += 1
        if self.fails and self.calls > 1:
            raise ZeroDivisionError


def test_component_that_fails_to_report_does_not_affect_others(
    registry: CollectorRegistry, sink: PrometheusSink, caplog: pytest.LogCaptureFixture
) -> None:
    reporters = [Reporter(fails=True), Reporter(fails=False)]
    for reporter in reporters:
        sink.register(reporter.report)

    sink.count("things_total")
    lines = shown(registry)

    assert lines == ["things_total 1.0"]
    assert [reporter.calls >= 2 for reporter in reporters] == [True, True]
    assert "failed to report its metrics" in caplog.text


class Reader:
    """A component that collects the registry during its report, like another scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.reads = False

    def report(self) -> None:
        if self.reads:
            self.reads = False
            shown(self.registry)


def test_two_concurrent_collections_drop_a_freed_component(
    registry: CollectorRegistry, sink: PrometheusSink
) -> None:
    reader, gone = Reader(registry), Reporter(fails=False)
    for reporter in (reader, gone):
        sink.register(reporter.report)

    sink.count("things_total")
    del gone, reporter
    gc.collect()
    reader.reads = True

    assert shown(registry) == ["things_total 1.0"]
    assert not reader.reads
    assert len(sink._shared.reporters) == 1


# ---------------------------------------------------------------- help texts

METRIC = re.compile(
    r"(aioinformer|controller_runtime|informer|leader_election|reflector|rest_client|"
    r"workqueue)(_[a-z]+)+"
)


def test_every_metric_has_a_help_text() -> None:
    used = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name == "metrics_prometheus.py":
            continue

        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str(text)) if METRIC.fullmatch(text):
                    used.add(text)
                case _:
                    pass

    # Names of a package, an option of pytest and a context variable, not of metrics.
    others = {"aioinformer_apiserver", "aioinformer_load", "aioinformer_tracer"}
    assert used - others == set(_HELP)
    assert all(about.help.endswith(".") for about in _HELP.values())
    assert all(list(it.buckets) == sorted(it.buckets) for it in _HELP.values())
