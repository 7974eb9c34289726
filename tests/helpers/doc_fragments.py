"""Code fragments of the documentation, and a place to run them.

The fragments of one page form one program: each sees the names of those before it.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import re
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from conftest import pod

import aioinformer
from aioinformer import SharedInformerFactory
from aioinformer.controller import Context
from aioinformer.model.resources import NODES, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from doc_blocks import Block

__all__ = ["is_fragment", "place", "run_fragment"]

_SHOWN = re.compile(r"^\s*print\(.*\)  # -> (.*)$", re.MULTILINE)


def is_fragment(block: Block) -> bool:
    """Return whether a block is neither a whole program nor a test file."""
    return "def test_" not in block.text and "asyncio.run(" not in block.text


@contextlib.asynccontextmanager
async def place() -> AsyncIterator[dict[str, Any]]:
    """Run a shop with three pods on three nodes, and yield the names that pages use."""
    async with APIServer(auto_namespaces=True) as server, server.client() as client:
        for number, (name, app) in enumerate(
            (("web-0", "web"), ("web-1", "web"), ("db-0", "db"))
        ):
            node = f"node-{number}"
            body = pod(name, "shop", {"app": app})
            del body["metadata"]["resourceVersion"]
            body["spec"]["nodeName"] = node
            server.create(NODES, {"metadata": {"name": node}})
            server.create(PODS, body)

        factory = SharedInformerFactory(client)
        async with factory:
            pods = factory.informer(PODS)
            await pods.wait_synced(timeout=30)
            yield {
                **{name: getattr(aioinformer, name) for name in aioinformer.__all__},
                "Context": Context,
                "PODS": PODS,
                "asyncio": asyncio,
                "client": client,
                "factory": factory,
                "pods": pods,
            }


async def run_fragment(block: Block, names: dict[str, Any]) -> tuple[str, str]:
    """Run a fragment; return its output, and the output that its comments promise."""
    code = compile(
        block.text, f"line {block.line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        outcome = eval(code, names)  # a top-level await makes it a coroutine
        if iscoroutine(outcome):
            await outcome

    return printed.getvalue(), "".join(f"{it}\n" for it in _SHOWN.findall(block.text))
