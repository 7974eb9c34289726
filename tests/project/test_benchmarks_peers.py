"""Python contestants of the benchmarks end with the state of the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from bench.contestant import OURSELVES, PEERS, Failed, contest
from processes import ROOT, in_real_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Contestant

pytestmark = in_real_time

PODS = 200
EVENTS = 100
RATE = 2000
A_SHARE = 5
"""Divisor of the load for slow contestants."""

# Imported only in a process without threads, which may fork.
SERVER = """
import sys, threading
from bench.canned_server import Changes, canned_server
from bench.corpus import encoded_pods

pods, events, rate, length = map(int, sys.argv[1:])
changes = Changes(count=events, rate=rate or None)
with canned_server(encoded_pods(pods), changes, content_length=bool(length)) as url:
    print(url, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
"""

IN_PYTHON = {it.name: it for it in PEERS if it.program.endswith(".py")}

OPTIONS = [
    ("--metadata-only", "--plain", "--loop", "uvloop"),
    ("--body", "--informers", "3", "--listeners", "2", "--compression", "zstd"),
    ("--list", "stream", "--transform", "drop-managed-fields", "--touch"),
]


@contextmanager
def served(
    pods: int, events: int, *, rate: int = 0, content_length: bool = False
) -> Iterator[str]:
    """Run a canned server in its own process."""
    arguments = map(str, (pods, events, rate, int(content_length)))
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "benchmarks")},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)


def changes(pods: int) -> tuple[str, ...]:
    """Return the options for a relist of which a tenth has changed."""
    return ("--relist", str(pods // 10), "--changed", "0.1")


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_our_contestant_ends_with_the_state_of_the_server(
    options: tuple[str, ...],
) -> None:
    informers = 3 if "--informers" in options else 1
    asked = (*options, "--events", str(EVENTS), *changes(PODS))
    with served(PODS, EVENTS, rate=RATE) as url:
        report = contest(OURSELVES, url, *asked)  # contest() compares the state

    assert list(report) == ["start", "synced", "watched", "relisted", "end"]
    assert report["start"]["resident"] < report["synced"]["resident"]
    assert report["synced"]["objects"] == PODS * informers
    assert report["watched"]["events"] == EVENTS
    assert report["relisted"]["peak"] >= report["relisted"]["resident"] // 2
    assert all(report[at]["seconds"] > 0 for at in ("synced", "watched", "relisted"))

    # At a rate, versions are times, and give the latency of each change.
    latencies = report["watched"]["latencies"]
    assert len(latencies) == EVENTS * informers
    assert all(0 < it < 1000 * report["watched"]["seconds"] for it in latencies)


@pytest.mark.parametrize("contestant", IN_PYTHON.values(), ids=list(IN_PYTHON))
def test_peer_ends_with_the_state_of_the_server(contestant: Contestant) -> None:
    pods, events = (
        (PODS // A_SHARE, EVENTS // A_SHARE) if contestant.slow else (PODS, EVENTS)
    )
    asked = ("--body", "--events", str(events), *changes(pods))
    if contestant.name == "kr8s":
        asked = asked[:3]

    with served(pods, events) as url:
        report = contest(contestant, url, *asked)  # contest() compares the state

    assert report["synced"]["objects"] == pods
    assert report["watched"]["events"] == events
    assert report["watched"]["latencies"] == []
    assert ("relisted" in report) == (contestant.name != "kr8s")


def test_kr8s_reports_that_it_cannot_relist() -> None:
    asked = ("--relist", "1", "--changed", "0.1")
    with (
        served(10, 0) as url,
        pytest.raises(Failed, match="kr8s: kr8s silently retries an expired watch"),
    ):
        contest(IN_PYTHON["kr8s"], url, *asked)


def test_contestant_without_a_server_fails_with_the_reason() -> None:
    nobody = "http://127.0.0.1:9"  # nothing listens there

    with pytest.raises(Failed, match=f"^aioinformer: .*{nobody} refused"):
        contest(OURSELVES, nobody)


def test_server_sends_the_same_list_in_chunks_and_with_its_length() -> None:
    bodies = []
    for content_length in (False, True):
        with (
            served(PODS, 0, content_length=content_length) as url,
            urllib.request.urlopen(f"{url}/api/v1/pods?resourceVersion=0") as response,
        ):
            chunked = response.headers["Transfer-Encoding"] == "chunked"
            bodies.append(response.read())

        assert chunked != content_length
        assert ("Content-Length" in response.headers) == content_length

    assert bodies[0] == bodies[1]
    assert len(json.loads(bodies[0])["items"]) == PODS
