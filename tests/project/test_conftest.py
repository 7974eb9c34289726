"""The checks in conftest.py find leftovers of tests, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import pod, pytest_plugins

CASES = """
import asyncio
import time

import aioinformer

kept = []


async def test_leaves_a_task():
    kept.append(asyncio.create_task(asyncio.sleep(3600)))


async def test_leaves_a_server():
    kept.append(await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0))


async def test_leaves_a_connection():
    server = await served()
    kept.append(await asyncio.open_connection(*address(server)))
    server.close()


async def test_closes_everything():
    server = await served()
    reader, writer = await asyncio.open_connection(*address(server))
    writer.close()
    server.close()


async def test_blocks_the_loop():
    # As if a module of the package did it.
    exec(compile("time.sleep(0.001)", aioinformer.__path__[0] + "/made_up.py", "exec"))


async def test_blocks_the_loop_outside_the_package():
    time.sleep(0.001)


def test_has_no_loop():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return

    raise AssertionError


async def served():
    async def answer(reader, writer):
        await reader.read()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)


def address(server):
    return server.sockets[0].getsockname()
"""


@pytest.mark.realtime
def test_leftovers_fail_a_test(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    for name in pytest_plugins:
        (file,) = tests.rglob(f"{name}.py")
        shutil.copy(file, tmp_path)

    shutil.copy(tests / "conftest.py", tmp_path)

    (tmp_path / "test_cases.py").write_text(CASES, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-rA", "--looptime", "--tb=line"]

    result = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    outcomes = {
        line.split("::")[1].split(" ")[0]: line.split(" ")[0]
        for line in result.stdout.splitlines()
        if line.startswith(("PASSED", "ERROR", "FAILED")) and "::" in line
    }
    assert outcomes == {
        "test_leaves_a_task": "ERROR",
        "test_leaves_a_server": "ERROR",
        "test_leaves_a_connection": "ERROR",
        "test_closes_everything": "PASSED",
        "test_blocks_the_loop": "FAILED",
        "test_blocks_the_loop_outside_the_package": "PASSED",
        "test_has_no_loop": "PASSED",
    }, result.stdout
    assert "tasks still running" in result.stdout
    assert "connections still open" in result.stdout
    assert "Blocking call to time.sleep" in result.stdout


def test_pod_is_equal_for_equal_arguments() -> None:
    assert pod("web", "shop", {"app": "web"}) == pod("web", "shop", {"app": "web"})
    assert pod("web")["metadata"]["uid"] != pod("web", "shop")["metadata"]["uid"]


def test_pod_accepts_further_fields() -> None:
    made = pod("web", metadata={"resourceVersion": "7"}, spec={"nodeName": "n2"})

    assert made["metadata"]["resourceVersion"] == "7"
    assert made["metadata"]["name"] == "web"
    assert made["spec"]["nodeName"] == "n2"
    assert made["spec"]["containers"]
