"""`LiveTables`: the rows of a dashboard, and the feeds of their readers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import TYPE_CHECKING, Any

import fake_source
import informer_helpers
import pytest
from budget_helpers import Clock
from informer_helpers import running
from informers import pods_of
from web_helpers import SentEvents, handlers_of

from aioinformer import SharedInformer, SharedInformerFactory, budget
from aioinformer.budget import LoopBudget
from aioinformer.errors import InformerStopped, OptionsError, SelectorSyntaxError
from aioinformer.informer.handlers import listener
from aioinformer.model.resources import EVENTS, NODES, PODS, SECRETS
from aioinformer.tables.columns import Columns
from aioinformer.tables.rows import TableRows
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.web.dashboard.rows import (
    EVENT_SECONDS,
    IDLE_SECONDS,
    MAX_TABLES,
    LiveTables,
    RowsFeed,
    TooManyTables,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer.model.resource import Resource


def thing(name: str, namespace: str = "shop", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


def failing(name: str, namespace: str = "shop", **labels: str) -> dict[str, Any]:
    return {**thing(name, namespace, **labels), "status": {"reason": "Failed"}}


class Reader(SentEvents):
    """Page that reads a feed, and keeps rows that were not sent again."""

    def __init__(self, feed: RowsFeed) -> None:
        super().__init__()
        self.rows: dict[str, dict[str, Any]] = {}
        self.times: list[float] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self._feed = feed

    async def run(self) -> None:
        await self._feed.run(self.write)

    async def write(self, chunk: bytes) -> None:
        self.times.append(asyncio.get_running_loop().time())
        self.feed(chunk)
        entries = self.data["rows"]
        known = [self.rows[it] if isinstance(it, str) else it for it in entries]
        self.rows = {it["key"]: it for it in known}
        await self.ready.wait()

    @property
    def data(self) -> dict[str, Any]:
        """Data of the last event."""
        last: dict[str, Any] = self.events[-1].data
        return last

    @property
    def shown(self) -> list[str]:
        """Marks and keys of the rows."""
        return [f"{it['mark']} {key}".strip() for key, it in self.rows.items()]

    def cells(self, key: str) -> dict[str, str]:
        return dict(zip(self.data["columns"], self.rows[key]["cells"], strict=True))


class Table:
    """Informer in memory, and the tables of its dashboard."""

    def __init__(self, *objects: dict[str, Any], resource: Resource = PODS) -> None:
        self.source = FakeListerWatcher(*objects, resource=resource)
        self.informer = SharedInformer(self.source, name="pods")
        self.tables = LiveTables()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with running(self.informer.run()):
            await self.informer.wait_synced(60)
            yield

    def feed(self, *pairs: tuple[str, str], **query: object) -> RowsFeed:
        named = [(name.rstrip("_"), str(value)) for name, value in query.items()]
        return self.tables.feed(self.informer, [*pairs, *named])

    @contextlib.asynccontextmanager
    async def reading(
        self, *pairs: tuple[str, str], **query: object
    ) -> AsyncIterator[Reader]:
        reader = Reader(self.feed(*pairs, **query))
        async with running(reader.run()):
            await asyncio.sleep(0.2)
            yield reader

    @contextlib.asynccontextmanager
    async def read(
        self, *pairs: tuple[str, str], **query: object
    ) -> AsyncIterator[Reader]:
        """Run the informer and a reader."""
        async with self.running(), self.reading(*pairs, **query) as reader:
            yield reader


# ------------------------------------------------------------ the events


async def test_feed_sends_the_rows_of_its_window_at_once() -> None:
    table = Table(*(thing(f"web-{number}") for number in range(5)))
    async with table.read(from_=1, count=2) as reader:
        (event,) = reader.events
        data = event.data
        names = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert event.name == "rows"
        assert data["columns"] == names
        assert data["sortable"] == [*names, "last change"]
        assert [data["from"], data["total"], data["matching"]] == [1, 5, 5]
        assert data["placed"] is True
        assert reader.shown == ["shop/web-1", "shop/web-2"]
        assert reader.cells("shop/web-1")["NAME"] == "web-1"


async def test_unchanged_rows_are_sent_by_their_keys() -> None:
    table = Table(thing("a"), thing("b"), thing("c"))
    async with table.read() as reader:
        table.source.modify(failing("b"))
        await asyncio.sleep(EVENT_SECONDS)

        first, changed, last = reader.data["rows"]
        assert (first, last) == ("shop/a", "shop/c")
        assert (changed["key"], changed["mark"]) == ("shop/b", "modified")
        assert "Failed" in changed["cells"]


async def test_feed_sends_nothing_if_nothing_in_view_changes() -> None:
    table = Table(thing("a"), thing("b"))
    async with table.read(count=1) as reader:
        for _ in range(20):
            table.source.modify(failing("b"))
            await asyncio.sleep(0.5)

        assert len(reader.events) == 1


async def test_feed_sends_at_most_four_events_a_second() -> None:
    table = Table(thing("a"))
    async with table.read(sort="last change") as reader:
        for number in range(300):
            body = {**thing("a"), "status": {"reason": f"R{number}"}}
            table.source.modify(body)
            await asyncio.sleep(0.01)

        steps = [b - a for a, b in zip(reader.times, reader.times[1:], strict=False)]
        assert min(steps) >= EVENT_SECONDS - 1e-6
        assert 10 <= len(reader.times) <= 13
        await asyncio.sleep(EVENT_SECONDS)
        assert reader.cells("shop/a")["STATUS"] == "R299"


async def test_changes_are_marked_for_two_seconds() -> None:
    table = Table(thing("a"), thing("b"))
    async with table.read() as reader:
        await asyncio.sleep(5)
        table.source.add(thing("c"))
        table.source.modify(failing("a"))
        table.source.delete(thing("b"))
        await asyncio.sleep(1.9)
        marked = ["modified shop/a", "deleted shop/b", "added shop/c"]
        assert reader.shown == marked
        assert [reader.data["total"], reader.data["matching"]] == [2, 2]

        await asyncio.sleep(0.3)
        assert reader.shown == ["shop/a", "shop/c"]
        assert [it["mark"] for it in reader.data["rows"]] == ["", ""]


async def test_ages_are_sent_again_when_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    age = 0
    cells = Columns.cells

    def older(columns: Columns, *args: Any) -> list[str]:
        return [*cells(columns, *args)[:-1], f"{age}s"]

    monkeypatch.setattr(Columns, "cells", older)
    table = Table(thing("a"))
    async with table.read() as reader:
        await asyncio.sleep(10)
        assert len(reader.events) == 1
        age = 1
        await asyncio.sleep(1)
        assert reader.cells("shop/a")["AGE"] == "1s"


async def test_changes_out_of_view_compute_no_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed = 0
    cells = Columns.cells

    def counted(columns: Columns, *args: Any) -> list[str]:
        nonlocal computed
        computed += 1
        return cells(columns, *args)

    monkeypatch.setattr(Columns, "cells", counted)
    table = Table(thing("a"), thing("b"))
    async with table.read(count=1):
        for _ in range(100):
            table.source.modify(failing("b"))
            await asyncio.sleep(0.1)

        assert 10 <= computed <= 12, "once a second, for the age"


async def test_rows_of_an_informer_that_is_not_synced_are_not_placed() -> None:
    table = Table(thing("a"))
    reader = Reader(table.feed())
    async with running(reader.run()):
        await asyncio.sleep(30)
        (first,) = reader.events
        assert (first.data["rows"], first.data["placed"]) == ([], False)
        async with table.running():
            await asyncio.sleep(1)
            assert (reader.shown, reader.data["placed"]) == (["shop/a"], True)


async def test_slow_reader_gets_the_newest_state() -> None:
    table = Table(thing("a"))
    async with table.read() as reader:
        reader.ready.clear()
        for number in range(50):
            body = {**thing("a"), "status": {"reason": f"R{number}"}}
            table.source.modify(body)
            await asyncio.sleep(0.5)

        assert len(reader.events) == 2, "the first one, and the one that is stuck"
        reader.ready.set()
        await asyncio.sleep(0.5)
        assert reader.cells("shop/a")["STATUS"] == "R49"


# ------------------------------------------------------------ order, filter, selection


async def test_rows_are_sorted_and_reversed() -> None:
    table = Table(thing("a", "y"), failing("b", "x"), thing("c", "x"))
    async with table.running():
        orders: list[tuple[dict[str, Any], str]] = [
            ({}, "bca"),
            ({"sort": "NAME"}, "abc"),
            ({"sort": "NAME", "reverse": 1}, "cba"),
            ({"sort": "NAME", "reverse": 1, "from_": 1, "count": 1}, "b"),
            ({"sort": "STATUS", "reverse": 1}, "acb"),
        ]
        for query, names in orders:
            async with table.reading(**query) as reader:
                assert "".join(key[-1] for key in reader.rows) == names


async def test_last_change_is_the_first_row() -> None:
    table = Table(thing("a"), thing("b"), thing("c"))
    async with table.read(sort="last change") as reader:
        table.source.modify(failing("b"))
        await asyncio.sleep(1)
        table.source.modify(failing("c"))
        await asyncio.sleep(1)
        assert list(reader.rows) == ["shop/c", "shop/b", "shop/a"]


async def test_filter_shows_rows_with_all_words() -> None:
    table = Table(failing("web-1"), thing("web-2"), failing("db"))
    async with table.read(filter="WEB failed") as reader:
        assert reader.shown == ["shop/web-1"]
        assert [reader.data["total"], reader.data["matching"]] == [3, 1]

        table.source.modify(thing("web-1"))
        table.source.modify(failing("web-2"))
        await asyncio.sleep(1)
        assert reader.shown == ["modified shop/web-2"]


async def test_selection_narrows_the_objects() -> None:
    table = Table(
        thing("a", "x", app="web"), thing("b", "y", app="web"), thing("c", "z")
    )
    async with table.running():
        names = ("namespace", "x"), ("namespace", "z")
        async with table.reading(*names) as reader:
            assert reader.shown == ["x/a", "z/c"]
            assert reader.data["total"] == 2

        async with table.reading(("labelSelector", "app=web")) as reader:
            assert reader.shown == ["x/a", "y/b"]


async def test_object_that_leaves_the_selection_is_marked_as_deleted() -> None:
    table = Table(thing("a", app="web"), thing("b", app="web"), thing("c"))
    async with table.read(labelSelector="app=web") as reader:
        table.source.modify(thing("a", app="db"))
        table.source.modify(thing("c", app="web"))
        await asyncio.sleep(1)
        assert reader.shown == ["deleted shop/a", "shop/b", "added shop/c"]

        await asyncio.sleep(2)
        assert reader.shown == ["shop/b", "shop/c"]


async def test_cluster_scoped_objects_have_no_namespace() -> None:
    body = {"metadata": {"name": "node-1"}}
    async with Table(body, resource=NODES).read() as reader:
        assert reader.data["columns"][0] == "NAME"
        assert reader.shown == ["node-1"]


# ------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"sort": "COLOR"}, "sort='COLOR' is none of NAMESPACE, NAME, READY"),
        ({"from": "-1"}, "from='-1' is not a number from 0 to 1000000000"),
        ({"from": "x"}, "from='x' is not a number"),
        ({"from": "9" * 5000}, "is not a number"),
        ({"from": "٣"}, "is not a number"),
        ({"count": "501"}, "count='501' is not a number from 0 to 500"),
        ({"reverse": "yes"}, "reverse='yes' is neither 0 nor 1"),
        ({"filter": "x" * 201}, "filter= is longer than 200 characters"),
        ({"namespace": "x" * 5000}, "namespace= is longer than 4096 characters"),
        ({"sort": "A\nB" * 5000}, r"A\\nB"),
    ],
)
def test_invalid_query_is_refused_in_one_sentence(
    query: dict[str, str], message: str
) -> None:
    table = Table()
    with pytest.raises(OptionsError, match=message) as refused:
        table.feed(*query.items())

    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_invalid_selector_is_refused() -> None:
    with pytest.raises(SelectorSyntaxError):
        Table().feed(labelSelector="a in (")


# ------------------------------------------------------------ shared tables


async def test_readers_of_the_same_rows_share_a_table() -> None:
    table = Table(thing("a"), thing("b", app="web"))
    same: list[dict[str, Any]] = [
        {"filter": "b A", "labelSelector": "app=web,!x"},
        {"filter": " a  b b", "labelSelector": "!x, app==web", "from_": 7},
        {"filter": "A B", "labelSelector": "app=web,!x", "reverse": 1},
    ]
    async with table.running(), contextlib.AsyncExitStack() as stack:
        for query in same:
            await stack.enter_async_context(table.reading(**query))

        assert (len(table.tables), handlers_of(table.informer)) == (1, 1)
        others: list[dict[str, Any]] = [{}, {"sort": "NAME"}, {"namespace": "shop"}]
        for other in others:
            await stack.enter_async_context(table.reading(**other))

        assert (len(table.tables), handlers_of(table.informer)) == (4, 4)


async def test_table_is_kept_for_ten_seconds_after_its_last_reader() -> None:
    table = Table(thing("a"))
    async with table.running():
        for _ in range(3):
            async with table.reading():
                await asyncio.sleep(IDLE_SECONDS)

            await asyncio.sleep(IDLE_SECONDS - 1)
            assert handlers_of(table.informer) == 1

        await asyncio.sleep(2)
        assert (len(table.tables), handlers_of(table.informer)) == (0, 0)


async def test_table_without_readers_follows_changes() -> None:
    table = Table(thing("a"), thing("b"))
    async with table.running():
        async with table.reading():
            pass

        table.source.delete(thing("a"))
        table.source.add(thing("c"))
        await asyncio.sleep(5)
        async with table.reading() as reader:
            assert reader.shown == ["shop/b", "shop/c"]


async def test_idle_table_gives_way_and_used_ones_are_refused() -> None:
    table = Table(thing("a"))
    filters = [str(number) for number in range(MAX_TABLES)]
    async with table.running(), contextlib.AsyncExitStack() as stack:
        for words in filters[2:]:
            await stack.enter_async_context(table.reading(filter=words))

        for words in filters[:2]:
            async with table.reading(filter=words):
                pass

        # The table "0" has been idle for longer than "1".
        late = Reader(table.feed(filter="late"))
        await stack.enter_async_context(table.reading(filter="new"))
        await stack.enter_async_context(table.reading(filter=filters[1]))
        assert len(table.tables) == handlers_of(table.informer) == MAX_TABLES
        with pytest.raises(TooManyTables, match="16 different tables"):
            table.feed(filter=filters[0])

        with pytest.raises(TooManyTables):
            await late.run()

        assert late.events == []
        table.feed(filter=filters[1], sort="NAMESPACE")


# ------------------------------------------------------------ the end


async def test_feed_ends_with_the_informer() -> None:
    table = Table(thing("a"))
    feeding = None
    async with table.running():
        reader = Reader(table.feed())
        feeding = asyncio.create_task(reader.run())
        await asyncio.sleep(0.5)

    with pytest.raises(InformerStopped, match="pods has ended"):
        async with asyncio.timeout(1):
            await feeding

    with pytest.raises(InformerStopped):
        table.feed()

    await asyncio.sleep(IDLE_SECONDS + 1)
    assert len(table.tables) == 0


async def test_feed_raises_exception_of_send() -> None:
    class Broken(Exception):
        pass

    async def send(_: bytes) -> None:
        raise Broken

    table = Table(thing("a"))
    async with table.running():
        with pytest.raises(Broken):
            await table.feed().run(send)

        await asyncio.sleep(IDLE_SECONDS + 1)
        assert handlers_of(table.informer) == 0


# ------------------------------------------------------------ objects of any kind


async def test_cells_are_short_and_have_no_control_characters() -> None:
    message = "\x1b[2J" + "m" * 1_000_000
    body = {**thing("a", app="x" * 1_000_000), "message": message, "reason": "a\nb"}
    async with Table(body, resource=EVENTS).read(filter="[2J", sort="MESSAGE") as page:
        cells = page.cells("shop/a")
        assert cells["MESSAGE"].startswith("\N{REPLACEMENT CHARACTER}[2Jmmm")
        assert (len(cells["MESSAGE"]), cells["MESSAGE"][-1]) == (300, "…")
        assert cells["REASON"] == "a…"


async def test_rows_of_secrets_have_no_data() -> None:
    data = {"password": base64.b64encode(b"hunter2").decode()}
    async with Table({**thing("a"), "data": data}, resource=SECRETS).read() as reader:
        assert reader.cells("shop/a")["DATA"] == "1"
        assert data["password"] not in str(reader.data)
        assert "password" not in str(reader.data)


async def test_metadata_only_informer_has_names_and_ages() -> None:
    async with APIServer(auto_namespaces=True) as server:
        server.create(PODS, thing("a"), namespace="shop")
        async with SharedInformerFactory(server.client()) as factory:
            pods = factory.informer(PODS, metadata_only=True)
            await factory.wait_for_cache_sync(timeout=30)
            reader = Reader(LiveTables().feed(pods, [("sort", "STATUS")]))
            async with running(reader.run()):
                await asyncio.sleep(1)

    cells = reader.cells("shop/a")
    assert (cells["NAME"], cells["READY"], cells["STATUS"]) == ("a", "", "")
    assert cells["AGE"] != "<unknown>"


async def test_informer_with_a_store_on_disk_has_rows(tmp_path: Path) -> None:
    async with APIServer(auto_namespaces=True) as server:
        server.create(PODS, thing("a"), namespace="shop")
        async with pods_of(server, cache_dir=tmp_path / "cache") as (_, pods):
            reader = Reader(LiveTables().feed(pods, [("sort", "STATUS")]))
            async with running(reader.run()):
                await asyncio.sleep(5)
                server.create(PODS, thing("b"), namespace="shop")
                await asyncio.sleep(1)
                assert reader.shown == ["shop/a", "added shop/b"]
                server.delete(PODS, "a", namespace="shop")
                await asyncio.sleep(1)
                assert reader.shown == ["deleted shop/a", "added shop/b"]


async def test_large_table_is_placed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 100_000
    table = Table()
    pods = [fake_source.thing(f"p-{number}") for number in range(count)]
    table.informer = informer_helpers.pods_of(fake_source.Page(pods))
    async with table.running():
        clock, slices = Clock(), LoopBudget()
        monkeypatch.setattr(budget, "perf_counter", clock)
        monkeypatch.setattr(listener, "perf_counter", clock)
        LoopBudget.use(asyncio.get_running_loop(), slices)
        place = TableRows.place

        def slow(*args: Any) -> bool:
            clock.work(0.02)
            return place(*args)

        monkeypatch.setattr(TableRows, "place", slow)
        async with table.reading() as reader:
            assert [reader.data["total"], reader.data["placed"]] == [count, True]

        statistics = slices.statistics()
        assert statistics.slices >= count * 0.02 / 2.1
        assert statistics.longest < 0.0021
