"""The history of reconciles, controllers as JSON, and actions on their requests."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import named, owned
from informer_helpers import running, settle
from web_helpers import SentEvents

from aioinformer import (
    Controller,
    PriorityQueue,
    ReconcileRequest,
    Result,
    SharedInformer,
    SharedInformerFactory,
)
from aioinformer.controller import Cause, EndedReconcile
from aioinformer.model.resources import CONFIG_MAPS, PODS, SECRETS
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.web.dashboard.reconciles import (
    ACTIONS,
    KEYS,
    RECENT_OF_KEY,
    ReconcileHistory,
    act,
)
from aioinformer.workqueue import ItemExponentialFailureRateLimiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import Resource
    from aioinformer.controller import Context

NOW = 1.7e9
SECRET = "failed with password=hunter22 and more"


class App:
    """A controller of config maps that owns secrets, and its history.

    A map named `broken` fails, `later` is requeued, and `slow` runs for an hour.
    """

    def __init__(self, server: APIServer, *, reasons: bool = True) -> None:
        self.server = server
        self.factory = SharedInformerFactory(server.client())
        self.maps = self.factory.informer(CONFIG_MAPS)
        self.secrets = self.factory.informer(SECRETS)
        limiter = ItemExponentialFailureRateLimiter(50, 50)
        self.controller = Controller(
            "maps",
            self.reconcile,
            for_=self.maps,
            owns=[self.secrets],
            queue=PriorityQueue[ReconcileRequest](rate_limiter=limiter),
            drain_timeout=0,
            concurrency=1,
        )
        self.history = ReconcileHistory(reasons=reasons)
        self.history.follow([self.controller])

    async def reconcile(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        await asyncio.sleep(3600 if request.name == "slow" else 0.25)
        match request.name:
            case "broken":
                raise ValueError(SECRET)
            case "later":
                return Result(requeue_after=30)
            case _:
                return None

    async def add(self, name: str, seconds: float = 1.0) -> None:
        self.server.create(CONFIG_MAPS, named(name))
        await asyncio.sleep(seconds)

    def page(self) -> dict[str, Any]:
        return self.history.controller_json(self.controller, NOW)

    def reconciles_of(self, informer: SharedInformer, name: str) -> list[Any]:
        return self.history.reconciles_of(informer, f"default/{name}", NOW)


@asynccontextmanager
async def app(**options: Any) -> AsyncIterator[App]:
    async with APIServer() as server:
        it = App(server, **options)
        async with it.factory, running(it.controller.run()):
            await it.factory.wait_for_cache_sync(timeout=30)
            await settle()
            yield it


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=0.1)


# ------------------------------------------------------------ JSON


async def test_page_shows_what_a_controller_does_and_has_done() -> None:
    async with app() as it:
        for name in ("broken", "later", "slow", "queued"):
            await it.add(name)

        page = it.page()

    assert json.loads(json.dumps(page)) == page
    (ran,) = page["running_list"]
    assert ran == {
        "key": "default/slow",
        "seconds": about(2),
        "attempt": 1,
        "causes": ["Added ConfigMap default/slow"],
        "stale": False,
    }
    assert page["queued_list"] == [
        {
            "key": "default/queued",
            "seconds": about(1),
            "causes": ["Added ConfigMap default/queued"],
        }
    ]
    assert page["delayed_list"] == [
        {"key": "default/later", "in": about(27.2), "causes": ["Requeue"]},
        {"key": "default/broken", "in": about(46.2), "causes": ["Retry"]},
    ]
    assert page["failing_list"] == [
        {
            "key": "default/broken",
            "attempts": 1,
            "error": "ValueError",
            "message": "failed with password=... and more",
            "since": about(NOW - 3.75),
            "ago": about(3.75),
            "retry_in": about(46.2),
        }
    ]
    later, broken = page["recent"]
    assert broken == {
        "controller": "maps",
        "key": "default/broken",
        "time": about(NOW - 3.75),
        "seconds": about(0.25),
        "attempt": 1,
        "causes": ["Added ConfigMap default/broken"],
        "error": "ValueError",
        "message": "failed with password=... and more",
        "requeue": None,
        "retry_in": 50,
    }
    assert (later["key"], later["requeue"], later["error"]) == ("default/later", 30, "")
    for name in ("queued_more", "delayed_more", "failing_more"):
        assert page[name] == 0


async def test_overview_row_has_the_numbers_of_the_page() -> None:
    async with app() as it:
        for name in ("broken", "a", "slow", "queued"):
            await it.add(name)

        await asyncio.sleep(8)
        row, page = it.history.overview_row(it.controller), it.page()

    assert row == {name: page[name] for name in row}
    expected = {"queued": 1, "delayed": 1, "running": 1, "failing": 1, "synced": True}
    assert row.items() >= expected.items()
    assert (row["oldest"], row["p50"], row["p99"]) == (
        about(9),
        about(0.25),
        about(0.25),
    )
    assert len(row["rates"]) == 60
    assert sum(row["rates"]) == pytest.approx(2 / 5)


async def test_row_of_an_idle_controller_has_no_durations() -> None:
    async with app() as it:
        row = it.history.overview_row(it.controller)
        await it.add("a")
        assert it.history.overview_row(it.controller)["p50"] is not None
        await asyncio.sleep(301)
        later = it.history.overview_row(it.controller)

    for each in (row, later):
        assert (each["oldest"], each["p50"], each["p99"]) == (None, None, None)


async def test_page_without_reasons_has_no_messages() -> None:
    async with app(reasons=False) as it:
        await it.add("broken")
        page = it.page()

    assert [each["message"] for each in page["failing_list"] + page["recent"]] == [
        "",
        "",
    ]
    assert page["recent"][0]["error"] == "ValueError"


async def test_object_shows_its_reconciles_and_those_it_caused() -> None:
    async with app() as it:
        await it.add("a")
        it.server.create(SECRETS, owned("tls", "a", "ConfigMap", controller=True))
        await asyncio.sleep(1)
        await it.add("b")
        of_map = it.reconciles_of(it.maps, "a")
        of_secret = it.reconciles_of(it.secrets, "tls")
        assert it.reconciles_of(it.secrets, "a") == [], "the name of another object"
        assert it.reconciles_of(it.maps, "tls") == []

    assert [each["causes"] for each in of_map] == [
        ["Added Secret default/tls"],
        ["Added ConfigMap default/a"],
    ]
    assert of_secret == of_map[:1]
    assert of_secret[0]["key"] == "default/a"


# ------------------------------------------------------------ bounds


class FakeController:
    """A controller whose reconciles end when a test says so."""

    def __init__(self, informer: SharedInformer) -> None:
        self.name = "fake"
        self.informers = (informer,)
        self.observers: list[Any] = []

    def observe(self, observer: Any) -> Any:
        self.observers.append(observer)
        return lambda: self.observers.remove(observer)

    def end(self, name: str, at: float = 0.0, *, message: str = "") -> None:
        causes = [
            Cause("updated", "ConfigMap", f"default/{name}"),
            Cause("updated", "Pod", f"default/pod-{name}"),
            Cause("deleted", "Pod", f"default/pod-{name}"),
            Cause("retry", "", f"default/{name}"),
            Cause("source", "hook", f"default/{name}"),
        ]
        ended = EndedReconcile(
            request=ReconcileRequest("default", name),
            at=at,
            seconds=1.0,
            attempt=1,
            causes=tuple(causes),
            error="Error" if message else "",
            message=message,
            retry_in=None,
            requeue_after=None,
        )
        for observer in self.observers:
            observer(ended)


def informer_of(resource: Resource) -> SharedInformer:
    return SharedInformer(FakeListerWatcher(resource=resource), name="any")


async def test_history_is_bounded_by_object_and_in_all() -> None:
    maps, pods = informer_of(CONFIG_MAPS), informer_of(PODS)
    fake: Any = FakeController(maps)
    history = ReconcileHistory(reasons=True)
    history.follow([fake])
    for number in range(RECENT_OF_KEY + 5):
        fake.end("busy", at=number)

    for number in range(KEYS - 1):
        fake.end(f"{number}", at=100 + number)

    for informer, name in ((maps, "busy"), (pods, "pod-busy")):
        kept = history.reconciles_of(informer, f"default/{name}", NOW)
        times = [it["time"] for it in kept]
        assert len(times) == RECENT_OF_KEY
        assert times[0] - times[-1] == pytest.approx(RECENT_OF_KEY - 1), "the latest"

    fake.end("0", at=2000)
    fake.end("one-more", at=2001)
    for informer, prefix in ((maps, ""), (pods, "pod-")):
        for name, number in (("busy", 0), ("0", 2), ("1", 1), ("one-more", 1)):
            kept = history.reconciles_of(informer, f"default/{prefix}{name}", NOW)
            assert len(kept) == number, name


async def test_message_is_cut_between_words() -> None:
    informer = informer_of(CONFIG_MAPS)
    fake: Any = FakeController(informer)
    history = ReconcileHistory(reasons=True)
    history.follow([fake])
    token = "abcdefgh" * 8  # found as a secret only if it is long enough
    fake.end("a", message=f"{'no ' * 95}{token}")
    fake.end("a", message=token * 10)

    kept = history.reconciles_of(informer, "default/a", NOW)
    assert [it["message"] for it in kept] == ["...", " ".join(["no"] * 95)]


async def test_history_follows_each_controller_once_until_it_is_left_out() -> None:
    informer = informer_of(CONFIG_MAPS)
    one: Any = FakeController(informer)
    other: Any = FakeController(informer)
    history = ReconcileHistory(reasons=True)
    for _ in range(2):
        history.follow([one, other])

    assert (len(one.observers), len(other.observers)) == (1, 1)
    one.end("a")
    history.follow([one])
    assert (len(one.observers), len(other.observers)) == (1, 0)
    assert len(history.reconciles_of(informer, "default/a", NOW)) == 1
    history.follow([])
    assert one.observers == []


# ------------------------------------------------------------ feed


async def test_feed_sends_the_page_each_second_and_waits_for_its_reader() -> None:
    sent: list[tuple[float, bytes]] = []
    clock = asyncio.get_running_loop().time

    async def send(data: bytes) -> None:
        sent.append((clock(), data))
        await asyncio.sleep(10 if len(sent) == 2 else 0)

    async with app() as it:
        began = clock()
        async with running(it.history.feed(it.controller, "maps", send)):
            await it.add("slow", seconds=12.5)

    assert [at - began for at, _ in sent] == [about(0), about(1), about(12)]
    events = SentEvents()
    for _, data in sent:
        assert data.count(b"\n") == 3
        events.feed(data)

    assert [each.name for each in events.events] == ["controller"] * 3
    assert [each.data["running"] for each in events.events] == [0, 1, 1]


async def test_feed_ends_with_its_controller() -> None:
    async def send(data: bytes) -> None:
        await asyncio.sleep(5)
        it.history.follow([])

    async with app() as it, asyncio.timeout(10):
        await it.history.feed(it.controller, "maps", send)


# ------------------------------------------------------------ actions


async def test_actions_requeue_and_forget_a_request() -> None:
    async with app() as it:
        await it.add("broken")
        assert act("requeue", it.controller, "default/broken").status == 204
        await asyncio.sleep(1)
        page = it.page()
        assert page["failing_list"][0]["attempts"] == 2
        assert page["recent"][0]["causes"] == ["Retry", "Requeued by hand"]

        assert act("forget", it.controller, "default/broken").status == 204
        page = it.page()
        assert (page["failing"], page["delayed"]) == (0, 0)


async def test_action_is_refused_with_the_reason() -> None:
    async with app() as it:
        for action in ACTIONS:
            for key in ("", "a/b/c"):
                answer = act(action, it.controller, key)
                assert answer.status == 400
                assert answer.body.count(b"\n") == 1

    answer = act("requeue", it.controller, "default/a")
    assert answer.status == 409
    assert answer.body.startswith(b"controller maps does not take 'default/a'")
