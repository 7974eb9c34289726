"""`SharedInformer.resource` and `selects`, and `Registration.wait_ended`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controller_helpers import informed, informer_of, named
from fake_source import FakeSource
from informer_helpers import settle

from aioinformer import Client, KubeObject, ListWatch
from aioinformer.model.resources import NODES, PODS
from aioinformer.testing import FakeListerWatcher

WEB = KubeObject.of(
    {
        **named("web", labels={"app": "web"}),
        "spec": {"nodeName": "node-1", "hostNetwork": True, "priority": 7},
    }
)


def pods(**options: Any) -> ListWatch:
    return ListWatch(Client.from_url("http://example.com"), PODS, **options)


@pytest.mark.parametrize(
    ("options", "selected"),
    [
        ({}, True),
        ({"namespace": "default"}, True),
        ({"namespace": "shop"}, False),
        ({"label_selector": "app in (web)"}, True),
        ({"label_selector": "app!=web"}, False),
        ({"field_selector": "spec.nodeName=node-1"}, True),
        ({"field_selector": "spec.nodeName=node-2"}, False),
        ({"field_selector": "metadata.name!=web"}, False),
        ({"field_selector": "spec.hostNetwork=true,spec.priority=7"}, True),
        ({"field_selector": "status.phase="}, True),
        ({"label_selector": "app=web", "field_selector": "metadata.name=db"}, False),
    ],
    ids=str,
)
def test_selects_returns_whether_an_object_matches(
    options: dict[str, str], selected: bool
) -> None:
    assert pods(**options).selects(WEB) is selected
    assert informer_of(pods(**options)).selects(WEB) is selected


def test_informer_of_several_namespaces_selects_objects_in_any_of_them() -> None:
    sources = {name: pods(namespace=name) for name in ("shop", "default")}
    both = informer_of(sources)  # type: ignore[arg-type]
    del sources["default"]

    assert both.resource == PODS
    assert both.selects(WEB)
    assert not informer_of(sources).selects(WEB)  # type: ignore[arg-type]


def test_informer_of_an_unknown_source_selects_everything() -> None:
    informer = informer_of(FakeSource())

    assert informer.resource is None
    assert informer.selects(WEB)


def test_informer_of_a_fake_source_selects_everything() -> None:
    informer = informer_of(FakeListerWatcher(resource=NODES))

    assert informer.resource == NODES
    assert informer.selects(KubeObject.of({"metadata": {"name": "one"}}))


async def test_wait_ended_returns_when_the_handler_is_removed() -> None:
    informer = informer_of(FakeListerWatcher())
    async with informed(informer):
        registration = informer.add_event_handler(on_add=print)
        waiting = asyncio.create_task(registration.wait_ended())
        await settle()
        assert not waiting.done()

        registration.remove()
        await waiting


async def test_wait_ended_returns_when_the_informer_ends() -> None:
    informer = informer_of(FakeListerWatcher())
    async with informed(informer):
        registration = informer.add_event_handler(on_add=print)
        waiting = asyncio.create_task(registration.wait_ended())
        await settle()
        assert not waiting.done()

    await waiting
