"""Recipes of the cookbook, and a server with a few objects to run them against."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from doc_blocks import Block, blocks_of
from doc_sessions import answers
from processes import ROOT

from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = [
    "APP_STARTS",
    "COOKBOOK",
    "START",
    "Program",
    "Recipe",
    "apply",
    "recipe_of",
    "recipes",
    "running",
    "send_signal",
]

COOKBOOK = ROOT / "docs" / "cookbook"
# Objects that readers can create, too.
SHOP = COOKBOOK / "shop.yaml"
# The end of each program; the tests already run in a loop.
START = "\nasyncio.run(main())\n"
# The ends of web apps, and what the tests run instead.
APP_STARTS = {
    "uvicorn.run(app, port=8000)\n": """
server = uvicorn.Server(uvicorn.Config(app, port=8000, log_config=None))


async def main():
    await server.serve()
""",
    "web.run_app(make_app(), port=8080)\n": """
async def main():
    runner = web.AppRunner(make_app())
    await runner.setup()
    try:
        await web.TCPSite(runner, port=8080).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
""",
}

_SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """Section of a page: its title, and its blocks."""

    page: str
    title: str
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        """Name of its test."""
        return "test_" + re.sub(r"\W+", "_", self.title.lower()).strip("_")

    @property
    def code(self) -> str:
        """Its program or test file. Empty if it consists of commands."""
        found = [it.text for it in self.blocks if it.language == "python"]
        assert len(found) == 1 or (not found and self.text("console"))
        return "".join(found)

    @property
    def is_test_file(self) -> bool:
        return "def test_" in self.code

    def text(self, language: str) -> str:
        """Return the blocks of a language, such as `text` for the output."""
        return "".join(it.text for it in self.blocks if it.language == language)


@dataclass(frozen=True)
class Program:
    """A running recipe.

    Attributes:
        server: API server that it uses, by `KUBECONFIG`.
        module: Module with its names.
        main: Task of its `main()`. Await it if the program ends by itself.
        output: Its output so far.
    """

    server: APIServer
    module: ModuleType
    main: asyncio.Task[None]
    output: io.StringIO

    async def prints(self, text: str) -> None:
        """Wait until it has printed a text."""
        async with asyncio.timeout(30):
            while text not in self.output.getvalue():
                await asyncio.sleep(0.01)


def recipes() -> list[Recipe]:
    """Return the recipes of all pages."""
    return [
        Recipe(path.name, title, tuple(blocks_of(section)))
        for path in sorted(COOKBOOK.glob("*.md"))
        if path.name != "README.md"
        for title, section in _SECTION.findall(path.read_text(encoding="utf-8"))
    ]


def recipe_of(title: str) -> Recipe:
    """Return the recipe with this title."""
    (found,) = [it for it in recipes() if it.title == title]
    return found


@contextlib.asynccontextmanager
async def running(
    title: str, *, edits: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Program]:
    """Run a program against a server with `shop.yaml` and the recipe's manifests.

    The program is cancelled at the end of the block, as by Ctrl-C. Then its output must
    be the recipe's `text` block.

    Args:
        title: Title of the recipe.
        edits: Replacements in the code, such as ports.
        **options: Options of the server.

    Raises:
        AssertionError: The output differs.
    """
    recipe = recipe_of(title)
    code = recipe.code.removesuffix(START)
    for start, instead in APP_STARTS.items():
        code = code.replace(start, f"import asyncio\n{instead}")

    for old, new in (edits or {}).items():
        assert old in code
        code = code.replace(old, new)

    # A module that is found by its name, as models look up the types of their fields.
    module = ModuleType("recipe")
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        async with APIServer(auto_namespaces=True, **options) as server:
            server.load(SHOP)
            await apply(server, recipe.text("yaml"))
            config = server.kubeconfig(Path(folder) / "config")
            patch.setenv("KUBECONFIG", str(config))
            patch.setitem(sys.modules, "recipe", module)
            exec(compile(code, f"{recipe.page}: {title}", "exec"), module.__dict__)
            async with asyncio.TaskGroup() as group:
                main = group.create_task(module.main(), name=title)
                yield Program(server, module, main, printed)
                main.cancel()

    shown = recipe.text("text")
    assert answers(printed.getvalue(), shown), printed.getvalue()


def send_signal(number: signal.Signals) -> None:
    """Send a signal to this process, if the program handles it."""
    assert signal.getsignal(number) is not signal.SIG_DFL
    os.kill(os.getpid(), number)


async def apply(server: APIServer, manifests: str) -> None:
    """Create the objects of YAML documents, with strict validation.

    Raises:
        AssertionError: The server refuses one.
    """
    bodies = list(yaml.safe_load_all(manifests))
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    async with (
        server.client() as client,
        aiohttp.ClientSession(server.url, headers=headers) as http,
    ):
        for body in bodies:
            client.discovery.invalidate()  # a CRD adds resources
            kind, version = body["kind"], body["apiVersion"]
            resource = await client.discovery.resource(kind, version)
            path = resource.path(body["metadata"].get("namespace"))
            strict = {"fieldValidation": "Strict"}
            async with http.post(path, params=strict, json=body) as answer:
                assert answer.status == 201, await answer.text()
