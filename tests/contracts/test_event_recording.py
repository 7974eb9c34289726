"""Events written by `EventRecorder`, on our server and on a real kube-apiserver."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer import Client, EventRecorder, Invalid, SharedInformerFactory
from aioinformer.controller.event_correlator import (
    EventKey,
    EventSeries,
    ObjectReference,
)
from aioinformer.controller.event_recorder import EVENTS
from aioinformer.model.resources import CONFIG_MAPS, NODES
from aioinformer.model.resources import EVENTS as CORE_EVENTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract_servers import ServerUnderTest

    from aioinformer import KubeObject


@asynccontextmanager
async def recording(
    target: ServerUnderTest, controller: str = "example.com/mounter"
) -> AsyncIterator[tuple[Client, EventRecorder]]:
    client = target.client()
    async with client, EventRecorder(client, controller, instance="m-0") as recorder:
        yield client, recorder


async def written(recorder: EventRecorder) -> None:
    while recorder.waiting:
        await asyncio.sleep(0.01)

    assert recorder.dropped == 0


async def only(client: Client, namespace: str) -> KubeObject:
    (found,) = await client.list(EVENTS, namespace=namespace)
    return found


def pod_in(namespace: str) -> dict[str, Any]:
    metadata = {"name": "web-0", "namespace": namespace, "uid": "u-1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


async def test_event_names_kind_of_metadata_only_object(
    target: ServerUnderTest,
) -> None:
    async with recording(target) as (client, recorder):
        body = {"metadata": {"name": "web"}}
        await client.create(CONFIG_MAPS, body, namespace=target.namespace)
        factory = SharedInformerFactory(client, namespace=target.namespace)
        maps = factory.informer("v1", "configmaps", metadata_only=True)
        async with factory:
            await factory.wait_for_cache_sync(timeout=30)
            cached = maps.lister.get(f"{target.namespace}/web")
            assert cached is not None
            recorder.event(cached, "Normal", "Seen", "is there")
            await written(recorder)

        event = await only(client, target.namespace)
        assert event.at("regarding.kind") == "ConfigMap"
        assert event.at("regarding.apiVersion") == "v1"
        assert event.at("regarding.uid") == cached.uid


async def test_event_and_its_series_are_accepted(target: ServerUnderTest) -> None:
    about = pod_in(target.namespace)
    async with recording(target) as (client, recorder):
        recorder.event(
            about, "Warning", "FailedMount", "é" * 2000, action="Mount", related=about
        )
        await written(recorder)

        event = await only(client, target.namespace)
        assert event.at("regarding.name") == "web-0"
        assert event.at("reportingController") == "example.com/mounter"
        assert event.at("series") is None
        first = event.at("eventTime")

        recorder.event(
            about, "Warning", "FailedMount", "?", action="Mount", related=about
        )
        await written(recorder)

        event = await only(client, target.namespace)
        assert event.at("series.count") == 2
        assert event.at("eventTime") == first
        assert event.at("series.lastObservedTime") > first
        assert event.at("note") == "é" * 510 + "..."


async def test_event_is_readable_in_the_core_v1_api(
    target: ServerUnderTest,
) -> None:
    """Find events of an object as `kubectl describe` does."""
    about = pod_in(target.namespace)
    async with recording(target, "mounter") as (client, recorder):
        recorder.event(about, "Normal", "Mounted", "the volume is there")
        await written(recorder)

        selector = "involvedObject.name=web-0,involvedObject.uid=u-1"
        (event,) = await client.list(
            CORE_EVENTS, namespace=target.namespace, field_selector=selector
        )

    assert event.at("message") == "the volume is there"
    assert event.at("reportingComponent") == "mounter"
    assert event.at("type") == "Normal"


@pytest.mark.parametrize(
    ("field", "most", "called"),
    [
        ("reportingInstance", 128, "reportingInstance"),
        ("action", 128, "action"),
        ("reason", 128, "reason"),
        ("note", 1024, "message"),
    ],
)
async def test_texts_are_truncated_to_the_limits_of_the_server_in_bytes(
    target: ServerUnderTest, field: str, most: int, called: str
) -> None:
    regarding = ObjectReference.to(pod_in(target.namespace))
    series = EventSeries(
        EventKey(regarding, "Normal", "A", "B"), "", datetime.now(UTC), 0
    )
    body = series.body("mounter", "m-0")
    async with recording(target) as (client, _):
        with pytest.raises(Invalid, match=f"{called}: .* at most {most} characters"):
            await client.create(
                EVENTS,
                {**body, field: "é" * (most // 2) + "x"},
                namespace=target.namespace,
            )

        await client.create(
            EVENTS, {**body, field: "é" * (most // 2)}, namespace=target.namespace
        )


async def test_event_of_cluster_scoped_object_is_in_default_namespace(
    target: ServerUnderTest,
) -> None:
    name = f"node-of-{target.namespace}"
    about = {"apiVersion": "v1", "kind": NODES.kind, "metadata": {"name": name}}
    async with recording(target) as (client, recorder):
        recorder.event(about, "Normal", "Cordoned", "no more pods")
        await written(recorder)

        found = await client.list(
            EVENTS, namespace="default", field_selector=f"regarding.name={name}"
        )

    assert [it.at("reason") for it in found] == ["Cordoned"]


async def test_event_deleted_on_the_server_is_created_again(
    target: ServerUnderTest,
) -> None:
    about = pod_in(target.namespace)
    async with recording(target) as (client, recorder):
        recorder.event(about, "Normal", "Mounted", "")
        await written(recorder)
        event = await only(client, target.namespace)
        await client.delete(EVENTS, event.name, namespace=target.namespace)

        recorder.event(about, "Normal", "Mounted", "")
        await written(recorder)

        event = await only(client, target.namespace)
        assert event.at("series.count") == 2
