"""`Pager`: pages of a list, combined or yielded as they arrive."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from fake_source import FakeSource, Page, Silence, thing

from aioinformer.client import Pager
from aioinformer.errors import (
    DecodeError,
    OptionsError,
    ResourceExpired,
    ServerError,
    TransportError,
)
from aioinformer.watch import ListOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client import PagedList
    from aioinformer.model import KubeObject

EXPIRED = ResourceExpired("too old", status=410, reason="Expired")
GONE = ResourceExpired("gone", status=410, reason="Gone")
BUSY = ServerError("busy", status=503)


def pages_of(*names: str, version: int = 7) -> list[Page | Exception | Silence]:
    """Return a page for each string: one object per letter, growing versions."""
    last = len(names) - 1
    return [
        Page(
            [thing(letter) for letter in text],
            version=version + number,
            token=f"t{number + 1}" if number < last else "",
        )
        for number, text in enumerate(names)
    ]


def text(objects: Iterable[KubeObject]) -> str:
    return "".join(obj.name for obj in objects)


def options_of(source: FakeSource) -> list[ListOptions]:
    return [it.options for it in source.requests if isinstance(it.options, ListOptions)]


async def listed(source: FakeSource, **options: Any) -> PagedList:
    return await Pager(source, page_size=2).list(ListOptions(**options))


# ---------------------------------------------------------------- whole lists


@each_case(
    "names, paginated",
    [
        pytest.param([""], False, id="empty"),
        pytest.param(["a"], False, id="a-short-page"),
        pytest.param(["ab"], False, id="one-full-page"),
        pytest.param(["ab", "c"], True, id="two-pages"),
        pytest.param(["ab", "cd", "ef"], True, id="three-pages"),
        pytest.param(["ab", "", "c"], True, id="an-empty-page"),
    ],
)
async def test_pager_list_combines_pages(names: list[str], paginated: bool) -> None:
    source = FakeSource(pages_of(*names))

    found = await listed(source)

    assert text(found.objects) == "".join(names)
    assert found.paginated is paginated
    assert found.resource_version == "7", "that of the first page"
    assert [it.limit for it in options_of(source)] == [2] * len(names)


async def test_pager_requests_500_objects_by_default() -> None:
    source = FakeSource()

    await Pager(source).list()
    await Pager(source, page_size=0).list()
    await Pager(source).list(ListOptions(limit=7))

    assert [it.limit for it in options_of(source)] == [500, 0, 7]


async def test_pager_list_sends_version_for_first_page_only() -> None:
    source = FakeSource(pages_of("ab", "cd", "e"))

    await listed(source, resource_version="5", resource_version_match="NotOlderThan")

    first, *others = options_of(source)
    assert (first.resource_version, first.resource_version_match) == (
        "5",
        "NotOlderThan",
    )
    assert others == [
        ListOptions(limit=2, continue_token="t1"),
        ListOptions(limit=2, continue_token="t2"),
    ]


@pytest.mark.parametrize("pages_ahead", [0, 1])
async def test_pager_starts_at_given_continue_token(pages_ahead: int) -> None:
    source = FakeSource(pages_of("cd", "e"))
    pager = Pager(source, page_size=2, pages_ahead=pages_ahead)

    found = await pager.list(ListOptions(continue_token="t0"))

    assert text(found.objects) == "cde"
    assert source.requested == ["list t0", "list t1"]


async def test_pager_raises_for_page_that_continues_with_itself() -> None:
    source = FakeSource([Page([thing("a")], token="t0")])

    with pytest.raises(DecodeError, match="repeats a page"):
        await listed(source, continue_token="t0")

    assert source.requested == ["list t0"]


@pytest.mark.parametrize("error", [EXPIRED, GONE])
@pytest.mark.parametrize("match", ["", "NotOlderThan"])
async def test_pager_lists_without_pages_after_expiry_between_pages(
    error: ResourceExpired, match: str
) -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], error, *pages_of("xyz", version=9)])
    requested = ListOptions(limit=2, resource_version="5", resource_version_match=match)

    found = await Pager(source).list(requested)

    assert text(found.objects) == "xyz", "nothing of what was read before"
    assert (found.resource_version, found.paginated) == ("9", True)
    assert options_of(source)[-1] == replace(requested, limit=0)


async def test_pager_without_full_list_raises_on_expiry_between_pages() -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], EXPIRED, Page()])

    with pytest.raises(ResourceExpired):
        await Pager(source, full_list_if_expired=False).list()

    assert len(source.requests) == 2


@pytest.mark.parametrize("error", [EXPIRED, BUSY])
async def test_pager_raises_error_of_first_page(error: Exception) -> None:
    source = FakeSource([error, *pages_of("a")])

    with pytest.raises(type(error)):
        await listed(source, resource_version="5")

    assert len(source.requests) == 1


async def test_pager_raises_other_errors_between_pages() -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], BUSY, Page()])

    with pytest.raises(ServerError):
        await listed(source)

    assert len(source.requests) == 2


async def test_pager_raises_if_full_list_expires_as_well() -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], EXPIRED, EXPIRED])

    with pytest.raises(ResourceExpired):
        await listed(source)

    assert len(source.requests) == 3


async def test_pager_raises_for_pages_in_a_circle() -> None:
    source = FakeSource([Page(token="a"), Page(token="b"), Page(token="a")])

    with pytest.raises(DecodeError, match="repeats a page"):
        await listed(source)

    assert source.open == 0


async def test_pager_counts_and_logs_unreadable_objects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = Page([thing("a")], token="t", skipped=2), Page(skipped=1)

    found = await listed(FakeSource([first, second]))

    assert found.skipped == 3
    assert "list has 3 unreadable objects" in caplog.text


@pytest.mark.parametrize(("number", "value"), [("page_size", -1), ("pages_ahead", -1)])
def test_pager_rejects_negative_numbers(number: str, value: int) -> None:
    options: dict[str, Any] = {number: value}

    with pytest.raises(OptionsError, match=number):
        Pager(FakeSource(), **options)


def test_pager_rejects_more_than_one_page_ahead() -> None:
    with pytest.raises(OptionsError, match="0 or 1"):
        Pager(FakeSource(), pages_ahead=10)


# ---------------------------------------------------------------- while they arrive


async def test_pager_items_yields_every_object() -> None:
    source = FakeSource(pages_of("ab", "cd", "e"))

    found = [obj async for obj in Pager(source, page_size=2).items()]

    assert text(found) == "abcde"


async def test_pager_batches_yields_objects_as_they_arrive() -> None:
    source = FakeSource(pages_of("abc", "d"))

    found = [text(objects) async for objects in Pager(source).batches()]

    assert found == ["ab", "c", "d"]


async def test_pager_batches_sends_version_for_first_page_only() -> None:
    source = FakeSource(pages_of("ab", "c"))
    options = ListOptions(resource_version="5", resource_version_match="Exact")

    _ = [obj async for obj in Pager(source).items(options)]

    assert options_of(source)[1] == ListOptions(limit=500, continue_token="t1")


async def test_pager_batches_raises_on_expiry_between_pages() -> None:
    source = FakeSource([*pages_of("ab", "c")[:1], EXPIRED, *pages_of("xyz")])
    items = Pager(source).items()

    assert text([await anext(items), await anext(items)]) == "ab"
    with pytest.raises(ResourceExpired):
        await anext(items)

    assert len(source.requests) == 2


@pytest.mark.parametrize(("ahead", "requested"), [(0, 1), (1, 2)])
async def test_pager_requests_given_number_of_pages_ahead(
    ahead: int, requested: int
) -> None:
    source = FakeSource(pages_of("ab", "cd", "ef"))

    async with aclosing(Pager(source, pages_ahead=ahead).batches()) as batches:
        assert text(await anext(batches)) == "ab"
        await asyncio.sleep(100)
        assert len(source.requests) == requested

    assert source.open == 0


async def test_error_of_page_ahead_is_raised_after_current_page() -> None:
    first = Page([thing(letter) for letter in "abcd"], token="t")
    source = FakeSource([first, BUSY])
    batches = Pager(source).batches()

    assert text(await anext(batches)) == "ab"
    await asyncio.sleep(1)
    assert len(source.requests) == 2, "it has failed already"
    assert text(await anext(batches)) == "cd"
    with pytest.raises(ServerError):
        await anext(batches)


async def test_error_in_iteration_body_closes_pages() -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], BUSY])

    async def read() -> None:
        async with aclosing(Pager(source).items()) as items:
            async for _ in items:
                await asyncio.sleep(1)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()

    assert source.open == 0


async def test_closed_pager_iteration_leaves_no_page_open() -> None:
    source = FakeSource(pages_of("ab", "cd"))

    async for _ in Pager(source).items():
        break

    await asyncio.sleep(1)
    assert source.open == 0


@each_case("turn", range(20))
async def test_pager_can_be_cancelled_in_every_turn_of_loop(turn: int) -> None:
    source = FakeSource(pages_of("ab", "cd", "e"))
    task = asyncio.create_task(listed(source))
    for _ in range(turn):
        await asyncio.sleep(0)

    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled() or text(task.result().objects) == "abcde"
    assert source.open == 0
    assert len(asyncio.all_tasks()) == 1


async def test_pager_raises_error_within_page() -> None:
    broken = Page([thing("a")], token="t", error=TransportError("broken"))
    source = FakeSource([broken, Silence()])

    with pytest.raises(TransportError):
        await listed(source)

    assert source.open == 0
