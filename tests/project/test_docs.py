"""The pages about testing are true: their examples run, their tables are complete."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from doc_blocks import Block, Outcome, blocks_of, broken_links, run_as_tests, said
from ports import free_port
from processes import ROOT, in_real_time, start

from aioinformer.cli.commands import aioinformer
from aioinformer.model.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    RESOURCE_QUOTAS,
)
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from pathlib import Path

DOCS = ROOT / "docs"
# The pages about testing programs; test_docs_pages.py has the others.
TEXTS = {
    name: (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for name in ("apiserver", "faults", "real", "testing")
}
TEXT = "\n".join(TEXTS.values())
BLOCKS = blocks_of(TEXT)
PROGRAMS = {
    f"test_{page}_{it.line}.py": it
    for page, text in TEXTS.items()
    for it in blocks_of(text, "python")
}
CONSOLES = blocks_of(TEXT, "console")
COMMAND = "from aioinformer.cli.main import main; main()"


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this heading."""
    table = re.search(
        rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE
    )
    assert table is not None, heading
    lines = table[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def code(cell: str) -> str:
    return cell.strip("`")


# -------------------------------------------------------------------- its blocks


def test_every_code_block_has_a_tested_language() -> None:
    kinds = {"console", "python", "sh", "toml", "yaml"}
    assert {it.language for it in BLOCKS} == kinds
    assert (len(CONSOLES), len(blocks_of(TEXT, "toml"))) == (2, 1)


def test_testing_page_has_at_most_400_lines() -> None:
    assert len(TEXTS["testing"].splitlines()) <= 400


def test_looptime_is_introduced_before_its_first_use() -> None:
    for page, text in TEXTS.items():
        used = text.find("pytest.mark.looptime")
        assert used < 0 or 0 < text.find("looptime") < used, page


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run all examples at once, in the project that the page describes."""
    (configuration,) = blocks_of(TEXT, "toml")
    (definition,) = blocks_of(TEXT, "yaml")
    files = {name: block.text for name, block in PROGRAMS.items()}
    files |= {"pyproject.toml": configuration.text, "crd.yaml": definition.text}
    return run_as_tests(tmp_path_factory.mktemp("project"), files)


@pytest.mark.realtime
@pytest.mark.parametrize("name", PROGRAMS)
def test_example_passes(outcome: Outcome, name: str) -> None:
    assert outcome.has_passed(name), outcome.out


@pytest.mark.parametrize("block", PROGRAMS.values(), ids=list(PROGRAMS))
def test_example_has_at_most_50_lines(block: Block) -> None:
    lines = block.text.splitlines()

    assert len(lines) <= 50
    assert max(map(len, lines)) <= 88


PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("path", PAGES, ids=lambda it: it.name)
def test_links_resolve(path: Path) -> None:
    assert broken_links(path) == []


def test_named_test_folders_exist() -> None:
    named = re.findall(r"`(tests/[^`]+)`", TEXT)

    assert len(named) >= 4
    assert [name for name in named if not list(ROOT.glob(name.rstrip("/")))] == []
    assert re.search(r"^e2e:", (ROOT / "Makefile").read_text(), re.MULTILINE)


# -------------------------------------------------------------------- its tables


def test_table_of_server_options_is_complete() -> None:
    parameters = inspect.signature(APIServer).parameters
    shown = {code(name): code(default) for name, _, default in rows("option")}

    assert sorted(shown) == sorted(parameters)
    for name, default in shown.items():
        is_none = parameters[name].default in {None, ()}
        assert default in {"none", "None"} if is_none else True
        assert is_none or float(parameters[name].default) == float(eval(default))


# -------------------------------------------------------------------- its claims


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/namespaces/default/pods/web/proxy"),
        ("PUT", "/api/v1/namespaces/default/pods/web/resize"),
        ("GET", "/api/v1/namespaces/default/pods/web/ephemeralcontainers"),
        ("GET", "/api/v1/namespaces/default/pods/web/log"),
        ("POST", "/api/v1/namespaces/default/pods/web/exec"),
        ("GET", "/api/v1/namespaces/default/services/kubernetes"),
        (
            "GET",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        ),
        ("GET", "/metrics"),
    ],
)
async def test_unsupported_paths_are_not_found(
    apiserver: APIServer, method: str, path: str
) -> None:
    apiserver.create(PODS, {"metadata": {"name": "web"}})
    async with aiohttp.request(method, f"{apiserver.url}{path}", json={}) as reply:
        assert reply.status == 404


async def test_dependents_outlive_their_owner(apiserver: APIServer) -> None:
    owner = apiserver.create(DEPLOYMENTS, {"metadata": {"name": "web"}})
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    reference["uid"] = owner["metadata"]["uid"]
    body = {"metadata": {"name": "web", "ownerReferences": [reference]}}
    apiserver.create(PODS, body)
    async with apiserver.client() as client:
        await client.delete(DEPLOYMENTS, "web", namespace="default")

    assert len(apiserver.objects(PODS)) == 1


async def test_quota_limits_nothing(apiserver: APIServer) -> None:
    none = {"hard": {"configmaps": "0"}}
    quota = {"metadata": {"name": "none"}, "spec": none}
    apiserver.create(RESOURCE_QUOTAS, quota | {"status": none | {"used": none["hard"]}})
    async with apiserver.client() as client:
        await client.create(
            CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="default"
        )

    assert len(apiserver.objects(CONFIG_MAPS)) == 1


@pytest.mark.apiserver(token="secret")
async def test_default_cluster_roles_exist(apiserver: APIServer) -> None:
    found = {it["metadata"]["name"] for it in apiserver.objects(CLUSTER_ROLES)}

    assert {"cluster-admin", "admin", "edit", "view"} <= found


def test_documented_methods_of_fake_lister_watcher_exist() -> None:
    (told,) = re.findall(
        r"^`FakeListerWatcher` is(.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL
    )
    named = set(re.findall(r"`(\w+)\(\)`", told))

    public = {name for name in vars(FakeListerWatcher) if not name.startswith("_")}
    seam = {"list", "watch", "resource", "selects", "selectors", "with_selectors"}
    assert named == public - seam - {"resource_version", "watches"}


# -------------------------------------------------------------------- its commands


def moved(text: str, port: int, folder: Path) -> str:
    """Return the text with the port and folder of the test."""
    return text.replace("8001", str(port)).replace("/tmp/", f"{folder}/")


class TestCommand:
    pytestmark = in_real_time

    async def test_apiserver_command_prints_the_documented_greeting(
        self, tmp_path: Path
    ) -> None:
        ((command, greeting),) = said(CONSOLES[0])
        port = free_port()
        _, *arguments = shlex.split(moved(command, port, tmp_path))
        async with start("-c", COMMAND, *arguments) as process:
            await process.line("kubectl get pods")
            process.interrupt()
            end = await process.end()

        assert end.out.startswith(moved(greeting, port, tmp_path))
        assert (tmp_path / "kubeconfig").exists()

    @pytest.mark.e2e
    async def test_kubectl_prints_the_documented_output(self, tmp_path: Path) -> None:
        if shutil.which("kubectl") is None:
            pytest.skip("there is no kubectl here")

        port = free_port()
        _, *arguments = shlex.split(moved(said(CONSOLES[0])[0][0], port, tmp_path))
        (export, _), *commands = said(CONSOLES[1])
        assert export == "export KUBECONFIG=/tmp/kubeconfig"
        environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
        async with start("-c", COMMAND, *arguments) as process:
            await process.line("kubectl get pods")
            for command, shown in commands:
                done = await asyncio.to_thread(kubectl, command, environment)
                assert done.strip() == shown.strip()


def kubectl(command: str, environment: dict[str, str]) -> str:
    done: Any = subprocess.run(
        shlex.split(command),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return str(done.stdout)


@pytest.mark.parametrize("option", ["--for", "--pods", "--churn", "--port"])
def test_apiserver_command_has_the_documented_options(option: str) -> None:
    command = aioinformer.commands["apiserver"]

    assert f"`{option} " in TEXT
    assert option in [name for it in command.params for name in it.opts]
