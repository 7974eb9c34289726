"""Each benchmark of aioinformer alone runs with small numbers, and reports its figures.

The benchmarks themselves compare the final state with the server. The values of the
figures are not checked here.
"""

from __future__ import annotations

import json
from typing import Any

from bench.goals import GOALS
from processes import ROOT, in_real_time, start

pytestmark = in_real_time

OURS = "aioinformer"
SPANS = ("p50", "p99", "worst")
# Differences of two measurements. On a busy machine the larger one may be the faster.
DIFFERENCE = "beyond a bare interpreter"
DIFFERENCES = (DIFFERENCE, "one more")
# The best value of some figures is 0, and a small app may need less memory than an
# empty one.
ZEROS = ("lists", "private memory", "requests")


async def figures_of(benchmark: str) -> list[dict[str, Any]]:
    script = ROOT / "benchmarks" / f"{benchmark}.py"
    async with start(script, "--quick", "--json") as process:
        finished = await process.end()

    assert finished.status == 0, finished.err
    figures = [json.loads(line) for line in finished.out.splitlines()]
    for it in figures:
        assert it["benchmark"] == benchmark
        assert it["value"] is not None, it["note"]
        assert len(it["runs"]) == 1
        assert it["value"] == it["runs"][0]
        allowed = any(word in it["case"] for word in (*DIFFERENCES, *ZEROS))
        assert it["value"] > 0 or allowed, it

    return figures


def units(figures: list[dict[str, Any]], contestant: str = OURS) -> dict[str, set[str]]:
    """Return the cases of a contestant by unit."""
    found: dict[str, set[str]] = {}
    for it in figures:
        if it["contestant"] == contestant:
            found.setdefault(it["unit"], set()).add(it["case"])

    return found


async def test_million_reports_its_figures() -> None:
    figures = await figures_of("million")

    goals = {it.case for it in GOALS if it.benchmark == "million"}
    for name in ("compressed", "compressed, metadata only"):
        found = units(figures, f"{OURS}, {name}")
        cases = {it for group in found.values() for it in group}
        assert {it.replace("1,000,000", "2,000") for it in goals} <= cases
        assert {"2,000 pods: CPU at rest"} <= found["% of a core"]


async def test_steady_reports_its_figures() -> None:
    start = "5 informers, nothing changes"

    assert units(await figures_of("steady")) == {
        "% of a core": {f"{start}: CPU"},
        "a minute": {f"{start}: wake-ups of the event loop", f"{start}: requests"},
    }


async def test_web_latency_reports_its_figures() -> None:
    figures = await figures_of("web_latency")

    for server, many, contestant in (
        ("aiohttp", "1 informer", OURS),
        ("aiohttp", "1 informer, 5 pages open", f"{OURS}, with its dashboard"),
        ("uvicorn", "10 informers", f"{OURS}, after gc.freeze()"),
    ):
        synced = f"{server}, 2,000 pods synced, {many}"
        phases = (
            f"{server}, idle, {many}",
            synced,
            f"{server}, {1 if 'pages' in many else 2},000 events/s, {many}",
        )
        collected = f"{server}, the first full garbage collection, {many}"
        spans = {f"{phase}: {name}" for phase in phases for name in SPANS}
        assert units(figures, contestant) == {
            "ms": {collected} | spans,
            "pods/s": {f"{synced}: rate"},
        }
        assert all("core" in it["note"] for it in figures)


async def test_fanout_reports_its_figures() -> None:
    figures = await figures_of("fanout")

    kinds = ("async", "plain")
    cases = {f"{many} {kind} handlers" for many in (10, 100) for kind in kinds}
    slopes = {f"one more {kind} handler" for kind in kinds}
    assert units(figures) == {"μs/event": cases | slopes}


async def test_indexer_reports_its_figures() -> None:
    figures = await figures_of("indexer")

    reads = (
        "one object by key",
        "100 objects by index",
        "the same 100 objects, repeatedly",
        "objects of an application, by an indexed label",
        "a namespace, per object",
    )
    selectors = ("one label", "two labels", "a set and an inequality")
    sizes = ("1,000", "2,000")
    assert units(figures) == {
        "μs": {f"{read}, among {size}" for read in reads for size in sizes},
        "ms": {f"selector of {it}, over {size}" for it in selectors for size in sizes},
        "ratio": {f"{read}, among 2,000 compared with 1,000" for read in reads},
    }


async def test_startup_reports_its_figures() -> None:
    figures = await figures_of("startup")

    everyone = {it["contestant"] for it in figures}
    assert everyone == {
        "a bare interpreter",
        OURS,
        f"{OURS}, a factory's names",
        f"{OURS}, with a client entered",
        "aiohttp",
        "kr8s",
        "kubernetes",
        "kubernetes_asyncio",
        "lightkube",
    }
    for name in everyone - {OURS, "a bare interpreter"}:
        assert units(figures, name) == {
            "ms": {"import: total time", f"import: time {DIFFERENCE}"},
            "MiB": {"import: total memory", f"import: memory {DIFFERENCE}"},
        }

    calls = {f"start to the {it} call, of 100 objects" for it in ("first", "last")}
    assert units(figures)["ms"] > calls


async def test_scale_reports_its_figures() -> None:
    figures = await figures_of("scale")

    points = {"objects: 200", "objects: 1,000", "informers: 10"}
    assert units(figures) == {
        "μs/object": points,
        "KiB/object": points,
        "μs/event": {"handlers: 10"},
        "ratio": {"1,000 objects compared with 200"},
    }


async def test_shared_cache_reports_its_figures() -> None:
    figures = await figures_of("shared_cache")

    start = "2 workers, 1,000 pods: "
    assert all(it["case"].startswith(start) for it in figures)
    cases = {
        unit: {it.removeprefix(start) for it in found}
        for unit, found in units(figures).items()
    }
    assert cases["lists"] == {"restart: lists", "takeover after kill -9: lists"}
    assert cases["watches"] == {"watches at the server"}
    assert cases["s"] >= {
        *(f"restart: {it}" for it in ("readable, unconfirmed", "synced")),
        *("all ready", "one ready", "takeover after kill -9"),
    }
    assert {"get: p50", "get: p99"} <= cases["μs"]
    assert {"100 by index: p50", "1,000 changes/s: p99"} <= cases["ms"]
    assert "list rate, compared with memory" in cases["ratio"]
    peers = {it["contestant"] for it in figures} - {OURS}
    assert peers >= {"an informer in each worker"}
    exact = {
        it["case"].removeprefix(start): it["value"]
        for it in figures
        if it["contestant"] == OURS
    }
    assert exact["restart: lists"] == exact["takeover after kill -9: lists"] == 0
    assert exact["watches at the server"] == 1


async def test_shards_reports_its_figures() -> None:
    figures = await figures_of("shards")

    found = units(figures)
    hows = ("filters", "sends everything")
    parts = {
        f"2 replicas, 200 pods, server {how}: {what} of a replica, largest"
        for how in hows
        for what in ("bytes", "memory")
    }
    assert found["MB"] | found["MiB"] == parts
    assert found["ratio"] == {f"{it}, compared with one not sharded" for it in parts}
    assert found["s"] == {"2 replicas: all owned after kill -9"}
    assert found["requests/s"] == {"3 replicas, 64 ranges, nothing moves"}
    assert units(figures, "not sharded") == {
        unit: cases for unit, cases in found.items() if unit in {"MB", "MiB"}
    }
