"""docs/dashboard.md: its code runs, and its numbers are those of the code."""

from __future__ import annotations

from typing import Any

import prometheus_client  # noqa: F401 - it reads files when it is imported
from doc_blocks import blocks_of, broken_links
from doc_fragments import place, run_fragment
from processes import ROOT

from aioinformer.cli.commands import aioinformer as command_line
from aioinformer.web.connections import WRITE_SECONDS
from aioinformer.web.dashboard import PageRequest
from aioinformer.web.dashboard.app import MAX_PAGES
from aioinformer.web.dashboard.states import MAX_BYTES

PAGE = ROOT / "docs" / "dashboard.md"
TEXT = PAGE.read_text(encoding="utf-8")


async def test_code_of_the_page_runs() -> None:
    async with place() as names:
        found: dict[str, Any] = names
        for block in blocks_of(TEXT, "python"):
            await run_fragment(block, found)

        guard, token = found["is_admin"], found["TOKEN"]
        assert guard(PageRequest("GET", "/", headers={"x-token": token})) is True
        assert guard(PageRequest("GET", "/")) is False


def test_commands_of_the_page_exist() -> None:
    (commands,) = blocks_of(TEXT, "sh")
    for line in commands.text.splitlines():
        _, name, *arguments = line.partition("#")[0].split()
        command = command_line.commands[name]
        known = {it for option in command.params for it in option.opts}
        assert {it for it in arguments if it.startswith("-")} <= known


def test_numbers_and_links_are_right() -> None:
    assert f"`history_bytes` ({MAX_BYTES // 2**20} MiB" in TEXT
    assert f"`write_timeout` ({WRITE_SECONDS:.0f} s)" in TEXT
    assert f"`max_readers` streams ({MAX_PAGES};" in TEXT
    assert broken_links(PAGE) == []
