"""Events about an object, from informers and by requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from dashboard_helpers import fill, followed, unreadable

from aioinformer import SharedInformer, index_by
from aioinformer.model.resources import EVENTS
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.testing.faults import Refuse, Stall
from aioinformer.web.dashboard.object_events import (
    MAX_EVENTS,
    MAX_SCANNED,
    events_about,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import Client


def event(name: str, uid: str = "u1", **more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "shop", "name": "web-0", "uid": uid}
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "involvedObject": about,
        **more,
    }


CLASSIC = event(
    "classic",
    type="Warning",
    reason="BackOff",
    message="<b>restarting</b>",
    count=3,
    firstTimestamp="2026-01-01T00:00:10Z",
    lastTimestamp="2026-01-01T00:00:20Z",
    source={"component": "kubelet"},
)
NEW = event(
    "new",
    type="Normal",
    reason="Scheduled",
    message="x" * 1_000_000,
    eventTime="2026-01-01T00:00:30.500000Z",
    series={"count": 7, "lastObservedTime": "2026-01-01T00:00:40.500000Z"},
    reportingComponent="scheduler",
)
MALFORMED = event(
    "malformed", type=1, reason=None, message=[], count="3", source="x", series=[]
)
START = 1767225600.0

INDEXED = {"indexers": {"about": index_by("involvedObject.uid")}}


@pytest.mark.parametrize("options", [INDEXED, {}])
async def test_events_of_informer_are_sorted(options: dict[str, Any]) -> None:
    other = event("other", uid="u1-other")
    events = (CLASSIC, NEW, MALFORMED, other)
    async with followed(*events, resource=EVENTS, **options) as one:
        found = await events_about("u1", "shop", [one.informer], None)

    assert found.error == ""
    new, classic, malformed = found.events
    assert classic == {
        "type": "Warning",
        "reason": "BackOff",
        "message": "<b>restarting</b>",
        "count": 3,
        "first": START + 10,
        "last": START + 20,
        "source": "kubelet",
    }
    assert len(new.pop("message")) < 10_000
    assert new == {
        "type": "Normal",
        "reason": "Scheduled",
        "count": 7,
        "first": START + 30.5,
        "last": START + 40.5,
        "source": "scheduler",
    }
    assert malformed == {
        "type": "",
        "reason": "",
        "message": "",
        "count": 1,
        "first": START,
        "last": START,
        "source": "",
    }


async def test_events_are_limited_to_the_newest() -> None:
    events = [
        event(f"e{n}", message=str(n), eventTime=f"2026-01-01T00:{n:02}:00Z")
        for n in range(MAX_EVENTS + 5)
    ]
    async with followed(*events, resource=EVENTS) as one:
        found = await events_about("u1", "shop", [one.informer], None)

    messages = [int(it["message"]) for it in found.events]
    assert messages == list(range(MAX_EVENTS + 4, 4, -1))


async def test_unreadable_events_are_left_out() -> None:
    async with followed(CLASSIC, resource=EVENTS) as one:
        one.informer.indexer.add(unreadable("broken"))
        found = await events_about("u1", "shop", [one.informer], None)
        assert [it["reason"] for it in found.events] == ["BackOff"]
        assert found.error == ""


async def test_events_of_unsynced_informer_are_not_complete() -> None:
    informer = SharedInformer(FakeListerWatcher(resource=EVENTS), name="events")
    found = await events_about("u1", "shop", [informer], None)
    assert found == ([], "events: idle, not started yet", 2.0)


async def test_too_many_events_without_index_are_not_scanned() -> None:
    async with followed(CLASSIC, resource=EVENTS) as one:
        fill(one.informer, MAX_SCANNED)
        found = await events_about("u1", "shop", [one.informer], None)
        assert found.events == []
        assert "index_by('involvedObject.uid')" in found.error


async def test_events_of_object_without_uid_are_none() -> None:
    assert await events_about("", "shop", [], None) == ([], "", 2.0)


async def test_missing_source_of_events_is_an_error() -> None:
    found = await events_about("u1", "shop", [], None)
    assert found.error == "no informer of events, and no client"


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[APIServer, Client]]:
    async with APIServer(auto_namespaces=True) as server:
        server.create(EVENTS, {**CLASSIC, "involvedObject": ABOUT})
        server.create(EVENTS, event("other", uid="u2"))
        async with server.client() as client:
            yield server, client


HOSTILE_UID = "u,1=\\2"
ABOUT = CLASSIC["involvedObject"] | {"uid": HOSTILE_UID}


@pytest.mark.parametrize("namespace", ["shop", ""])
async def test_events_are_requested(namespace: str) -> None:
    async with serving() as (_, client):
        found = await events_about(HOSTILE_UID, namespace, [], client)

    assert (found.error, found.fresh_for) == ("", 10.0)
    assert [it["reason"] for it in found.events] == ["BackOff"]


async def test_refused_request_is_an_error_in_one_line() -> None:
    async with serving() as (server, client):
        text = "no\npassword=hunter2-hunter2"
        server.faults.add(Refuse(verb="list", status=403, message=text))
        found = await events_about("u1", "shop", [], client)

    assert found.events == []
    assert "403" in found.error
    assert "\n" not in found.error
    assert "hunter2" not in found.error


async def test_response_that_is_no_list_is_an_error() -> None:
    class Client:
        @asynccontextmanager
        async def stream(self, *_: object) -> AsyncIterator[Any]:
            yield self

        async def read(self) -> bytes:
            return b"<html>"

    client: Any = Client()
    found = await events_about("u1", "shop", [], client)
    assert found.error.startswith("the server returned no list of events")


async def test_request_without_response_ends_after_ten_seconds() -> None:
    async with serving() as (server, client):
        server.faults.add(Stall(verb="list"))
        start = asyncio.get_running_loop().time()
        found = await events_about("u1", "shop", [], client)
        assert found.error == "no response within 10 s"
        assert asyncio.get_running_loop().time() - start == pytest.approx(10, abs=0.1)
