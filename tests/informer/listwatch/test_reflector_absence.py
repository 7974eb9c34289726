"""`Reflector`: resources that the server does not serve, or no longer serves."""

from __future__ import annotations

import asyncio

import pytest
from fake_source import (
    END,
    FakeSource,
    FakeStore,
    Page,
    ServedSource,
    Silence,
    Stream,
    thing,
)
from informer_helpers import reflector_of, running

from aioinformer.errors import ApiError, NotFound, ServerError, TransportError

GONE = NotFound("the server could not find the requested resource", status=404)
BUSY = ServerError("busy", status=503)
HERE = Page([thing("a", 3)], version=7)


def listed_then_removed(
    *more: Page | Exception, served: object = (False,)
) -> ServedSource:
    """Make a source that is listed, watched for a second, and then unknown."""
    watches: list[Stream | Exception] = [Stream(1.0, END), GONE]
    assert isinstance(served, tuple)
    return ServedSource([HERE, *(more or (GONE,))], watches, served)


async def test_resource_not_served_for_a_minute_is_cleared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, store = listed_then_removed(), FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(60)

        assert (store.names, store.cleared) == (["a@3"], 0)
        assert (reflector.not_served, reflector.phase) == (True, "backing off")
        await asyncio.sleep(60)

        assert (store.names, store.cleared) == ([], 1)
        assert (reflector.not_served, reflector.phase) == (True, "absent")
        await asyncio.sleep(600)

        assert (store.cleared, reflector.phase) == (1, "absent")

    listed = [it.time for it in source.requests if it.verb == "list"][1:]
    assert source.served_checks == pytest.approx(listed, abs=1e-3), (
        "after each 404, without a cache"
    )
    assert caplog.text.count("resource is no longer served, removing all objects") == 1


async def test_resource_listed_at_version_0_is_cleared() -> None:
    lists: list[Page | Exception] = [Page([thing("a")], version="0"), GONE]
    source, store = ServedSource(lists, [Stream(1.0, END)]), FakeStore()

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(200)

    assert (store.names, store.cleared) == ([], 1)


async def test_lists_of_an_absent_resource_start_at_version_0() -> None:
    source = listed_then_removed()

    async with running(reflector_of(source).run()):
        await asyncio.sleep(400)

    lists = [it for it in source.requested if it.startswith("list")]
    assert lists[:2] == ["list '0'", "list '7'"]
    assert lists[-1] == "list '0'", "known versions are void"


async def test_resource_that_returns_is_listed_and_watched() -> None:
    back = Page([thing("b", 90)], version=91)
    source, store = listed_then_removed(*[GONE] * 9, back), FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(400)

        assert (reflector.phase, reflector.not_served) == ("watching", False)

    assert (store.cleared, store.names) == (1, ["b@90"])
    assert reflector.history_resets == 0


async def test_resource_that_returns_may_have_older_versions() -> None:
    back = Page([thing("b", 2)], version=3)
    source, store = listed_then_removed(*[GONE] * 9, back), FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(400)

    assert (store.names, reflector.history_resets) == (["b@2"], 0)


@pytest.mark.parametrize(
    "served",
    [
        pytest.param((True,), id="named"),
        pytest.param((TransportError("broken"),), id="unreachable"),
        pytest.param((ApiError("no", status=403),), id="refused"),
        pytest.param((Silence(),), id="silent"),
        pytest.param((False, False, False, False, True), id="named-in-between"),
    ],
)
async def test_store_is_cleared_only_if_the_server_denies_the_resource(
    served: object,
) -> None:
    source, store = listed_then_removed(served=served), FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(1000)

        assert reflector.phase != "absent"

    assert len(source.served_checks) > 5
    assert (store.names, store.cleared, source.open) == (["a@3"], 0, 0)


async def test_source_without_discovery_is_never_cleared() -> None:
    source, store = FakeSource([HERE, GONE], [Stream(1.0, END), GONE]), FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(1000)

        assert (store.names, reflector.not_served) == (["a@3"], True)


async def test_minute_restarts_after_the_server_was_unreachable() -> None:
    # 404 for half a minute, then unreachable, then 404 as it has just started.
    lists = [*[GONE] * 4, BUSY, *[GONE] * 2]
    source, store = listed_then_removed(*lists, Page(version=9)), FakeStore()

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(400)

    assert (store.cleared, store.commits) == (0, ["7", "9"])
    assert source.served_checks[-1] - source.served_checks[0] > 60


async def test_resource_that_never_existed_becomes_absent() -> None:
    source, store = ServedSource([GONE]), FakeStore()
    reflector = reflector_of(source, store)

    async with running(reflector.run()):
        await asyncio.sleep(200)

        assert (reflector.phase, store.cleared) == ("absent", 0)


async def test_streaming_reflector_clears_a_removed_resource() -> None:
    source, store = ServedSource([], [GONE]), FakeStore()
    for _ in range(20):
        source.watches.append(GONE)
    source.lists[0] = GONE
    reflector = reflector_of(source, store, streaming_list=True)

    async with running(reflector.run()):
        await asyncio.sleep(200)

        assert reflector.phase == "absent"
