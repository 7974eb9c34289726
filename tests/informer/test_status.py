"""`InformerStatus`, its description, and reads with `max_staleness`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from fake_source import (
    END,
    FakeSource,
    Page,
    Silence,
    Stream,
    added,
    bookmark,
    error_event,
    modified,
    thing,
)
from informer_helpers import Even, pods_of, running, settle
from queue_helpers import error_in_thread

from aioinformer.errors import (
    DecodeError,
    Forbidden,
    NotFound,
    NotSynced,
    OptionsError,
    ServerError,
    Stale,
    TransportError,
    Unauthorized,
)
from aioinformer.informer import Deleted, InformerStatus, SharedInformer
from aioinformer.informer.status import describe_state

if TYPE_CHECKING:
    from aioinformer.model import KubeObject

BUSY = ServerError("busy", status=503)
REFUSED = Forbidden("no", status=403, reason="Forbidden")

# ---------------------------------------------------------------- contact and age


async def ages(pods: SharedInformer, *moments: float) -> list[float | None]:
    """Return the age of the cache at these moments, in whole seconds."""
    found: list[float | None] = []
    now = 0.0
    async with running(pods.run()):
        for moment in moments:
            await asyncio.sleep(moment - now)
            now = moment
            age = pods.status.age
            found.append(None if age is None else round(age))

    return found


async def test_events_bookmarks_and_the_end_of_a_watch_refresh_the_cache() -> None:
    stream = Stream(
        *(20.0, [added(thing("c", 6))], 20.0, [bookmark(7)], 20.0, END),
    )
    pods = pods_of(watches=(stream,))

    assert await ages(pods, 15, 25, 45, 65) == [15, 5, 5, 5]


async def test_complete_list_refreshes_the_cache() -> None:
    pods = pods_of(
        Page([thing("a")], version=5, seconds=10),
        Page([thing("a")], version=7, seconds=30),
        watches=(Stream(10.0, [error_event(410)]),),
    )

    # Listed from 0 to 10 s, watched until 20 s, listed from about 22 to 52 s.
    assert await ages(pods, 5, 15, 35, 45, 55) == [
        None,
        5,
        25,
        35,
        pytest.approx(3, abs=2),
    ]


async def test_lists_that_break_off_do_not_refresh_the_cache() -> None:
    """Objects of an incomplete list are not stored."""
    broken = Page([thing("a"), thing("b")], version=9, error=TransportError("cut"))
    pods = pods_of(
        Page([thing("a")], version=5),
        *(broken,) * 9,
        watches=(Stream([error_event(410)]),),
    )

    async with running(pods.run()):
        await asyncio.sleep(100)
        status = pods.status

    assert status.age == pytest.approx(100, abs=1)
    assert status.last_contact is not None
    assert status.last_contact > 50


async def test_watches_that_break_at_once_do_not_refresh_the_cache() -> None:
    broken = [Stream(TransportError("cut")) for _ in range(20)]
    pods = pods_of(watches=tuple(broken))

    assert await ages(pods, 100) == [100]


async def test_error_event_does_not_refresh_the_cache() -> None:
    pods = pods_of(watches=(Stream(30.0, [error_event(500)]), *(BUSY,) * 9))

    assert await ages(pods, 40) == [40]


async def test_status_has_the_times_of_the_last_contact_and_event() -> None:
    stream = Stream(10.0, [added(thing("c", 6))], 10.0, [bookmark(7)])
    pods = pods_of(watches=(stream,))

    async with running(pods.run()):
        await asyncio.sleep(5)
        early = pods.status
        await asyncio.sleep(30)
        late = pods.status

    assert early.last_contact == pytest.approx(0, abs=0.1)
    assert early.last_event is None
    assert late.last_contact == pytest.approx(20, abs=0.1)
    assert late.last_event == pytest.approx(10, abs=0.1), "a bookmark is no event"
    assert late.resource_version == "7"


# ---------------------------------------------------------------- errors


async def test_status_has_the_last_error_until_the_next_success() -> None:
    pods = pods_of(
        REFUSED,
        BUSY,
        TransportError("down"),
        Page([thing("a")], version=5),
    )
    found: list[tuple[int, str, int, int]] = []

    async with running(pods.run()):
        seen: BaseException | None = None
        while not pods.has_synced:
            status = pods.status
            if status.last_error is not seen:
                seen = status.last_error
                found.append(
                    (
                        status.last_error_status,
                        status.last_error_reason,
                        status.failures,
                        status.restarts,
                    )
                )

            await asyncio.sleep(0.1)

        after = pods.status

    assert found == [(403, "Forbidden", 1, 1), (503, "", 2, 2), (0, "", 3, 3)]
    assert (after.last_error, after.failures, after.restarts) == (None, 0, 3)
    assert (after.last_error_status, after.last_error_reason) == (0, "")


async def test_failed_transform_counts_as_degraded() -> None:
    def fail(obj: KubeObject) -> KubeObject:
        if obj.name == "a":
            raise ValueError("no")

        return obj

    stream = Stream([modified(thing("a", 6)), modified(thing("b", 7))])
    stream.skipped = 1
    pods = pods_of(watches=(stream,), transform=fail)

    async with running(pods.run()):
        await asyncio.sleep(1)

        assert pods.status.degraded == 3, "one listed, one watched, one unreadable"
        assert [obj.resource_version for obj in pods.store.list()] == ["6", "7"]


async def test_informer_whose_handlers_drain_is_stopping() -> None:
    pods = pods_of(Page([thing("a")], version=5))

    @pods.on_add
    async def slow(_: KubeObject) -> None:
        await asyncio.sleep(3)

    running_pods = asyncio.create_task(pods.run())
    await asyncio.sleep(1)
    running_pods.cancel()
    await asyncio.sleep(1)
    during = pods.status.phase
    await asyncio.wait({running_pods})

    assert (during, pods.status.phase) == ("stopping", "stopped")


class Unserved(FakeSource):
    """A source that denies its resource from some time on."""

    served = True

    async def is_served(self) -> bool:
        return self.served


async def test_resource_not_served_for_a_minute_is_absent() -> None:
    missing = NotFound("no such resource", status=404, reason="NotFound")
    source = Unserved(
        [
            Page([thing("a")], version=5),
            *(missing,) * 20,
            Page([thing("b")], version=9),
        ],
        [Stream(10.0, [error_event(404)])],
    )
    pods = SharedInformer(source, name="pods", rng=Even())
    removed: list[bool] = []
    pods.add_event_handler(
        on_event=lambda event: (
            removed.append(event.final_state_unknown)
            if isinstance(event, Deleted)
            else None
        )
    )

    async with running(pods.run()):
        await asyncio.sleep(5)
        source.served = False
        await asyncio.sleep(50)
        missed, kept = pods.status, len(pods.lister.list())
        await asyncio.sleep(100)
        absent, left = pods.status, len(pods.lister.list())
        source.served = True
        while pods.status.not_served:
            await asyncio.sleep(1)

        back = pods.status
        await settle()
        stored = [obj.name for obj in pods.lister.list()]

    assert (missed.phase, missed.not_served, kept) == ("backing off", True, 1)
    assert (absent.phase, absent.not_served, left) == ("absent", True, 0)
    assert (absent.synced, absent.resource_version) == (True, "5")
    assert removed == [True]
    assert back.phase == "watching"
    assert stored == ["b"]


def test_status_is_an_immutable_value() -> None:
    one, other = pods_of().status, pods_of().status

    assert one == other
    assert isinstance(one, InformerStatus)
    with pytest.raises(AttributeError):
        one.phase = "dead"  # type: ignore[misc]


# ---------------------------------------------------------------- max_staleness


async def test_read_refuses_a_cache_that_is_too_old() -> None:
    pods = pods_of(watches=(Stream(TransportError("cut")), *(BUSY,) * 30))

    async with running(pods.run()):
        await asyncio.sleep(50)
        fresh = pods.lister.list(max_staleness=51)
        with pytest.raises(Stale) as raised:
            pods.lister.list(max_staleness=timedelta(seconds=49))

        lasting = pods.lister.list()

    text = str(raised.value)
    assert text.startswith("pods is 50.0 s old, more than 49 s: ")
    assert "503: busy" in text
    assert len(fresh) == len(lasting) == 2


async def test_unsynced_cache_is_stale() -> None:
    pods = pods_of(Silence())

    async with running(pods.run()):
        await settle()
        with pytest.raises(NotSynced):
            pods.lister.list(max_staleness=10)

        with pytest.raises(
            Stale, match="pods has not listed yet: listing, no error so far"
        ):
            pods.lister.list(max_staleness=10, allow_unsynced=True)


def test_cache_that_never_ran_is_stale() -> None:
    with pytest.raises(Stale, match="idle"):
        pods_of().lister.get("default/a", max_staleness=10, allow_unsynced=True)


async def test_age_of_a_stopped_cache_grows() -> None:
    pods = pods_of()
    async with running(pods.run()):
        await pods.wait_synced()

    lister = pods.lister
    assert lister.list(max_staleness=10, allow_unsynced=True)
    await asyncio.sleep(20)

    with pytest.raises(Stale, match=r"20\.0 s old.*stopped"):
        lister.list(max_staleness=10, allow_unsynced=True)


async def test_max_staleness_works_in_a_thread() -> None:
    pods = pods_of()

    async with running(pods.run()):
        await asyncio.sleep(30)

        assert error_in_thread(lambda: pods.lister.json(max_staleness=40)) is None
        error = error_in_thread(lambda: pods.lister.json(max_staleness=20))

    assert isinstance(error, Stale)


@pytest.mark.parametrize("most", [-1, timedelta(seconds=-1), float("nan")], ids=repr)
async def test_invalid_max_staleness_is_refused(most: float | timedelta) -> None:
    pods = pods_of()

    async with running(pods.run()):
        await pods.wait_synced()
        with pytest.raises(OptionsError):
            pods.lister.get("default/a", max_staleness=most)


# ---------------------------------------------------------------- describe_state


@pytest.mark.parametrize(
    ("error", "failures", "text"),
    [
        (None, 0, "no error so far"),
        (ServerError("busy", status=503), 1, "1 attempt failed: 503: busy"),
        (TransportError("down"), 2, "2 attempts failed: down"),
        (DecodeError("no list"), 1, "1 attempt failed: no list"),
        (
            Unauthorized("who", status=401, reason="Unauthorized"),
            2,
            "2 attempts failed: 401 Unauthorized: who (the server does not accept the credentials)",
        ),
        (
            Forbidden("no", status=403, reason="Forbidden"),
            2,
            "2 attempts failed: 403 Forbidden: no (both list and watch must be allowed)",
        ),
        (
            NotFound("where", status=404, reason="NotFound"),
            1,
            "1 attempt failed: 404 NotFound: where (the server does not serve the resource)",
        ),
        (NotFound("no API", status=404), 1, "1 attempt failed: 404: no API"),
    ],
    ids=["none", "500", "network", "unreadable", "401", "403", "404", "explained"],
)
def test_state_includes_the_last_error(
    error: Exception | None, failures: int, text: str
) -> None:
    assert describe_state("listing", error, failures) == f"listing, {text}"


def test_state_includes_abandoned_streams() -> None:
    assert describe_state("backing off", None, 0, streams_given_up=True) == (
        "backing off, no error so far, listing in pages because the server did not "
        "stream lists"
    )
