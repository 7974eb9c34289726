"""`Workload`: constant changes with a stable number of objects."""

from __future__ import annotations

import asyncio

import pytest

from aioinformer.cli.workload import NAMESPACES, Workload
from aioinformer.model.resources import CONFIG_MAPS, NODES, PODS
from aioinformer.testing import APIServer


def populated(objects: int, rate: float = 0.0) -> tuple[APIServer, Workload]:
    server = APIServer(auto_namespaces=True)
    workload = Workload(server, objects=objects, changes_per_second=rate)
    workload.populate()
    return server, workload


def names_of(server: APIServer) -> dict[str, str]:
    return {
        body["metadata"]["name"]: body["metadata"]["resourceVersion"]
        for body in server.objects(PODS)
    }


@pytest.mark.parametrize("objects", [10, 300])
def test_workload_creates_given_number_of_objects(objects: int) -> None:
    server, _ = populated(objects)

    assert len(server.objects(PODS) + server.objects(CONFIG_MAPS)) == objects


def test_each_pod_belongs_to_app_of_its_namespace() -> None:
    server, _ = populated(300)
    apps = {
        (body["metadata"]["namespace"], body["metadata"]["name"])
        for body in server.objects(CONFIG_MAPS)
    }
    owners = {
        (body["metadata"]["namespace"], body["metadata"]["labels"]["app"])
        for body in server.objects(PODS)
    }

    assert owners <= apps
    assert {namespace for namespace, _ in apps} == set(NAMESPACES)


@pytest.mark.parametrize(("objects", "nodes"), [(6, 1), (240, 20)])
def test_each_pod_is_on_existing_node(objects: int, nodes: int) -> None:
    server, workload = populated(objects)
    names = {body["metadata"]["name"] for body in server.objects(NODES)}
    for _ in range(50):
        workload.change()

    used = {body["spec"]["nodeName"] for body in server.objects(PODS)}
    assert len(names) == nodes
    assert used <= names


def restarts_of(server: APIServer) -> dict[str, int]:
    return {
        body["metadata"]["name"]: body["status"]["containerStatuses"][0]["restartCount"]
        for body in server.objects(PODS)
    }


def test_initial_pods_differ_in_age_and_few_have_restarted() -> None:
    server, _ = populated(300)
    pods = server.objects(PODS)
    times = {body["metadata"]["creationTimestamp"] for body in pods}
    phases = [body["status"]["phase"] for body in pods]
    restarts = list(restarts_of(server).values())

    assert len(times) > len(pods) / 2
    assert phases.count("Running") > len(pods) * 0.8
    assert restarts.count(0) > len(pods) / 2
    assert 0 < max(restarts) <= 15


def test_restart_counts_never_shrink_and_grow_slowly() -> None:
    server, workload = populated(60)
    before = restarts_of(server)
    for _ in range(300):
        workload.change()

    after = restarts_of(server)
    grown = [after[name] - before[name] for name in before.keys() & after.keys()]
    assert min(grown) >= 0
    assert max(grown) <= 5


def test_changes_create_update_and_delete_pods() -> None:
    server, workload = populated(60)
    before = names_of(server)
    for _ in range(100):
        workload.change()

    after = names_of(server)

    assert before.keys() - after.keys()
    assert after.keys() - before.keys()
    assert any(before[name] != after[name] for name in before.keys() & after.keys())


@pytest.mark.parametrize("objects", [10, 60])
def test_number_of_pods_stays_within_ten_percent(objects: int) -> None:
    server, workload = populated(objects)
    target = len(server.objects(PODS))
    for _ in range(500):
        workload.change()

        assert abs(len(server.objects(PODS)) - target) <= max(1, target // 10)


def test_each_change_increases_resource_version() -> None:
    server, workload = populated(60)
    versions = set()
    for _ in range(50):
        workload.change()
        versions.add(server.resource_version)

    # An app may get the color that it has, which changes nothing.
    assert len(versions) >= 45


def test_workload_ignores_name_conflict() -> None:
    first, second = populated(60), populated(60)
    for _ in range(100):
        first[1].change()

    mine = names_of(first[0]).keys() - names_of(second[0]).keys()
    apps = {
        body["metadata"]["name"]: body["metadata"]["namespace"]
        for body in second[0].objects(CONFIG_MAPS)
    }
    for name in mine:
        namespace = apps[name.rpartition("-")[0]]
        second[0].create(PODS, {"metadata": {"name": name}}, namespace=namespace)

    for _ in range(100):
        second[1].change()

    assert 0 < second[1].changes < first[1].changes


def test_equal_seeds_make_equal_changes() -> None:
    first, second = populated(60), populated(60)
    for _, workload in (first, second):
        for _ in range(100):
            workload.change()

    assert names_of(first[0]) == names_of(second[0])


async def test_changes_are_made_at_given_rate() -> None:
    _, workload = populated(60, rate=50)
    task = asyncio.create_task(workload.run())
    await asyncio.sleep(10)
    task.cancel()

    assert workload.changes == pytest.approx(500, abs=2)


async def test_zero_rate_makes_no_changes() -> None:
    _, workload = populated(60, rate=0)
    task = asyncio.create_task(workload.run())
    await asyncio.sleep(10)
    task.cancel()

    assert workload.changes == 0
