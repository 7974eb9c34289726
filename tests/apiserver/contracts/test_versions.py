"""Resource versions of reads: newest, past and future states."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    an_event,
    ask,
    change,
    make,
    named,
    names,
    newest,
    remove,
    version_of,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

FUTURE = 1_000_000_000


async def with_a_past(http: aiohttp.ClientSession, path: str) -> str:
    """Return a version with `a` and `b`; the current state has only `b`."""
    await make(http, path, named("a"))
    past = await make(http, path, named("b"))
    await remove(http, f"{path}/a")
    return str(version_of(past))


async def test_list_at_version_zero_ignores_limit(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await with_a_past(http, path)
    await make(http, path, named("c"))

    for match in ({}, {"resourceVersionMatch": "NotOlderThan"}):
        _, found = await ask(http, "GET", path, limit="1", resourceVersion="0", **match)

        assert names(found) == ["b", "c"]
        assert list(found["metadata"]) == ["resourceVersion"]


async def test_list_at_version_zero_pages_without_watch_cache(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("events")
    for name in ("a", "b"):
        await make(http, path, an_event(name, target.namespace))

    _, found = await ask(http, "GET", path, limit="1", resourceVersion="0")

    assert names(found) == ["a"]
    assert found["metadata"]["remainingItemCount"] == 1


async def test_list_at_version_with_limit_is_exact(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    past = await with_a_past(http, path)

    _, whole = await ask(http, "GET", path, limit="5", resourceVersion=past)
    _, first = await ask(http, "GET", path, limit="1", resourceVersion=past)

    assert (names(whole), names(first)) == (["a", "b"], ["a"])
    assert whole["metadata"] == {"resourceVersion": past}
    assert first["metadata"]["remainingItemCount"] == 1


async def test_list_at_exact_version_shows_past_state(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    past = await with_a_past(http, path)
    exact = {"resourceVersion": past, "resourceVersionMatch": "Exact"}

    _, whole = await ask(http, "GET", path, **exact)
    _, first = await ask(http, "GET", path, limit="1", **exact)

    assert (names(whole), names(first)) == (["a", "b"], ["a"])
    assert whole["metadata"] == {"resourceVersion": past}


async def test_list_at_version_without_limit_shows_newest_state(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    past = await with_a_past(http, path)

    _, found = await ask(http, "GET", path, resourceVersion=past)

    assert names(found) == ["b"]
    assert version_of(found) > int(past)


async def test_list_not_older_than_version_shows_newest_state(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    past = await with_a_past(http, path)
    params = {"resourceVersion": past, "resourceVersionMatch": "NotOlderThan"}

    _, whole = await ask(http, "GET", path, **params)
    _, paged = await ask(http, "GET", path, limit="1", **params)

    assert names(whole) == names(paged) == ["b"]
    assert version_of(paged) > int(past)


async def test_past_state_has_objects_of_its_time(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    old = await make(http, path, named("a", data={"k": "old"}))
    await change(http, f"{path}/a", {"data": {"k": "new"}})
    version = old["metadata"]["resourceVersion"]

    _, found = await ask(
        http, "GET", path, resourceVersion=version, resourceVersionMatch="Exact"
    )

    del old["kind"], old["apiVersion"]
    assert found["items"] == [old]


@pytest.mark.alone
async def test_compacted_version_is_410(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    # Events, because a real server keeps past states of other kinds in its watch
    # cache.
    path = target.path("events")
    made = await make(http, path, an_event("a", target.namespace))
    await make(http, path, an_event("b", target.namespace))
    await target.compact()
    past = made["metadata"]["resourceVersion"]

    exact = {"resourceVersion": past, "resourceVersionMatch": "Exact"}
    for params in (exact, {"resourceVersion": past, "limit": "5"}):
        code, status = await ask(http, "GET", path, **params)

        assert (code, status["reason"]) == (410, "Expired")
        assert status["message"] == (
            "The resourceVersion for the provided list is too old."
        )
        assert (status["metadata"], "details" in status) == ({}, False)

    code, found = await ask(http, "GET", path, resourceVersion=past)
    assert (code, names(found)) == (200, ["a", "b"])


@each_case(
    "params",
    [
        {},
        {"limit": "1"},
        {"resourceVersionMatch": "NotOlderThan"},
        {"resourceVersionMatch": "Exact"},
    ],
)
async def test_future_version_without_watch_cache_is_504(
    target: ServerUnderTest, http: aiohttp.ClientSession, params: dict[str, str]
) -> None:
    path = target.path("events")

    code, status = await ask(http, "GET", path, resourceVersion=str(FUTURE), **params)

    assert (code, status["reason"]) == (504, "Timeout")
    check_too_large(status, {})


@pytest.mark.parametrize("name", ["", "/a", "/none"], ids=["list", "get", "missing"])
async def test_future_version_is_waited_for(
    target: ServerUnderTest, http: aiohttp.ClientSession, name: str
) -> None:
    """After three seconds the server asks the client to retry later."""
    path = target.path("configmaps")
    await make(http, path, named("a"))
    start = asyncio.get_running_loop().time()
    async with http.get(path + name, params={"resourceVersion": str(FUTURE)}) as answer:
        status = await answer.json()

    waited = asyncio.get_running_loop().time() - start
    assert waited == pytest.approx(3.0, abs=0.5)
    assert (answer.status, status["reason"]) == (504, "Timeout")
    assert answer.headers["Retry-After"] == "1"
    check_too_large(status, {"retryAfterSeconds": 1})


def check_too_large(status: dict[str, Any], more: dict[str, Any]) -> None:
    message = f"Timeout: Too large resource version: {FUTURE}, current: "
    assert status["message"].startswith(message)
    cause = {
        "reason": "ResourceVersionTooLarge",
        "message": "Too large resource version",
    }
    assert status["details"] == {"causes": [cause], **more}


async def test_list_returns_when_future_version_arrives(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    version = await newest(http, path) + 5

    async with asyncio.TaskGroup() as group:
        list_ = group.create_task(ask(http, "GET", path, resourceVersion=str(version)))
        await asyncio.sleep(0.1)
        for number in range(5):
            await make(http, path, named(f"map-{number}"))

    code, found = list_.result()
    assert (code, version_of(found) >= version) == (200, True)


@pytest.mark.parametrize("version", ["0", "1", "newest"])
async def test_get_shows_newest_state(
    target: ServerUnderTest, http: aiohttp.ClientSession, version: str
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))
    changed = await change(http, f"{path}/a", {"data": {"k": "v"}})
    wanted = changed["metadata"]["resourceVersion"] if version == "newest" else version

    code, found = await ask(http, "GET", f"{path}/a", resourceVersion=wanted)
    missing, _ = await ask(http, "GET", f"{path}/none", resourceVersion=wanted)

    assert (code, missing) == (200, 404)
    # The watch cache may return an older state for "0", but gets changes at once.
    assert found["metadata"]["name"] == "a"
    if version != "0":
        assert found == changed or version == "1"


@each_case("text", ["abc", "-1", "1.5", " 1", "0x5", "9" * 24, "9" * 5000])
async def test_malformed_version_is_rejected(
    target: ServerUnderTest, http: aiohttp.ClientSession, text: str
) -> None:
    path, events = target.path("configmaps"), target.path("events")
    why = "value out of range" if text.startswith("9") else "invalid syntax"
    problem = f'resourceVersion: Invalid value: "{text}": '
    problem += f'strconv.ParseUint: parsing "{text}": {why}'
    params = {"resourceVersion": text}

    listed = await ask(http, "GET", path, **params)
    paged = await ask(http, "GET", path, limit="1", **params)
    got = await ask(http, "GET", f"{path}/a", **params)
    watched = await ask(http, "GET", path, watch="1", **params)
    event = await ask(http, "GET", f"{events}/a", **params)

    for code, status in (listed, paged, event):
        assert (code, status["reason"]) == (400, "BadRequest")
        assert status["message"] == f"invalid resource version: {problem}"

    # A real server reports these two as internal errors.
    for code, status in (got, watched):
        assert (code, status["message"]) == (500, problem)
        assert "reason" not in status
