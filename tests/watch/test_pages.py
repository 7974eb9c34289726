"""`PagesAhead`: the next page is requested while one is read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from each_case import each_case
from fake_source import FakeSource, Page, Silence, thing

from aioinformer.errors import ResourceExpired, TransportError
from aioinformer.watch import ListOptions, PagesAhead

if TYPE_CHECKING:
    from aioinformer.watch import ListPage

FIRST = ListOptions(limit=2)
SECOND = ListOptions(limit=2, continue_token="t")
OTHER = ListOptions(limit=2, continue_token="u")

EXPIRED = ResourceExpired("too old", status=410)


async def names_of(page: ListPage) -> str:
    async with aclosing(aiter(page)) as pieces:
        return "".join([it.name async for objects in pieces for it in objects])


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_page_can_be_read_without_request_ahead() -> None:
    source = FakeSource([Page([thing("a")], token="t")])

    async with PagesAhead(source) as pages, pages.page(FIRST) as page:
        assert await names_of(page) == "a"
        assert page.continue_token == "t"

    assert source.requested == ["list ''"]
    assert source.open == 0


async def test_next_page_is_requested_while_one_is_read() -> None:
    source = FakeSource([Page([thing("a")], token="t"), Page([thing("b")])])

    async with PagesAhead(source) as pages:
        async with pages.page(FIRST) as page:
            pages.request_ahead(SECOND)
            await turns()
            assert source.requested == ["list ''", "list t"], "before the first is read"
            assert await names_of(page) == "a"

        async with pages.page(SECOND) as page:
            assert await names_of(page) == "b"

        assert source.open == 0

    assert len(source.requested) == 2


async def test_repeated_request_ahead_changes_nothing() -> None:
    source = FakeSource([Page([thing("a")])])

    async with PagesAhead(source) as pages:
        for _ in range(3):
            pages.request_ahead(SECOND)
            await turns()

        async with pages.page(SECOND) as page:
            assert await names_of(page) == "a"

    assert source.requested == ["list t"]


async def test_read_page_can_be_requested_again() -> None:
    source = FakeSource([Page([thing("a")]), Page([thing("b")])])

    async with PagesAhead(source) as pages:
        for name in "ab":
            pages.request_ahead(SECOND)
            await turns()
            assert source.open == 1
            async with pages.page(SECOND) as page:
                assert await names_of(page) == name


async def test_request_for_other_page_drops_page_ahead() -> None:
    source = FakeSource([Page([thing("a")]), Page([thing("b")])])

    async with PagesAhead(source) as pages:
        pages.request_ahead(SECOND)
        await turns()
        pages.request_ahead(OTHER)
        await turns()
        assert source.requested == ["list t", "list u"]
        assert source.open == 1

        async with pages.page(OTHER) as page:
            assert await names_of(page) == "b"


async def test_reading_other_page_drops_page_ahead() -> None:
    source = FakeSource([Page([thing("a")]), Page([thing("b")])])

    async with PagesAhead(source) as pages:
        pages.request_ahead(SECOND)
        await turns()

        async with pages.page(FIRST) as page:
            assert await names_of(page) == "b"
            await turns()
            assert source.open == 1

        async with pages.page(SECOND) as page:
            assert await names_of(page) == "b", "it was requested again"

    assert len(source.requested) == 3


async def test_error_of_page_ahead_is_raised_by_its_page() -> None:
    source = FakeSource([Page([thing("a")]), EXPIRED])

    async with PagesAhead(source) as pages:
        async with pages.page(FIRST) as page:
            pages.request_ahead(SECOND)
            await turns()
            assert await names_of(page) == "a"

        with pytest.raises(ResourceExpired):
            async with pages.page(SECOND):
                pytest.fail("there is no such page")


async def test_error_of_an_unused_page_ahead_is_dropped() -> None:
    source = FakeSource([EXPIRED])

    async with PagesAhead(source) as pages:
        pages.request_ahead(SECOND)
        await turns()

    assert source.requested == ["list t"]


async def test_error_while_reading_page_ahead_is_raised_to_reader() -> None:
    source = FakeSource([Page([thing("a")], error=TransportError("broken"))])

    async with PagesAhead(source) as pages:
        pages.request_ahead(SECOND)
        with pytest.raises(TransportError):
            async with pages.page(SECOND) as page:
                await names_of(page)

        assert source.open == 0


@each_case("answer", [Page([thing("a")]), Silence()])
@each_case("number", range(4))
async def test_pages_ahead_leaves_no_task_and_no_connection(
    answer: Page | Silence, number: int
) -> None:
    source = FakeSource([answer])

    async with PagesAhead(source) as pages:
        pages.request_ahead(SECOND)
        await turns(number)

    assert source.open == 0


async def test_dropped_pages_are_left() -> None:
    source = FakeSource([Page()])

    async with PagesAhead(source) as pages:
        for token in "abc":
            pages.request_ahead(ListOptions(continue_token=token))
            await turns(3)

        pages.request_ahead(FIRST)
        pages.request_ahead(SECOND)

        assert len(pages._dropped) < 4, "those that are left are forgotten"

    assert source.open == 0
    assert len(asyncio.all_tasks()) == 1


@each_case("turn", range(12))
async def test_pages_ahead_can_be_cancelled_in_every_turn_of_loop(turn: int) -> None:
    source = FakeSource([Page([thing("a")]), Page([thing("b")]), Page([thing("c")])])

    async def read() -> str:
        async with PagesAhead(source) as pages:
            async with pages.page(FIRST) as page:
                pages.request_ahead(SECOND)
                found = await names_of(page)

            async with pages.page(SECOND) as page:
                pages.request_ahead(OTHER)
                return found + await names_of(page)

    task = asyncio.create_task(read())
    await turns(turn)
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled() or task.result() == "ab"
    assert source.open == 0
    assert len(asyncio.all_tasks()) == 1


async def test_wait_for_page_ahead_can_be_cancelled() -> None:
    source = FakeSource([Silence()])

    async with PagesAhead(source) as pages:
        pages.request_ahead(SECOND)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5), pages.page(SECOND):
                pytest.fail("the server is silent")

        assert source.open == 0
