"""The pytest plugin, in separate runs of pytest: one for each set of installed plugins."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from processes import ROOT

from aioinformer.testing import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Run = Callable[[str], "Outcome"]

pytestmark = pytest.mark.realtime

PLUGIN = "aioinformer.testing.plugin"
HEAD = """
    import asyncio, urllib.request
    import pytest
    from aioinformer.model.resource import Resource
    from aioinformer.model.resources import PODS
    from aioinformer.testing import APIServer

    WIDGETS = Resource("example.com", "v1", "widgets", "Widget")

    def ask(server, path="/readyz"):
        with urllib.request.urlopen(server.url + path) as answer:
            return answer.read()
"""

SERVERS = """
    servers = []

    @pytest.fixture(scope="module")
    def anyio_backend():
        return "asyncio"

    {mark}
    async def test_one(apiserver):
        assert await asyncio.to_thread(ask, apiserver) == b"ok"
        servers.append(apiserver)

    {mark}
    async def test_two(apiserver):
        assert "stopped" in repr(servers[0])
        assert apiserver is not servers[0]
        apiserver.create(PODS, {{"metadata": {{"name": "web"}}}})

    def test_after():
        assert len(servers) == 1
"""

OPTIONS = """
    @pytest.fixture
    def apiserver_options():
        return {"token": "of-all", "resources": [WIDGETS]}

    async def test_of_the_fixture(apiserver):
        assert apiserver.token == "of-all"
        assert apiserver.objects(WIDGETS) == []

    @pytest.mark.apiserver(token="of-the-class", history=7)
    class TestMarked:
        @pytest.mark.apiserver(token="of-the-test", auto_namespaces=True)
        async def test_of_the_marker(self, apiserver):
            assert apiserver.token == "of-the-test"
            apiserver.create(PODS, {"metadata": {"name": "web"}}, namespace="new")

        async def test_of_the_class(self, apiserver):
            assert apiserver.token == "of-the-class"
"""

CLIENT = """
    @pytest.fixture
    async def client(apiserver):
        async with apiserver.client() as client:
            yield client

    async def test_one(apiserver, client):
        apiserver.create(PODS, {"metadata": {"name": "web"}})
        assert len(await client.list(PODS)) == 1
"""

INVALID_OPTIONS = """
    @pytest.mark.apiserver(tokn='x')
    async def test_unknown(apiserver): pass

    @pytest.mark.apiserver(['pods'])
    async def test_not_by_name(apiserver): pass

    @pytest.mark.apiserver(watch_seconds=-1)
    async def test_negative(apiserver): pass

    @pytest.mark.apiserver(resources=7)
    async def test_no_resources(apiserver): pass

    @pytest.mark.apiserver(users=['a'])
    async def test_no_users(apiserver): pass
"""

INVALID_FIXTURE = """
    @pytest.fixture(params=[None, [WIDGETS]], ids=["none", "a-list"])
    def apiserver_options(request):
        return request.param

    async def test_one(apiserver): pass
"""

# Each scope in a class of its own, as the scope of a class would be that of a module.
LOOP_SCOPES = "".join(
    f"""
    class Test{scope.title()}:
        @pytest.mark.asyncio(loop_scope={scope!r})
        async def test_one(self, apiserver):
            assert await asyncio.to_thread(ask, apiserver) == b"ok"
    """
    for scope in ("class", "module", "package", "session")
)

PLAIN_TEST = "def test_one(apiserver): pass"

COROUTINE_TEST = "async def test_one(apiserver): pass"

TRIO = """
    @pytest.fixture
    def anyio_backend():
        return "trio"

    @pytest.mark.anyio
    async def test_one(apiserver): pass
"""


@dataclass(frozen=True)
class Project:
    """Test files, and the plugins and options they run with."""

    plugins: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


ASYNCIO = ("pytest_asyncio.plugin",)
ANYIO = ("anyio.pytest_plugin",)
LOOPS = {"asyncio_default_fixture_loop_scope": "function"}
AUTO = {**LOOPS, "asyncio_mode": "auto"}
STRICT = {**LOOPS, "asyncio_mode": "strict"}
BY_ASYNCIO = SERVERS.format(mark="@pytest.mark.asyncio")
BY_ANYIO = SERVERS.format(mark="@pytest.mark.anyio")

PROJECTS = {
    "auto": Project(
        ASYNCIO,
        {
            "servers": SERVERS.format(mark=""),
            "options": OPTIONS,
            "client": CLIENT,
            "invalid_options": INVALID_OPTIONS,
            "invalid_fixture": INVALID_FIXTURE,
            "plain": PLAIN_TEST,
        },
        AUTO,
    ),
    "strict": Project(ASYNCIO, {"servers": BY_ASYNCIO, "scopes": LOOP_SCOPES}, STRICT),
    "session-loop": Project(
        ASYNCIO,
        {"servers": BY_ASYNCIO},
        {**STRICT, "asyncio_default_test_loop_scope": "session"},
    ),
    "anyio": Project(
        ANYIO, {"servers": BY_ANYIO, "unmarked": COROUTINE_TEST, "trio": TRIO}
    ),
    "both": Project(
        ANYIO + ASYNCIO, {"by_anyio": BY_ANYIO, "by_asyncio": BY_ASYNCIO}, STRICT
    ),
    "no-plugins": Project(files={"coroutine": COROUTINE_TEST}),
}


@dataclass(frozen=True)
class Outcome:
    """Output of a run of pytest."""

    out: str

    def of(self, name: str) -> Counter[str]:
        """Return the number of tests of a file by result."""
        lines = rf"^(PASSED|FAILED|ERROR) test_{name}\.py::"
        return Counter(re.findall(lines, self.out, re.MULTILINE))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs all test files of a project, once."""

    @functools.cache
    def run(name: str) -> Outcome:
        project = PROJECTS[name]
        folder = tmp_path_factory.mktemp(name)
        for file, text in project.files.items():
            (folder / f"test_{file}.py").write_text(dedent(HEAD) + dedent(text))

        options = [f"-o{key}={value}" for key, value in project.options.items()]
        plugins = [f"-p{it}" for it in (*project.plugins, PLUGIN)]
        command = [sys.executable, "-m", "pytest", "-qrA", "-Werror", "-c", os.devnull]
        done = subprocess.run(
            [*command, f"--rootdir={folder}", "--strict-markers", *plugins, *options],
            env={
                **os.environ,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": str(ROOT),
            },
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return Outcome(done.stdout + done.stderr)

    return run


@pytest.mark.parametrize(
    ("project", "name"),
    [
        ("auto", "servers"),
        ("strict", "servers"),
        ("session-loop", "servers"),
        ("anyio", "servers"),
        ("both", "by_anyio"),
        ("both", "by_asyncio"),
    ],
)
def test_plugin_runs_server_for_test(run: Run, project: str, name: str) -> None:
    outcome = run(project)

    assert outcome.of(name) == {"PASSED": 3}, outcome.out


def test_plugin_merges_options_of_fixture_and_markers(run: Run) -> None:
    assert run("auto").of("options") == {"PASSED": 3}, run("auto").out


def test_plugin_fixture_can_be_used_by_other_fixtures(run: Run) -> None:
    assert run("auto").of("client") == {"PASSED": 1}, run("auto").out


def test_plugin_uses_loop_scope_of_marker(run: Run) -> None:
    assert run("strict").of("scopes") == {"PASSED": 4}, run("strict").out


def test_plugin_reports_invalid_options(run: Run) -> None:
    outcome = run("auto")

    for message in (
        "unknown options of APIServer: tokn. Options are resources, ",
        "the marker takes keyword arguments, not (['pods'],)",
        "watch_seconds must be a number of seconds, more than 0, not",
        "resources must be a list of Resources, not 7",
        "users must map tokens to users, such as {'a-token': 'alice'}",
    ):
        assert outcome.out.count(f"\napiserver: {message}") == 1, outcome.out

    assert "Traceback" not in outcome.out
    assert outcome.of("invalid_options") == {"ERROR": 5}


def test_plugin_reports_invalid_options_fixture(run: Run) -> None:
    outcome = run("auto")

    message = (
        "apiserver: the fixture apiserver_options must return a dictionary of options"
    )
    assert outcome.out.count(f"\n{message}") == 2, outcome.out
    assert outcome.of("invalid_fixture") == {"ERROR": 2}


@pytest.mark.parametrize(
    ("project", "name", "message"),
    [
        pytest.param(
            "no-plugins",
            "coroutine",
            "the fixture requires a plugin for coroutine tests: install pytest-asyncio",
            id="no-plugins",
        ),
        pytest.param(
            "anyio",
            "unmarked",
            "or mark the test with pytest.mark.anyio",
            id="unmarked",
        ),
        pytest.param(
            "auto", "plain", "the fixture is for coroutine tests", id="plain-test"
        ),
        pytest.param(
            "anyio",
            "trio",
            "the fixture requires the asyncio backend of anyio, not trio",
            id="trio",
        ),
    ],
)
def test_plugin_reports_unsupported_tests(
    run: Run, project: str, name: str, message: str
) -> None:
    outcome = run(project)

    assert message in outcome.out
    assert outcome.of(name) == {"ERROR": 1}


def test_plugin_documents_marker_and_fixtures(pytestconfig: pytest.Config) -> None:
    (marker,) = (
        it for it in pytestconfig.getini("markers") if it.startswith("apiserver(")
    )

    assert marker.startswith("apiserver(**options): options of the APIServer")
    assert plugin.apiserver.__doc__ is not None
    assert plugin.apiserver.__doc__.startswith(
        "Start an `APIServer` for one test, and stop it afterwards."
    )


def test_plugin_is_loaded_by_entry_point() -> None:
    from importlib.metadata import entry_points

    (found,) = entry_points(group="pytest11", name="aioinformer")
    assert found.value == PLUGIN


def test_plugin_import_loads_no_server() -> None:
    code = f"import sys, {PLUGIN}; print(*sorted(sys.modules))"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    loaded = done.stdout.split()
    assert [name for name in loaded if name.partition(".")[0] == "aioinformer"] == [
        "aioinformer",
        "aioinformer.testing",
        PLUGIN,
    ]
    assert not {"aiohttp", "msgspec", "orjson", "yaml", "asyncio"} & set(loaded)
