"""The distribution: pinned packages, extras, commands, links of the index page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from doc_blocks import blocks_of
from processes import ROOT

import aioinformer

if TYPE_CHECKING:
    from pathlib import Path

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
REPOSITORY = PROJECT["project"]["urls"]["Repository"]
README = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
INSTALLING = (ROOT / "docs/installing.md").read_text(encoding="utf-8")
TARGET = re.compile(r"\]\(([^)\s]+)\)")
PAGES = re.compile(rf"{REPOSITORY}/blob/v1\.2\.3/([^#]+)(#.*)?")
IMAGES = re.compile(
    rf"{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/v1\.2\.3/(.+)"
)


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
# By commit; one by its exact version, as it runs an image of that tag.
PINNED = re.compile(
    r"[\w./-]+@[0-9a-f]{40} # v[\d.]+|pypa/gh-action-pypi-publish@v\d+\.\d+\.\d+"
)


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[Any]) -> set[str]:
    """Return the names of required packages, without included groups."""
    lines = [it for it in requirements if isinstance(it, str)]
    return {normalized(re.split(r"[\[<>=~;\s]", it)[0]) for it in lines}


def sizes() -> dict[str, tuple[int, int]]:
    """Return packages and MiB of each installation, as documented."""
    row = r"^\| `aioinformer(?:\[(\w+)\])?` \|.*\| (\d+) \| (\d+) \|$"
    rows = re.findall(row, INSTALLING, re.MULTILINE)
    return {extra: (int(packages), int(size)) for extra, packages, size in rows}


def index_page() -> str:
    """Return the README as the package index shows it, for the version 1.2.3."""
    text = "".join((ROOT / it["path"]).read_text() for it in README["fragments"])
    for change in README["substitutions"]:
        replacement = change["replacement"].replace("$HFPR_VERSION", "1.2.3")
        text = re.sub(change["pattern"], replacement, text)
    return text


def test_every_required_package_is_pinned() -> None:
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    required = set[str]().union(*map(names, [*lists, *groups.values()]))

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {normalized(it.partition("==")[0]) for it in lines}
    assert required - pinned == {"aioinformer"}


def test_page_about_installing_lists_base_and_extras() -> None:
    extras = PROJECT["project"]["optional-dependencies"]

    assert list(sizes()) == ["", *extras]
    assert sizes()["all"] == max(sizes().values())
    assert sizes()[""] == min(sizes().values())


def test_page_about_installing_lists_dependencies_except_orjson() -> None:
    commands = [it.text for it in blocks_of(INSTALLING, "sh")]
    required = names(PROJECT["project"]["dependencies"])

    assert commands[0] == "pip install aioinformer\n"
    by_hand, itself = commands[1].splitlines()
    assert names(by_hand.split()[2:]) == required - {"orjson"}
    assert itself == "pip install --no-deps aioinformer"


def test_page_about_installing_pins_the_current_minor_version() -> None:
    (line,) = [it.text.strip() for it in blocks_of(INSTALLING, "text")]
    major, minor = aioinformer.__version__.split(".")[:2]

    assert line == f"aioinformer>={major}.{minor},<{major}.{int(minor) + 1}"


def test_index_page_has_only_absolute_links_to_existing_files() -> None:
    targets = [it for it in TARGET.findall(index_page()) if not it.startswith("#")]

    assert [it for it in targets if not it.startswith("https://")] == []
    pages = [found[1] for it in targets if (found := PAGES.fullmatch(it))]
    assert len(pages) > 10
    assert [it for it in pages if not (ROOT / it).exists()] == []


def test_index_page_shows_the_images_of_its_version() -> None:
    shown = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", index_page())
    files = [found[1] for it in shown if (found := IMAGES.fullmatch(it))]

    assert len(files) == len(shown) > 0
    assert [it for it in files if not (ROOT / it).is_file()] == []


def test_all_has_every_other_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (line,) = extras["all"]

    assert set(line.removesuffix("]").partition("[")[2].split(",")) == {
        it for it in extras if it != "all"
    }


@pytest.mark.parametrize("name", sorted(PROJECT["project"]["scripts"]))
def test_command_of_the_distribution_exists(name: str) -> None:
    module, _, function = PROJECT["project"]["scripts"][name].partition(":")

    assert callable(getattr(import_module(module), function))


def test_ci_runs_on_every_supported_python() -> None:
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    classifiers = PROJECT["project"]["classifiers"]
    found = (re.fullmatch(r".* :: (3\.\d+)", it) for it in classifiers)

    assert ci["jobs"]["check"]["strategy"]["matrix"]["python"] == [
        it[1] for it in found if it
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda it: it.name)
def test_workflow_calls_existing_targets_and_pinned_actions(path: Path) -> None:
    text = path.read_text()
    targets = re.findall(
        r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    actions = re.findall(r"uses: (?!\./)(.+)", text)

    assert set(re.findall(r"\bmake ([a-z0-9]+)", text)) - set(targets) == set()
    assert len(actions) > 5
    assert [it for it in actions if not PINNED.fullmatch(it)] == []


def test_make_refuses_another_python_than_that_of_the_environment(
    tmp_path: Path,
) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    binaries = tmp_path / ".venv/bin"
    binaries.mkdir(parents=True)
    for path in (binaries / "python", tmp_path / "other"):
        path.write_text(f"#!/bin/sh\necho {path.name}\n")
        path.chmod(0o755)

    for stamp in (".ready-run", ".ready-dev"):
        (tmp_path / ".venv" / stamp).touch()

    def setup(*options: str) -> subprocess.CompletedProcess[str]:
        clean = {
            name: it
            for name, it in os.environ.items()
            if name[:4] not in {"MAKE", "PYTH"}
        }
        return subprocess.run(
            ["make", "setup", *options],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    refused = setup("PYTHON=./other")

    assert refused.returncode != 0
    assert "make clean" in refused.stderr
    assert setup("PYTHON=.venv/bin/python").returncode == 0
    assert setup().returncode == 0
