"""`ObjectPages`: the feed of one object, and its states."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from dashboard_helpers import FeedReader, Followed, followed, named

from aioinformer.errors import OptionsError
from aioinformer.model.resources import EVENTS, NODES, SECRETS
from aioinformer.testing import APIServer
from aioinformer.web.dashboard import object_page
from aioinformer.web.dashboard.object_body import shown_body
from aioinformer.web.dashboard.object_page import MAX_STATES, ObjectPages
from aioinformer.web.dashboard.sources import NotShown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer import KubeObject, Resource, SharedInformer
    from aioinformer.web.dashboard.object_body import ShownBody


def now() -> float:
    return asyncio.get_running_loop().time()


def pages_of(*informers: Followed, **options: Any) -> ObjectPages:
    """Return pages of the first informer, `pods`, and of others by their names."""
    first, *others = informers
    by_id = {"pods": first.informer} | {
        f"{n}": it.informer for n, it in enumerate(others)
    }
    return ObjectPages(first.history, lambda: by_id, **options)


def reader_of(pages: ObjectPages, key: str = "shop/a") -> FeedReader:
    return FeedReader(pages.feed("pods", key).run)


def changed(name: str, phase: str, **more: Any) -> dict[str, Any]:
    return named(name, status={"phase": phase}, **more)


# ---------------------------------------------------------------- the feed


async def test_page_shows_object_and_its_states() -> None:
    async with followed(changed("a", "Pending")) as one:
        async with reader_of(pages_of(one)).reading() as reader:
            assert reader.times[0] == pytest.approx(now(), abs=0.05)
            first = reader.last
            assert first["body"]["status"] == {"phase": "Pending"}
            one.source.modify(changed("a", "Running"))
            await asyncio.sleep(1)
            page = reader.last
            assert len(reader.events) == 2

        uid = page["uid"]
        assert page == {
            "informer": "pods",
            "key": "shop/a",
            "uid": uid,
            "exists": True,
            "kind": "Pod",
            "namespace": "shop",
            "name": "a",
            "body": dict(one.informer.indexer.list()[0]),
            "hidden": [],
            "trouble": "",
            "states": [
                page["states"][0]
                | {"number": 1, "time": None, "change": "listed", "paths": []},
                page["states"][1]
                | {"number": 2, "change": "updated", "paths": ["status.phase"]},
            ],
            "earlier": 0,
            "forgotten": 0,
            "reconciles": [],
            "events": [],
            "events_error": "no informer of events, and no client",
            "graph": page["graph"],
        }
        assert page["states"][1].keys() == {
            *("number", "time", "change", "version", "bytes", "paths", "more")
        }
        assert [it["id"] for it in page["graph"]["nodes"]] == [uid]


async def test_page_follows_deletion_and_recreation() -> None:
    async with (
        followed() as one,
        reader_of(pages_of(one)).reading() as reader,
    ):
        assert (reader.last["exists"], reader.last["uid"]) == (False, "")
        assert (reader.last["kind"], reader.last["name"]) == ("Pod", "a")
        uids = []
        for phase in ("Pending", "Running"):
            one.source.add(changed("a", phase))
            await asyncio.sleep(1)
            assert reader.last["exists"]
            assert reader.last["body"]["status"]["phase"] == phase
            uids.append(reader.last["uid"])
            one.source.delete(named("a"))
            await asyncio.sleep(1)
            assert (reader.last["exists"], reader.last["body"]) == (False, None)
            assert reader.last["uid"] == uids[-1]

        assert uids[0] != uids[1]
        changes = [it["change"] for it in reader.last["states"]]
        assert changes == ["added", "deleted", "added", "deleted"]
        assert all(it["paths"] == [] for it in reader.last["states"])


async def test_feed_sends_at_most_two_events_a_second_and_none_without_news() -> None:
    async with followed(named("a"), named("b")) as one:
        async with reader_of(pages_of(one)).reading() as reader:
            for number in range(100):
                one.source.modify(changed("a", str(number)))
                await asyncio.sleep(0.05)

            await asyncio.sleep(1)
            assert 9 <= len(reader.events) <= 13
            gaps = zip(reader.times, reader.times[1:], strict=False)
            assert all(later - earlier > 0.49 for earlier, later in gaps)
            assert reader.last["body"]["status"]["phase"] == "99"
            count = len(reader.events)
            one.source.modify(changed("b", "x"))
            await asyncio.sleep(60)
            assert len(reader.events) == count

        assert one.history._feeds[one.informer].watchers == {}


async def test_slow_reader_gets_the_newest_state_next() -> None:
    async with (
        followed(named("a")) as one,
        reader_of(pages_of(one)).reading() as reader,
    ):
        reader.open.clear()
        for number in range(10):
            one.source.modify(changed("a", str(number)))
            await asyncio.sleep(5)

        reader.open.set()
        await asyncio.sleep(1)
        phases = [it["body"].get("status", {}).get("phase") for it in reader.events]
        assert phases == [None, "0", "9"]


async def test_reconciles_are_looked_at_every_two_seconds() -> None:
    reconciles: list[dict[str, Any]] = []

    def reconciles_of(informer: SharedInformer, key: str) -> Sequence[dict[str, Any]]:
        assert (informer, key) == (one.informer, "shop/a")
        return reconciles

    async with (
        followed(named("a")) as one,
        reader_of(pages_of(one, reconciles_of=reconciles_of)).reading() as reader,
    ):
        await asyncio.sleep(0.6)
        reconciles.append({"controller": "sites"})
        await asyncio.sleep(2)
        assert reader.last["reconciles"] == [{"controller": "sites"}]
        assert len(reader.events) == 2


async def test_states_beyond_the_limit_are_counted_and_can_be_read() -> None:
    async with followed(named("a")) as one:
        for number in range(MAX_STATES + 9):
            one.source.modify(changed("a", str(number)))
            if number % 50 == 0:
                await one.settled()

        await one.settled()
        pages = pages_of(one)
        async with reader_of(pages).reading() as reader:
            page = reader.last

        total = len(one.changes("a"))
        assert len(page["states"]) == MAX_STATES
        assert page["earlier"] == total - MAX_STATES
        assert page["states"][0]["number"] == page["earlier"] + 1
        assert all(it["paths"] for it in page["states"])
        assert json.loads(pages.state("pods", "shop/a", 1))["number"] == 1


async def test_paths_outlast_the_state_that_they_were_compared_with() -> None:
    async with followed(changed("a", "1"), max_bytes=5000) as one:
        one.source.modify(changed("a", "2"))
        await one.settled()
        pages = pages_of(one)
        async with reader_of(pages).reading() as reader:
            assert reader.last["forgotten"] == 0
            one.source.modify(changed("a", "3", text="x" * 2500))
            await asyncio.sleep(1)
            assert reader.last["forgotten"] == 1
            assert reader.last["states"][0]["paths"] == ["status.phase"]


async def test_pod_in_trouble_is_shown() -> None:
    waiting = {"state": {"waiting": {"reason": "ErrImagePull"}}}
    pod = named("a", status={"containerStatuses": [waiting]})
    async with followed(pod) as one, reader_of(pages_of(one)).reading() as reader:
        assert reader.last["trouble"].startswith("ErrImagePull")


# ---------------------------------------------------------------- events and owners


def event(name: str, uid: str) -> dict[str, Any]:
    return named(
        name,
        reason=name,
        involvedObject={"kind": "Pod", "name": "a", "namespace": "shop", "uid": uid},
    )


async def test_events_of_informer_are_in_the_first_event_and_follow() -> None:
    async with (
        followed(named("a", metadata={"uid": "u1"})) as one,
        followed(event("BackOff", "u1"), resource=EVENTS) as events,
        reader_of(pages_of(one, events)).reading() as reader,
    ):
        assert [it["reason"] for it in reader.events[0]["events"]] == ["BackOff"]
        assert reader.last["events_error"] == ""
        events.source.add(event("Killing", "u1"))
        await asyncio.sleep(3)
        assert len(reader.last["events"]) == 2
        events.source.add(event("Other", "u2"))
        await asyncio.sleep(3)
        assert len(reader.events) == 2


async def test_events_are_requested_every_ten_seconds_while_the_page_is_open() -> None:
    async with (
        APIServer(auto_namespaces=True) as server,
        server.client() as client,
        followed(named("a", metadata={"uid": "u1"})) as one,
    ):
        pages = pages_of(one, client=client)
        await asyncio.sleep(60)
        assert len(server.requests) == 0
        async with reader_of(pages).reading() as reader:
            assert reader.last["events"] == []
            server.create(EVENTS, event("BackOff", "u1"))
            await asyncio.sleep(35)
            assert [it["reason"] for it in reader.last["events"]] == ["BackOff"]
            assert len(server.requests) == 4

        await asyncio.sleep(60)
        assert len(server.requests) == 4


async def test_late_response_does_not_delay_the_page() -> None:
    async with (
        followed(named("a")) as one,
        APIServer() as server,
        server.client() as client,
    ):
        await server.stop()
        async with reader_of(pages_of(one, client=client)).reading() as reader:
            await asyncio.sleep(20)
            assert reader.last["body"]["metadata"]["name"] == "a"
            assert reader.last["events_error"]


# ---------------------------------------------------------------- states


async def test_state_has_its_body_until_it_is_forgotten() -> None:
    async with followed(changed("a", "1"), max_bytes=5000) as one:
        pages = pages_of(one)
        one.source.modify(changed("a", "2"))
        await one.settled()
        state = json.loads(pages.state("pods", "shop/a", 1))
        assert state["number"] == 1
        assert state["body"]["status"] == {"phase": "1"}
        one.source.modify(changed("a", "3", text="x" * 4000))
        await one.settled()
        for number in (0, 1, 99):
            with pytest.raises(NotShown, match=f"state {number} of 'shop/a'"):
                pages.state("pods", "shop/a", number)


async def test_secrets_are_redacted_everywhere() -> None:
    def secret(value: str) -> dict[str, Any]:
        annotation = "kubectl.kubernetes.io/last-applied-configuration"
        metadata = {
            "annotations": {annotation: value},
            "managedFields": [{"manager": value}],
        }
        return named("a", metadata=metadata, data={"password": value}, stringData=value)

    async with followed(secret("hunter1"), resource=SECRETS) as one:
        pages = pages_of(one)
        async with reader_of(pages).reading() as reader:
            one.source.modify(secret("hunter2"))
            await asyncio.sleep(1)
            one.source.delete(secret("hunter3"))
            await asyncio.sleep(1)

        assert b"hunter" not in b"".join(reader.chunks)
        changes = [(it["change"], sorted(it["paths"])) for it in reader.last["states"]]
        assert changes == [
            ("listed", []),
            ("updated", ["data", "stringData"]),
            ("deleted", []),
        ]
        assert reader.events[0]["hidden"][:2] == ["data", "stringData"]
        for number in (1, 2, 3):
            state = pages.state("pods", "shop/a", number)
            assert b"hunter" not in state
            assert "managedFields" not in json.loads(state)["body"]["metadata"]


async def test_hostile_names_and_bodies_are_plain_data() -> None:
    name = "<img src=x onerror=alert(1)>\n\r\u2028\x00data: x\n\n"
    body = {
        "</script>": {"__proto__": {"polluted": True}},
        "long": "x" * 1_000_000,
        "lines": "a\n\nevent: other\ndata: {}\r\n",
    }
    async with followed(named(name, **body)) as one:
        async with reader_of(pages_of(one), f"shop/{name}").reading() as reader:
            one.source.modify(named(name, **body, lines2="\n\n"))
            await asyncio.sleep(1)

        assert len(reader.events) == 2
        page = reader.last
        assert page["name"] == name
        assert body.items() <= page["body"].items()
        assert page["states"][1]["more"] == -1  # too large to compare


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("key", ["", "a", "shop/", "/a", "x" * 2000 + "/a"])
async def test_malformed_keys_are_refused(key: str) -> None:
    async with followed() as one:
        with pytest.raises(OptionsError, match="the key of an object of pods is"):
            pages_of(one).feed("pods", key)


async def test_key_of_cluster_scoped_object_is_a_name() -> None:
    async with followed({"metadata": {"name": "n"}}, resource=NODES) as one:
        pages = pages_of(one)
        with pytest.raises(OptionsError, match="is name, not 'shop/n'"):
            pages.state("pods", "shop/n", 1)

        async with reader_of(pages, "n").reading() as reader:
            assert (reader.last["namespace"], reader.last["name"]) == ("", "n")


async def test_unknown_informer_has_no_pages() -> None:
    async with followed() as one:
        with pytest.raises(NotShown, match="no informer 'other'"):
            pages_of(one).feed("other", "shop/a")


async def test_failing_reader_ends_the_feed() -> None:
    async with followed(named("a")) as one:

        async def send(_: bytes) -> None:
            raise ConnectionError("left")

        with pytest.raises(ConnectionError, match="left"):
            await pages_of(one).feed("pods", "shop/a").run(send)

        assert one.history._feeds[one.informer].watchers == {}


async def test_readers_of_an_object_share_its_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def counted(obj: KubeObject, resource: Resource | None) -> ShownBody:
        made.append(obj.key)
        return shown_body(obj, resource)

    monkeypatch.setattr(object_page, "shown_body", counted)
    async with followed(named("a")) as one:
        pages = pages_of(one)
        async with (
            reader_of(pages).reading() as first,
            reader_of(pages).reading() as second,
        ):
            assert first.last["body"] == second.last["body"]

    assert made == ["shop/a"]


@pytest.mark.parametrize(
    ("took", "seconds"), [(0.0, 5.0), (0.2, 5.0), (1.0, 20.0), (9.0, 60.0)]
)
def test_slow_scans_are_rarer(took: float, seconds: float) -> None:
    assert object_page._pause(5.0, took) == pytest.approx(seconds)
