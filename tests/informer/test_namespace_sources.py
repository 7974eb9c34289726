"""Several namespaces in one informer: versions, failures, and refused calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_source import (
    END,
    FakeSource,
    Page,
    ServedSource,
    Silence,
    Stream,
    bookmark,
    error_event,
    modified,
)
from informer_helpers import running, settle, text_of
from namespace_helpers import informer_of, keys, of, scripts, two

from aioinformer.cache import OrderedFIFO
from aioinformer.errors import (
    Forbidden,
    HistoryReset,
    NotFound,
    NotSynced,
    OptionsError,
    Stale,
)
from aioinformer.informer import SharedInformer

REFUSED = Forbidden("no", status=403)

# ---------------------------------------------------------------- versions


async def test_store_version_is_the_lowest_of_all_namespaces() -> None:
    shop, web = Stream(), Stream()
    pods = two(watch=shop, other=web)
    found: list[str] = []

    async with running(pods.run()):
        await pods.wait_synced()
        for stream, version in ((web, 20), (shop, 12), (shop, 30)):
            found.append(pods.store.resource_version)
            stream.send(bookmark(version))
            await settle()

        found.append(pods.store.resource_version)
        status = pods.status

    assert found == ["5", "5", "12", "20"]
    assert status.resource_version == "20"
    assert {name: it.resource_version for name, it in status.namespaces.items()} == {
        "shop": "30",
        "web": "20",
    }


async def test_store_has_no_version_before_every_namespace_has_one() -> None:
    pods = two(Silence())

    async with running(pods.run()):
        await settle()

        assert pods.store.resource_version == ""
        assert pods.status.namespaces["web"].resource_version == "7"


async def test_wait_for_version_waits_for_all_namespaces(looptime: float) -> None:
    pods = two(watch=Stream(4.0, [bookmark(9)]), other=Stream(2.0, [bookmark(9)]))

    async with running(pods.run()):
        await pods.wait_for_version("9", namespace="web")
        alone = float(looptime)
        await pods.wait_for_version("9", timeout=100)

    assert (alone, looptime) == (2, 4)


async def test_wait_for_version_names_the_version_reached_by_a_namespace() -> None:
    pods = two()

    async with running(pods.run()):
        with pytest.raises(
            TimeoutError, match=r"not reach version 9 within 3 s .version=7"
        ):
            await pods.wait_for_version("9", 3, namespace="web")

        with pytest.raises(
            TimeoutError, match=r"not reach version 9 within 3 s .version=5"
        ):
            await pods.wait_for_version("9", 3)


async def test_history_reset_in_one_namespace_fails_all_version_waits() -> None:
    pods = two(watch=Stream(2.0, [modified(of("shop", "a", 3))]))

    async with running(pods.run()):
        with pytest.raises(HistoryReset):
            await pods.wait_for_version("99", timeout=60)


async def test_incomparable_versions_cannot_be_waited_for() -> None:
    pods = two(Page([of("shop", "a")], version="v5"))

    async with running(pods.run()):
        waiter = asyncio.create_task(pods.wait_for_version("5"))
        await pods.wait_synced()

        assert pods.store.resource_version == "v5"
        with pytest.raises(OptionsError, match="v5"):
            await waiter

        await pods.wait_for_version("7", namespace="web")


# ---------------------------------------------------------------- failures in one namespace


async def test_refusal_in_one_namespace_does_not_stop_the_others() -> None:
    web = Stream()
    pods = two(REFUSED, other=web)
    received: list[str] = []
    pods.add_event_handler(on_event=lambda event: received.append(text_of(event)))

    async with running(pods.run()):
        with pytest.raises(NotSynced) as raised:
            await pods.wait_synced(timeout=60)

        web.send(modified(of("web", "a", 8)))
        await settle()
        status = pods.status

        assert received == ["initial a", "initial c", "updated a"]
        assert keys(pods.lister.namespace("web").list()) == ["web/a", "web/c"]
        with pytest.raises(NotSynced, match="shop: backing off"):
            pods.lister.list()

        with pytest.raises(NotSynced):
            pods.lister.namespace("shop").list()

        assert len(pods.lister.list(allow_unsynced=True)) == 2

    assert str(raised.value) == (
        "pods is not synced: shop: backing off, 2 attempts failed: 403: no "
        "(both list and watch must be allowed)"
    )
    assert raised.value.__cause__ is REFUSED
    assert (status.synced, status.phase, status.last_error) == (
        *(False, "backing off"),
        REFUSED,
    )
    assert [it.synced for it in status.namespaces.values()] == [False, True]
    assert status.namespaces["web"].last_error is None
    assert status.namespaces["shop"].last_error_status == 403


async def test_wait_for_an_object_needs_only_its_namespace() -> None:
    pods = two(REFUSED)

    async with running(pods.run()):
        await pods.wait_until(lambda it: it is not None, "web/a", timeout=5)
        with pytest.raises(NotSynced, match="shop"):
            await pods.wait_until(lambda it: it is not None, "shop/a", timeout=60)


async def test_resource_removed_in_one_namespace_is_absent_only_there() -> None:
    missing = NotFound("no such resource", status=404, reason="NotFound")
    shop = ServedSource(
        [Page([of("shop", "a")], version=5), missing],
        [Stream(1.0, [error_event(404)])],
    )
    web = FakeSource([Page([of("web", "a")], version=7)])
    pods = informer_of(shop=shop, web=web)

    async with running(pods.run()):
        await asyncio.sleep(200)
        status = pods.status

        assert keys(pods.store.list()) == ["web/a"]

    assert (status.phase, status.not_served) == ("absent", True)
    assert status.namespaces["web"].phase == "watching"


async def test_max_staleness_applies_to_the_namespaces_read() -> None:
    shop = FakeSource([Page([of("shop", "a")], version=5)], [REFUSED] * 50)
    bookmarks = [step for n in range(40) for step in (10.0, [bookmark(8 + n)])]
    web = FakeSource([Page([of("web", "a")], version=7)], [Stream(*bookmarks)])
    pods = informer_of(shop=shop, web=web)

    async with running(pods.run()):
        await asyncio.sleep(100)

        assert pods.lister.namespace("web").list(max_staleness=60)
        with pytest.raises(Stale, match=r"100\.0 s old.*shop: backing off"):
            pods.lister.list(max_staleness=60)

        with pytest.raises(Stale):
            pods.lister.namespace("shop").get("a", max_staleness=60)

        assert pods.status.age == pytest.approx(100, abs=1)


async def test_one_error_handler_gets_each_failure() -> None:
    received: list[Exception] = []
    pods = two(REFUSED)
    pods.set_watch_error_handler(received.append)

    async with running(pods.run()):
        await asyncio.sleep(5)

    assert received
    assert set(received) == {REFUSED}


# ---------------------------------------------------------------- refused calls


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda pods: pods.lister.namespace("x").list(), id="list"),
        pytest.param(lambda pods: pods.lister.namespace("x").get("a"), id="get"),
        pytest.param(lambda pods: pods.lister.namespace("x").json(), id="json"),
        pytest.param(lambda pods: pods.lister.get("x/a"), id="get-by-full-key"),
    ],
)
async def test_read_of_an_unlisted_namespace_is_refused(read: Any) -> None:
    pods = two()

    async with running(pods.run()):
        await pods.wait_synced()
        with pytest.raises(
            OptionsError, match="does not watch namespace 'x', only shop, web"
        ):
            read(pods)


async def test_wait_for_an_object_in_an_unlisted_namespace_is_refused() -> None:
    pods = two()

    async with running(pods.run()):
        with pytest.raises(OptionsError, match="'x'"):
            await pods.wait_until(lambda it: it is None, "x/a")

        with pytest.raises(OptionsError, match="'x'"):
            await pods.wait_for_version("7", namespace="x")


@pytest.mark.parametrize("names", [[], [""]], ids=["none", "empty"])
def test_namespace_names_must_not_be_empty(names: list[str]) -> None:
    with pytest.raises(OptionsError):
        SharedInformer({name: FakeSource() for name in names})


def test_one_queue_cannot_serve_several_namespaces() -> None:
    with pytest.raises(OptionsError, match="queue"):
        SharedInformer({"a": FakeSource(), "b": FakeSource()}, queue=OrderedFIFO())


# ---------------------------------------------------------------- a single namespace


async def test_single_namespace_can_be_named_too() -> None:
    pods = informer_of(shop=scripts(watch=Stream(1.0, [bookmark(9)], 1.0, END)))

    async with running(pods.run()):
        await pods.wait_synced()
        await pods.wait_for_version("9", namespace="shop")

        assert pods.store.resource_version == "9"
        assert keys(pods.lister.namespace("shop").list()) == ["shop/a", "shop/b"]
        assert list(pods.status.namespaces) == ["shop"]
        with pytest.raises(OptionsError):
            pods.lister.namespace("web").list()


async def test_single_namespace_is_measured_by_the_name_of_its_informer() -> None:
    names: set[str] = set()

    class Sink:
        enabled = True

        def count(self, _name: str, _value: float = 1.0, /, **labels: str) -> None:
            names.add(labels["name"])

        gauge = observe = count

    source = FakeSource([Page([of("shop", "a")], version=5)], [Stream()])
    pods = SharedInformer({"shop": source}, name="pods", metrics=Sink())

    async with running(pods.run()):
        await pods.wait_synced()

    assert names == {"pods"}
