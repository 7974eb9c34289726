"""The cookbook is complete: each recipe is run by a test, and found in the index."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cookbook import APP_STARTS, COOKBOOK, START, Recipe, apply, recipes
from doc_blocks import blocks_of, broken_links, indented_code, run_as_tests
from doc_sessions import files_of
from processes import ROOT

from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path

RECIPES = recipes()
PAGES = sorted(COOKBOOK.glob("*.md"))
TESTS = {
    page: [it for it in RECIPES if it.page == page and it.is_test_file]
    for page in sorted({it.page for it in RECIPES if it.is_test_file})
}
# First words of the titles: what the reader wants to do.
VERBS = re.findall(
    r"\w+",
    """
    Add Answer Apply Call Change Check Choose Clean Create Debounce Decode Delete Deploy
    Detect Drain Filter Find Follow Give Grant Handle Ignore Index Iterate Join Keep Limit List
    Log Measure Own Patch Print Protect React Read Reconcile Record Refuse Report
    Requeue Restart Resync Retry Run Scale Select Send Serve Set Share Show Shrink Shut
    Simulate Start Stop Stream Test Trace Try Update Use Wait Watch Write
    """,
)


def test_cookbook_has_at_least_25_recipes() -> None:
    assert len(RECIPES) >= 25
    assert len({it.title for it in RECIPES}) == len(RECIPES)


def test_titles_begin_with_a_verb() -> None:
    assert [it.title for it in RECIPES if it.title.split()[0] not in VERBS] == []


def is_run(recipe: Recipe) -> bool:
    """Tell whether the page's test file has the recipe's test, which runs it."""
    name = recipe.page.removesuffix(".md").replace("-", "_")
    path = ROOT / "tests" / "project" / f"test_cookbook_{name}.py"
    tests = {
        it.name: ast.unparse(it)
        for it in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(it, ast.AsyncFunctionDef)
    }
    return f"({recipe.title!r}" in tests.get(recipe.name, "")


def test_each_program_has_a_test_that_runs_it() -> None:
    programs = [it for it in RECIPES if not it.is_test_file]
    endings = (START, *APP_STARTS)

    assert [
        it.name for it in programs if it.code and not it.code.endswith(endings)
    ] == []
    assert [f"{it.page}: {it.name}" for it in programs if not is_run(it)] == []


@pytest.mark.realtime
@pytest.mark.parametrize("page", TESTS)
def test_test_files_pass(page: str, tmp_path: Path) -> None:
    files = {f"{it.name}.py": it.code for it in TESTS[page]}
    others = files_of((COOKBOOK / page).read_text(encoding="utf-8"))
    loops = ("-o", "asyncio_default_fixture_loop_scope=function")
    outcome = run_as_tests(tmp_path, files | others, "-o", "asyncio_mode=auto", *loops)

    assert [it for it in files if not outcome.has_passed(it)] == [], outcome.out


@pytest.mark.parametrize(
    "recipe", [it for it in RECIPES if it.text("yaml")], ids=lambda it: it.name
)
async def test_manifests_are_valid(recipe: Recipe) -> None:
    async with APIServer(auto_namespaces=True) as server:
        await apply(server, recipe.text("yaml"))


def test_recipes_are_short() -> None:
    lengths = {it.name: len(it.code.splitlines()) for it in RECIPES}

    assert {name: n for name, n in lengths.items() if n > 50} == {}


@pytest.mark.realtime
@pytest.mark.parametrize(
    "command",
    [["format", "--check"], ["check", "--select", "ANN001,ANN2,F,I"]],
    ids=" ".join,
)
def test_recipes_are_formatted_typed_and_use_their_imports(
    command: list[str], tmp_path: Path
) -> None:
    for recipe in RECIPES:
        (tmp_path / f"{recipe.page}_{recipe.name}.py").write_text(recipe.code)

    config = ROOT / "pyproject.toml"
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        *command,
        "--config",
        str(config),
        str(tmp_path),
    ]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


def test_blocks_have_a_tested_language() -> None:
    kinds = {(it.page, block.language) for it in RECIPES for block in it.blocks}
    tested = {"python", "text", "yaml"}

    # The tests of these pages send the requests of their commands, or type them.
    typed = {("operations.md", "console"), ("web.md", "console")}
    assert {it for it in kinds if it[1] not in tested} == typed


@pytest.mark.parametrize("path", PAGES, ids=lambda it: it.name)
def test_pages_have_no_broken_links_and_no_untested_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert broken_links(path) == []
    assert indented_code(text) == []
    assert blocks_of(text.partition("\n## ")[0]) == [], "before the first recipe"


def test_index_lists_all_recipes_under_their_pages() -> None:
    index = (COOKBOOK / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(.+)\]\(([\w-]+\.md)#[\w-]+\)$", index, re.MULTILINE)

    assert sorted(listed) == sorted((it.title, it.page) for it in RECIPES)


def test_documentation_links_to_the_cookbook() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    assert "](cookbook/README.md)" in index
