"""`Pager`: pages of a list, put together or handed out as they arrive."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
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
    """A page for each string, of things of one letter; later ones of later versions."""
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


@pytest.mark.parametrize(
    ("names", "paginated"),
    [
        pytest.param([""], False, id="empty"),
        pytest.param(["a"], False, id="a-short-page"),
        pytest.param(["ab"], False, id="one-full-page"),
        pytest.param(["ab", "c"], True, id="two-pages"),
        pytest.param(["ab", "cd", "ef"], True, id="three-pages"),
        pytest.param(["ab", "", "c"], True, id="an-empty-page"),
    ],
)
async def test_puts_all_pages_together(names: list[str], paginated: bool) -> None:
    source = FakeSource(pages_of(*names))

    found = await listed(source)

    assert text(found.objects) == "".join(names)
    assert found.paginated is paginated
    assert found.resource_version == "7", "that of the first page"
    assert [it.limit for it in options_of(source)] == [2] * len(names)


async def test_asks_for_500_objects_in_a_page_unless_told() -> None:
    source = FakeSource()

    await Pager(source).list()
    await Pager(source, page_size=0).list()
    await Pager(source).list(ListOptions(limit=7))

    assert [it.limit for it in options_of(source)] == [500, 0, 7]


async def test_says_version_and_match_for_the_first_page_alone() -> None:
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
async def test_begins_in_the_middle_where_it_is_told_to(pages_ahead: int) -> None:
    source = FakeSource(pages_of("cd", "e"))
    pager = Pager(source, page_size=2, pages_ahead=pages_ahead)

    found = await pager.list(ListOptions(continue_token="t0"))

    assert text(found.objects) == "cde"
    assert source.asked == ["list t0", "list t1"]


async def test_a_page_that_leads_to_itself_is_read_once() -> None:
    source = FakeSource([Page([thing("a")], token="t0")])

    with pytest.raises(DecodeError, match="repeats a page"):
        await listed(source, continue_token="t0")

    assert source.asked == ["list t0"]


@pytest.mark.parametrize("error", [EXPIRED, GONE])
@pytest.mark.parametrize("match", ["", "NotOlderThan"])
async def test_reads_all_at_once_after_it_expired_between_two_pages(
    error: ResourceExpired, match: str
) -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], error, *pages_of("xyz", version=9)])
    asked = ListOptions(limit=2, resource_version="5", resource_version_match=match)

    found = await Pager(source).list(asked)

    assert text(found.objects) == "xyz", "nothing of what was read before"
    assert (found.resource_version, found.paginated) == ("9", True)
    assert options_of(source)[-1] == replace(asked, limit=0)


async def test_expiry_between_two_pages_is_an_error_if_told_so() -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], EXPIRED, Page()])

    with pytest.raises(ResourceExpired):
        await Pager(source, full_list_if_expired=False).list()

    assert len(source.requests) == 2


@pytest.mark.parametrize("error", [EXPIRED, BUSY])
async def test_an_error_of_the_first_page_is_an_error(error: Exception) -> None:
    source = FakeSource([error, *pages_of("a")])

    with pytest.raises(type(error)):
        await listed(source, resource_version="5")

    assert len(source.requests) == 1


async def test_other_errors_between_two_pages_are_errors() -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], BUSY, Page()])

    with pytest.raises(ServerError):
        await listed(source)

    assert len(source.requests) == 2


async def test_expiry_of_the_whole_list_is_an_error() -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], EXPIRED, EXPIRED])

    with pytest.raises(ResourceExpired):
        await listed(source)

    assert len(source.requests) == 3


async def test_pages_that_lead_in_a_circle_are_an_error() -> None:
    source = FakeSource([Page(token="a"), Page(token="b"), Page(token="a")])

    with pytest.raises(DecodeError, match="repeats a page"):
        await listed(source)

    assert source.open == 0


async def test_counts_what_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Page([thing("a")], token="t", skipped=2), Page(skipped=1)

    found = await listed(FakeSource([first, second]))

    assert found.skipped == 3
    assert "list has 3 unreadable objects" in caplog.text


@pytest.mark.parametrize(("number", "value"), [("page_size", -1), ("pages_ahead", -1)])
def test_refuses_numbers_below_zero(number: str, value: int) -> None:
    options: dict[str, Any] = {number: value}

    with pytest.raises(OptionsError, match=number):
        Pager(FakeSource(), **options)


def test_refuses_to_hold_whole_pages_ahead() -> None:
    with pytest.raises(OptionsError, match="0 or 1"):
        Pager(FakeSource(), pages_ahead=10)


# ---------------------------------------------------------------- while they arrive


async def test_hands_out_every_object() -> None:
    source = FakeSource(pages_of("ab", "cd", "e"))

    found = [obj async for obj in Pager(source, page_size=2).items()]

    assert text(found) == "abcde"


async def test_hands_out_what_has_arrived() -> None:
    source = FakeSource(pages_of("abc", "d"))

    found = [text(objects) async for objects in Pager(source).batches()]

    assert found == ["ab", "c", "d"]


async def test_clears_version_and_match_while_handing_out_too() -> None:
    source = FakeSource(pages_of("ab", "c"))
    options = ListOptions(resource_version="5", resource_version_match="Exact")

    _ = [obj async for obj in Pager(source).items(options)]

    assert options_of(source)[1] == ListOptions(limit=500, continue_token="t1")


async def test_expiry_behind_objects_handed_out_is_an_error() -> None:
    source = FakeSource([*pages_of("ab", "c")[:1], EXPIRED, *pages_of("xyz")])
    items = Pager(source).items()

    assert text([await anext(items), await anext(items)]) == "ab"
    with pytest.raises(ResourceExpired):
        await anext(items)

    assert len(source.requests) == 2


@pytest.mark.parametrize(("ahead", "asked"), [(0, 1), (1, 2)])
async def test_reads_ahead_as_told(ahead: int, asked: int) -> None:
    source = FakeSource(pages_of("ab", "cd", "ef"))

    async with aclosing(Pager(source, pages_ahead=ahead).batches()) as batches:
        assert text(await anext(batches)) == "ab"
        await asyncio.sleep(100)
        assert len(source.requests) == asked

    assert source.open == 0


async def test_an_error_of_the_page_ahead_comes_behind_the_page_that_is_read() -> None:
    first = Page([thing(letter) for letter in "abcd"], token="t")
    source = FakeSource([first, BUSY])
    batches = Pager(source).batches()

    assert text(await anext(batches)) == "ab"
    await asyncio.sleep(1)
    assert len(source.requests) == 2, "it has failed already"
    assert text(await anext(batches)) == "cd"
    with pytest.raises(ServerError):
        await anext(batches)


async def test_the_users_error_ends_the_iteration_at_once() -> None:
    source = FakeSource([*pages_of("ab", "cd")[:1], BUSY])

    async def read() -> None:
        async with aclosing(Pager(source).items()) as items:
            async for _ in items:
                await asyncio.sleep(1)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()

    assert source.open == 0


async def test_leaves_nothing_behind_where_it_is_let_go_of() -> None:
    source = FakeSource(pages_of("ab", "cd"))

    async for _ in Pager(source).items():
        break

    await asyncio.sleep(1)
    assert source.open == 0


@pytest.mark.parametrize("turn", range(20))
async def test_can_be_cancelled_in_every_turn(turn: int) -> None:
    source = FakeSource(pages_of("ab", "cd", "e"))
    task = asyncio.create_task(listed(source))
    for _ in range(turn):
        await asyncio.sleep(0)

    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled() or text(task.result().objects) == "abcde"
    assert source.open == 0
    assert len(asyncio.all_tasks()) == 1


async def test_a_page_that_breaks_is_an_error() -> None:
    broken = Page([thing("a")], token="t", error=TransportError("broken"))
    source = FakeSource([broken, Silence()])

    with pytest.raises(TransportError):
        await listed(source)

    assert source.open == 0
