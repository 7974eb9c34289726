"""The command as a process, with real signals and real time."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import pod
from processes import PATIENCE_SECONDS, PROMPT_SECONDS, Process, in_real_time, start

from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

pytestmark = in_real_time

# The same as the installed script, which may not be on the PATH.
COMMAND = "from aioinformer.cli.main import main; main()"


def command(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[Process]:
    return start("-c", COMMAND, *arguments, environment=environment)


# ---------------------------------------------------------------- stdout, start

FULL = "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
CLOSED = "os.close(1)"


async def fails_to_write(stdout: str, *arguments: str) -> str:
    """Return the error line of a command whose stdout is changed first."""
    script = f"import os, sys; {stdout}; os.execv(sys.executable, "
    script += f"[sys.executable, '-c', {COMMAND!r}, *{arguments!r}])"
    async with start("-c", script) as process:
        end = await process.end()

    assert (end.status, end.out, end.err.count("\n")) == (2, "", 1)
    return end.err


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("demo", "--for", "1")],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
async def test_command_reports_a_full_disk_in_one_line(
    arguments: tuple[str, ...],
) -> None:
    line = await fails_to_write(FULL, *arguments)

    assert line.startswith("aioinformer: cannot write to stdout: No space left")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
async def test_watch_ends_on_a_full_disk() -> None:
    async with APIServer() as server:
        server.create(PODS, pod_body("a"))
        line = await fails_to_write(FULL, "watch", "pods", "--server", server.url)

    assert line.startswith("aioinformer: cannot write to stdout: No space left")


async def test_command_reports_a_closed_stdout_in_one_line() -> None:
    line = await fails_to_write(CLOSED, "demo")

    assert line.startswith("aioinformer: stdout is closed: ")


async def test_interrupt_during_import_ends_command_silently() -> None:
    script = """if True:
        import signal, sys
        from aioinformer.cli.main import main

        class Interrupting:
            def find_spec(self, name, *_):
                if name == "aioinformer.cli.commands":
                    signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Interrupting())
        main()
    """
    async with start("-c", script, "--help") as process:
        end = await process.end()

    assert (end.status, end.out, end.err) == (130, "", "")


@pytest.mark.parametrize("word", ["click", "importlib.util", "signal"])
async def test_interrupt_raised_by_an_import_ends_command_silently(
    tmp_path: Path, word: str
) -> None:
    script = f"""if True:
        import sys

        class Interrupting:
            def find_spec(self, name, *_):
                if name == {word!r}:
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        sys.modules.pop({word!r}, None)
    """
    (tmp_path / "sitecustomize.py").write_text(script)
    environment = {"PYTHONPATH": str(tmp_path)}
    async with command("--help", environment=environment) as process:
        end = await process.end()

    assert (end.status, end.out, end.err) == (130, "", "")


async def test_entry_point_imports_little_before_it_handles_interrupts() -> None:
    script = """if True:
        import sys
        before = set(sys.modules)
        import aioinformer.cli.main
        print(*sorted(set(sys.modules) - before))
    """
    async with start("-c", script) as process:
        end = await process.end()

    # Some versions of Python import more of these at startup.
    found = {name.partition(".")[0] for name in end.out.split()}
    assert found <= {
        "aioinformer",
        "__future__",
        "_weakrefset",
        "importlib",
        "warnings",
    }
    assert "aioinformer.cli.running" not in end.out


# ---------------------------------------------------------------- demo


async def test_demo_ends_after_its_check() -> None:
    async with command("demo", "--for", "1") as process:
        end = await process.end()

    lines = end.out.splitlines()
    assert (end.status, end.err) == (0, "")
    assert any(re.search(r"pods \d+ \(\d+ events/s, ", line) for line in lines)
    assert lines[-1].startswith("The caches equal the server: ")


async def test_demo_ends_soon_after_sigterm() -> None:
    async with command("demo") as process:
        await process.line("watching")
        process.interrupt(signal.SIGTERM)
        end = await process.end()

    assert (end.status, end.err) == (143, "")
    assert end.out.splitlines()[-1].startswith("Interrupted after ")
    assert end.seconds < PROMPT_SECONDS


async def test_demo_ends_silently_on_a_closed_pipe() -> None:
    script = "import subprocess, sys; from subprocess import PIPE\n"
    script += f"command = [sys.executable, '-c', {COMMAND!r}, 'demo']\n"
    script += "child = subprocess.Popen(command, stdout=PIPE)\n"
    script += "child.stdout.readline(); child.stdout.close(); print(child.wait())"

    async with start("-c", script) as process:
        end = await process.end()

    assert (end.out, end.err) == ("0\n", "")


# ---------------------------------------------------------------- watch


async def test_watch_prints_objects_and_changes(tmp_path: Path) -> None:
    async with APIServer() as server:
        server.create(PODS, pod_body("a"))
        config = server.kubeconfig(tmp_path / "config")
        async with command("watch", "po", "--kubeconfig", str(config)) as process:
            head = await process.line("EVENT")
            assert head.split()[:4] == ["EVENT", "NAME", "READY", "STATUS"]
            assert (await process.line("ADDED")).split()[1] == "a"

            server.patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}})
            assert (await process.line("MODIFIED")).split()[1] == "a"

            server.delete(PODS, "a")
            assert (await process.line("DELETED")).split()[1] == "a"

            process.interrupt()
            end = await process.end()

    assert (end.status, end.err) == (130, "")
    assert end.seconds < PROMPT_SECONDS


async def test_watch_ends_on_a_signal_while_its_reader_pauses() -> None:
    script = "import subprocess, sys; from subprocess import PIPE\n"
    script += f"command = [sys.executable, '-c', {COMMAND!r}, *sys.argv[1:]]\n"
    script += "child = subprocess.Popen(command, stdout=PIPE)\n"
    # The output is much larger than the buffer of the pipe.
    script += "child.stdout.read(1)\n"
    script += "child.terminate(); print(child.wait()); child.stdout.close()"
    async with APIServer() as server:
        for number in range(300):
            metadata = {"name": f"pod-{number}", "annotations": {"long": "x" * 1000}}
            server.create(PODS, {"metadata": metadata})

        arguments = ("watch", "pods", "-o", "json", "--server", server.url)
        async with start("-c", script, *arguments) as process:
            end = await process.end()

    assert (end.out, end.err) == ("143\n", "")


def pod_body(name: str) -> dict[str, object]:
    body = pod(name)
    del body["metadata"]["resourceVersion"]
    return body


# ---------------------------------------------------------------- wrong input


async def test_watch_reports_a_missing_kubeconfig_in_one_line() -> None:
    async with command("watch", "pods") as process:
        end = await process.end()

    assert (end.status, end.out) == (2, "")
    assert end.err.startswith("aioinformer: ")
    assert end.err.count("\n") == 1
    assert end.seconds < PATIENCE_SECONDS / 3
    assert "no Kubernetes configuration found" in end.err
    assert "KUBECONFIG" in end.err
    assert "or pass --server." in end.err
