"""The recipes of single requests do what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cookbook import recipe_of, running

from aioinformer import NotFound
from aioinformer.model.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS

if TYPE_CHECKING:
    from pathlib import Path


async def test_scale_a_deployment() -> None:
    async with running("Scale a Deployment") as program:
        await program.main
        web = program.server.get(DEPLOYMENTS, "web", namespace="shop")

    assert web["spec"]["replicas"] == 3


async def test_restart_a_deployment() -> None:
    async with running("Restart a Deployment") as program:
        await program.main
        web = program.server.get(DEPLOYMENTS, "web", namespace="shop")

    annotations = web["spec"]["template"]["metadata"]["annotations"]
    assert list(annotations) == ["kubectl.kubernetes.io/restartedAt"]


async def test_drain_a_node_cordon_it_and_evict_its_pods() -> None:
    async with running("Drain a node: cordon it and evict its pods") as program:
        await program.main
        assert program.server.get(NODES, "node-1")["spec"]["unschedulable"]
        with pytest.raises(NotFound):
            program.server.get(PODS, "web-1", namespace="shop")


async def test_apply_a_yaml_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = recipe_of("Apply a YAML file").text("yaml")
    (tmp_path / "manifests.yaml").write_text(manifests)
    monkeypatch.chdir(tmp_path)
    async with running("Apply a YAML file") as program:
        # `running()` has created it; the program has not started yet.
        program.server.delete(CONFIG_MAPS, "settings", namespace="staging")
        await program.main
        settings = program.server.get(CONFIG_MAPS, "settings", namespace="staging")

    assert settings["data"] == {"colour": "blue"}


async def test_create_a_crd_and_wait_until_it_is_established() -> None:
    async with running("Create a CRD and wait until it is established") as program:
        await program.main


async def test_decode_a_secret() -> None:
    async with running("Decode a Secret") as program:
        await program.main


async def test_update_with_retry_on_conflict() -> None:
    async with running("Update with retry on conflict") as program:
        await program.main


async def test_try_a_write_without_making_it() -> None:
    async with running("Try a write without making it") as program:
        await program.main


async def test_delete_many_objects_by_a_selector() -> None:
    async with running("Delete many objects by a selector") as program:
        await program.main
        with pytest.raises(NotFound):
            program.server.get(DEPLOYMENTS, "web", namespace="shop")


async def test_list_in_pages() -> None:
    async with running("List in pages") as program:
        await program.main


async def test_find_out_what_a_resource_is_called() -> None:
    async with running("Find out what a resource is called") as program:
        await program.main
