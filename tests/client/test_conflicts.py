"""`retry_on_conflict`, `create_or_patch` and merge patches of differences."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinformer import Client, retry_on_conflict
from aioinformer.client import create_or_patch
from aioinformer.client.conflicts import merge_difference
from aioinformer.errors import AlreadyExists, Conflict, NotFound, OptionsError
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse
from aioinformer_apiserver.patches.patch_types import merge_patch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE: dict[str, Any] = {"namespace": "default"}


class Failing:
    """Coroutine function that fails a number of times."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.times: list[float] = []

    async def __call__(self) -> str:
        self.times.append(asyncio.get_running_loop().time())
        if self.failures:
            raise self.failures.pop(0)

        return "done"


# ------------------------------------------------------------ retry_on_conflict


async def test_function_is_called_again_after_conflicts() -> None:
    function = Failing(*[Conflict("changed")] * 4)
    assert await retry_on_conflict(function) == "done"
    pauses = [b - a for a, b in zip(function.times, function.times[1:], strict=False)]
    assert len(pauses) == 4
    assert all(0.009 < pause < 0.012 for pause in pauses)


async def test_lambda_may_return_the_coroutine() -> None:
    function = Failing(Conflict("changed"))
    assert await retry_on_conflict(lambda: function()) == "done"


async def test_fifth_conflict_is_raised() -> None:
    function = Failing(*[Conflict(str(number)) for number in range(9)])
    with pytest.raises(Conflict, match="4"):
        await retry_on_conflict(function)


@pytest.mark.parametrize(
    "failure",
    [
        NotFound("gone"),
        AlreadyExists("taken"),
        Conflict("owned", details={"causes": [{"reason": "FieldManagerConflict"}]}),
    ],
    ids=lambda it: str(it),
)
async def test_lasting_failures_are_raised_at_once(failure: Exception) -> None:
    function = Failing(failure)
    with pytest.raises(type(failure)):
        await retry_on_conflict(function)

    assert len(function.times) == 1


async def test_arguments_of_retry_are_checked() -> None:
    with pytest.raises(OptionsError, match="calls a coroutine function"):
        await retry_on_conflict(lambda: None)  # type: ignore[arg-type, return-value]

    with pytest.raises(OptionsError, match="not 7: pass it without calling it"):
        await retry_on_conflict(7)  # type: ignore[arg-type]

    for wrong in (0, 1.5, "3"):
        with pytest.raises(OptionsError, match="an integer of at least 1, not "):
            await retry_on_conflict(Failing(), attempts=wrong)  # type: ignore[arg-type]

    with pytest.raises(OptionsError, match="delay must not be negative: -1"):
        await retry_on_conflict(Failing(), delay=-1)


# ------------------------------------------------------------ create_or_patch


@asynccontextmanager
async def served() -> AsyncIterator[tuple[APIServer, Client]]:
    async with APIServer() as server, server.client() as client:
        yield server, client


def paint(settings: dict[str, Any]) -> None:
    settings.setdefault("data", {})["colour"] = "blue"


def writes(server: APIServer) -> list[str]:
    return [it.verb for it in server.requests if it.verb != "get"]


async def test_object_is_created_patched_then_left_alone() -> None:
    async with served() as (server, client):
        made, first = await create_or_patch(client, CONFIG_MAPS, "a", paint, **HERE)
        server.patch(CONFIG_MAPS, "a", {"data": {"colour": "red", "b": "1"}}, **HERE)
        kept, second = await create_or_patch(client, CONFIG_MAPS, "a", paint, **HERE)
        same, third = await create_or_patch(client, CONFIG_MAPS, "a", paint, **HERE)
        assert writes(server) == ["create", "patch"]

    assert (first, second, third) == ("created", "patched", "unchanged")
    assert made.at("data") == {"colour": "blue"}
    assert kept.at("data") == {"colour": "blue", "b": "1"}
    assert same == kept


async def test_function_is_called_again_if_object_changes_meanwhile() -> None:
    async with served() as (server, client):
        calls = 0

        def change(settings: dict[str, Any]) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:  # another client creates it
                body = {"metadata": {"name": "a"}, "data": {"size": "1"}}
                server.create(CONFIG_MAPS, body, **HERE)
            elif calls == 2:  # and then changes it
                server.patch(CONFIG_MAPS, "a", {"data": {"size": "2"}}, **HERE)

            paint(settings)

        found, done = await create_or_patch(client, CONFIG_MAPS, "a", change, **HERE)

    assert (calls, done) == (3, "patched")
    assert found.at("data") == {"colour": "blue", "size": "2"}


async def test_object_deleted_meanwhile_is_created() -> None:
    async with served() as (server, client):
        server.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, **HERE)

        def change(settings: dict[str, Any]) -> None:
            if "uid" in settings["metadata"]:
                server.delete(CONFIG_MAPS, "a", **HERE)

            paint(settings)

        _, done = await create_or_patch(client, CONFIG_MAPS, "a", change, **HERE)

    assert done == "created"


async def test_conflicts_of_create_or_patch_are_bounded() -> None:
    async with served() as (server, client):
        server.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, **HERE)
        server.faults.add(Refuse(status=409, verb="patch", times=None))
        with pytest.raises(Conflict):
            await create_or_patch(client, CONFIG_MAPS, "a", paint, **HERE)

        assert writes(server) == ["patch"] * 5


async def test_missing_namespace_is_raised_at_once() -> None:
    async with served() as (server, client):
        with pytest.raises(NotFound, match="namespaces"):
            await create_or_patch(client, CONFIG_MAPS, "a", paint, namespace="nowhere")

        assert writes(server) == ["create"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": {"x": 1}}, "does not write the status of configmaps a"),
        ({"metadata": {"name": "b"}}, "must not change the name of configmaps a"),
    ],
    ids=["status", "name"],
)
async def test_identity_and_status_must_not_change(
    change: dict[str, Any], message: str
) -> None:
    async with served() as (_, client):
        with pytest.raises(OptionsError, match=message):
            await create_or_patch(
                client, CONFIG_MAPS, "a", lambda it: it.update(change), **HERE
            )


async def test_function_must_be_plain() -> None:
    async def change(settings: dict[str, Any]) -> None: ...

    async with served() as (_, client):
        with pytest.raises(OptionsError, match="the function of create_or_patch"):
            await create_or_patch(client, CONFIG_MAPS, "a", change, **HERE)


# ------------------------------------------------------------ merge patches

VALUES = st.recursive(
    st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_difference_leads_from_old_to_new(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    patch = merge_difference(old, new)
    assert merge_patch(old, patch) == new
    assert bool(patch) == (old != new)
