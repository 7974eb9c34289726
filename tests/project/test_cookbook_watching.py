"""The recipes about watching do what they say."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import pod
from cookbook import running

from aioinformer.model.resources import CONFIG_MAPS, DEPLOYMENTS, EVENTS, JOBS, PODS

FAILED = {"status": {"phase": "Failed"}}


def running_pod(name: str) -> dict[str, Any]:
    body = pod(name, "shop", {"app": "web"})
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


async def test_wait_until_a_pod_is_ready_then_exit() -> None:
    async with running("Wait until a pod is ready, then exit") as program:
        await asyncio.sleep(10)
        program.server.create(PODS, running_pod("web-2"))
        await asyncio.sleep(10)
        assert not program.main.done()
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        program.server.patch(PODS, "web-2", ready, namespace="shop")
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


async def test_change_the_selection_of_a_running_informer() -> None:
    async with running("Change the selection of a running informer") as program:
        await program.main


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_run_blocking_code_in_a_handler() -> None:
    async with running("Run blocking code in a handler") as program:
        await program.prints("saved web-1")


async def test_watch_a_custom_resource() -> None:
    async with running("Watch a custom resource") as program:
        await program.main


async def test_read_settings_from_a_configmap_that_may_change() -> None:
    async with running("Read settings from a ConfigMap that may change") as program:
        await asyncio.sleep(30)
        body = {"metadata": {"name": "settings"}, "data": {"batch-size": "20"}}
        program.server.create(CONFIG_MAPS, body, namespace="shop")
        await asyncio.sleep(60)
        patch = {"data": {"batch-size": "30"}}
        program.server.patch(CONFIG_MAPS, "settings", patch, namespace="shop")
        await asyncio.sleep(60)


async def test_stop_cleanly_on_sigterm() -> None:
    async with running("Stop cleanly on SIGTERM") as program:
        await asyncio.sleep(10)
        program.server.delete(PODS, "web-0", namespace="shop")
        await asyncio.sleep(0.5)
        signal.raise_signal(signal.SIGTERM)
        await program.main


async def test_watch_two_clusters_at_once() -> None:
    async with running("Watch two clusters at once") as program:
        config = kubeconfig()
        (context,) = config["contexts"]
        config["contexts"] = [context | {"name": it} for it in ("blue", "green")]
        write_kubeconfig(config)
        await program.main


def kubeconfig() -> dict[str, Any]:
    """Return the configuration that the program has not read yet."""
    config: dict[str, Any] = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    return config


def write_kubeconfig(config: dict[str, Any]) -> None:
    Path(os.environ["KUBECONFIG"]).write_text(yaml.safe_dump(config))


async def test_watch_the_kubernetes_events_of_one_object() -> None:
    async with running("Watch the Kubernetes events of one object") as program:
        await asyncio.sleep(10)
        for name in ("web-0", "web-1"):
            about = {"kind": "Pod", "name": name, "namespace": "shop"}
            event = {
                "metadata": {"name": f"{name}.1"},
                "involvedObject": about,
                "type": "Warning",
                "reason": "BackOff",
                "message": "Back-off restarting failed container",
            }
            program.server.create(EVENTS, event, namespace="shop")

        await asyncio.sleep(10)


async def test_find_out_why_nothing_arrives() -> None:
    users = {"hers": "alice"}
    async with running(
        "Find out why nothing arrives", token="admin", users=users
    ) as program:
        config = kubeconfig()
        config["users"][0]["user"] = {"token": "hers"}
        write_kubeconfig(config)
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
