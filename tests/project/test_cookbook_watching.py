"""The recipes about watching do what they say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import pod
from cookbook import running

from aioinformer.model.resources import DEPLOYMENTS, JOBS, PODS

FAILED = {"status": {"phase": "Failed"}}


def running_pod(name: str, **status: Any) -> dict[str, Any]:
    body = pod(name, "shop", {"app": "web"}, status=status)
    del body["metadata"]["resourceVersion"]
    return body


async def test_print_the_changes_of_one_object() -> None:
    async with running("Print the changes of one object") as program:
        await asyncio.sleep(30)
        five = {"spec": {"replicas": 5}}
        program.server.patch(DEPLOYMENTS, "web", five, namespace="shop")
        await asyncio.sleep(1)
        program.server.delete(DEPLOYMENTS, "web", namespace="shop")
        await program.main


async def test_follow_all_pods_with_an_async_iterator() -> None:
    async with running("Follow all pods with an async iterator") as program:
        await asyncio.sleep(30)
        program.server.patch(PODS, "web-0", FAILED, namespace="shop")
        await asyncio.sleep(1)
        program.server.delete(PODS, "web-0", namespace="shop")
        program.server.create(PODS, running_pod("web-2"))
        await asyncio.sleep(1)


async def test_follow_pods_in_a_script_with_handlers() -> None:
    async with running("Follow pods in a script with handlers") as program:
        await asyncio.sleep(30)
        program.server.patch(PODS, "web-0", FAILED, namespace="shop")
        await asyncio.sleep(1)
        program.server.delete(PODS, "db-0", namespace="shop")
        await asyncio.sleep(1)


async def test_wait_until_a_pod_runs_then_exit() -> None:
    async with running("Wait until a pod runs, then exit") as program:
        await asyncio.sleep(10)
        program.server.create(PODS, running_pod("web-2", phase="Pending"))
        await asyncio.sleep(10)
        assert not program.main.done()
        runs = {"status": {"phase": "Running"}}
        program.server.patch(PODS, "web-2", runs, namespace="shop")
        await program.main


async def test_run_a_job_and_wait_for_its_result() -> None:
    async with running("Run a Job and wait for its result") as program:
        await asyncio.sleep(10)
        (job,) = program.server.objects(JOBS)
        name = job["metadata"]["name"]
        program.server.patch(JOBS, name, {"status": {"active": 1}}, namespace="shop")
        await asyncio.sleep(600)
        assert not program.main.done()
        conditions = [{"type": "Complete", "status": "True"}]
        complete = {"status": {"active": 0, "conditions": conditions}}
        program.server.patch(JOBS, name, complete, namespace="shop")
        await program.main


async def test_wait_until_enough_pods_run() -> None:
    async with running("Wait until enough pods run") as program:
        await asyncio.sleep(60)
        assert not program.main.done()
        program.server.create(PODS, running_pod("web-2"))
        await program.main


async def test_select_objects_by_labels_and_fields() -> None:
    async with running("Select objects by labels and fields") as program:
        await asyncio.sleep(10)
        program.server.patch(PODS, "db-0", FAILED, namespace="shop")
        await asyncio.sleep(10)


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_run_blocking_code_in_a_handler() -> None:
    async with running("Run blocking code in a handler") as program:
        await program.prints("saved web-1")


async def test_watch_a_custom_resource() -> None:
    async with running("Watch a custom resource") as program:
        await program.main


async def test_watch_through_a_client_of_kubernetes_asyncio() -> None:
    # It reads KUBECONFIG only once, when it is imported.
    path = '__import__("os").environ["KUBECONFIG"]'
    edits = {"load_kube_config()": f"load_kube_config({path})"}
    async with running(
        "Watch through a client of kubernetes_asyncio", edits=edits
    ) as program:
        await asyncio.sleep(10)
        program.server.patch(PODS, "web-0", FAILED, namespace="shop")
        await asyncio.sleep(10)
