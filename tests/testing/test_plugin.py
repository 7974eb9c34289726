"""Pytest plugin, in nested pytest runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., "Outcome"]

pytestmark = pytest.mark.realtime

PLUGIN = "aioinformer.testing.plugin"
NUMBERS = count()
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


@dataclass(frozen=True)
class Outcome:
    out: str

    @property
    def last(self) -> str:
        """Return the summary line without the seconds."""
        return self.out.strip().splitlines()[-1].partition(" in ")[0]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Return a function that runs pytest on a test file, with given plugins only."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(text: str, *options: str, plugins: tuple[str, ...]) -> Outcome:
        # A new name each time, as a module is imported only once.
        file = tmp_path / f"test_sample_{next(NUMBERS)}.py"
        file.write_text(dedent(HEAD) + dedent(text), encoding="utf-8")
        given = [option for name in (*plugins, PLUGIN) for option in ("-p", name)]
        pytest.main(
            [
                "-q",
                *("-W", "error"),
                *("-c", os.devnull),
                *("--rootdir", str(tmp_path)),
                *("-p", "no:cacheprovider"),
                "--import-mode=importlib",
                "--strict-markers",
                *given,
                *options,
                str(file),
            ]
        )
        asyncio.set_event_loop(None)
        output = capsys.readouterr()
        return Outcome(output.out + output.err)

    yield run
    asyncio.set_event_loop(None)


ASYNCIO = ("pytest_asyncio.plugin",)
ANYIO = ("anyio.pytest_plugin",)
LOOP_SCOPE = ("-o", "asyncio_default_fixture_loop_scope=function")
AUTO = (*LOOP_SCOPE, "-o", "asyncio_mode=auto")
STRICT = (*LOOP_SCOPE, "-o", "asyncio_mode=strict")


@pytest.mark.parametrize(
    ("mark", "options", "plugins"),
    [
        pytest.param("", AUTO, ASYNCIO, id="asyncio-auto"),
        pytest.param("@pytest.mark.asyncio", STRICT, ASYNCIO, id="asyncio-strict"),
        pytest.param("@pytest.mark.anyio", (), ANYIO, id="anyio"),
        pytest.param("@pytest.mark.anyio", STRICT, ANYIO + ASYNCIO, id="anyio-beside"),
        pytest.param("@pytest.mark.asyncio", STRICT, ANYIO + ASYNCIO, id="both"),
    ],
)
def test_plugin_runs_server_for_test(
    run: Run, mark: str, options: tuple[str, ...], plugins: tuple[str, ...]
) -> None:
    outcome = run(
        f"""
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
        """,
        *options,
        plugins=plugins,
    )

    assert outcome.last == "3 passed", outcome.out


def test_plugin_merges_options_of_fixture_and_markers(run: Run) -> None:
    outcome = run(
        """
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
        """,
        *AUTO,
        plugins=ASYNCIO,
    )

    assert outcome.last == "3 passed", outcome.out


def test_plugin_loads_files_of_configuration_fixture_and_markers(
    run: Run, tmp_path: Path
) -> None:
    for name in ("one", "two", "three", "four"):
        text = f"{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"
        (tmp_path / name).with_suffix(".yaml").write_text(text)

    outcome = run(
        """
        from pathlib import Path
        from aioinformer.model.resources import NODES

        @pytest.fixture
        def apiserver_options():
            return {"load": "two.yaml"}

        def names(server):
            return {it["metadata"]["name"] for it in server.objects(NODES)}

        @pytest.mark.apiserver(load=["three.yaml"])
        async def test_of_the_marker(apiserver, monkeypatch, tmp_path):
            monkeypatch.chdir(tmp_path)  # paths start at the root folder of pytest
            assert names(apiserver) == {"one", "two", "three"}
            apiserver.load("f*.yaml")
            assert names(apiserver) == {"one", "two", "three", "four"}

        async def test_of_the_fixture(apiserver):
            assert names(apiserver) == {"one", "two"}

        @pytest.mark.apiserver(load=Path(__file__).parent / "none.yaml")
        async def test_missing(apiserver): pass
        """,
        *("-o", "aioinformer_load=one.yaml"),
        *AUTO,
        plugins=ASYNCIO,
    )

    assert f"apiserver: {tmp_path}/none.yaml does not exist" in outcome.out
    assert outcome.last == "2 passed, 1 error", outcome.out


def test_plugin_fixture_can_be_used_by_other_fixtures(run: Run) -> None:
    outcome = run(
        """
        @pytest.fixture
        async def client(apiserver):
            async with apiserver.client() as client:
                yield client

        async def test_one(apiserver, client):
            apiserver.create(PODS, {"metadata": {"name": "web"}})
            assert len(await client.list(PODS)) == 1
        """,
        *AUTO,
        plugins=ASYNCIO,
    )

    assert outcome.last == "1 passed", outcome.out


SCOPES = ["class", "module", "package", "session"]


def test_plugin_uses_loop_scope_of_marker(run: Run) -> None:
    tests = [
        f"""
        class Test{scope.title()}:
            @pytest.mark.asyncio(loop_scope={scope!r})
            async def test_one(self, apiserver):
                assert await asyncio.to_thread(ask, apiserver) == b"ok"
        """
        for scope in SCOPES
    ]
    outcome = run("".join(tests), *STRICT, plugins=ASYNCIO)

    assert outcome.last == "4 passed", outcome.out


@pytest.mark.parametrize("scope", ["class", "session"])
def test_plugin_uses_default_loop_scope(run: Run, scope: str) -> None:
    outcome = run(
        """
        class TestIt:
            @pytest.mark.asyncio
            async def test_one(self, apiserver):
                assert await asyncio.to_thread(ask, apiserver) == b"ok"
        """,
        *STRICT,
        "-o",
        f"asyncio_default_test_loop_scope={scope}",
        plugins=ASYNCIO,
    )

    assert outcome.last == "1 passed", outcome.out


def test_plugin_runs_server_on_uvloop(run: Run, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import uvloop\n"
        "def pytest_asyncio_loop_factories(config, item):\n"
        "    return {'uvloop': uvloop.new_event_loop}\n"
    )
    outcome = run(
        """
        async def test_lists_pods(apiserver):
            assert "uvloop" in type(asyncio.get_running_loop()).__module__
            apiserver.create(PODS, {"metadata": {"name": "web"}})
            async with apiserver.client() as client:
                assert [pod.name for pod in await client.list(PODS)] == ["web"]
        """,
        *AUTO,
        plugins=ASYNCIO,
    )

    assert outcome.last == "1 passed", outcome.out


def test_plugin_reports_invalid_options(run: Run) -> None:
    outcome = run(
        """
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
        """,
        *AUTO,
        plugins=ASYNCIO,
    )

    for message in (
        "unknown options of APIServer: tokn. Options are resources, ",
        "the marker takes keyword arguments, not (['pods'],)",
        "watch_seconds must be a number of seconds, more than 0, not",
        "resources must be a list of Resources, not 7",
        "users must map tokens to users, such as {'a-token': 'alice'}",
    ):
        assert outcome.out.count(f"\napiserver: {message}") == 1, outcome.out

    assert "Traceback" not in outcome.out
    assert outcome.last == "5 errors"


def test_plugin_reports_invalid_options_fixture(run: Run) -> None:
    outcome = run(
        """
        @pytest.fixture(params=[None, [WIDGETS]], ids=["none", "a-list"])
        def apiserver_options(request):
            return request.param

        async def test_one(apiserver): pass
        """,
        *AUTO,
        plugins=ASYNCIO,
    )

    message = (
        "apiserver: the fixture apiserver_options must return a dictionary of options"
    )
    assert outcome.out.count(f"\n{message}") == 2, outcome.out
    assert "Traceback" not in outcome.out
    assert outcome.last == "2 errors"


@pytest.mark.parametrize(
    ("text", "plugins", "message"),
    [
        pytest.param(
            "async def test_one(apiserver): pass",
            (),
            "the fixture requires a plugin for coroutine tests: install pytest-asyncio",
            id="nothing-installed",
        ),
        pytest.param(
            "async def test_one(apiserver): pass",
            ANYIO,
            "or mark the test with pytest.mark.anyio",
            id="not-marked",
        ),
        pytest.param(
            "def test_one(apiserver): pass",
            ASYNCIO,
            "the fixture is for coroutine tests",
            id="plain-test",
        ),
        pytest.param(
            """
            @pytest.fixture
            def anyio_backend():
                return "trio"

            @pytest.mark.anyio
            async def test_one(apiserver): pass
            """,
            ANYIO,
            "the fixture requires the asyncio backend of anyio, not trio",
            id="trio",
        ),
    ],
)
def test_plugin_reports_unsupported_tests(
    run: Run, text: str, plugins: tuple[str, ...], message: str
) -> None:
    options = AUTO if plugins == ASYNCIO else ()
    outcome = run(text, *options, plugins=plugins)

    assert f"apiserver: {message}" in outcome.out or message in outcome.out
    assert "1 error" in outcome.last


def test_plugin_documents_marker_and_fixtures(run: Run) -> None:
    markers = run("", "--markers", plugins=()).out
    fixtures = run("", "--fixtures", "-v", *AUTO, plugins=ASYNCIO).out

    assert "@pytest.mark.apiserver(**options): options of the APIServer" in markers
    assert "Start an `APIServer` for one test, and stop it afterwards." in fixtures


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


@pytest.mark.parametrize(
    ("mark", "options", "plugins"),
    [
        pytest.param("asyncio", STRICT, ASYNCIO, id="not-installed"),
        pytest.param("anyio", STRICT, ANYIO + ASYNCIO, id="anyio"),
    ],
)
def test_plugin_reports_looptime_mark_without_effect(
    run: Run, mark: str, options: tuple[str, ...], plugins: tuple[str, ...]
) -> None:
    outcome = run(
        f"""
        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.{mark}
        @pytest.mark.looptime
        async def test_one(apiserver):
            await asyncio.sleep(3600)
        """,
        *options,
        *("-o", "markers=looptime"),
        plugins=plugins,
    )

    message = "apiserver: the mark looptime has no effect: pip install looptime (it"
    assert f"\n{message}" in outcome.out, outcome.out
    assert outcome.last == "1 error", outcome.out


def test_plugin_accepts_looptime_mark_with_effect_or_turned_off(run: Run) -> None:
    text = """
        @pytest.mark.looptime
        async def test_virtual(apiserver):
            assert asyncio.get_running_loop().looptime_on is expected
            await asyncio.sleep(3600 if expected else 0)

        @pytest.mark.looptime(False)
        async def test_real(apiserver):
            assert not asyncio.get_running_loop().looptime_on
        """
    plugins = ("pytest_asyncio.plugin", "looptime._internal.plugin")
    on = run(f"expected = True\n{dedent(text)}", *AUTO, plugins=plugins)
    off = run(
        f"expected = False\n{dedent(text)}", "--no-looptime", *AUTO, plugins=plugins
    )

    assert on.last == "2 passed", on.out
    assert off.last == "2 passed", off.out


def test_plugin_warns_of_pending_fault_for_unknown_resource(run: Run) -> None:
    text = """
        from aioinformer.testing.faults import Chaos, Gone

        async def test_typo(apiserver):
            apiserver.faults.add(Gone(resource="podz"), Gone(resource="pods"))
            apiserver.faults.add(Chaos(seed=1), Gone(resource="sites"))
            apiserver.register(Resource("example.com", "v1", "sites", "Site"))
        """
    strict = run(text, *AUTO, plugins=ASYNCIO)
    lenient = run(text, "-W", "default", *AUTO, plugins=ASYNCIO)

    message = (
        "apiserver: [Gone(resource='podz')] never struck, because the server does not "
        "serve 'podz'. End the test with apiserver.faults.check()"
    )
    assert message in strict.out, strict.out
    assert strict.last == "1 passed, 1 error", strict.out
    assert message in lenient.out, lenient.out
    assert lenient.last == "1 passed, 1 warning", lenient.out


def test_plugin_names_option_of_missing_path(run: Run) -> None:
    outcome = run(
        "async def test_one(apiserver): pass",
        *("-o", "aioinformer_load=3"),
        *AUTO,
        plugins=ASYNCIO,
    )

    assert "apiserver: aioinformer_load: 3 does not exist in" in outcome.out


def test_summary_names_simulations_that_ran_fewer_seeds(run: Run) -> None:
    text = """
        async def main(client):
            await asyncio.sleep(1e6)

        def test_it(simulation):
            simulation.run(main, eventually=lambda _: True, seeds=4)
    """
    whole = run(text, plugins=())
    assert whole.last == "1 passed"
    assert "simulations" not in whole.out
    cut = run(text, "--simulation-seconds", "-1", plugins=())
    assert cut.last == "1 passed"
    named = [it for it in cut.out.splitlines() if "::test_it: " in it]
    assert [it.partition(": ")[2] for it in named] == [
        "1 of 4 seeds ran within -1 s (--simulation-seconds)"
    ]


def test_command_that_repeats_a_seed_is_for_the_folder_of_the_call(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    monkeypatch.chdir(folder)
    text = """
        async def main(client):
            raise ValueError

        def test_it(simulation):
            simulation.run(main, eventually=lambda _: True)
    """
    out = run(text, plugins=()).out
    assert "repeat it: pytest ../test_sample_" in out
    assert ".py::test_it --simulation-seed 0" in out
