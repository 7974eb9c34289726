"""Commands whose informer dies of a bug."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioinformer.cli.demo import DemoOptions, demo
from aioinformer.cli.running import reason_of
from aioinformer.cli.target import Target
from aioinformer.cli.watch import WatchOptions, watch
from aioinformer.errors import InformerStopped, InternalError
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any


class Bug(InternalError):
    """Not one of ours, really."""


async def dies(*_: object, **__: object) -> None:
    raise Bug


async def death_of(command: Coroutine[Any, Any, int]) -> BaseException | None:
    """What the informer died of, as the command tells it."""
    with pytest.raises((InformerStopped, ExceptionGroup)) as caught:
        async with asyncio.timeout(60):
            await command

    error: BaseException = caught.value
    return (reason_of(error) if isinstance(error, ExceptionGroup) else error).__cause__


@pytest.mark.parametrize("step", ["stage", "feed"])
async def test_watch_ends_with_its_informer(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first list is there, and after it."""
    monkeypatch.setattr(Pipeline, step, dies)
    async with APIServer(auto_namespaces=True) as server:

        def create_later() -> None:
            server.create(PODS, {"metadata": {"name": "b"}}, namespace="x")

        if step == "stage":
            server.create(PODS, {"metadata": {"name": "a"}}, namespace="x")
        else:
            asyncio.get_running_loop().call_later(2, create_later)

        target = Target(server=server.url)
        found = await death_of(watch(WatchOptions(resource="pods"), target))

    assert isinstance(found, Bug)


async def test_demo_ends_with_an_informer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "feed", dies)

    assert isinstance(await death_of(demo(DemoOptions(objects=60))), Bug)
