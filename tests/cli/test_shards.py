"""`aioinformer shards status` tells who owns what, also while no replica runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from shards_helpers import Cluster, now

from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.shards import ShardsOptions, status
from aioinformer.model.resources import LEASES
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


@pytest.fixture
def target(server: APIServer) -> ConnectionOptions:
    return ConnectionOptions(server=server.url)


OPTIONS = ShardsOptions(group="sites", namespace="ops")


async def test_status_shows_each_range_with_its_owner(
    server: APIServer, target: ConnectionOptions, capfd: Captured
) -> None:
    cluster = Cluster(server, ranges=4)
    async with cluster.replicas_named("one", "two"):
        await cluster.balanced()
        capfd.readouterr()
        began = now()
        assert await status(OPTIONS, target) == 0
        assert now() - began < 5
        out, err = capfd.readouterr()

    lines = [it.split() for it in out.splitlines() if it]
    assert (lines[0], err) == (
        ["sites:", "4", "ranges", "by", "uid,", "all", "owned"],
        "",
    )
    assert lines[1:4] == [
        ["MEMBER", "RANGES", "STATE", "EPOCH"],
        ["one", "2", "live", "1"],
        ["two", "2", "live", "1"],
    ]
    assert lines[4] == ["RANGE", "OWNER", "AGE", "MOVES"]
    assert [it[0] for it in lines[5:]] == ["0", "1", "2", "3"]
    assert sorted(it[1] for it in lines[5:]) == ["one", "one", "two", "two"]
    assert {it[3] for it in lines[5:]} <= {"1", "2"}


async def found(
    target: ConnectionOptions, capfd: Captured
) -> tuple[int, dict[str, Any], str]:
    """Return the exit status, the document, and the errors."""
    capfd.readouterr()
    result = await status(
        ShardsOptions(group="sites", namespace="ops", as_json=True), target
    )
    out, err = capfd.readouterr()
    (document,) = json.loads(out)
    return result, document, err


async def test_status_finds_ranges_of_a_dead_replica(
    server: APIServer, target: ConnectionOptions, capfd: Captured
) -> None:
    cluster = Cluster(server, ranges=4)
    async with cluster.replica("one") as one:
        await cluster.settled()
        cluster.kill(one)
        began = now()
        result, document, err = await found(target, capfd)
        assert 18 < now() - began < 22

    assert (result, document["unowned"]) == (1, [0, 1, 2, 3])
    assert err == "aioinformer: waiting for renewals of one.\n"
    assert [(it["identity"], it["state"]) for it in document["members"]] == [
        ("one", "silent")
    ]


async def test_status_after_the_end_of_all_replicas_fails_at_once(
    server: APIServer, target: ConnectionOptions, capfd: Captured
) -> None:
    cluster = Cluster(server, ranges=4)
    async with cluster.replica("one"):
        await cluster.settled()

    began = now()
    result, document, _ = await found(target, capfd)
    assert (result, document["unowned"], document["members"]) == (1, [0, 1, 2, 3], [])
    assert [it["owner"] for it in document["ranges"]] == [None] * 4
    assert now() == began


async def test_status_ignores_leases_of_another_number_of_ranges(
    server: APIServer, target: ConnectionOptions, capfd: Captured
) -> None:
    cluster = Cluster(server, ranges=4)
    async with cluster.replica("one"):
        await cluster.settled()
        (fence,) = (
            it for it in cluster.leases() if it["metadata"]["name"] == "sites-range-03"
        )
        metadata = fence["metadata"]
        metadata = {
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
        }
        metadata["annotations"]["aioinformer.dev/shard-ranges"] = "8"
        metadata["name"] = "sites-range-07"
        server.create(LEASES, {"metadata": metadata}, namespace="ops")
        result, document, _ = await found(target, capfd)

    assert (result, len(document["ranges"])) == (0, 4)


async def test_status_without_a_group_names_the_namespace(
    target: ConnectionOptions,
) -> None:
    with pytest.raises(CommandError, match="no shard group named 'sites' in namespace"):
        await status(OPTIONS, target)

    with pytest.raises(CommandError, match="no shard group in namespace default"):
        await status(ShardsOptions(), target)


async def test_status_shows_all_groups_of_a_namespace(
    server: APIServer, target: ConnectionOptions, capfd: Captured
) -> None:
    cluster = Cluster(server, ranges=2)
    async with cluster.replica("one"):
        await cluster.settled()

    cluster.options["name"] = "pods"
    async with cluster.replica("one"):
        await cluster.settled()

    assert await status(ShardsOptions(namespace="ops"), target) == 1
    lines = capfd.readouterr().out.splitlines()
    assert [it for it in lines if "UNOWNED" in it] == [
        "pods: 2 ranges by uid, 2 UNOWNED, no replica is running",
        "sites: 2 ranges by uid, 2 UNOWNED, no replica is running",
    ]
