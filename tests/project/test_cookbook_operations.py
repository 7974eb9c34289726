"""The recipes for production do what they say."""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from cookbook import apply, recipe_of, running, send_signal
from doc_blocks import said
from doc_requests import curl
from doc_sessions import answers
from ports import free_port
from processes import start

from aioinformer.model.resources import CONFIG_MAPS, LEASES, NAMESPACES, PODS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse, Stall

if TYPE_CHECKING:
    from pathlib import Path

    from cookbook import Program

SHOP: Any = {"namespace": "shop"}


def config(program: Program, name: str, app: str) -> None:
    body = {"metadata": {"name": name, "labels": {"app": app}}}
    program.server.create(CONFIG_MAPS, body, **SHOP)


async def test_run_several_replicas_of_a_controller() -> None:
    async with running("Run several replicas of a controller") as program:
        config(program, "settings", "web")
        await asyncio.sleep(60)
        lease = program.server.get(LEASES, "settings-controller", **SHOP)
        assert lease["spec"]["holderIdentity"]


async def test_shut_down_cleanly_when_kubernetes_stops_the_pod() -> None:
    async with running("Shut down cleanly when Kubernetes stops the pod") as program:
        config(program, "nightly", "backup")
        await asyncio.sleep(5)
        send_signal(signal.SIGTERM)
        await program.main


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_grant_an_operator_its_permissions(tmp_path: Path) -> None:
    recipe = recipe_of("Grant an operator its permissions")
    ((command, shown),) = [it for block in recipe.blocks for it in said(block)]
    _, *arguments = shlex.split(command)
    async with APIServer(auto_namespaces=True) as server:
        server.create(NAMESPACES, {"metadata": {"name": "shop"}})
        environment = {"KUBECONFIG": str(server.kubeconfig(tmp_path / "config"))}
        start_it = start("-m", "aioinformer", *arguments, environment=environment)
        async with start_it as process:
            end = await process.end()

        assert answers(end.out, shown), end.out
        await apply(server, end.out)

    kinds = [it["kind"] for it in yaml.safe_load_all(end.out)]
    # The leader election has a role of its own: it is for one Lease.
    assert kinds == ["ServiceAccount", *["Role", "RoleBinding"] * 2]


async def test_find_out_why_an_informer_is_not_up_to_date() -> None:
    async with running("Find out why an informer is not up to date") as program:
        refusal = Refuse(resource="secrets", status=403, times=None)
        program.server.faults.add(refusal)
        await asyncio.sleep(35)


async def test_show_the_tasks_of_a_running_process() -> None:
    async with running("Show the tasks of a running process"):
        await asyncio.sleep(10)
        send_signal(signal.SIGUSR1)
        await asyncio.sleep(1)

    asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)


async def test_log_what_the_informers_do() -> None:
    logger = logging.getLogger("aioinformer")
    handlers, level = logger.handlers.copy(), logger.level
    async with running("Log what the informers do") as program:
        program.server.faults.add(Refuse(verb="watch", status=500))
        await asyncio.sleep(60)

    logger.handlers[:] = handlers
    logger.setLevel(level)


async def test_measure_your_own_work_in_the_metrics() -> None:
    port = free_port()
    edits = {"port=8080": f'host="127.0.0.1", port={port}'}
    async with (
        running("Measure your own work in the metrics", edits=edits) as program,
        aiohttp.ClientSession() as http,
    ):
        config(program, "settings", "web")
        await asyncio.sleep(10)
        async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            page = await answer.text()

    assert 'settings_checked_total{app="web"} 1.0' in page
    assert 'workqueue_adds_total{name="settings"' in page
    assert "rest_client_requests_total{" in page
    assert 'reflector_lists_total{name="configmaps' in page


async def test_trace_a_change_through_the_queue_to_its_writes() -> None:
    async with running("Trace a change through the queue to its writes") as program:
        body = {
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "data": {"a": "b"},
        }
        program.server.create(CONFIG_MAPS, body, **SHOP)
        await asyncio.sleep(10)


async def test_find_what_uses_the_memory() -> None:
    async with running("Find what uses the memory") as program:
        await program.main


async def test_detect_dead_connections_sooner() -> None:
    async with running("Detect dead connections sooner") as program:
        program.server.faults.add(Stall(after_bytes=0))
        await asyncio.sleep(5)
        failed = {"status": {"phase": "Failed"}}
        program.server.patch(PODS, "web-0", failed, **SHOP)
        await asyncio.sleep(75)
        program.server.faults.check()


async def test_limit_the_requests_to_the_api_server() -> None:
    async with running("Limit the requests to the API server") as program:
        await program.main


async def test_choose_the_cluster_and_the_credentials() -> None:
    port = free_port()
    edits = {"8001": str(port)}
    async with running(
        "Choose the cluster and the credentials", edits=edits, port=port, token="secret"
    ) as program:
        await program.main
        assert {it.user for it in program.server.requests} == {"kubernetes-admin"}


async def run_requests(title: str) -> None:
    """Run an operator, and compare the responses to the recipe's commands."""
    port = free_port()
    edits = {"port=8080": f'host="127.0.0.1", port={port}'}
    async with (
        running(title, edits=edits) as program,
        aiohttp.ClientSession() as http,
    ):
        config(program, "settings", "web")
        await asyncio.sleep(10)
        blocks = [it for it in recipe_of(title).blocks if it.language == "console"]
        for command, shown in [it for block in blocks for it in said(block)]:
            mine = command.replace("localhost:8080", f"http://127.0.0.1:{port}")
            await curl(http, mine, shown)


async def test_check_a_database_in_the_readiness_probe() -> None:
    await run_requests("Check a database in the readiness probe")


async def test_show_what_an_operator_does_at_the_moment() -> None:
    await run_requests("Show what an operator does at the moment")
