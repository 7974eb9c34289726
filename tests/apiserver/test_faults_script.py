"""Recorded strikes: only faults that changed a response have struck."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import (
    BlankBookmarks,
    Chaos,
    Compact,
    Cut,
    Delay,
    Drop,
    Duplicate,
    End,
    ErrorEvent,
    Fault,
    Faults,
    Foreign,
    Garble,
    Gone,
    NoBookmarks,
    Page,
    Refuse,
    Slow,
    Stall,
    StepBack,
    UnknownType,
    Unreadable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAPS_PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as running:
        for number in range(4):
            running.create(CONFIG_MAPS, {"metadata": {"name": f"map-{number}"}})

        yield running


async def receive(server: APIServer, path: str) -> tuple[bytes, str]:
    """Return the received part of a body, and the name of the error."""
    body = b""
    try:
        async with aiohttp.request("GET", f"{server.url}{path}") as answer:
            async for piece in answer.content.iter_any():
                body += piece
    except aiohttp.ClientError as exc:
        return body, type(exc).__name__

    return body, f"{answer.status} {answer.content_type}"


# -------------------------------------------------------------------- struck

WITHOUT_EFFECT: list[Fault] = [
    Cut(verb="list", after_bytes=999_999),
    Stall(verb="list", after_bytes=999_999, seconds=5),
    End(verb="list", after_bytes=999_999),
    Drop(verb="list", after_events=99),
    Duplicate(verb="list", after_events=99),
    Foreign(verb="list", after_events=99),
    Garble(verb="list", after_events=99),
    Unreadable(verb="list", after_events=99),
    Compact(verb="list"),
    Cut(after_bytes=999_999),
    Stall(after_bytes=999_999, seconds=5),
    End(after_events=99),
    End(after_bytes=999_999),
    Gone(after_events=99),
    ErrorEvent(status=500, after_events=99),
    Drop(after_events=99),
    Duplicate(after_events=99),
    StepBack(after_events=99),
    UnknownType(after_events=99),
    BlankBookmarks(),
    NoBookmarks(),
    Compact(verb="watch"),
]


@pytest.mark.parametrize("fault", WITHOUT_EFFECT, ids=repr)
async def test_fault_without_effect_has_not_struck(
    server: APIServer, fault: Fault
) -> None:
    query = "?watch=1&timeoutSeconds=2" if fault.verb == "watch" else ""
    usual = await receive(server, MAPS_PATH + query)
    server.faults.add(fault)

    assert await receive(server, MAPS_PATH + query) == usual
    assert [it.fault for it in server.faults.taken] == [fault]
    assert not server.faults.struck
    with pytest.raises(AssertionError) as caught:
        server.faults.check()

    assert str(caught.value) == (
        f"faults without effect: {fault!r} had no effect on {fault.verb} {MAPS_PATH}"
    )


@pytest.mark.parametrize(
    "fault",
    [
        Refuse(status=500),
        Page(),
        Gone(verb="list"),
        Delay(seconds=2),
        Slow(verb="list", bytes_per_second=1000),
        Cut(verb="list", after_bytes=10, times=None),
        Cut(verb="list", head=False, times=None),
        Stall(verb="list", after_bytes=10, seconds=5),
        Stall(verb="list", head=False, seconds=5),
        End(verb="list", after_bytes=0),
        End(verb="list", after_bytes=10),
        Drop(verb="list", after_events=3),
        StepBack(verb="list"),
        Garble(verb="list"),
        Duplicate(verb="list"),
    ],
    ids=repr,
)
async def test_fault_that_changes_list_has_struck(
    server: APIServer, fault: Fault
) -> None:
    server.faults.add(fault)

    await receive(server, MAPS_PATH)

    assert {it.fault for it in server.faults.struck} == {fault}
    server.faults.check()


@pytest.mark.parametrize(
    "fault",
    [
        Gone(),
        Gone(after_events=4),
        ErrorEvent(status=500),
        End(after_events=0),
        End(after_bytes=0),
        End(after_bytes=10),
        Cut(after_bytes=0),
        Slow(bytes_per_second=1000),
        Drop(after_events=3),
        StepBack(after_events=3, versions=1),
        Foreign(),
        UnknownType(),
        BlankBookmarks(),
        NoBookmarks(),
    ],
    ids=repr,
)
async def test_fault_that_changes_watch_has_struck(
    server: APIServer, fault: Fault
) -> None:
    server.faults.add(fault)

    query = "?watch=1&timeoutSeconds=5&allowWatchBookmarks=true"
    await receive(server, MAPS_PATH + query)

    assert [it.fault for it in server.faults.struck] == [fault]
    server.faults.check()


async def test_end_after_last_byte_has_not_struck(server: APIServer) -> None:
    body, _ = await receive(server, MAPS_PATH)
    server.faults.add(End(verb="list", after_bytes=len(body)))

    assert (await receive(server, MAPS_PATH))[0] == body
    assert not server.faults.struck

    server.faults.add(Cut(verb="list", after_bytes=len(body)))
    assert (await receive(server, MAPS_PATH))[1] == "ClientPayloadError"
    assert len(server.faults.struck) == 1


@pytest.mark.parametrize("query", ["?watch=1&resourceVersion=", "?resourceVersion="])
async def test_compact_has_struck_if_version_expired(
    server: APIServer, query: str
) -> None:
    exact = "" if "watch" in query else "&resourceVersionMatch=Exact&limit=9"
    version = server.resource_version
    server.create(CONFIG_MAPS, {"metadata": {"name": "newer"}})
    server.faults.add(Compact())

    body, _ = await receive(server, f"{MAPS_PATH}{query}{version}{exact}")

    assert b'"code":410' in body
    assert len(server.faults.struck) == 1


async def test_fault_strikes_request_once(server: APIServer) -> None:
    server.faults.add(Drop(events=3))

    await receive(server, f"{MAPS_PATH}?watch=1&timeoutSeconds=1")

    assert len(server.faults.struck) == 1


# -------------------------------------------------------------------- check


def lands(script: Faults, verb: str = "list") -> None:
    strike = script.take(verb, "pods")
    assert strike is not None
    strike.record_effect()


def missing(script: Faults) -> str:
    with pytest.raises(AssertionError) as caught:
        script.check()

    return str(caught.value).removeprefix("faults without effect: ")


def test_check_passes_without_faults() -> None:
    Faults().check()


def test_check_names_all_faults_left_over() -> None:
    script = Faults()
    script.add(Gone(), Refuse(status=500, verb="list", times=3), Stall(times=None))
    lands(script)

    assert missing(script) == (
        "Gone() has unused strikes (times=1); "
        "Refuse(verb='list', times=3, status=500) has unused strikes (times=2); "
        "Stall(times=None) was not used"
    )


def test_check_requires_effect_of_each_strike() -> None:
    script = Faults()
    script.add(Refuse(status=500, times=2))
    lands(script)
    script.take("get", "nodes", path="/api/v1/nodes/one")

    text = "Refuse(times=2, status=500) had no effect on get /api/v1/nodes/one"
    assert missing(script) == text


def test_check_requires_one_strike_of_unlimited_fault() -> None:
    script = Faults()
    script.add(Refuse(status=500, times=None))
    script.take("get", "nodes")
    assert missing(script).endswith("had no effect on get nodes")

    lands(script)
    script.take("get", "nodes")

    script.check()


def test_check_requires_one_strike_of_chaos() -> None:
    script = Faults()
    chaos = Chaos(seed=1, rate=1)
    script.add(chaos)
    assert missing(script) == f"{chaos!r} was not used"

    lands(script)
    script.take("watch", "pods")

    script.check()


def test_check_ignores_cleared_faults() -> None:
    script = Faults()
    script.add(Gone(), Gone(times=None), Chaos(seed=1), Refuse(status=500, times=2))
    lands(script)
    script.clear()

    script.check()


def test_check_requires_effect_of_strikes_before_clear() -> None:
    script = Faults()
    script.add(Refuse(status=500, times=2))
    script.take("list", "pods")
    script.clear()

    assert missing(script).endswith("had no effect on list pods")
