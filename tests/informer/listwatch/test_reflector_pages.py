"""`Reflector`: lists in pages, with the next page requested while one is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fake_source import FakeSource, FakeStore, Page, Silence, thing
from informer_helpers import reflector_of, running, settle

from aioinformer.errors import DecodeError, Invalid, ResourceExpired, TransportError
from aioinformer.watch import ListOptions

if TYPE_CHECKING:
    from aioinformer.model import KubeObject

BROKEN = TransportError("broken")
EXPIRED = ResourceExpired("too old", status=410)


def things(*names: str) -> list[KubeObject]:
    return [thing(name) for name in names]


async def test_next_page_is_requested_when_the_first_objects_arrive() -> None:
    # Each page takes a second until its head, and four for its objects.
    source = FakeSource(
        [
            Page(things("a"), version=7, token="t1", head=1.0),
            Page(things("b"), version=7, token="t2", head=1.0),
            Page(things("c"), version=7, head=1.0),
        ]
    )
    store = StoreThatTakesTime(4.0)

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(20)

    assert source.requested == ["list '0'", "list t1", "list t2", "watch '7'"]
    assert source.times == pytest.approx([0, 1, 5, 13], abs=1e-3)
    assert store.names == ["a@1", "b@1", "c@1"]


class StoreThatTakesTime(FakeStore):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def stage(
        self, objects: list[KubeObject], *, after_reset: bool = False
    ) -> None:
        await super().stage(objects, after_reset=after_reset)
        await asyncio.sleep(self.seconds)


async def test_at_most_one_page_is_requested_ahead() -> None:
    pages = [Page(things(f"a{n}"), version=7, token=f"t{n}") for n in range(1, 9)]
    source = FakeSource([*pages, Page(version=7)])
    opened = 0
    store = FakeStore()
    stage = store.stage

    async def watching(objects: list[KubeObject], *, after_reset: bool = False) -> None:
        nonlocal opened
        await settle()
        opened = max(opened, source.open)
        await stage(objects, after_reset=after_reset)

    store.stage = watching  # type: ignore[method-assign]

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(1)

    assert opened == 2
    assert len(store.objects) == 8


async def test_pages_requested_ahead_have_the_same_limit() -> None:
    source = FakeSource([Page(things("a"), token="t1"), Page()])

    async with running(reflector_of(source, page_size=7).run()):
        await settle()

    assert [request.options for request in source.requests[:2]] == [
        ListOptions(resource_version="0", limit=7),
        ListOptions(limit=7, continue_token="t1"),
    ]


async def test_empty_page_is_followed_by_the_next() -> None:
    source = FakeSource([Page([], version=7, token="t1"), Page(things("b"), version=7)])
    store = FakeStore()

    async with running(reflector_of(source, store).run()):
        await settle()

    assert store.names == ["b@1"]


async def test_version_of_the_first_page_counts() -> None:
    source = FakeSource([Page(things("a"), version=7, token="t1"), Page(version=9)])
    store = FakeStore()

    async with running(reflector_of(source, store).run()):
        await settle()

    assert store.commits == ["7"]


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(EXPIRED, id="refused"),
        pytest.param(Page(things("b"), error=BROKEN), id="breaks-off"),
    ],
)
async def test_failing_next_page_fails_the_list(second: Page | Exception) -> None:
    source = FakeSource([Page(things("a"), 7, "t1"), second, Page(things("c"), 9)])
    store = FakeStore()
    errors: list[Exception] = []
    reflector = reflector_of(source, store)
    reflector.set_watch_error_handler(errors.append)

    async with running(reflector.run()):
        await asyncio.sleep(5)

    again = "list ''" if isinstance(second, Exception) else "list '0'"
    assert source.requested == ["list '0'", "list t1", again, "watch '9'"]
    assert (store.names, len(errors)) == (["c@1"], 1)


async def test_aborted_list_closes_the_next_page() -> None:
    page = Page(things("a"), token="t1", error=BROKEN)
    source = FakeSource([page, Silence()])

    async with running(reflector_of(source, StoreThatTakesTime(0.5)).run()):
        await asyncio.sleep(0.4)

        assert (source.requested, source.open) == (["list '0'", "list t1"], 2)
        await asyncio.sleep(0.4)

        assert (source.requested, source.open) == (["list '0'", "list t1"], 0)


@pytest.mark.parametrize("length", [1, 2, 5])
async def test_repeated_continue_token_fails_the_list(length: int) -> None:
    circle = [f"t{number}" for number in range(1, length + 1)]
    pages = [Page(things(f"a{token}"), 7, token) for token in [*circle, "t1"]]
    source, store = FakeSource([*pages, Page(things("b"), 9)]), FakeStore()
    errors: list[Exception] = []
    reflector = reflector_of(source, store)
    reflector.set_watch_error_handler(errors.append)

    async with running(reflector.run()):
        await settle()

        assert source.requested == ["list '0'", *(f"list {token}" for token in circle)]
        assert (source.open, reflector.phase) == (0, "backing off")
        await asyncio.sleep(5)

    (error,) = errors
    assert isinstance(error, DecodeError)
    assert store.names == ["b@1"]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(EXPIRED, id="expired"),
        pytest.param(Invalid("the continue key is not valid", status=400), id="400"),
    ],
)
async def test_list_is_requested_whole_after_pages_that_cannot_be_read(
    refusal: Exception,
) -> None:
    first = Page(things("a"), 7, "t1")
    source, store = FakeSource([first, refusal, Page(things("b"), 9)]), FakeStore()

    async with running(reflector_of(source, store, page_size=10).run()):
        await asyncio.sleep(5)

    assert source.requests[2].options == ListOptions()
    assert store.names == ["b@1"]


async def test_pages_are_requested_again_after_a_whole_list_that_fails() -> None:
    first = Page(things("a"), 7, "t1")
    source = FakeSource([first, EXPIRED, BROKEN, first, Page(things("b"), 7)])
    store = FakeStore()

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(10)

    limits = [getattr(it.options, "limit", None) for it in source.requests]
    assert limits == [500, 500, 0, 500, 500, None]
    assert store.names == ["a@1", "b@1"]


@pytest.mark.parametrize(
    "ahead",
    [
        pytest.param(Silence(), id="unanswered"),
        pytest.param(Page(things("b"), token="t2"), id="at-the-door"),
        pytest.param(BROKEN, id="failed"),
    ],
)
async def test_cancellation_closes_the_next_page(
    ahead: Page | Silence | Exception,
) -> None:
    source = FakeSource([Page(things("a"), token="t1"), ahead])
    store = StoreThatTakesTime(60.0)

    async with running(reflector_of(source, store).run()):
        await asyncio.sleep(1)

        assert source.requested == ["list '0'", "list t1"]

    assert source.open == 0


async def test_pages_are_one_attempt_whose_gap_starts_at_its_end() -> None:
    source = FakeSource(
        [
            Page(things("a"), 7, "t1", seconds=0.7),
            Page(things("b"), 7, "t2", seconds=0.7),
            BROKEN,
            Page(version=9),
        ]
    )

    async with running(reflector_of(source).run()):
        await asyncio.sleep(3)

    assert source.requested[3] == "list '0'"
    assert source.times[3] == pytest.approx(1.4 + 1.2, abs=1e-3)
