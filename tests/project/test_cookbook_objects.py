"""The recipes about objects and reads do what they say."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from cookbook import COOKBOOK, running
from processes import ROOT

from aioinformer.model.resources import DEPLOYMENTS, PODS, REPLICA_SETS


async def test_read_objects_as_msgspec_types() -> None:
    async with running("Read objects as msgspec types") as program:
        await program.main


async def test_read_objects_as_pydantic_models() -> None:
    async with running("Read objects as Pydantic models") as program:
        await program.main


async def test_read_objects_as_lightkube_s_models() -> None:
    async with running("Read objects as lightkube's models") as program:
        await program.main


async def test_read_objects_as_models_of_kubernetes_asyncio() -> None:
    async with running("Read objects as models of kubernetes_asyncio") as program:
        await program.main


async def test_find_pods_by_image_with_an_index_of_your_own() -> None:
    async with running("Find pods by image with an index of your own") as program:
        await program.main


async def test_find_the_pods_of_a_deployment_by_owner() -> None:
    async with running("Find the pods of a Deployment by owner") as program:
        server = program.server
        owner = server.get(DEPLOYMENTS, "web", namespace="shop")
        metadata = {"name": "web-1a", "ownerReferences": [reference(owner)]}
        template = owner["spec"]["template"]
        spec = {"selector": owner["spec"]["selector"], "template": template}
        body = {"metadata": metadata, "spec": spec}
        owned = server.create(REPLICA_SETS, body, namespace="shop")
        patch = {"metadata": {"ownerReferences": [reference(owned)]}}
        for name in ("web-0", "web-1"):
            server.patch(PODS, name, patch, namespace="shop")

        await program.main


def reference(owner: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


async def test_join_pods_with_their_nodes() -> None:
    async with running("Join pods with their nodes") as program:
        await program.main


async def test_watch_a_few_namespaces_with_one_informer() -> None:
    async with running("Watch a few namespaces with one informer") as program:
        await program.main
        paths = {it.path for it in program.server.requests if it.resource == "pods"}

    assert paths == {"/api/v1/namespaces/shop/pods", "/api/v1/namespaces/media/pods"}


async def test_read_only_if_the_data_is_fresh() -> None:
    async with running("Read only if the data is fresh") as program:
        await asyncio.sleep(250)
        await program.server.stop()
        await asyncio.sleep(240)


async def test_read_your_own_write() -> None:
    async with running("Read your own write") as program:
        await program.main


async def test_change_an_object_that_you_read() -> None:
    async with running("Change an object that you read") as program:
        await program.main


async def test_resync_a_handler_every_ten_minutes() -> None:
    async with running("Resync a handler every ten minutes") as program:
        pending = {"status": {"phase": "Pending"}}
        await asyncio.sleep(60)
        program.server.patch(PODS, "web-0", pending, namespace="shop")
        await asyncio.sleep(600)


async def test_report_pods_in_trouble() -> None:
    async with running("Report pods in trouble") as program:
        await asyncio.sleep(10)
        crashed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {"name": "main", "restartCount": 3}
        broken = container | {"state": waiting, "lastState": crashed}
        patch = {"status": {"containerStatuses": [broken]}}
        program.server.patch(PODS, "web-0", patch, namespace="shop")
        await asyncio.sleep(60)
        fine = container | {"state": {"running": {}}, "lastState": crashed}
        patch = {"status": {"containerStatuses": [fine]}}
        program.server.patch(PODS, "web-0", patch, namespace="shop")
        await asyncio.sleep(10)


async def test_keep_100_000_pods_in_little_memory() -> None:
    async with running("Keep 100,000 pods in little memory") as program:
        managed = {"metadata": {"managedFields": [{"manager": "kubectl"}]}}
        program.server.patch(PODS, "web-0", managed, namespace="shop")
        await program.main


def test_memory_figures_agree_with_the_benchmarks() -> None:
    page = (COOKBOOK / "objects.md").read_text(encoding="utf-8")
    shown = [
        float(it) for it in re.findall(r"^\| .* \| ([\d.]+) \|$", page, re.MULTILINE)
    ]
    measured = (ROOT / "docs/benchmarks/README.md").read_text(encoding="utf-8")
    cases = (
        "",
        " (without managed fields)",
        " (metadata only)",
        " (compressed)",
        " (compressed, without managed fields)",
    )

    assert len(shown) == len(cases)
    if "\n| memory: " not in measured:
        pytest.skip("the published run has no figures of memory")

    for figure, case in zip(shown, cases, strict=True):
        row = re.search(
            rf"^\| memory: 100,000 pods stored{re.escape(case)} +\| +([\d.]+) \| KiB/pod",
            measured,
            re.MULTILINE,
        )
        assert row is not None
        assert abs(figure - float(row[1])) <= 0.1 * float(row[1]), case
