"""The README is true: its programs run, and its commands print the shown output."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from conftest import pod
from doc_blocks import blocks_of, broken_links
from doc_sessions import Reader, files_of
from processes import ROOT, in_real_time

from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)#:]+)\)")
# The end of each program; the tests already run in a loop.
START = "\nasyncio.run(main())\n"


def blocks(language: str) -> list[str]:
    return [it.text for it in blocks_of(README, language)]


async def run(program: str) -> None:
    assert program.endswith(START)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(program.removesuffix(START), "README.md", "exec"), names)
    await names["main"]()


def test_every_code_block_has_a_tested_language() -> None:
    kinds = [it.language for it in blocks_of(README)]

    assert kinds == ["sh", "python", "console"]


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


async def test_first_program_prints_pods_and_their_changes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with APIServer(auto_namespaces=True) as server:
        for name, app in (("a-0", "app-003"), ("a-1", "app-003"), ("b-0", "app-007")):
            body = pod(name, "shop", {"app": app})
            del body["metadata"]["resourceVersion"]
            server.create(PODS, body)

        config = server.kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with asyncio.TaskGroup() as group:
            group.create_task(run(blocks("python")[0]))
            await asyncio.sleep(30)
            failed = {"status": {"phase": "Failed"}}
            server.patch(PODS, "a-0", failed, namespace="shop")

    assert capsys.readouterr().out == (
        "2 pods of app-003 in shop\nshop/a-0 Running -> Failed\n"
    )


class TestWithoutCluster:
    pytestmark = in_real_time

    async def test_first_program_runs_on_the_api_server(self, tmp_path: Path) -> None:
        (program,) = files_of(README).items()
        name, text = program
        assert name == "pods.py"
        (tmp_path / name).write_text(text.replace("sleep(60)", "sleep(3)"))
        # Pods and their numbers change at random.
        instead = {
            "--pods 200": "--pods 200 --port 0",
            "127.0.0.1:8001": "127.0.0.1:...",
            "4 pods": "... pods",
            "shop/app-023-00089 Running -> Failed": "...",
        }
        async with Reader(tmp_path, ["aioinformer apiserver"], instead) as reader:
            for block in blocks_of(README, "console"):
                await reader.follow(block)


def test_makefile_has_the_documented_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z0-9]+)", README))

    assert named >= {"run", "test"}
    targets = set(re.findall(r"^([a-z0-9]+):", makefile, re.MULTILINE))
    assert named - targets == set()


def test_links_resolve() -> None:
    links = LINK.findall(README)

    assert {"CONTRIBUTING.md", "CHANGELOG.md", "docs/testing.md"} <= set(links)
    assert broken_links(ROOT / "README.md") == []


def test_landing_page_has_the_same_first_program() -> None:
    landing = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    assert [it.text for it in blocks_of(landing, "python")] == blocks("python")


def test_first_program_is_short() -> None:
    lines = [line for line in blocks("python")[0].splitlines() if line]

    assert len(lines) <= 20
