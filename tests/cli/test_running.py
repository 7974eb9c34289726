"""`run()`: exit status, signals, log and usage errors."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from aioinformer.cli.commands import aioinformer
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.demo import DemoOptions, demo
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.main import main
from aioinformer.cli.running import pause, reason_of, run
from aioinformer.cli.watch import WatchCommandOptions, watch
from aioinformer.errors import InformerStopped, InternalError, TransportError
from aioinformer.informer.store.pipeline import Pipeline
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    log = logging.getLogger("aioinformer")
    handlers, level = list(log.handlers), log.level
    yield
    log.handlers[:] = handlers
    log.setLevel(level)


def ending(error: BaseException) -> int:
    async def command() -> int:
        raise error

    return run(command)


def test_run_returns_status_of_command() -> None:
    async def command() -> int:
        return 7

    assert run(command) == 7


@pytest.mark.parametrize("error", [CommandError("no. Do."), TransportError("no. Do.")])
def test_run_prints_error_in_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(error) == 2
    assert capsys.readouterr() == ("", "aioinformer: no. Do.\n")


def test_run_finds_error_in_nested_groups(capsys: pytest.CaptureFixture[str]) -> None:
    inner = ExceptionGroup("inner", [TransportError("no.")])

    assert ending(ExceptionGroup("outer", [inner])) == 2
    assert capsys.readouterr().err == "aioinformer: no.\n"


def test_failed_informer_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    died = InformerStopped("an informer died")
    died.__cause__ = RuntimeError("ours")
    # Cancellations that followed from it.
    others = [InformerStopped("pods has ended"), ValueError("no cache")]

    assert ending(ExceptionGroup("all", [died, *others])) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "aioinformer: an informer died of RuntimeError('ours'). This"
    )


@pytest.mark.parametrize("error", [InternalError("ours"), RuntimeError("ours")])
def test_run_raises_bug_with_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        ending(error)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_signal_cancels_command(number: signal.Signals, status: int) -> None:
    cleaned_up: list[bool] = []

    async def command() -> int:
        asyncio.get_running_loop().call_later(0.01, signal.raise_signal, number)
        try:
            await pause(None)
        finally:
            cleaned_up.append(True)

        return 0

    before = signal.getsignal(signal.SIGTERM)

    assert run(command) == status
    assert cleaned_up == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_keeps_default_if_sigint_is_ignored() -> None:
    async def command() -> int:
        return int(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(command) == 1
    finally:
        signal.signal(signal.SIGINT, before)


def test_log_is_silent_without_verbose(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def command() -> int:
        logging.getLogger("aioinformer.informer").warning("attempt failed")
        return 0

    run(command)

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("verbose", "level"), [(1, logging.INFO), (2, logging.DEBUG), (3, logging.DEBUG)]
)
def test_verbose_sets_the_level_of_the_log(verbose: int, level: int) -> None:
    async def command() -> int:
        return logging.getLogger("aioinformer.informer").getEffectiveLevel()

    assert run(command, verbose=verbose) == level


async def test_pause_waits_for_given_seconds() -> None:
    before = asyncio.get_running_loop().time()
    await pause(30)

    assert asyncio.get_running_loop().time() - before == pytest.approx(30)


# ---------------------------------------------------------------- what can be typed


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["demo", "--help"], ["watch", "-h"]],
    ids=lambda arguments: arguments[0],
)
def test_main_help_has_example(arguments: list[str]) -> None:
    result = CliRunner().invoke(aioinformer, arguments)

    assert result.exit_code == 0
    assert "Example:\n" in result.output


def test_version_option_prints_version() -> None:
    result = CliRunner().invoke(aioinformer, ["--version"])

    assert result.exit_code == 0
    assert result.output.split()[1] == "0.1.0"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["demo", "--for", "0"], id="no-time"),
        pytest.param(["demo", "--for", "nan"], id="not-a-number"),
        pytest.param(["demo", "--for", "inf"], id="for-ever"),
        pytest.param(["demo", "--objects", "3"], id="too-few-objects"),
        pytest.param(["demo", "--churn", "-1"], id="negative-churn"),
        pytest.param(["demo", "--churn", "nan"], id="churn-is-no-number"),
        pytest.param(["demo", "--churn", "inf"], id="endless-churn"),
        pytest.param(["watch", "pods", "--for", "nan"], id="watch-no-number"),
        pytest.param(["watch"], id="no-resource"),
        pytest.param(
            ["watch", "podz", "--server", "http://127.0.0.1:1"], id="unknown-resource"
        ),
        pytest.param(["watch", "pods", "--server", "ftp://x"], id="server"),
        pytest.param(["dance"], id="no-such-command"),
    ],
)
def test_usage_error_exits_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(aioinformer, arguments)

    assert result.exit_code == 2
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("-n", "must not be empty, use -A for all namespaces"),
        ("--token", "must not be empty, omit --token"),
        ("--server", "must not be empty, omit --server"),
        ("--kubeconfig", "must not be empty, omit --kubeconfig"),
        ("--context", "must not be empty, omit --context"),
    ],
)
@pytest.mark.parametrize("value", ["", " "])
def test_empty_option_is_refused_with_advice(
    option: str, advice: str, value: str
) -> None:
    result = CliRunner().invoke(aioinformer, ["watch", "pods", option, value])

    assert result.exit_code == 2
    assert advice in " ".join(result.output.split())


@pytest.mark.parametrize("name", ["click", "rich"])
def test_missing_dependency_prints_pip_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None in sys.modules makes an import fail.
    monkeypatch.setitem(sys.modules, name, None)

    interrupts = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as caught:
            main()
    finally:
        signal.signal(signal.SIGINT, interrupts)

    assert "pip install 'aioinformer[cli]'" in str(caught.value)
    assert f"requires {name}: " in str(caught.value)


class Bug(InternalError):
    """Simulated bug of this package."""


async def dies(*_: object, **__: object) -> None:
    raise Bug


async def death_of(command: Coroutine[Any, Any, int]) -> BaseException | None:
    """Return the failure of the informer that the command raises."""
    with pytest.raises((InformerStopped, ExceptionGroup)) as caught:
        async with asyncio.timeout(60):
            await command

    error: BaseException = caught.value
    return (reason_of(error) if isinstance(error, ExceptionGroup) else error).__cause__


@pytest.mark.parametrize("step", ["stage", "feed"])
async def test_watch_fails_with_its_informer(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The informer fails before or after its first list."""
    monkeypatch.setattr(Pipeline, step, dies)
    async with APIServer(auto_namespaces=True) as server:

        def create_later() -> None:
            server.create(PODS, {"metadata": {"name": "b"}}, namespace="x")

        if step == "stage":
            server.create(PODS, {"metadata": {"name": "a"}}, namespace="x")
        else:
            asyncio.get_running_loop().call_later(2, create_later)

        target = ConnectionOptions(server=server.url)
        found = await death_of(watch(WatchCommandOptions(resource="pods"), target))

    assert isinstance(found, Bug)


async def test_demo_fails_with_its_informer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "feed", dies)

    assert isinstance(await death_of(demo(DemoOptions(objects=60))), Bug)
