"""Pytest plugin with the fixture `apiserver`.

pytest loads it in every run of every project that has the package installed. So it
imports nothing of the package, and no HTTP library, until a test uses the fixture.

    async def test_greets_pods(apiserver):
        apiserver.create(PODS, {"metadata": {"name": "web"}})
        ...

    @pytest.mark.apiserver(load=["crds/*.yaml"], token="secret")
    async def test_with_options(apiserver): ...

The fixture is asynchronous and uses the project's plugin for coroutine tests:
pytest-asyncio in either mode, or anyio's on the asyncio backend. The server runs in the
loop of the test, for every loop scope, and so shares its clock. Run blocking code, such
as a synchronous client library, in a thread: `asyncio.to_thread()`.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Literal, TextIO, TypeAlias

    from aioinformer.testing.server import APIServer
    from aioinformer.testing.simulation import Simulation

    _LoopScope: TypeAlias = Literal["function", "class", "module", "package", "session"]

__all__ = [
    "apiserver",
    "apiserver_options",
    "pytest_addoption",
    "pytest_configure",
    "pytest_terminal_summary",
    "simulation",
]

# Plugins for coroutine tests, by module: their names in pytest differ.
_ASYNCIO = "pytest_asyncio.plugin"
_ANYIO = "anyio.pytest_plugin"
# Property of tests whose simulation has not run all seeds.
_SIMULATION = "seeds of the simulation"
_BY_ASYNCIO = "_aioinformer_by_asyncio_"
# A fixture of pytest-asyncio runs in the loop of its own scope, not in that of the
# test.
_LOOP_SCOPES: tuple[_LoopScope, ...] = (
    "function",
    "class",
    "module",
    "package",
    "session",
)
_BY_ANYIO = "_aioinformer_by_anyio"
_MARKER = (
    "apiserver(**options): options of the APIServer that the fixture `apiserver` starts, "
    "such as load=['crds/*.yaml'] or token=..."
)
_OPTION, _LOAD = "load", "aioinformer_load"
_STDERR: pytest.StashKey[TextIO] = pytest.StashKey()
_LOAD_HELP = (
    "YAML files that the fixture `apiserver` loads for each test: paths, patterns"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the configuration file and of the command."""
    parser.addini(_LOAD, _LOAD_HELP, type="args", default=[])
    group = parser.getgroup("aioinformer")
    group.addoption(
        "--simulation-seed",
        type=int,
        metavar="N",
        help="repeat this seed of simulations, and no other",
    )
    group.addoption(
        "--simulation-seeds",
        type=int,
        metavar="N",
        default=200,
        help="number of seeds of each simulation (default: 200)",
    )
    group.addoption(
        "--simulation-seconds",
        type=float,
        metavar="S",
        default=60.0,
        help="seconds after which a simulation begins no further seed (default: 60)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and fixtures for the installed plugins for coroutine tests."""
    config.addinivalue_line("markers", _MARKER)
    config.stash[_STDERR] = _uncaptured_stderr(config)
    plugins = config.pluginmanager
    if _has(config, _ASYNCIO):
        from pytest_asyncio import fixture

        for scope in _LOOP_SCOPES:
            starter = fixture(_starter(), loop_scope=scope)
            plugins.register(_holder(_BY_ASYNCIO + scope, starter))

    if _has(config, _ANYIO):
        plugins.register(_holder(_BY_ANYIO, pytest.fixture(_starter())))


@pytest.fixture
def apiserver_options() -> dict[str, Any]:
    """Return options for all `apiserver` fixtures; override it where needed.

    The marker `apiserver` takes precedence, except that all files of `load` are loaded.
    """
    return {}


@pytest.fixture
def apiserver(
    request: pytest.FixtureRequest, apiserver_options: dict[str, Any]
) -> APIServer:
    """Start an `APIServer` for one test, and stop it afterwards.

    Raises:
        Failed: If an option is unknown or invalid, or the test cannot run the fixture.
    """
    server: APIServer = request.getfixturevalue(_fixture_for(request))
    return server


@pytest.fixture
def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """Return a `Simulation`, for a test that is not a coroutine.

    The options `--simulation-seed`, `--simulation-seeds` and `--simulation-seconds`
    apply. The summary of pytest names simulations whose time was over before all seeds
    had run.
    """
    from aioinformer.testing.simulation import Simulation

    config, seconds = request.config, request.config.getoption("simulation_seconds")
    simulation = Simulation(
        seed=config.getoption("simulation_seed"),
        seeds=config.getoption("simulation_seeds"),
        seconds=seconds,
        command=f"pytest {shlex.quote(_place_of(request))} --simulation-seed",
    )
    yield simulation
    runs, left = simulation.report.runs, simulation.report.left
    if left:
        text = f"{runs} of {runs + left} seeds ran within {seconds:g} s"
        request.node.user_properties.append((_SIMULATION, text))


def _place_of(request: pytest.FixtureRequest) -> str:
    """Return the name of a test, from the folder in which pytest was called."""
    _, colons, name = request.node.nodeid.partition("::")
    file = os.path.relpath(request.path, request.config.invocation_params.dir)
    return f"{file}{colons}{name}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the simulations that did not run all of their seeds."""
    lines = [
        f"{report.nodeid}: {text} (--simulation-seconds)"
        for report in terminalreporter.stats.get("", [])
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, text in report.user_properties
        if name == _SIMULATION
    ]
    if lines:
        terminalreporter.section("simulations")
        for line in lines:
            terminalreporter.write_line(line)


def _has(config: pytest.Config, name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and config.pluginmanager.is_registered(module)


def _holder(name: str, fixture: object) -> ModuleType:
    """Return a module with a single fixture, for pytest to collect."""
    holder = ModuleType(f"aioinformer.testing.plugin.{name}")
    setattr(holder, name, fixture)
    return holder


def _starter() -> Callable[..., AsyncIterator[APIServer]]:
    """Return a new fixture function, because each decorator modifies its function."""

    async def started(
        request: pytest.FixtureRequest, apiserver_options: dict[str, Any]
    ) -> AsyncIterator[APIServer]:
        import asyncio

        from aioinformer.testing.watchdog import start_watchdog

        loop = asyncio.get_running_loop()
        _check_clock(request, loop)
        server = _server_for(request, apiserver_options)
        await server.start()
        stop = start_watchdog(loop, str(request.path), request.config.stash[_STDERR])
        try:
            yield server
        finally:
            await server.stop()
            stop()

        if unserved := server.unserved_faults():
            names = ", ".join(sorted({repr(it.resource) for it in unserved}))
            request.node.warn(
                pytest.PytestWarning(
                    f"apiserver: {unserved} never struck, because the server does not "
                    f"serve {names}. End the test with apiserver.faults.check()"
                )
            )

    return started


def _uncaptured_stderr(config: pytest.Config) -> TextIO:
    """Return a stream to stderr that pytest does not capture during tests.

    A test that hangs never ends, so pytest would never show its output.
    """
    try:
        stream = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
    except (AttributeError, OSError, ValueError):  # stderr is not a file.
        return sys.stderr

    config.add_cleanup(stream.close)
    return stream


def _check_clock(request: pytest.FixtureRequest, loop: AbstractEventLoop) -> None:
    """Check that the mark `looptime` has an effect, if the test has it.

    Without one, the test would sleep in real time, perhaps for hours.

    Raises:
        Failed: If looptime does not control the clock of the loop.
    """
    marker = request.node.get_closest_marker("looptime")
    if marker is None or not all(marker.args):
        return

    # `--no-looptime` asks for real time.
    wanted = request.config.getoption("looptime", None) is not False
    if wanted and not hasattr(loop, "looptime_on"):
        raise _refusal(
            "the mark looptime has no effect: pip install looptime (it needs "
            "pytest-asyncio, and asyncio's own event loop)"
        )


def _fixture_for(request: pytest.FixtureRequest) -> str:
    """Return the name of the fixture for the loop of a test."""
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend_name")
        if backend != "asyncio":
            raise _refusal(
                f"the fixture requires the asyncio backend of anyio, not {backend}"
            )

        return _BY_ANYIO

    if not _is_coroutine_test(request):
        raise _refusal(
            "the fixture is for coroutine tests, because a plain test runs no event "
            "loop. Write `async def`, and run blocking code with asyncio.to_thread()"
        )

    if _has(request.config, _ASYNCIO):
        return _BY_ASYNCIO + _loop_scope(request)

    raise _refusal(
        "the fixture requires a plugin for coroutine tests: install pytest-asyncio, "
        "or mark the test with pytest.mark.anyio"
    )


def _loop_scope(request: pytest.FixtureRequest) -> str:
    """Return the loop scope of a test, as pytest-asyncio determines it."""
    marker = request.node.get_closest_marker("asyncio")
    given = {} if marker is None else marker.kwargs
    scope = given.get("loop_scope") or given.get("scope")
    return str(scope or request.config.getini("asyncio_default_test_loop_scope"))


def _is_coroutine_test(request: pytest.FixtureRequest) -> bool:
    function = getattr(request.node, "obj", None)
    # Hypothesis wraps coroutine functions in plain ones.
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    return inspect.iscoroutinefunction(inner)


def _server_for(request: pytest.FixtureRequest, common: dict[str, Any]) -> APIServer:
    """Make a server with the options of fixture and markers.

    Raises:
        Failed: If an option is unknown or invalid.
    """
    from aioinformer.errors import OptionsError
    from aioinformer.testing.server import APIServer
    from aioinformer_apiserver.manifests import patterns_of

    if not isinstance(common, dict):
        raise _refusal(
            "the fixture apiserver_options must return a dictionary of options, such as "
            f"{{'token': 'secret'}}, not {common!r}"
        )

    configured: list[str] = request.config.getini(_LOAD)
    given = [{_OPTION: configured}, common]
    for marker in reversed(list(request.node.iter_markers("apiserver"))):
        if marker.args:
            raise _refusal(f"the marker takes keyword arguments, not {marker.args!r}")

        given.append(marker.kwargs)

    options: dict[str, Any] = {"root": request.config.rootpath}
    for it in given:
        options |= it

    known = inspect.signature(APIServer).parameters
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise _refusal(
            f"unknown options of APIServer: {', '.join(unknown)}. Options are "
            f"{', '.join(known)}"
        )

    try:
        # Files add up: CRDs for all tests, and objects for one.
        paths = (patterns_of(_OPTION, it[_OPTION]) for it in given if _OPTION in it)
        options[_OPTION] = list(chain.from_iterable(paths))
        return APIServer(**options)
    except (OptionsError, TypeError) as exc:
        text = str(exc)
        is_configured = any(text.startswith(it) for it in configured)
        raise _refusal(f"{_LOAD}: {text}" if is_configured else text) from None


def _refusal(message: str) -> BaseException:
    """Make a failure without a traceback, which would only show this plugin."""
    return pytest.fail.Exception(f"apiserver: {message}", pytrace=False)
