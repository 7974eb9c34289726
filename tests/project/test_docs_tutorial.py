"""The tutorial works as written: its files, its commands, and their output."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from doc_blocks import blocks_of
from doc_sessions import Reader, answers, files_of
from ports import free_port
from processes import ROOT, in_real_time

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
LASTING = ["aioinformer apiserver", "uvicorn", "python quota.py"]

# Readers want to see changes for some seconds; a test needs a few of them.
SLEEP = "asyncio.sleep(5)"
SHORTER = {"--for 3": "--for 0.5", "--max-time 2": "--max-time 0.5"}


def test_every_block_is_a_file_or_a_command() -> None:
    kinds = [it.language for it in blocks_of(TEXT)]
    files = files_of(TEXT)

    assert list(files) == [
        "pods.py",
        "web.py",
        "quota.py",
        "pyproject.toml",
        "test_quota.py",
    ]
    # The one "sh" block creates an environment and installs packages.
    assert [it for it in kinds if it not in {"console", "sh"}] == ["python"] * 3 + [
        "toml",
        "python",
    ]
    assert kinds.count("sh") == 1


class TestTutorial:
    pytestmark = in_real_time

    @pytest.mark.timeout(120)
    async def test_tutorial_works_step_by_step(self, tmp_path: Path) -> None:
        missing = [it for it in ("bash", "curl", "kubectl") if shutil.which(it) is None]
        if missing:
            pytest.skip(f"the tutorial is typed with {missing}, which are not here")

        for name, text in files_of(TEXT).items():
            assert name != "pods.py" or SLEEP in text
            (tmp_path / name).write_text(text.replace(SLEEP, "asyncio.sleep(0.5)"))

        ports = {"8001": str(free_port()), "8000": str(free_port())}
        async with Reader(tmp_path, LASTING, ports | SHORTER) as reader:
            for block in blocks_of(TEXT, "console"):
                await reader.follow(block)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        pytest.param("one two\n", "one  two\n", id="spaces"),
        pytest.param("a\nb\nc\nd\n", "a\n...\nd\n", id="lines"),
        pytest.param(
            'resource "x" deleted from y\n', 'resource "x" deleted...\n', id="rest"
        ),
    ],
)
def test_output_is_compared_with_placeholders(answer: str, shown: str) -> None:
    assert answers(answer, shown)
    assert not answers(answer, f"no{shown}")
    assert not answers(f"{answer}!", shown.replace("...", ""))
