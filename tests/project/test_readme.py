"""The README is true: its programs run, and its commands print the shown output."""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from conftest import pod
from doc_blocks import blocks_of, broken_links, run_as_tests, said
from doc_fragments import is_fragment, place, run_fragment
from processes import ROOT

from aioinformer.cli.commands import aioinformer
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer, faults

if TYPE_CHECKING:
    from pathlib import Path

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

    assert set(kinds) == {"console", "python", "sh"}
    assert kinds.count("console") == 1


async def test_parts_run_one_after_another() -> None:
    parts = [it for it in blocks_of(README, "python") if is_fragment(it)]
    assert len(parts) == 8
    async with place() as names:
        for part in parts:
            printed, shown = await run_fragment(part, names)
            assert printed == shown, f"line {part.line}"


@pytest.mark.parametrize(
    "part", re.findall(r"^\*\*([A-Z][\w ]*)\.\*\*", README, re.MULTILINE)
)
def test_each_part_is_described_in_a_few_lines(part: str) -> None:
    section = README.partition(f"**{part}.**")[2].partition("\n```\n")[0]

    assert len([it for it in section.splitlines() if it]) <= 15


def test_readme_is_short() -> None:
    """Without code, link targets, and the table of measurements."""
    prose = re.sub(
        r"^```.*?^```$|\]\([^)]*\)|<!-- written .*?<!-- up to here -->",
        "",
        README,
        flags=re.MULTILINE | re.DOTALL,
    )

    assert len(prose.split()) <= 1500


async def test_first_program_prints_pods_and_their_changes(
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


# An implementation of "my_program" that retries after a while.
MY_PROGRAM = """
import asyncio
from aioinformer import Client, ServerError
from aioinformer.model.resources import NODES

async def my_program(url):
    async with Client.from_url(url) as client:
        while True:
            try:
                return [node.name for node in await client.list(NODES)]
            except ServerError:
                await asyncio.sleep(0.01)
"""


@pytest.mark.realtime
def test_documented_test_passes(tmp_path: Path) -> None:
    (test,) = [it for it in blocks("python") if "def test_" in it]
    files = {"test_mine.py": f"{MY_PROGRAM}\n{test}"}
    mode = (
        "-o",
        "asyncio_mode=auto",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    )
    outcome = run_as_tests(tmp_path, files, *mode)

    assert outcome.has_passed("test_mine.py"), outcome.out


def test_number_of_faults_is_correct() -> None:
    classes = [getattr(faults, name) for name in faults.__all__]
    kinds = [it for it in classes if issubclass(it, faults.Fault)]

    # Two of them are base classes.
    assert f"{len(kinds) - 2} faults" in README


def test_section_about_tests_is_short() -> None:
    section = README.partition("## Testing your programs\n")[2].partition("\n## ")[0]

    assert "(docs/testing.md)" in section
    assert len(section.splitlines()) <= 25


@pytest.mark.parametrize(
    ("line", "answer"),
    [it for block in blocks_of(README, "console") for it in said(block)],
)
def test_commands_print_the_documented_output(line: str, answer: str) -> None:
    program, *arguments = shlex.split(line)
    result = CliRunner().invoke(aioinformer, arguments)

    assert program == "aioinformer"
    assert result.exit_code == 2
    assert result.output == answer


def test_makefile_has_the_documented_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z0-9]+)", README))

    assert named >= {"run", "test", "bench"}
    targets = set(re.findall(r"^([a-z0-9]+):", makefile, re.MULTILINE))
    assert named - targets == set()


def test_links_resolve() -> None:
    links = LINK.findall(README)

    assert {"CONTRIBUTING.md", "CHANGELOG.md", "docs/testing.md"} <= set(links)
    assert broken_links(ROOT / "README.md") == []


def test_first_program_is_short() -> None:
    lines = [line for line in blocks("python")[0].splitlines() if line]

    assert len(lines) <= 15
