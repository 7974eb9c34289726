"""Informers without managed fields: the server does not send them, or they are removed."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    MAPS_PATH,
    WIDGETS,
    WIDGETS_GROUP,
    a_session,
    change,
    make,
    named,
    widget,
)
from informer_helpers import running

from aioinformer import (
    Added,
    Client,
    KubeObject,
    SharedInformer,
    SharedInformerFactory,
    strip_managed_fields,
)
from aioinformer.client import ListWatch
from aioinformer.informer import DynamicInformerFactory
from aioinformer.model import Resource, drop, transform_dict
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.testing import APIServer
from aioinformer.watch import ListOptions, ManagedFieldsOptOut, Selectors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from contract_servers import ServerUnderTest

    from aioinformer.client.response import Response
    from aioinformer.model.transforms import Transform

GATE = "ManagedFieldsOptOut"
DROP = "application/json;drop=metadata.managedFields,application/json"


class SeenClient(Client):
    """A client that records the `Accept` headers of lists and watches of ConfigMaps."""

    accepts: list[str]

    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        accept: str = "",
        **options: Any,
    ) -> AbstractAsyncContextManager[Response]:
        if path.endswith("/configmaps"):
            self.accepts.append(accept)

        return super().stream(method, path, params, accept=accept, **options)


def seen_client(server: APIServer) -> SeenClient:
    client = SeenClient.from_url(server.url)
    client.accepts = []
    return client


@asynccontextmanager
async def a_server(*, gate: bool = True) -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True, feature_gates={GATE: gate}) as server:
        async with a_session(server) as http:
            await make(http, MAPS_PATH, named("a", data={"x": "1"}))

        yield server


def metadata_of(obj: KubeObject | None) -> dict[str, Any]:
    assert obj is not None
    found: dict[str, Any] = obj.to_dict()["metadata"]
    return found


@pytest.mark.parametrize("gate", [False, True], ids=["without-gate", "with-gate"])
@pytest.mark.parametrize("resource", [CONFIG_MAPS, WIDGETS], ids=["typed", "custom"])
async def test_informer_has_no_managed_fields_whatever_the_server_sends(
    target: ServerUnderTest, resource: Resource, gate: bool
) -> None:
    if target.ours is not None:
        target.ours.feature_gates = {GATE: gate}

    typed = resource is CONFIG_MAPS
    path = target.path(resource.plural, "api/v1" if typed else WIDGETS_GROUP)
    async with (
        target.session() as http,
        SharedInformerFactory(target.client()) as factory,
    ):
        await make(
            http,
            path,
            named("a", data={"x": "1"}) if typed else widget("a", spec={"x": 1}),
        )
        informers = [
            factory.informer(resource, namespace=target.namespace, **options)
            for options in (
                {"name": "full"},
                {"name": "thin", "transform": strip_managed_fields},
                {
                    "name": "metadata",
                    "transform": strip_managed_fields,
                    "metadata_only": True,
                },
            )
        ]
        await factory.wait_for_cache_sync(timeout=30)
        await change(http, f"{path}/a", {"metadata": {"labels": {"changed": "true"}}})
        key = f"{target.namespace}/a"
        found = []
        for informer in informers:
            await informer.wait_until(
                lambda it: bool(it and it.labels.get("changed")), key, timeout=30
            )
            found.append(metadata_of(informer.lister.get(key)))

        full, thin, metadata = found
        assert full.pop("managedFields")
        assert thin == metadata == full


async def test_update_with_cached_object_keeps_the_stored_managed_fields(
    target: ServerUnderTest,
) -> None:
    path, key = target.path("configmaps"), f"{target.namespace}/a"
    async with (
        target.session() as http,
        target.client() as client,
        SharedInformerFactory(client) as factory,
    ):
        made = await make(http, path, named("a", data={"x": "1"}))
        maps = factory.informer(
            CONFIG_MAPS, namespace=target.namespace, transform=strip_managed_fields
        )
        cached = await maps.wait_until(lambda it: it is not None, key, timeout=30)
        assert cached is not None
        assert "managedFields" not in metadata_of(cached)

        body = cached.to_dict() | {"data": {"x": "1", "y": "2"}}
        async with http.put(f"{path}/a", json=body) as answer:
            assert answer.status == 200

        before = made["metadata"]["managedFields"]
        stored = await client.get(CONFIG_MAPS, "a", namespace=target.namespace)
        after = metadata_of(stored)["managedFields"]
        managers = [it["manager"] for it in before]
        assert [it["manager"] for it in after] == managers
        assert '"f:y"' not in json.dumps(before)
        assert '"f:y"' in json.dumps(after)


@pytest.mark.parametrize(
    ("transform", "accept"),
    [
        (strip_managed_fields, DROP),
        (drop("data", "metadata.managedFields"), DROP),
        (drop("metadata.managedFields.0"), ""),
        (transform_dict(lambda content: content), ""),
        (None, ""),
    ],
)
@pytest.mark.parametrize("by_name", [False, True])
async def test_transform_decides_what_is_requested(
    transform: Transform | None, accept: str, by_name: bool
) -> None:
    async with a_server() as server:
        client = seen_client(server)
        factory_class = DynamicInformerFactory if by_name else SharedInformerFactory
        async with factory_class(client) as factory:
            maps = factory.informer(
                "v1", "configmap" + "s" * (not by_name), transform=transform
            )
            await maps.wait_synced(timeout=30)
            await server.restart()
            server.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, namespace="default")
            await maps.wait_until(
                lambda it: it is not None and "2" in it.raw.decode(), "default/a", 30
            )

        assert len(client.accepts) >= 2
        assert set(client.accepts) == {accept}


async def test_metadata_only_informer_requests_metadata_without_managed_fields() -> (
    None
):
    async with a_server() as server:
        client = seen_client(server)
        async with SharedInformerFactory(client) as factory:
            factory.informer(
                CONFIG_MAPS, metadata_only=True, transform=strip_managed_fields
            )
            await factory.wait_for_cache_sync(timeout=30)

        listed, *watched = client.accepts
        first, second, last = listed.split(",")
        assert first == f"{second};drop=metadata.managedFields"
        assert "as=PartialObjectMetadataList" in second
        assert last == "application/json"
        assert watched == [listed.replace("MetadataList", "Metadata")]


async def test_transform_set_before_the_run_decides() -> None:
    async with a_server() as server:
        client = seen_client(server)
        async with client:
            for first, last in (
                (strip_managed_fields, None),
                (None, strip_managed_fields),
            ):
                client.accepts.clear()
                maps = SharedInformer(ListWatch(client, CONFIG_MAPS), transform=first)
                maps.set_transform(last)
                async with running(maps.run()):
                    await maps.wait_synced(timeout=30)
                    found = metadata_of(maps.lister.get("default/a"))

                assert ("managedFields" in found) == (last is None)
                assert set(client.accepts) == {DROP if last else ""}


async def test_cached_informer_requests_no_managed_fields(tmp_path: Path) -> None:
    async with a_server() as server:
        client = seen_client(server)
        async with SharedInformerFactory(client, cache_dir=tmp_path) as factory:
            maps = factory.informer(CONFIG_MAPS, transform=strip_managed_fields)
            await maps.wait_synced(timeout=30)
            assert "managedFields" not in metadata_of(maps.lister.get("default/a"))

        assert set(client.accepts) == {DROP}


async def test_changed_selection_still_requests_no_managed_fields() -> None:
    async with a_server() as server:
        client = seen_client(server)
        async with SharedInformerFactory(client) as factory:
            maps = factory.informer(CONFIG_MAPS, transform=strip_managed_fields)
            await maps.wait_synced(timeout=30)
            maps.set_selection(field_selector="metadata.name=a")
            await maps.wait_selection(timeout=30)

        assert len(client.accepts) >= 3
        assert set(client.accepts) == {DROP}


async def test_objects_are_equal_byte_for_byte_whoever_removed_managed_fields() -> None:
    bodies = []
    async with a_server(gate=False) as server:
        for gate in (False, True):
            server.feature_gates = {GATE: gate}
            async with SharedInformerFactory(server.client()) as factory:
                maps = factory.informer(CONFIG_MAPS, transform=strip_managed_fields)
                await maps.wait_synced(timeout=30)
                bodies.append([it.raw for it in maps.lister.list()])

    assert bodies[0] == bodies[1] != []


async def test_servers_that_differ_cause_no_events() -> None:
    async with a_server() as server, SharedInformerFactory(server.client()) as factory:
        maps = factory.informer(CONFIG_MAPS, transform=strip_managed_fields)
        events: list[Any] = []
        maps.add_event_handler(on_event=lambda event: events.append(type(event)))
        await maps.wait_synced(timeout=30)
        for gate in (False, True, False):
            server.feature_gates = {GATE: gate}
            await server.stop()
            server.compact()
            await server.start()
            made = server.create(CONFIG_MAPS, named(f"gate-{len(events)}"))
            key = f"default/{made['metadata']['name']}"
            await maps.wait_until(lambda it: it is not None, key, timeout=200)

        assert events == [Added] * 4


async def test_list_watch_keeps_managed_fields_unless_asked() -> None:
    async with a_server() as server, server.client() as client:
        source = ListWatch(client, CONFIG_MAPS)
        thin = source.without_managed_fields()
        other = thin.with_selectors(Selectors(label_selector="!a"))

        assert isinstance(source, ManagedFieldsOptOut)
        for it, expected in ((source, True), (thin, False), (other, False)):
            async with it.list(ListOptions()) as page:
                (found,) = [obj async for some in page for obj in some]

            assert ("managedFields" in metadata_of(found)) == expected
