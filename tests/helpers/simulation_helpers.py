"""Small programs in simulations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing.simulation import (
    Cluster,
    Simulation,
    SimulationFailed,
)
from aioinformer.testing.simulation import loop as loop_module

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioinformer import Client, KubeObject, Manager

__all__ = ["failure", "get", "passed", "run", "sleeping", "write"]


def get(cluster: Cluster, name: str) -> dict[str, Any]:
    found = cluster.get(CONFIG_MAPS, name, namespace="default")
    return {} if found is None else found.get("data", {})


def passed() -> float:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, loop_module.SimulatedLoop)
    return loop.passed


async def write(client: Client, name: str, **data: str) -> KubeObject:
    body = {"metadata": {"name": name}, "data": data}
    return await client.apply(
        body, resource=CONFIG_MAPS, namespace="default", field_manager="me", force=True
    )


def run(
    main: Callable[[Client], Coroutine[Any, Any, None] | Manager],
    check: Callable[[Cluster], object] = lambda _: True,
    **options: Any,
) -> Any:
    """Run a program, of which `check` must become true, for one seed without faults."""
    options = {"seeds": 1, "settle_seconds": 100} | options
    return Simulation().run(main, eventually=check, **options)


def failure(
    main: Callable[[Client], Coroutine[Any, Any, None] | Manager], **options: Any
) -> str:
    with pytest.raises(SimulationFailed) as found:
        run(main, **options)

    return str(found.value)


async def sleeping(client: Client) -> None:
    """Do nothing: a program."""
    await asyncio.sleep(1e6)
