"""Faults of events and items: the lines that arrive over a socket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from each_case import each_case

from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import (
    BlankBookmarks,
    Drop,
    Duplicate,
    End,
    ErrorEvent,
    Fault,
    Foreign,
    Garble,
    Gone,
    NoBookmarks,
    StepBack,
    UnknownType,
    Unreadable,
)
from aioinformer_apiserver.faults.events import ResponseMutator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAPS_PATH = "/api/v1/namespaces/default/configmaps"
# The watch starts before the maps are created, so that each is an event.
NAMES = ["map-0", "map-1", "map-2", "map-3"]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as running:
        yield running


@pytest.fixture
async def http(server: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(server.url, timeout=timeout) as session:
        yield session


async def watched(
    server: APIServer, http: aiohttp.ClientSession, **params: str
) -> list[bytes]:
    """Create four config maps, and return the lines of a watch until its end."""
    before = server.resource_version
    for name in NAMES:
        server.create(CONFIG_MAPS, {"metadata": {"name": name}})

    query = {"watch": "1", "resourceVersion": before, "timeoutSeconds": "5", **params}
    async with http.get(MAPS_PATH, params=query) as answer:
        assert answer.status == 200
        return (await answer.read()).splitlines()


async def as_list(server: APIServer, http: aiohttp.ClientSession) -> bytes:
    for name in NAMES:
        server.create(CONFIG_MAPS, {"metadata": {"name": name}})

    async with http.get(MAPS_PATH) as answer:
        assert answer.status == 200
        return await answer.read()


def reported(lines: list[bytes]) -> list[str]:
    events = [json.loads(line) for line in lines]
    return [
        f"{it['type']} {it['object'].get('metadata', {}).get('name', '')}".strip()
        for it in events
    ]


def names_in(body: bytes) -> list[str]:
    return [item["metadata"]["name"] for item in json.loads(body)["items"]]


# -------------------------------------------------------------------- watches


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (ErrorEvent(status=500, after_events=2), ["+0", "+1", "ERROR"]),
        (ErrorEvent(status=410), ["ERROR"]),
        (Gone(after_events=1), ["+0", "ERROR"]),
        (End(after_events=0), []),
        (End(after_events=3), ["+0", "+1", "+2"]),
        (Duplicate(after_events=1, copies=2), ["+0", "+1", "+1", "+1", "+2", "+3"]),
        (Drop(), ["+1", "+2", "+3"]),
        (Drop(after_events=1, events=2), ["+0", "+3"]),
        (
            Foreign(after_events=1, kind="Alien"),
            ["+0", "ADDED alien", "+1", "+2", "+3"],
        ),
        (
            UnknownType(after_events=3, type="GROWN"),
            ["+0", "+1", "+2", "GROWN map-3", "+3"],
        ),
    ],
    ids=repr,
)
async def test_event_fault_changes_watch(
    server: APIServer, http: aiohttp.ClientSession, fault: Fault, expected: list[str]
) -> None:
    server.faults.add(fault)

    lines = await watched(server, http)

    assert reported(lines) == [it.replace("+", "ADDED map-") for it in expected]
    assert [it.fault for it in server.faults.struck] == [fault]


async def test_error_event_has_given_status(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(ErrorEvent(status=429, reason="Busy", message="not now"))

    (line,) = await watched(server, http)

    status = json.loads(line)["object"]
    assert (status["code"], status["reason"], status["message"]) == (
        429,
        "Busy",
        "not now",
    )


async def test_garbled_event_is_invalid_json(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Garble(after_events=1))

    lines = await watched(server, http)

    assert reported([lines[0], *lines[2:]]) == [f"ADDED map-{it}" for it in (0, 2, 3)]
    with pytest.raises(json.JSONDecodeError):
        json.loads(lines[1])


async def test_step_back_gives_event_older_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(StepBack(after_events=2, versions=2))

    lines = await watched(server, http)

    versions = [
        int(json.loads(it)["object"]["metadata"]["resourceVersion"]) for it in lines
    ]
    first = versions[0]
    assert versions == [first, first + 1, first, first + 3]


async def test_unreadable_event_is_valid_json(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Unreadable())

    lines = await watched(server, http)

    labels = [json.loads(it)["object"]["metadata"].get("labels") for it in lines]
    assert labels == [0, None, None, None]


@pytest.mark.parametrize(
    "fault", [StepBack(), Foreign(), Unreadable(), UnknownType(), Garble(), Drop()]
)
async def test_event_fault_skips_error_event(
    server: APIServer, http: aiohttp.ClientSession, fault: Fault
) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    server.compact()
    server.faults.add(fault)

    query = {"watch": "1", "resourceVersion": "1"}
    async with http.get(MAPS_PATH, params=query) as answer:
        (line,) = (await answer.read()).splitlines()

    event = json.loads(line)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_foreign_precedes_table_row(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    server.faults.add(Foreign())
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}

    query = {"watch": "1", "timeoutSeconds": "1"}
    async with http.get(MAPS_PATH, params=query, headers=accept) as answer:
        lines = (await answer.read()).splitlines()

    kinds = [json.loads(line)["object"]["kind"] for line in lines]
    assert kinds == ["Foreigner", "Table"]


async def test_blank_bookmarks_have_no_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(BlankBookmarks())

    lines = await watched(server, http, allowWatchBookmarks="true")

    last = json.loads(lines[-1])
    assert last["type"] == "BOOKMARK"
    assert "resourceVersion" not in last["object"]["metadata"]
    assert len(lines) > len(NAMES)


async def test_no_bookmarks_omits_bookmarks(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(NoBookmarks())

    lines = await watched(server, http, allowWatchBookmarks="true")

    assert reported(lines) == [f"ADDED {name}" for name in NAMES]


async def test_no_bookmarks_can_omit_initial_events_end_only(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(NoBookmarks(initial_events_end=True))

    lines = await watched(
        server,
        http,
        allowWatchBookmarks="true",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
    )

    assert b"BOOKMARK" in lines[-1]
    assert not any(b"initial-events-end" in line for line in lines)


async def test_event_faults_keep_bookmarks(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Drop(events=1000))

    lines = await watched(server, http, allowWatchBookmarks="true")

    assert {json.loads(it)["type"] for it in lines} == {"BOOKMARK"}


async def test_event_faults_do_not_count_bookmarks(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(BlankBookmarks(after_events=5))

    lines = await watched(server, http, allowWatchBookmarks="true")

    assert json.loads(lines[-1])["object"]["metadata"]["resourceVersion"]


# -------------------------------------------------------------------- lists


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Duplicate(verb="list", after_events=1), [0, 1, 1, 2, 3]),
        (Drop(verb="list", after_events=1, events=2), [0, 3]),
        (Drop(verb="list", after_events=9), [0, 1, 2, 3]),
    ],
    ids=repr,
)
async def test_event_fault_changes_list(
    server: APIServer, http: aiohttp.ClientSession, fault: Fault, expected: list[int]
) -> None:
    server.faults.add(fault)

    assert names_in(await as_list(server, http)) == [f"map-{it}" for it in expected]
    assert len(server.faults.struck) == (expected != [0, 1, 2, 3])


async def test_garbled_list_is_invalid_json(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Garble(verb="list", after_events=2))

    body = await as_list(server, http)

    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(body)

    # The items before the victim are unchanged.
    assert b"map-1" in body[: caught.value.pos]
    assert b"map-2" not in body[: caught.value.pos]


async def test_step_back_gives_list_older_version(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(StepBack(verb="list", versions=2))

    body = json.loads(await as_list(server, http))

    version = int(body["metadata"]["resourceVersion"])
    assert version == int(server.resource_version) - 2
    assert len(body["items"]) == 4


async def test_unreadable_changes_item_of_list(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Unreadable(verb="list", after_events=3))

    items = json.loads(await as_list(server, http))["items"]

    assert [it["metadata"].get("labels") for it in items] == [None, None, None, 0]


async def test_foreign_inserts_item_into_list(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.faults.add(Foreign(verb="list", after_events=1))

    items = json.loads(await as_list(server, http))["items"]

    assert [it.get("kind") for it in items] == [None, "Foreigner", None, None, None]
    assert items[1]["metadata"]["namespace"] == "default"


async def test_event_fault_keeps_response_that_is_not_a_list(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    await as_list(server, http)
    server.faults.add(Garble(verb=""))

    # The fault applies to every verb that it can affect.
    async with http.get(f"{MAPS_PATH}/map-0") as answer:
        assert (await answer.json())["metadata"]["name"] == "map-0"

    async with http.get(MAPS_PATH, params={"resourceVersion": "x"}) as answer:
        assert (await answer.json())["kind"] == "Status"

    assert [it.occasion.verb for it in server.faults.taken] == ["list"]
    assert not server.faults.struck


# -------------------------------------------------------------------- ResponseMutator


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_mutator_ignores_chunks_of_lines(cut: int) -> None:
    lines = [
        b'{"type":"ADDED","object":{"metadata":{"name":"%d"}}}\n' % number
        for number in range(4)
    ]
    mutator = ResponseMutator(Drop(after_events=1, events=2))

    sent = mutator.mutate_lines(lines[:cut]) + mutator.mutate_lines(lines[cut:])

    assert sent == [lines[0], lines[3]]


def test_mutator_sends_nothing_after_end() -> None:
    line = b'{"type":"ADDED","object":{}}\n'
    mutator = ResponseMutator(End(after_events=1))

    assert mutator.initial_lines() == []
    assert mutator.mutate_lines([line, line]) == [line]
    assert mutator.ended
    assert mutator.mutate_lines([line]) == []


def test_mutator_keeps_body_that_is_not_json() -> None:
    assert ResponseMutator(Drop()).mutate_body(b"ok") == b"ok"
    assert (
        ResponseMutator(End(after_events=1)).mutate_body(b'{"items":[1]}')
        == b'{"items":[1]}'
    )


@each_case(
    "make",
    [
        pytest.param(lambda: Garble(after_events=-1), id="after-events"),
        pytest.param(lambda: Drop(events=0), id="drop"),
        pytest.param(lambda: Duplicate(copies=0), id="duplicate"),
        pytest.param(lambda: StepBack(versions=0), id="step-back"),
        pytest.param(lambda: ErrorEvent(status=200), id="error-event"),
        pytest.param(lambda: End(), id="end-of-nothing"),
        pytest.param(lambda: End(after_bytes=1, after_events=1), id="end-of-both"),
    ],
)
def test_invalid_event_faults_are_rejected(make: Any) -> None:
    with pytest.raises(OptionsError):
        make()
