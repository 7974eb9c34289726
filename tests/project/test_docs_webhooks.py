"""docs/webhooks.md: its files, commands and fragments work."""

from __future__ import annotations

import shlex
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import prometheus_client  # noqa: F401 - it reads files when it is imported
import pytest
import yaml
from click.testing import CliRunner
from doc_blocks import blocks_of, said
from doc_fragments import run_fragment
from doc_sessions import answers, files_of
from processes import ROOT

from aioinformer.cli.commands import aioinformer
from aioinformer.model.resources import SERVICES
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8")
FILES = files_of(TEXT)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("site_webhooks")
    monkeypatch.setitem(sys.modules, "site_webhooks", module)
    exec(FILES["site_webhooks.py"], module.__dict__)
    return module


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_tests_of_the_page_pass(module: ModuleType) -> None:
    names: dict[str, Any] = {}
    exec(FILES["test_site_webhooks.py"], names)
    tests = [names[name] for name in names if name.startswith("test_")]

    assert len(tests) == 3
    for test in tests:
        await test()


def test_command_prints_the_manifests_of_the_page(module: ModuleType) -> None:
    (block,) = blocks_of(TEXT, "console")
    for command, shown in said(block):
        program, *arguments = shlex.split(command)
        result = CliRunner().invoke(aioinformer, arguments)
        assert program == "aioinformer"
        assert answers(result.output, shown), result.output


async def test_service_of_the_page_is_valid() -> None:
    (block,) = blocks_of(TEXT, "yaml")
    async with APIServer(auto_namespaces=True) as server, server.client() as client:
        await client.create(SERVICES, yaml.safe_load(block.text))


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_fragments_of_the_page_run(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with APIServer() as server:
        config = server.kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", str(config))
        names: dict[str, Any] = {}
        fragments = [
            it for it in blocks_of(TEXT, "python") if it.text not in FILES.values()
        ]
        assert len(fragments) == 2
        for block in fragments:
            printed, shown = await run_fragment(block, names)
            assert printed == shown
