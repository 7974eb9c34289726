"""The recipes about watching do what they say."""

from __future__ import annotations

import asyncio

from cookbook import running

from aioinformer.model.resources import DEPLOYMENTS


async def test_print_the_changes_of_one_object() -> None:
    async with running("Print the changes of one object") as program:
        await asyncio.sleep(30)
        five = {"spec": {"replicas": 5}}
        program.server.patch(DEPLOYMENTS, "web", five, namespace="shop")
        await asyncio.sleep(1)
        program.server.delete(DEPLOYMENTS, "web", namespace="shop")
        await program.main
