"""The guides from other clients are true: both sides of each run, with the same effect.

A guide has a program written with the other client, the same program written with this
package, and the output of both. Each program runs against a server of its own, which
goes through the same changes.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from conftest import pod
from doc_blocks import Outcome, blocks_of, run_as_tests
from doc_fragments import is_fragment, place, run_fragment
from doc_sessions import answers, files_of
from ports import free_port
from processes import ROOT, Process, in_real_time, start

import aioinformer
from aioinformer import KubeObject
from aioinformer.controller import Context
from aioinformer.model import Resource
from aioinformer.model.resources import CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

TEXTS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").glob("from-*.md"))
}
SITES = Resource("example.com", "v1", "sites", "Site")

# Pinned dependencies of the programs in Go.
MODULE = ROOT / "tests" / "e2e" / "guides"
# Runs a program instead of Python.
EXEC = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


def program(guide: str, name: str) -> str:
    return files_of(TEXTS[guide])[name]


def output(guide: str) -> str:
    """Return the output that the guide shows for both programs."""
    (shown,) = blocks_of(TEXTS[guide], "text")
    return shown.text


# ------------------------------------------------------------ what happens


async def publish_site(server: APIServer, process: Process) -> Any:
    """Create a site and then its theme, change and delete the site."""
    spec = {"theme": "plain", "text": "hello"}
    server.create(SITES, {"metadata": {"name": "blog"}, "spec": spec})
    await process.line("no theme")
    theme = {"metadata": {"name": "plain"}, "data": {"title": "Plain"}}
    server.create(CONFIG_MAPS, theme)
    await process.line("hello")
    page: Any = await server.until(
        lambda: server.get(SITES, "blog").get("status"), timeout=30
    )
    server.patch(SITES, "blog", {"spec": {"text": "bye"}})
    await process.line("bye")
    made: Any = server.get(CONFIG_MAPS, page["page"])
    finalizers = server.get(SITES, "blog")["metadata"]["finalizers"]
    server.delete(SITES, "blog")
    await process.line("unpublished")
    await server.until(lambda: not server.objects(SITES), timeout=30)
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner.pop("uid")
    owner.pop("blockOwnerDeletion", None)  # the other clients set it
    return page["page"], made["data"], owner, finalizers


def put_pod(server: APIServer, name: str, app: str = "web") -> None:
    body = pod(name, "shop", {"app": app})
    del body["metadata"]["resourceVersion"]
    server.create(PODS, body)


def fail_pod(server: APIServer, name: str) -> None:
    server.patch(PODS, name, {"status": {"phase": "Failed"}}, namespace="shop")


async def lose_history(server: APIServer, process: Process) -> Any:
    """Change pods, and delete one while the server is down and forgets its history."""
    await process.line("added web-1")
    fail_pod(server, "web-0")
    await process.line("web-0 is Failed")
    server.delete(PODS, "web-1", namespace="shop")
    await process.line("deleted web-1")
    put_pod(server, "web-2")
    await process.line("added web-2")
    await server.stop()
    server.delete(PODS, "web-0", namespace="shop")
    server.compact()
    await server.start()
    await process.line("deleted web-0")


async def serve_pods(server: APIServer, process: Process, url: str = "") -> Any:
    """Change pods and ask the web service for them."""
    await process.line("added web-0")
    fail_pod(server, "web-0")
    await process.line("changed web-0")
    put_pod(server, "web-1")
    await process.line("added web-1")
    server.delete(PODS, "web-0", namespace="shop")
    await process.line("deleted web-0")
    return await asyncio.to_thread(lambda: urlopen(url, timeout=10).read().decode())


async def expose_deployment(server: APIServer, process: Process) -> Any:
    """Create a deployment, then delete and change its service."""
    labels = {"app": "web"}
    containers = [{"name": "web", "image": "web:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    server.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
    await process.line("service created")
    server.delete(SERVICES, "web")
    await process.line("service created")
    server.patch(SERVICES, "web", {"spec": {"selector": {"app": "other"}}})
    await process.line("service updated")
    made = server.get(SERVICES, "web")
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner.pop("uid")
    owner.pop("blockOwnerDeletion", None)  # the other clients set it
    (port,) = made["spec"]["ports"]
    return made["spec"]["selector"], port["port"], owner


async def change_pods(server: APIServer, process: Process) -> Any:
    await process.line("2 pods of app=web")
    fail_pod(server, "web-0")
    await process.line("web-0 is Failed")
    server.delete(PODS, "db-0", namespace="shop")
    await process.line("deleted db-0")


# ------------------------------------------------------------ the programs


@dataclass(frozen=True)
class Guide:
    """A guide, its programs, and what happens while one of them runs."""

    theirs: str
    ours: str
    happens: Callable[..., Awaitable[Any]]
    effects: Any
    pods: tuple[tuple[str, str], ...] = ()


SITE = {
    "apiVersion": "example.com/v1",
    "kind": "Site",
    "name": "blog",
    "controller": True,
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "name": "web",
    "controller": True,
}
WEB = (("web-0", "web"), ("web-1", "web"))
GUIDES = {
    "from-client-go": Guide(
        "pods.go", "pods.py", change_pods, None, (*WEB, ("db-0", "db"))
    ),
    "from-controller-runtime": Guide(
        "expose.go", "expose.py", expose_deployment, ({"app": "web"}, 80, DEPLOYMENT)
    ),
    "from-kopf": Guide(
        "site_kopf.py",
        "site.py",
        publish_site,
        ("blog-page", {"text": "Plain: bye"}, SITE, ["example.com/site"]),
    ),
    "from-kubernetes-asyncio": Guide(
        "pods_watch.py", "pods.py", lose_history, None, WEB
    ),
    "from-kubernetes-informer": Guide(
        "app_threads.py", "app.py", serve_pods, '{"web-1": "Running"}', WEB[:1]
    ),
}


async def check(guide: str, *command: str | Path, folder: Path, **more: str) -> None:
    """Run a program, let things happen, and compare its output and its effects."""
    expected = GUIDES[guide]
    async with APIServer(auto_namespaces=True) as server:
        server.load(ROOT / "docs" / "cookbook" / "site-crd.yaml")
        for name, app in expected.pods:
            put_pod(server, name, app)

        environment = {"KUBECONFIG": str(server.kubeconfig(folder / "config"))}
        async with start(*command, environment=environment) as process:
            effects = await expected.happens(server, process, **more)
            process.interrupt()
            end = await process.end()

    # A loop with kubernetes_asyncio also prints its failures.
    failures = re.findall(r"^watch: (.*)\n", end.out, re.MULTILINE)
    printed = re.sub(r"^watch: .*\n", "", end.out, flags=re.MULTILINE)
    assert printed == output(guide), end.err
    assert effects == expected.effects
    assert not failures or "410" in failures


@functools.cache
def go_folder(root: Path) -> Path:
    """Build the programs in Go, once, and return the folder of the binaries."""
    for guide, it in GUIDES.items():
        if it.theirs.endswith(".go"):
            (root / it.theirs[:-3]).mkdir(exist_ok=True)
            (root / it.theirs[:-3] / "main.go").write_text(program(guide, it.theirs))

    for name in ("go.mod", "go.sum"):
        (root / name).write_text((MODULE / name).read_text())

    build = ["nice", "go", "build", "-mod=readonly", "-o", "bin/", "./..."]
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0"}
    done = subprocess.run(
        build, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return root / "bin"


class TestPrograms:
    pytestmark = in_real_time

    @pytest.mark.parametrize(
        ("guide", "name"),
        [
            *((guide, it.ours) for guide, it in GUIDES.items()),
            ("from-kopf", "site_kopf.py"),
            ("from-kubernetes-asyncio", "pods_watch.py"),
            ("from-kubernetes-asyncio", "pods_adapter.py"),
            ("from-kubernetes-informer", "app_threads.py"),
        ],
    )
    async def test_program_has_the_documented_output_and_effect(
        self, guide: str, name: str, tmp_path: Path
    ) -> None:
        text, more = program(guide, name), {}
        if "8000" in text:
            port = str(free_port())
            text, more = text.replace("8000", port), {"url": f"http://127.0.0.1:{port}"}

        path = tmp_path / name
        path.write_text(text)
        command: list[str | Path] = [path]
        if name == "site_kopf.py":
            (typed,) = re.findall(rf"`(kopf run .*){name}`", TEXTS[guide])
            command = ["-m", *typed.split(), path]

        await check(guide, *command, folder=tmp_path, **more)

    @pytest.mark.e2e
    @pytest.mark.timeout(600)
    @pytest.mark.parametrize(
        "guide", [it for it in GUIDES if GUIDES[it].theirs.endswith(".go")]
    )
    async def test_go_program_has_the_documented_output_and_effect(
        self,
        guide: str,
        tmp_path: Path,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        folder = tmp_path_factory.getbasetemp() / "guides"
        folder.mkdir(exist_ok=True)
        built = await asyncio.to_thread(go_folder, folder)
        binary = built / GUIDES[guide].theirs.removesuffix(".go")

        await check(guide, "-c", EXEC, binary, folder=tmp_path)


# ------------------------------------------------------------ other blocks

TESTS = {
    f"test_{guide.replace('-', '_')}.py": block.text
    for guide, text in TEXTS.items()
    for block in blocks_of(text, "python")
    if "def test_" in block.text
}
CONFIGURATION = """\
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run the tests of all guides at once, beside the controller that one of them tests."""
    files = {**TESTS, "pytest.ini": CONFIGURATION}
    files["expose.py"] = program("from-controller-runtime", "expose.py")
    return run_as_tests(tmp_path_factory.mktemp("project"), files)


@pytest.mark.realtime
@pytest.mark.parametrize("name", TESTS)
def test_test_of_a_guide_passes(outcome: Outcome, name: str) -> None:
    assert outcome.has_passed(name), outcome.out


@pytest.mark.parametrize("guide", TEXTS)
async def test_blocks_are_programs_tests_or_running_fragments(guide: str) -> None:
    files = set(files_of(TEXTS[guide]).values())
    blocks = [it for it in blocks_of(TEXTS[guide]) if it.text not in files]
    assert {it.language for it in blocks} <= {"python", "text"}
    async with place() as names:
        for block in blocks:
            if block.language == "python" and "def test_" not in block.text:
                assert is_fragment(block)
                printed, shown = await run_fragment(block, names)
                assert not shown or answers(printed, shown), (block.line, printed)


def test_every_guide_has_a_program_of_each_side_and_a_test() -> None:
    assert list(TEXTS) == list(GUIDES)
    for name, guide in GUIDES.items():
        assert {guide.theirs, guide.ours} <= set(files_of(TEXTS[name])), name
        told = re.search(
            rf"^`{guide.theirs}`, with ([^`]*):$", TEXTS[name], re.MULTILINE
        )
        assert told, f"{name} says whose program {guide.theirs} is"
        assert "aioinformer" not in told[1]
        assert f"test_{name.replace('-', '_')}.py" in TESTS


# ------------------------------------------------------------ names

PACKAGES = ["cache", "client", "controller", "informer", "model", "testing", "watch"]
PACKAGES += ["webhooks", "workqueue"]
# Arguments of functions that users write.
ARGUMENTS = {"ctx": Context, "obj": KubeObject}


def named_in(cell: str) -> list[str]:
    """Return names, also of arguments, `f(x=)`, but no calls, `f(x=1)`."""
    return re.findall(r"`([A-Za-z][\w.]*(?:\(\w+=\))?)`", cell)


def find(name: str) -> None:
    """Find the object of a dotted name, as the guides explain.

    Raises:
        AssertionError: There is no such object, or no such argument.
    """
    path, _, argument = name.removesuffix("=)").partition("(")
    first, *rest = path.split(".")
    found: Any = aioinformer
    if first in ARGUMENTS:
        found = ARGUMENTS[first]
    elif first == "web":
        found = importlib.import_module(f"aioinformer.web.{rest.pop(0)}")
    elif first in PACKAGES:
        found = importlib.import_module(f"aioinformer.{first}")
    elif hasattr(aioinformer.errors, first):
        found, rest = aioinformer.errors, [first, *rest]
    else:
        rest = [first, *rest]

    for step in rest:
        fields = getattr(found, "__annotations__", {})
        known = hasattr(found, step) or step in fields
        assert known, f"{name!r} is not found from `aioinformer`, as `Store.get` is"
        found = getattr(found, step, None)

    assert not argument or argument in inspect.signature(found).parameters, name


def counterparts() -> list[str]:
    """Return the names in the last columns of the tables."""
    rows = re.findall(r"^\|.* \| (.*) \|$", "\n".join(TEXTS.values()), re.MULTILINE)
    return sorted({name for cell in rows for name in named_in(cell)})


@pytest.mark.parametrize("name", counterparts())
def test_named_counterpart_exists(name: str) -> None:
    find(name)


@pytest.mark.parametrize(
    "name",
    ["Nothing", "SharedInformer.nothing", "cache.Nothing", "WorkQueue(nothing=)"],
)
def test_missing_counterpart_is_not_found(name: str) -> None:
    with pytest.raises(AssertionError):
        find(name)
