"""LocalAPIServer: lifetime, address, tokens and recorded requests."""

from __future__ import annotations

import asyncio
import io
import stat
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from api_calls import (
    MAPS_PATH,
    PODS_PATH,
    WIDGETS,
    a_server,
    a_session,
    all_events,
    ask,
    named,
    next_events,
    types_and_names,
)

from aioinformer.client import Client
from aioinformer.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    OptionsError,
    WrongLoop,
)
from aioinformer.model.resource import Resource
from aioinformer.model.resources import PODS, SECRETS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with a_server() as running:
        yield running


@pytest.fixture
async def http(server: APIServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with a_session(server) as session:
        yield session


# -------------------------------------------------------------------- lifetime


async def test_server_stops_during_watch() -> None:
    loop = asyncio.get_running_loop()
    async with APIServer() as server, aiohttp.ClientSession(server.url) as http:
        watches = [await http.get(PODS_PATH, params={"watch": "1"}) for _ in range(5)]
        start = loop.time()

        await server.stop()

        assert loop.time() - start < 0.5
        assert [await all_events(watch) for watch in watches] == [[]] * 5


async def test_server_stops_if_client_does_not_read() -> None:
    async with APIServer() as server:
        reader, writer = await asyncio.open_connection(*_address(server), limit=1024)
        writer.write(b"GET /api/v1/secrets?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        # More than the kernel's buffers hold, so that the server must wait.
        for number in range(20):
            body = named(f"big-{number}", data={"x": "y" * 1_000_000})
            server.create(SECRETS, body)

        start = asyncio.get_running_loop().time()
        await server.stop()

        assert asyncio.get_running_loop().time() - start < 5
        writer.transport.abort()


async def test_server_can_be_stopped_by_another_task() -> None:
    server = APIServer()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.start())

    async with aiohttp.ClientSession(server.url) as http:
        code, _ = await ask(http, "GET", PODS_PATH)
        await server.stop()

        with pytest.raises(aiohttp.ClientConnectionError):
            await ask(http, "GET", PODS_PATH)

    assert code == 200


async def test_restart_keeps_url_and_objects(server: APIServer) -> None:
    server.create(PODS, named("web"))
    url, version = server.url, server.resource_version

    await server.stop()
    await server.start()

    assert (server.url, server.resource_version) == (url, version)
    async with aiohttp.ClientSession(server.url) as http:
        code, _ = await ask(http, "GET", f"{PODS_PATH}/web")
        assert code == 200


async def test_start_rejects_running_server(server: APIServer) -> None:
    with pytest.raises(OptionsError, match="is already running"):
        await server.start()


async def test_url_is_unavailable_before_start() -> None:
    server = APIServer()

    with pytest.raises(OptionsError, match="no URL"):
        _ = server.url


async def test_start_fails_if_port_is_in_use(server: APIServer) -> None:
    port = int(server.url.rpartition(":")[2])

    with pytest.raises(OSError, match="address already in use"):
        await APIServer(port=port).start()


async def test_client_uses_token_of_server() -> None:
    async with APIServer(token="secret") as server:
        made = server.create(PODS, named("web"))

        async with server.client() as client:
            found = await client.get(PODS, "web", namespace="default")

    assert found.to_dict() == made


async def test_server_survives_disconnect_during_list(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    for number in range(20):
        server.create(SECRETS, named(f"big-{number}", data={"x": "y" * 1_000_000}))

    async with http.get("/api/v1/secrets") as answer:
        await answer.content.readany()

    code, found = await ask(http, "GET", "/api/v1/secrets", limit="1")
    assert (code, len(found["items"])) == (200, 1)


async def test_kubeconfig_works_for_clients(tmp_path: Path) -> None:
    async with APIServer(token="secret") as server:
        path = server.kubeconfig(tmp_path / "config", namespace="shop")

    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"] == {"server": server.url}
    assert config["users"][0]["user"] == {"token": "secret"}
    assert config["contexts"][0]["context"]["namespace"] == "shop"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_kubeconfig_can_have_token_of_user(tmp_path: Path) -> None:
    async with APIServer(token="admin", users={"its": "alice"}) as server:
        path = server.kubeconfig(tmp_path / "config", token="its")
        async with Client.from_kubeconfig(path) as client:
            with pytest.raises(Forbidden, match='User "alice" cannot list'):
                await client.list(PODS)


@pytest.mark.parametrize("path", [4, None])
async def test_kubeconfig_rejects_other_path(path: Any) -> None:
    async with APIServer() as server:
        with pytest.raises(OptionsError, match="path must be a path, such as tmp_path"):
            server.kubeconfig(path)


async def test_server_requires_token() -> None:
    async with (
        APIServer(token="right") as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        codes = {}
        for token in ("right", "wrong"):
            headers = {"Authorization": f"Bearer {token}"}
            async with http.get(PODS_PATH, headers=headers) as answer:
                codes[token] = answer.status

    assert codes == {"right": 200, "wrong": 401}


async def test_changed_token_applies_to_next_request() -> None:
    headers = {"Authorization": "Bearer old"}
    async with (
        APIServer(token="old") as server,
        aiohttp.ClientSession(server.url, headers=headers) as http,
    ):
        before, _ = await ask(http, "GET", PODS_PATH)
        server.token = "new"
        after, _ = await ask(http, "GET", PODS_PATH)

    assert (before, after) == (200, 401)


async def test_server_rejects_large_body(http: aiohttp.ClientSession) -> None:
    raw = io.BytesIO(b'{"data":"' + b"x" * (3 * 1024 * 1024) + b'"}')
    headers = {"Content-Type": "application/json"}

    async with http.post(MAPS_PATH, data=raw, headers=headers) as answer:
        code, status = answer.status, await answer.json()

    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")


async def test_server_records_requests(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    await ask(http, "GET", PODS_PATH, limit="7")
    await asyncio.sleep(5)
    await ask(http, "GET", "/api/v1/nowhere")

    first, second = server.requests
    assert second.time - first.time == pytest.approx(5, abs=0.01)
    assert (first.verb, first.resource, first.query) == ("list", "pods", {"limit": "7"})
    assert (second.verb, second.path) == ("list", "/api/v1/nowhere")


async def test_clients_see_arranged_objects(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    made = server.create(PODS, named("web", status={"phase": "Running"}))

    _, found = await ask(http, "GET", f"{PODS_PATH}/web")

    assert found == made == server.get(PODS, "web")
    assert found["status"] == {"phase": "Running"}
    assert server.objects(PODS) == [made]


async def test_arranging_raises_errors_of_client(server: APIServer) -> None:
    stale = server.create(PODS, named("web"))
    server.patch(PODS, "web", {"status": {"phase": "Running"}})

    with pytest.raises(AlreadyExists):
        server.create(PODS, named("web"))
    with pytest.raises(Conflict):
        server.update(PODS, stale)
    with pytest.raises(NotFound):
        server.delete(PODS, "nobody")
    with pytest.raises(OptionsError, match="not served"):
        server.create(Resource("x.io", "v1", "things", "Thing"), named("a"))


async def test_arranging_does_not_modify_body(server: APIServer) -> None:
    body = named("web", spec={"nodeName": "a"})

    server.create(PODS, body)
    body["spec"]["nodeName"] = "b"

    assert server.get(PODS, "web")["spec"]["nodeName"] == "a"
    assert body == named("web", spec={"nodeName": "b"})


async def test_unregister_deletes_objects_and_returns_404(
    server: APIServer, http: aiohttp.ClientSession
) -> None:
    server.create(WIDGETS, named("one"))
    path = WIDGETS.path("default")

    async with http.get(path, params={"watch": "1"}) as watch:
        first = await next_events(watch, 1)
        server.unregister(WIDGETS)
        rest = await all_events(watch)

    assert types_and_names(first + rest) == [("ADDED", "one"), ("DELETED", "one")]
    async with http.get(path) as answer:
        assert answer.status == 404

    server.register(WIDGETS)
    code, found = await ask(http, "GET", path)
    assert (code, found["items"]) == (200, [])


async def test_kubeconfig_restricts_permissions_of_existing_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config"
    path.write_text("old")
    path.chmod(0o644)
    async with APIServer(token="secret") as server:
        server.kubeconfig(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_server_can_run_in_several_loops_in_turn() -> None:
    server = APIServer()

    async def life() -> int:
        async with server, aiohttp.ClientSession(server.url) as http:
            watch = await http.get(PODS_PATH, params={"watch": "1"})
            server.create(PODS, named(f"web-{server.resource_version}"))
            await next_events(watch, 1)
            watch.close()
            return len(server.objects(PODS))

    found = [await asyncio.to_thread(asyncio.run, life()) for _ in range(2)]

    assert found == [1, 2]


def _address(server: APIServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return host, int(port)


# -------------------------------------------------------------------- threads and loops


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda it: it.create(PODS, named("a")), id="create"),
        pytest.param(lambda it: it.update(PODS, named("a")), id="update"),
        pytest.param(lambda it: it.patch(PODS, "a", {}), id="patch"),
        pytest.param(lambda it: it.delete(PODS, "a"), id="delete"),
        pytest.param(lambda it: it.get(PODS, "a"), id="get"),
        pytest.param(lambda it: it.objects(PODS), id="objects"),
        pytest.param(lambda it: it.register(WIDGETS), id="register"),
        pytest.param(lambda it: it.unregister(WIDGETS), id="unregister"),
        pytest.param(lambda it: it.snapshot(), id="snapshot"),
        pytest.param(lambda it: it.compact(), id="compact"),
        pytest.param(lambda it: asyncio.run(it.stop()), id="stop"),
        pytest.param(lambda it: asyncio.run(it.restart()), id="restart"),
        pytest.param(lambda it: asyncio.run(it.until(bool)), id="until"),
    ],
)
@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_running_server_rejects_calls_from_another_thread(
    call: Callable[[APIServer], object],
) -> None:
    async with APIServer() as server:
        before = server.resource_version
        with pytest.raises(WrongLoop, match=r"<APIServer http://127\.0\.0\.1:\d+"):
            await asyncio.to_thread(call, server)

        assert server.resource_version == before


def test_arranging_needs_no_running_loop() -> None:
    server = APIServer()
    with asyncio.Runner() as runner:
        runner.run(server.start())
        server.create(PODS, named("a"))
        runner.run(server.stop())

    assert len(server.objects(PODS)) == 1
