"""What the README shows is true: its programs run, its commands answer as it says."""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from conftest import pod
from processes import ROOT

from aioinformer.cli.commands import aioinformer
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
# How each program ends; the tests run in a loop already.
START = "\nasyncio.run(main())\n"


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(README) if found == language]


async def run(program: str) -> None:
    assert program.endswith(START)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(program.removesuffix(START), "README.md", "exec"), names)
    await names["main"]()


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    kinds = [kind for kind, _ in BLOCK.findall(README)]

    assert README.count("```") == 2 * len(kinds)
    assert sorted(kinds) == ["console", "python", "python", "sh"]


async def test_the_first_program_prints_pods_and_their_changes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with APIServer(auto_namespaces=True) as server:
        for name, app in (("web-0", "web"), ("web-1", "web"), ("db-0", "db")):
            body = pod(name, "shop", {"app": app})
            del body["metadata"]["resourceVersion"]
            server.create(PODS, body)

        config = server.kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", str(config))
        async with asyncio.TaskGroup() as group:
            group.create_task(run(blocks("python")[0]))
            await asyncio.sleep(30)
            failed = {"status": {"phase": "Failed"}}
            server.patch(PODS, "web-0", failed, namespace="shop")

    assert capsys.readouterr().out == (
        "2 pods of app=web in shop\nshop/web-0 Running -> Failed\n"
    )


async def test_the_second_program_prints_why_it_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await run(blocks("python")[1])

    shown = README.partition(blocks("python")[1])[2].split()
    printed = capsys.readouterr().out.split()
    # All but the number of attempts, which is a matter of luck.
    assert printed[:5] == shown[1:6]
    assert printed[6:11] == shown[7:12]


@pytest.mark.parametrize(
    ("line", "answer"),
    re.findall(r"^\$ aioinformer (.*)\n(.*)$", blocks("console")[0], re.MULTILINE),
)
def test_commands_answer_as_shown(line: str, answer: str) -> None:
    result = CliRunner().invoke(aioinformer, shlex.split(line))

    assert result.exit_code == 2
    assert result.output == f"{answer}\n"


def test_make_has_the_targets_that_are_named() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z]+)", README))

    assert named >= {"run", "test", "bench"}
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert named - targets == set()


def test_links_lead_to_files() -> None:
    links = LINK.findall(README)

    assert {"CONTRIBUTING.md", "CHANGELOG.md"} <= set(links)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_first_program_is_short() -> None:
    lines = [line for line in blocks("python")[0].splitlines() if line]

    assert len(lines) <= 15
