"""`APIServer.until()`: a test waits for effects of the program."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from api_calls import PODS_PATH, named

from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Callable


def later(seconds: float, call: Callable[[], object]) -> None:
    """Call a function after a delay in virtual time."""
    asyncio.get_running_loop().call_later(seconds, call)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_until_returns_result_at_once() -> None:
    server, start = APIServer(), now()
    server.create(PODS, named("web"))

    pods = await server.until(lambda: server.objects(PODS))

    assert [pod["metadata"]["name"] for pod in pods] == ["web"]
    assert now() == start


async def test_until_wakes_after_write() -> None:
    server, start = APIServer(), now()
    later(2.02, lambda: server.create(PODS, named("web")))
    later(1.01, lambda: server.create(CONFIG_MAPS, named("settings")))

    await server.until(lambda: server.objects(PODS))

    # Between two polls, so the write has woken it.
    assert now() - start == pytest.approx(2.02, abs=0.002)


async def test_until_waits_for_missing_object() -> None:
    server = APIServer()
    later(1, lambda: server.create(CONFIG_MAPS, named("settings")))
    later(2, lambda: server.patch(CONFIG_MAPS, "settings", {"data": {"a": "1"}}))

    # `get()` raises NotFound before the first one, and KeyError before the second.
    found = await server.until(lambda: server.get(CONFIG_MAPS, "settings")["data"])

    assert found == {"a": "1"}


async def test_until_notices_request_without_write() -> None:
    async with APIServer() as server, aiohttp.ClientSession(server.url) as http:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(server.until(lambda: len(server.requests)))
            await asyncio.sleep(1)
            assert not waiting.done()
            async with http.get(PODS_PATH):
                pass

        assert waiting.result() == 1


async def test_until_notices_state_of_test() -> None:
    server, record = APIServer(), list[str]()
    later(3, lambda: record.append("done"))

    assert await server.until(lambda: record) == ["done"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param(
            "immutable",
            "last result: False. To see more here, return a value that is true in the "
            "end, not a comparison",
            id="false",
        ),
        pytest.param("nothing", "last result: KeyError: 'nothing'", id="missing"),
    ],
)
async def test_until_timeout_has_last_result(path: str, message: str) -> None:
    server, start = APIServer(), now()
    server.create(CONFIG_MAPS, named("settings", immutable=False))

    with pytest.raises(TimeoutError) as raised:
        await server.until(lambda: server.get(CONFIG_MAPS, "settings")[path], timeout=7)

    assert str(raised.value) == f"timed out after 7 s, {message}"
    assert now() - start == pytest.approx(7, abs=0.002)


async def test_until_timeout_names_missing_object() -> None:
    server = APIServer()

    with pytest.raises(TimeoutError, match=r'NotFound: .*pods "web" not found'):
        await server.until(lambda: server.get(PODS, "web"), timeout=0)


async def test_until_raises_other_errors_at_once() -> None:
    server, start = APIServer(), now()

    with pytest.raises(ZeroDivisionError):
        await server.until(lambda: 1 / 0)

    assert now() == start


@pytest.mark.parametrize("timeout", [None, "5", -1, float("nan")])
async def test_until_rejects_invalid_timeout(timeout: Any) -> None:
    with pytest.raises(OptionsError, match="timeout must be a number of seconds"):
        await APIServer().until(bool, timeout=timeout)


async def test_until_rejects_condition_that_is_not_a_function() -> None:
    condition: Any = True
    with pytest.raises(OptionsError, match="condition must be a function, not True"):
        await APIServer().until(condition)


async def test_until_rejects_coroutine_function() -> None:
    server = APIServer()

    async def condition() -> bool:
        return False

    with pytest.raises(
        OptionsError, match="a plain function, not a coroutine function"
    ):
        await server.until(condition)  # type: ignore[unused-coroutine]


@pytest.mark.parametrize("end", ["found", "cancelled"])
async def test_until_unsubscribes_at_end(end: str) -> None:
    server = APIServer()
    looks = list[float]()

    def condition() -> bool:
        looks.append(now())
        return bool(server.objects(PODS))

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(server.until(condition))
        await asyncio.sleep(1)
        if end == "cancelled":
            waiting.cancel()
        else:
            server.create(PODS, named("web"))

    seen = len(looks)
    server.create(PODS, named("later"))
    await asyncio.sleep(1)

    assert len(looks) == seen
    assert waiting.cancelled() == (end == "cancelled")
