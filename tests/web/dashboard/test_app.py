"""The dashboard in aiohttp and in ASGI apps: paths, headers, guard, limits, the end."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import weakref
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from controller_helpers import Acts, Notes, config_map, managed, named
from fastapi import FastAPI
from informers import plain
from leader_helpers import forever
from multidict import CIMultiDict
from web_helpers import SentEvents
from web_hosts import by_aiohttp, by_uvicorn

from aioinformer import Controller, LeaderElector, Manager, SharedInformerFactory
from aioinformer.controller import LeaseLock, LeaseRecord, Shards
from aioinformer.controller.shards.lease import member_name
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS, PODS, SECRETS
from aioinformer.testing import APIServer
from aioinformer.web import aiohttp as on_aiohttp
from aioinformer.web import asgi as on_asgi
from aioinformer.web.dashboard.app import Dashboard, PageRequest
from aioinformer.web.responses import HTTPResponse
from aioinformer_apiserver.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from aioinformer import ReconcileRequest
    from aioinformer.controller import Context

    Host = Callable[..., AbstractAsyncContextManager[str]]


OBJECT = "/api/object?informer=pods&key=default/a"


@asynccontextmanager
async def _on_aiohttp(**options: Any) -> AsyncIterator[str]:
    app = web.Application()
    app.add_subapp("/ops/dashboard", on_aiohttp.dashboard(**options))
    async with by_aiohttp(app) as url:
        yield url


@asynccontextmanager
async def _on_asgi(**options: Any) -> AsyncIterator[str]:
    app = FastAPI()
    page = on_asgi.dashboard(**options)
    app.mount("/ops/dashboard", page)
    async with by_uvicorn(app) as url:
        yield url


@pytest.fixture(params=[_on_aiohttp, _on_asgi], ids=["aiohttp", "asgi"])
def host(request: pytest.FixtureRequest) -> Host:
    found: Host = request.param
    return found


@asynccontextmanager
async def following() -> AsyncIterator[tuple[APIServer, SharedInformerFactory]]:
    """Run a server with a pod, and an informer of it."""
    async with APIServer() as server, server.client() as client:
        server.create(PODS, plain("a"))
        factory = SharedInformerFactory(client)
        factory.informer(PODS)
        async with factory:
            await factory.wait_for_cache_sync(10)
            yield server, factory


@pytest.fixture
async def both() -> AsyncIterator[tuple[APIServer, SharedInformerFactory]]:
    async with following() as both:
        yield both


@pytest.fixture
def server(both: tuple[APIServer, SharedInformerFactory]) -> APIServer:
    return both[0]


@pytest.fixture
def factory(both: tuple[APIServer, SharedInformerFactory]) -> SharedInformerFactory:
    return both[1]


@asynccontextmanager
async def opened(url: str, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{url}/ops/dashboard{path}", allow_redirects=False) as response,
    ):
        yield response


async def status_of(url: str, path: str) -> int:
    async with opened(url, path) as response:
        return response.status


async def first_event(url: str, path: str) -> tuple[str, Any]:
    """Return the name and the data of the first event of a feed."""
    async with opened(url, path) as response:
        assert response.status == 200, await response.text()
        sent = SentEvents()
        async for chunk in response.content.iter_any():
            sent.feed(chunk)
            if sent.events:
                return sent.events[0].name, sent.events[0].data

    raise AssertionError("no event")


async def post(url: str, path: str, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/ops/dashboard{path}", headers=headers) as response,
    ):
        return response.status


# -------------------------------------------------------------- pages and headers


async def test_page_and_all_its_files_are_served(
    host: Host, factory: SharedInformerFactory
) -> None:
    async with host(factory=factory) as url:
        async with opened(url, "") as response:
            assert response.status in {307, 308}
            assert response.headers["Location"].endswith("dashboard/")

        async with opened(url, "/") as response:
            page = await response.text()
            assert response.content_type == "text/html"

        waiting, seen = set(re.findall(r'(?:src|href)="(static/[^"]+)"', page)), set()
        assert waiting
        while waiting:
            name = waiting.pop()
            seen.add(name)
            async with opened(url, f"/{name}") as response:
                assert response.status == 200, name
                text = await response.text()

            if name.endswith(".js"):
                imports = re.findall(r'from "\./([^"]+)"', text)
                waiting |= {f"static/{it}" for it in imports} - seen

        for missing in ("/static/app.py", "/static/..%2fapp.py", "/x", "/api/x"):
            assert await status_of(url, missing) == 404


async def test_every_response_forbids_foreign_code_frames_and_caches(
    host: Host, factory: SharedInformerFactory
) -> None:
    paths = ("/", "/static/app.js", "/api/overview", "/api/rows", "/x")
    async with host(factory=factory) as url:
        for path in paths:
            async with opened(url, path) as response:
                policy = response.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'self';")
                assert "unsafe" not in policy
                assert response.headers["X-Frame-Options"] == "DENY"
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Cache-Control"] == "no-store"


async def test_page_has_no_inline_code(factory: SharedInformerFactory) -> None:
    answer = await Dashboard(factory=factory).respond(PageRequest("GET", "/"))
    page = answer.body.decode()  # type: ignore[union-attr]
    assert not re.search(
        r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|javascript:", page
    )


async def test_overview_shows_informers_that_are_requested_later(
    host: Host, server: APIServer, factory: SharedInformerFactory
) -> None:
    async with host(factory=factory, title="shop") as url:
        name, before = await first_event(url, "/api/overview")
        async with factory.use(CONFIG_MAPS) as maps:
            await maps.wait_synced(10)
            await asyncio.sleep(1)  # pages share an overview for half a second
            await asyncio.sleep(1)  # pages share an overview for half a second
            _, meanwhile = await first_event(url, "/api/overview")

        await asyncio.sleep(1)
        _, after = await first_event(url, "/api/overview")

    assert (name, before["title"], before["trouble"]) == ("overview", "shop", [])
    (pods,) = before["informers"]
    assert (pods["id"], pods["objects"], pods["phase"]) == ("pods", 1, "watching")
    assert pods["bytes"] > 100
    assert [it["id"] for it in meanwhile["informers"]] == ["pods", "configmaps"]
    assert [it["id"] for it in after["informers"]] == ["pods"]


async def test_overview_counts_the_ranges_and_members_of_shards(
    host: Host, server: APIServer
) -> None:
    client = server.client()
    manager = Manager(client)
    shards = Shards("maps", client, ranges=8, namespace="default", identity="a")
    maps = manager.informer(CONFIG_MAPS)
    manager.add(Controller("maps", Notes(), for_=maps, shards=shards))
    async with host(manager=manager) as url:
        _, idle = await first_event(url, "/api/overview")
        async with manager:
            async with asyncio.timeout(60):
                while len(shards.held) < 8:
                    await asyncio.sleep(0.1)

            await asyncio.sleep(1)
            _, overview = await first_event(url, "/api/overview")

    assert (idle["shards"], idle["manager"]["trouble"]) == ([], "not running")
    (group,) = overview["shards"]
    assert (group["group"], group["identity"], group["trouble"]) == ("maps", "a", "")
    assert (group["members"], group["ranges"], group["owned"]) == (1, 8, 8)
    lease = group["lease"]
    assert lease["name"] == f"default/{member_name('maps', 'a')}"
    assert (lease["holder"], lease["duration"]) == ("a", 20)
    assert 0 <= lease["age"] < 5
    assert overview["trouble"] == []


async def test_overview_shows_the_lease_and_its_age(
    host: Host, server: APIServer
) -> None:
    async with server.client() as client:
        other = LeaseLock(client, "copier", identity="b")
        await other.create(LeaseRecord("b", 30, "", "", 0))

    client = server.client()
    lock = LeaseLock(client, "copier", identity="a")
    manager = Manager(client, elector=LeaderElector(lock))
    manager.add(forever, name="work")
    async with host(manager=manager) as url:
        _, idle = await first_event(url, "/api/overview")
        async with manager:
            await asyncio.sleep(20)
            _, follows = await first_event(url, "/api/overview")
            await asyncio.sleep(30)
            _, leads = await first_event(url, "/api/overview")

        await asyncio.sleep(1)
        _, ended = await first_event(url, "/api/overview")

    found = [it["manager"]["lease"] for it in (idle, follows, leads, ended)]
    before, foreign, own, after = found
    assert before is after is None
    assert (foreign["name"], foreign["holder"]) == ("default/copier", "b")
    assert (round(foreign["age"]), foreign["duration"]) == (20, 30)
    assert (own["name"], own["holder"], own["duration"]) == ("default/copier", "a", 15)
    assert 0 <= own["age"] < 3


async def test_trouble_is_shown_in_words(host: Host) -> None:
    # Not by the fixtures, whose clock is another one than that of the test.
    async with following() as (server, factory), host(factory=factory) as url:
        await server.stop()
        trouble: list[dict[str, Any]] = []
        while "error" not in {it["level"] for it in trouble}:  # first, a warning
            await asyncio.sleep(1)
            trouble = (await first_event(url, "/api/overview"))[1]["trouble"]

        await server.start()
        while (await first_event(url, "/api/overview"))[1]["trouble"]:
            await asyncio.sleep(1)

    (found,) = trouble
    assert (found["what"], found["link"]) == ("informer pods", "#/objects/pods")
    assert "refused the connection" in found["text"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/rows?informer=x", 404),
        ("/api/rows?informer=pods&sort=NOPE", 400),
        ("/api/rows?informer=pods&labelSelector=((", 400),
        ("/api/object?informer=x&key=default/a", 404),
        ("/api/controller?name=x", 404),
        ("/api/state?informer=pods&key=default/a&number=x", 400),
        ("/api/state?informer=pods&key=default/a&number=99", 404),
    ],
)
async def test_wrong_requests_are_refused_in_one_line(
    host: Host, factory: SharedInformerFactory, path: str, status: int
) -> None:
    async with host(factory=factory) as url, opened(url, path) as response:
        assert response.status == status
        assert (await response.text()).count("\n") == 1
        assert response.content_type == "text/plain"


async def test_data_of_secrets_is_nowhere(
    host: Host, server: APIServer, factory: SharedInformerFactory
) -> None:
    secret = named("token") | {"data": {"password": "aHVudGVyMg=="}}
    server.create(SECRETS, secret)
    async with factory.use(SECRETS) as secrets:
        await secrets.wait_synced(10)
        async with host(factory=factory) as url:
            changed = {"data": {"password": "aHVudGVyMw=="}}
            server.patch(SECRETS, "token", changed, namespace="default")
            await asyncio.sleep(1)
            texts = [
                json.dumps(await first_event(url, path))
                for path in (
                    "/api/overview",
                    "/api/rows?informer=secrets",
                    "/api/object?informer=secrets&key=default/token",
                )
            ]
            states = json.loads(texts[2])[1]["states"]
            for state in states:
                query = f"informer=secrets&key=default/token&number={state['number']}"
                async with opened(url, f"/api/state?{query}") as response:
                    texts.append(await response.text())

    assert len(texts) >= 4
    assert not [it for it in texts if "aHVudGVy" in it]


async def test_temporary_informers_are_forgotten_without_an_open_page(
    factory: SharedInformerFactory,
) -> None:
    page = Dashboard(factory=factory)
    ended = []
    for number in range(3):
        async with factory.use(CONFIG_MAPS, namespace=f"ns-{number}") as informer:
            ended.append(weakref.ref(informer))

        del informer

    async with factory.use(SECRETS):
        gc.collect()

    assert [it() for it in ended] == [None, None, None]
    page.close()


async def test_object_page_ends_with_its_informer(
    host: Host, factory: SharedInformerFactory
) -> None:
    async with host(factory=factory) as url, AsyncExitStack() as stack:
        async with factory.use(SECRETS) as secrets:
            await secrets.wait_synced(10)
            page = opened(url, "/api/object?informer=secrets&key=default/a")
            response = await stack.enter_async_context(page)
            await response.content.readany()

        async with asyncio.timeout(5):
            await response.content.read()


async def test_closed_dashboard_follows_nothing_more(
    server: APIServer, factory: SharedInformerFactory
) -> None:
    page = Dashboard(factory=factory)
    page.close()
    server.create(SECRETS, named("a"))
    async with factory.use(SECRETS) as secrets:
        await secrets.wait_synced(10)
        state = (("informer", "secrets"), ("key", "default/a"), ("number", "1"))
        answer = await page.respond(PageRequest("GET", "/api/state", state))

    assert isinstance(answer, HTTPResponse)
    assert answer.status == 404


async def test_reconciles_are_kept_without_an_open_page(
    host: Host, server: APIServer
) -> None:
    server.create(CONFIG_MAPS, config_map("a"))
    ended = asyncio.Event()

    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        ended.set()

    manager = Manager(server.client())
    async with host(manager=manager) as url:
        maps = manager.informer(CONFIG_MAPS)
        manager.add(Controller("late", reconcile, for_=maps))
        async with manager:
            await ended.wait()
            await asyncio.sleep(1)
            _, shown = await first_event(url, "/api/controller?name=late")

    assert [it["key"] for it in shown["recent"]] == ["default/a"]


@pytest.mark.parametrize("reasons", [False, True])
async def test_error_of_events_is_shown_only_with_reasons(
    host: Host, server: APIServer, factory: SharedInformerFactory, reasons: bool
) -> None:
    server.faults.add(Refuse(verb="list", status=403, message="no, bob", times=1000))
    async with host(factory=factory, reasons=reasons) as url:
        path = "/api/object?informer=pods&key=default/a"
        _, shown = await first_event(url, path)

    assert shown["events_error"]
    assert ("bob" in shown["events_error"]) is reasons


# -------------------------------------------------------------------- the guard


async def test_guard_is_asked_for_each_request(
    host: Host, factory: SharedInformerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[PageRequest] = []

    async def guard(request: PageRequest) -> bool:
        await asyncio.sleep(0)
        asked.append(request)
        if request.value("fail"):
            raise RuntimeError("no database")

        return request.value("token") == "let-me-in"

    paths = ("", "/", "/static/app.js", "/api/overview", "/api/rows?informer=pods")
    async with host(factory=factory, guard=guard, actions=True) as url:
        refused = [await status_of(url, path) for path in paths]
        refused.append(await post(url, "/api/requeue", **{"X-Aioinformer": "action"}))
        failed = await status_of(url, "/?fail=1")
        allowed = await status_of(url, "/?token=let-me-in")

    assert set(refused[1:]) == {403}
    assert (failed, allowed) == (403, 200)
    assert "the guard failed" in caplog.text
    assert {it.method for it in asked} == {"GET", "POST"}
    assert all("host" in it.headers for it in asked)


async def test_guard_that_returns_no_boolean_refuses(
    factory: SharedInformerFactory,
) -> None:
    page: Any = Dashboard(factory=factory, guard=lambda _: "yes")  # type: ignore[arg-type, return-value]
    assert (await page.respond(PageRequest("GET", "/"))).status == 403


# ---------------------------------------------------------------------- actions


@asynccontextmanager
async def manager_of(server: APIServer, calls: list[str]) -> AsyncIterator[Manager]:
    async def reconcile(request: ReconcileRequest, ctx: Context) -> None:
        calls.append(request.key)

    manager = managed(server, Acts(reconcile))
    async with manager:
        await manager.wait_for_cache_sync(timeout=10)
        yield manager


async def test_requeue_requires_actions_and_the_header(
    host: Host, server: APIServer
) -> None:
    server.create(CONFIG_MAPS, config_map("a"))
    calls: list[str] = []
    action = {"X-Aioinformer": "action"}
    path = "/api/requeue?controller=maps&key=default/a"
    async with manager_of(server, calls) as manager:
        while not calls:
            await asyncio.sleep(0.1)

        async with host(manager=manager) as url:
            read_only = await post(url, path, **action)

        async with host(manager=manager, actions=True) as url:
            _, page = await first_event(url, "/api/controller?name=maps")
            forged = await post(url, path)
            unknown = await post(url, "/api/requeue?controller=x&key=a", **action)
            nothing = await post(url, "/api/requeue?controller=maps", **action)
            before = len(calls)
            done = await post(url, path, **action)
            while len(calls) == before:
                await asyncio.sleep(0.1)

            forgotten = await post(url, path.replace("requeue", "forget"), **action)

    assert page["informer"] == "configmaps", "its requests are links"
    assert (read_only, forged, unknown, nothing) == (403, 403, 404, 400)
    assert (done, forgotten) == (204, 204)


# ------------------------------------------------------------------ limits, end


async def test_further_pages_are_refused(
    host: Host, factory: SharedInformerFactory
) -> None:
    async with (
        host(factory=factory, max_readers=2) as url,
        opened(url, "/api/overview") as first,
        opened(url, "/api/rows?informer=pods") as second,
    ):
        assert (first.status, second.status) == (200, 200)
        async with opened(url, "/api/overview") as third:
            assert third.status == 503
            assert third.headers["Retry-After"] == "5"

        first.close()
        while await status_of(url, "/api/overview") != 200:
            await asyncio.sleep(0.1)


async def test_end_of_the_app_ends_open_pages(
    host: Host, factory: SharedInformerFactory
) -> None:
    ended: list[str] = []

    async def read(url: str, path: str) -> None:
        async with opened(url, path) as response:
            assert response.status == 200
            opened_all.release()
            with suppress(aiohttp.ClientPayloadError):
                await response.read()

        ended.append(path)

    paths = ("/api/overview", "/api/rows?informer=pods", OBJECT)
    opened_all = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group, host(factory=factory) as url:
        for path in paths:
            group.create_task(read(url, path))
            await opened_all.acquire()

        stopped = asyncio.get_running_loop().time()

    assert sorted(ended) == sorted(paths)
    assert asyncio.get_running_loop().time() - stopped < 10


async def test_end_of_an_informer_ends_its_table(
    host: Host, factory: SharedInformerFactory
) -> None:
    async with host(factory=factory) as url:
        async with factory.use(CONFIG_MAPS) as maps:
            await maps.wait_synced(10)
            table = opened(url, "/api/rows?informer=configmaps")
            response = await table.__aenter__()
            await response.content.readany()

        async with asyncio.timeout(10):
            await response.read()

        await table.__aexit__(None, None, None)
        assert await status_of(url, "/api/rows?informer=configmaps") == 404


async def test_guard_gets_repeated_headers_joined(
    host: Host, factory: SharedInformerFactory
) -> None:
    found: list[str] = []

    def guard(request: PageRequest) -> bool:
        found.append(request.headers["x-user"])
        return True

    async with (
        host(factory=factory, guard=guard) as url,
        aiohttp.ClientSession() as http,
    ):
        headers = CIMultiDict([("X-User", "a"), ("X-User", "b")])
        async with http.get(f"{url}/ops/dashboard/", headers=headers) as response:
            assert response.status == 200

    assert found == ["a, b"]


async def test_reader_that_takes_nothing_is_disconnected(
    factory: SharedInformerFactory,
) -> None:
    page = Dashboard(factory=factory, write_timeout=2)
    feed: Any = await page.respond(PageRequest("GET", "/api/overview"))

    async def hang(_: bytes) -> None:
        await asyncio.Event().wait()

    assert await page.send(feed, hang) is False
    page.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"factory": "shop"},
        {"manager": object()},
        {"max_readers": 0},
        {"write_timeout": 0},
        {"history_bytes": -1},
        {"guard": lambda: True},
    ],
)
async def test_invalid_options_are_refused(
    factory: SharedInformerFactory, options: dict[str, Any]
) -> None:
    shown = (
        options
        if not options or "manager" in options
        else {"factory": factory} | options
    )
    with pytest.raises(OptionsError):
        Dashboard(**shown)
