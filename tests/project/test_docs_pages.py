"""The user pages of docs/ are true: their code runs, and named things exist."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import aiohttp
import prometheus_client  # noqa: F401 - it reads files when it is imported
import pytest
import yaml
from click.testing import CliRunner
from doc_blocks import Block, blocks_of, broken_links, indented_code, said
from doc_fragments import is_fragment, place, run_fragment
from doc_sessions import answers
from processes import ROOT, start

from aioinformer import Forbidden, LeaderElector, SharedInformerFactory, is_ready
from aioinformer.cli.commands import aioinformer as command_line
from aioinformer.controller import LeaseLock
from aioinformer.model.resources import (
    DEPLOYMENTS,
    EVENTS_V1,
    LEASES,
    PODS,
    SECRETS,
)
from aioinformer.testing import APIServer, User

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCS = ROOT / "docs"
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*sorted(DOCS.glob("*.md")), ROOT / "README.md")
}
# Pages whose blocks other test files run.
ELSEWHERE = {
    **{path: "test_docs_guides.py" for path in TEXTS if path.startswith("docs/from-")},
    "README.md": "test_readme.py",
    "docs/README.md": "test_readme.py",  # the same program
    "docs/apiserver.md": "test_docs.py",
    "docs/dashboard.md": "test_docs_dashboard.py",
    "docs/deploying.md": "test_docs_deploying.py",
    "docs/faults.md": "test_docs.py",
    "docs/installing.md": "test_packaging.py",
    "docs/operator.md": "test_examples.py",
    "docs/real.md": "test_docs.py",
    "docs/recording.md": "test_docs_recording.py",
    "docs/shared-cache.md": "test_docs_shared_cache.py",
    "docs/shards.md": "test_docs_shards.py",
    "docs/simulation.md": "test_docs_simulation.py",
    "docs/testing.md": "test_docs.py",
    "docs/tutorial.md": "test_docs_tutorial.py",
    "docs/webhooks.md": "test_docs_webhooks.py",
}
HERE = {
    f"{path}:{block.line}": block
    for path, text in TEXTS.items()
    if path not in ELSEWHERE
    for block in blocks_of(text)
}


def of(language: str, page: str = "") -> list[Block]:
    return [
        block
        for name, block in HERE.items()
        if block.language == language and name.startswith(f"docs/{page}")
    ]


# ------------------------------------------------------------ all blocks


def test_all_code_is_in_fenced_blocks() -> None:
    assert {
        path: found for path, text in TEXTS.items() if (found := indented_code(text))
    } == {}


def test_index_lists_all_blocks_that_are_not_run() -> None:
    table = TEXTS["docs/README.md"].partition("| not run |")[2]
    (rows,) = re.findall(r"\|[-|]+\|\n((?:\|.*\n)+)", table)
    told = [it.rstrip(". ") for it in re.findall(r"`([^`]+)`", rows)]
    typed = {
        line
        for text in TEXTS.values()
        for block in blocks_of(text, "sh")
        for line in block.text.splitlines()
    }

    assert [it for it in typed if not it.startswith(tuple(told))] == []
    assert [it for it in told if not any(line.startswith(it) for line in typed)] == []
    kinds = {
        path: {it.language for it in blocks_of(text)} for path, text in TEXTS.items()
    }
    assert [path for path, it in kinds.items() if "go" in it] == [
        "docs/from-client-go.md",
        "docs/from-controller-runtime.md",
    ]
    run = {"console", "dockerfile", "python", "sh", "toml", "yaml"}
    assert set().union(*kinds.values()) == run | {"go", "text"}
    kinds_here = {it.language for it in HERE.values()}
    assert kinds_here == {"console", "python", "text", "yaml"}


@pytest.mark.parametrize(
    "page",
    sorted(
        {name.partition(":")[0] for name in HERE if HERE[name].language == "python"}
    ),
)
async def test_code_fragments_run(page: str) -> None:
    async with place() as names:
        for block in of("python", page.removeprefix("docs/")):
            if is_fragment(block):
                printed, shown = await run_fragment(block, names)
                assert not shown or answers(printed, shown), (block.line, printed)


async def test_operator_of_the_cheat_sheet_works(apiserver: APIServer) -> None:
    names: dict[str, Any] = {}
    exec(of("python", "cheatsheet")[0].text, names)
    sites = names["SITES"]
    apiserver.register(sites)
    site = {"metadata": {"name": "blog"}, "spec": {"image": "blog:1"}}
    apiserver.create(sites, site)
    async with names["make_manager"](apiserver.client()):
        await apiserver.until(lambda: apiserver.get(sites, "blog")["status"])
        counts = "replicas", "readyReplicas", "updatedReplicas", "availableReplicas"
        status = dict.fromkeys(("observedGeneration", *counts), 1)
        apiserver.patch(DEPLOYMENTS, "blog", {"status": status})
        await apiserver.until(lambda: is_ready(apiserver.get(sites, "blog")))
        assert apiserver.get(sites, "blog")["status"]["ready"] == 1
        await apiserver.until(lambda: len(apiserver.objects(EVENTS_V1)) == 2)
        reasons = {it["reason"] for it in apiserver.objects(EVENTS_V1)}
        assert reasons == {"RollingOut", "RolledOut"}


async def test_test_of_the_cheat_sheet_passes(apiserver: APIServer) -> None:
    blocks = of("python", "cheatsheet")
    (test,) = [it for it in blocks if not is_fragment(it)]
    names: dict[str, Any] = {"PODS": PODS}
    exec(test.text, names)

    await names["test_pod_is_listed"](apiserver)


async def test_not_synced_program_prints_the_documented_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (program,) = of("python", "troubleshooting")
    (shown,) = of("text", "troubleshooting")
    names: dict[str, Any] = {"__name__": "program"}
    exec(program.text.removesuffix("\nasyncio.run(main())\n"), names)
    await names["main"]()

    # All but the number of attempts, which is random.
    assert answers(capsys.readouterr().out, shown.text.replace(", 3 att", ", ... att"))


# ------------------------------------------------------------ permissions.md, production.md


def definitions() -> Iterator[dict[str, Any]]:
    for block in of("yaml", "permissions") + of("yaml", "production"):
        yield from yaml.safe_load_all(block.text)


def path_of(body: dict[str, Any]) -> str:
    version, kind = body["apiVersion"], body["kind"]
    base = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = body["metadata"].get("namespace")
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{place}/{kind.lower()}s"


@pytest.mark.apiserver(
    token="admin",
    users={
        "app": User("system:serviceaccount:shop:pods-api"),
        "quota": User("system:serviceaccount:shop:quota"),
    },
    auto_namespaces=True,
)
async def test_documented_rbac_rules_are_sufficient_and_minimal(
    apiserver: APIServer,
) -> None:
    headers = {"Authorization": "Bearer admin"}
    async with aiohttp.ClientSession(apiserver.url, headers=headers) as http:
        for body in definitions():
            path = f"{path_of(body)}?fieldValidation=Strict"
            async with http.post(path, json=body) as answer:
                assert answer.status == 201, await answer.text()

    async with apiserver.client(token="app") as client:
        factory = SharedInformerFactory(client)
        pods = factory.informer(PODS)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            apiserver.create(PODS, {"metadata": {"name": "web"}}, namespace="shop")
            await pods.wait_until(bool, key="shop/web", timeout=5)

        with pytest.raises(Forbidden):
            await client.list(SECRETS)

    async with apiserver.client(token="quota") as client:
        elector = LeaderElector(LeaseLock(client, "quota", namespace="shop"))
        async with elector.leading():
            elector.check()

        with pytest.raises(Forbidden):
            await client.delete(LEASES, "quota", namespace="shop")


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_doctor_prints_the_documented_output(tmp_path: Path) -> None:
    user = User("system:serviceaccount:shop:pods-api", ("system:serviceaccounts",))
    blocks = of("console", "permissions")
    assert len(blocks) == 3
    async with APIServer(token="admin", users={"the-pods-token": user}) as server:
        server.load(ROOT / "examples" / "site-crd.yaml")
        path = server.kubeconfig(tmp_path / "config", token="the-pods-token")
        environment = {"KUBECONFIG": str(path)}
        for command, shown in (it for block in blocks for it in said(block)):
            program, *arguments = shlex.split(command)
            assert program == "aioinformer"
            async with start(
                "-m", "aioinformer", *arguments, environment=environment
            ) as process:
                end = await process.end()

            assert answers(end.out, shown), end.out


def test_documented_metrics_exist() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", TEXTS["docs/metrics.md"], re.MULTILINE)
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "aioinformer").rglob("*.py")
    )

    assert len(rows) >= 8
    assert [name for name in rows if f'"{name}"' not in source] == []


# ------------------------------------------------------------ concepts.md


@pytest.mark.parametrize(
    ("line", "answer"),
    [it for block in of("console", "concepts") for it in said(block)],
)
def test_commands_print_the_documented_output(line: str, answer: str) -> None:
    program, *arguments = shlex.split(line)
    result = CliRunner().invoke(command_line, arguments)

    assert program == "aioinformer"
    assert result.exit_code == 2
    assert result.output == answer


# ------------------------------------------------------------ contract.md

TEST_LINK = re.compile(r"\]\(\.\./(tests/[\w/]+\.py)#(\w+)\)")


def test_each_guarantee_links_to_tests() -> None:
    text = TEXTS["docs/contract.md"]
    paragraphs = re.split(r"^\*\*(G\d+)\b", text, flags=re.MULTILINE)
    shown = dict(zip(paragraphs[1::2], paragraphs[2::2], strict=True))

    assert sorted(shown, key=lambda it: int(it[1:])) == [f"G{n}" for n in range(1, 15)]
    for name, paragraph in shown.items():
        links = TEST_LINK.findall(paragraph.partition("\n## ")[0])
        assert links, name


def test_linked_tests_exist() -> None:
    links = [it for text in TEXTS.values() for it in TEST_LINK.findall(text)]

    assert len(links) >= 30
    for path, name in links:
        assert re.search(rf"def {name}\(", (ROOT / path).read_text()), (path, name)


# ------------------------------------------------------------ the others


def test_picture_shows_existing_modules() -> None:
    root = ET.parse(DOCS / "images" / "data-path.svg").getroot()
    words = " ".join(text for text in root.itertext() if "{" not in text)
    named = re.findall(r"\b([a-z]+(?:/[a-z_]+)+)\b", words)

    assert len(named) >= 10
    assert [
        it for it in named if not (ROOT / "aioinformer" / f"{it}.py").exists()
    ] == []


NAMED_PATH = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)+/?|\w+\.(?:py|toml))`")


def exists(path: str) -> bool:
    """Tell whether a path or module exists in the checkout or in a package."""
    roots = (ROOT, ROOT / "aioinformer", ROOT / "aioinformer_apiserver")
    ends = (path.rstrip("/"), f"{path}.py")
    return any(any(root.glob(end)) for root in roots for end in ends)


@pytest.mark.parametrize(
    "page",
    ["CONTRIBUTING.md", "aioinformer_apiserver/README.md", "docs/architecture.md"],
)
def test_named_paths_exist(page: str) -> None:
    named = NAMED_PATH.findall((ROOT / page).read_text(encoding="utf-8"))

    assert len(named) >= 10
    missing = [path for path in named if not exists(path)]
    assert not missing, f"{page} names paths that do not exist: {' '.join(missing)}"


def test_architecture_shows_all_folders_and_modules_of_the_package() -> None:
    (tree,) = of("text", "architecture.md")
    shown: set[str] = set()
    parent = ""
    for line in tree.text.splitlines()[1:]:
        names = re.findall(r"(\w+(?:/|\.py))", line)
        if not line.startswith("    "):
            parent = names[0]
            shown.update(names)
        else:
            shown.add(f"{parent}{names[0]}")

    package = ROOT / "aioinformer"
    folders = {
        f"{path.parent.relative_to(package).as_posix()}/"
        for path in package.rglob("__init__.py")
        if path.parent != package
    }
    modules = {path.name for path in package.glob("*.py")}
    assert shown == folders | modules - {"__init__.py", "__main__.py"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.py")), ids=lambda it: it.name
)
def test_readme_links_to_every_example(path: Any) -> None:
    assert f"(examples/{path.name})" in TEXTS["README.md"]


def test_indented_code_and_broken_links_are_found(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "test_x.py").write_text("def test_it() -> None: ...\n")
    links = "[a](test_x.py#test_it) [b](test_x.py#test_that) [c](gone.md) [d](#none)"
    page.write_text(f"# A page\n\n    pip install x\n\n- a\n  b\n\n{links}\n")

    assert indented_code(page.read_text()) == ["\n    pip install x"]
    assert broken_links(page) == ["test_x.py#test_that", "gone.md", "#none"]
