"""Recovery from failures that permanently end the watches of other libraries.

Each test has a lasting failure, changes meanwhile, and the end of the failure. Then the
store equals the server, and the handlers' events explain it.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fault_runs import attempts_of, running_pods
from informer_helpers import running, text_of
from informers import plain
from ledger import Ledger
from pipeline_helpers import View

from aioinformer.client import Client, ListWatch
from aioinformer.errors import Forbidden, NotFound, Unauthorized
from aioinformer.informer import ReflectorOptions, SharedInformer
from aioinformer.model.resource import Resource
from aioinformer.model.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
TOKEN, OTHER_TOKEN = "of-today", "of-tomorrow"
PATIENCE_SECONDS = 900.0

WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "pages": {"page_size": 3},
    "stream": {"streaming_list": True},
}

TEN_MINUTES = 300
"""Number of writes, 2 s apart."""


# ---------------------------------------------------------------- permissions


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_informer_survives_a_token_refused_for_long(way: dict[str, Any]) -> None:
    async with APIServer(token=TOKEN) as server:
        ledger = Ledger(server, random.Random(1))
        async with running_pods(server, ledger, watch_seconds=60, **way) as run:
            await run.informer.wait_synced(timeout=10)
            server.token = OTHER_TOKEN
            await ledger.keep_writing(TEN_MINUTES, seconds=2)
            refused = run.informer.status
            assert len(run.informer.lister.list()) > 0, "the cache stays readable"

            server.token = TOKEN
            await run.settled()

    assert isinstance(refused.last_error, Unauthorized)
    assert refused.failures > 5
    assert run.informer.status.last_error is None
    assert run.verdict() == []
    assert len(attempts_of(server)) < 40


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_informer_survives_revoked_permissions(
    way: dict[str, Any],
) -> None:
    async with APIServer(token="admin", users={TOKEN: "alice"}) as server:
        ledger = Ledger(server, random.Random(1))
        allow(server)
        async with running_pods(
            server, ledger, token=TOKEN, watch_seconds=60, **way
        ) as run:
            await run.informer.wait_synced(timeout=10)
            server.delete(CLUSTER_ROLE_BINDINGS, "pods-to-alice")
            await ledger.keep_writing(TEN_MINUTES, seconds=2)
            refused = run.informer.status
            # Too old to resume from.
            server.compact()
            allow_again(server)
            await run.settled()

    assert isinstance(refused.last_error, Forbidden)
    assert run.informer.status.last_error is None
    assert run.verdict() == []


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_informer_syncs_once_permissions_are_granted(way: dict[str, Any]) -> None:
    async with APIServer(token="admin", users={TOKEN: "alice"}) as server:
        ledger = Ledger(server, random.Random(1))
        async with running_pods(server, ledger, token=TOKEN, **way) as run:
            await ledger.keep_writing(TEN_MINUTES, seconds=2)
            assert not run.informer.has_synced

            allow(server)
            await run.settled()

    assert run.verdict() == []


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_rotated_token_is_read_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    async with APIServer(token=TOKEN) as server:
        ledger = Ledger(server, random.Random(1))
        async with (
            Client.from_url(server.url, token_file=file) as client,
            live(client, PODS, watch_seconds=1) as (informer, view),
        ):
            await informer.wait_synced(timeout=20)
            file.write_text(OTHER_TOKEN)
            server.token = OTHER_TOKEN
            watches = len(server.requests)
            await server.until(lambda: len(server.requests) > watches)
            ledger.write()
            await informer.wait_for_version(server.resource_version, timeout=20)
            await asyncio.sleep(0.05)

            assert informer.status.restarts == 0, "no attempt failed"
            assert_same(server, PODS, informer, view)


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_token_of_a_rewritten_kubeconfig_is_read_after_a_401(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config"
    async with APIServer(token=TOKEN) as server:

        def write(token: str) -> None:
            user = {"name": "me", "user": {"token": token}}
            cluster = {"name": "here", "cluster": {"server": server.url}}
            context = {"name": "c", "context": {"cluster": "here", "user": "me"}}
            lists = {"users": [user], "clusters": [cluster], "contexts": [context]}
            file.write_text(json.dumps(lists | {"current-context": "c"}))

        write(TOKEN)
        async with Client.from_kubeconfig(file) as client:
            assert await client.list(PODS) == []
            server.token = OTHER_TOKEN
            with pytest.raises(Unauthorized):
                await client.list(PODS)

            write(OTHER_TOKEN)
            assert await client.list(PODS) == []


# ---------------------------------------------------------------- changed histories


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_informer_trusts_a_server_that_lost_everything(
    way: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with APIServer() as server:
        empty = server.snapshot()
        ledger = Ledger(server, random.Random(1), pods=50)
        async with server.client() as client, live(client, PODS, **way) as (pods, view):
            await ledger.keep_writing(40)
            await server.restart(snapshot=empty)
            server.create(PODS, plain("new"))
            await asyncio.sleep(120)
            await pods.wait_for_version(server.resource_version, timeout=60)
            await asyncio.sleep(1)

            assert pods.status.history_resets == 1
            assert [obj.name for obj in pods.lister.list()] == ["new"]
            assert_same(server, PODS, pods, view)

    warnings = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    (changes,) = [text for text in warnings if "changed the store" in text]
    assert re.search(
        r"list after a history reset changed the store "
        r"\(added=1 updated=0 deleted=\d+ objects=1\)",
        changes,
    )


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_informer_trusts_a_server_restored_from_a_backup(
    way: dict[str, Any],
) -> None:
    async with APIServer() as server:
        ledger = Ledger(server, random.Random(1))
        async with server.client() as client, live(client, PODS, **way) as (pods, view):
            await ledger.keep_writing(40)
            backup = server.snapshot()
            await ledger.keep_writing(40)
            await server.restart(snapshot=backup)
            # Other states, with versions that were used before.
            for number in range(10):
                server.create(PODS, plain(f"other-{number}"))

            await asyncio.sleep(120)
            await pods.wait_for_version(server.resource_version, timeout=60)
            await asyncio.sleep(1)

            assert pods.status.history_resets == 1
            assert_same(server, PODS, pods, view)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_informer_trusts_another_server_with_the_same_objects(
    way: dict[str, Any],
) -> None:
    async with APIServer() as server:
        ledger = Ledger(server, random.Random(1))
        async with server.client() as client, live(client, PODS, **way) as (pods, view):
            await ledger.keep_writing(80)
            await server.restart(new_history=True)
            await asyncio.sleep(120)
            await pods.wait_for_version(server.resource_version, timeout=60)
            await asyncio.sleep(1)

            assert pods.status.history_resets == 1
            assert_same(server, PODS, pods, view)


@pytest.mark.parametrize("writes", [1, 5, 9], ids=["older", "same", "newer"])
async def test_informer_relists_at_once_from_a_server_replaced_in_an_outage(
    writes: int,
) -> None:
    async with APIServer() as server:
        empty = server.snapshot()
        for number in range(5):
            server.create(PODS, plain(f"old-{number}"))

        async with server.client() as client, live(client, PODS) as (pods, view):
            await pods.wait_synced(timeout=10)
            await server.stop()
            await asyncio.sleep(10)
            await server.restart(snapshot=empty)
            for number in range(writes):
                server.create(PODS, plain(f"new-{number}"))

            # To connect, and to relist.
            await asyncio.sleep(1.5 + 1 + 0.5)

            assert pods.status.history_resets == 1
            assert_same(server, PODS, pods, view)


# ---------------------------------------------------------------- removed resources


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_deleted_crd_removes_its_objects_until_it_returns(
    way: dict[str, Any],
) -> None:
    async with APIServer(resources=[WIDGETS]) as server, server.client() as client:
        make_widgets(server, "one", "two")
        async with live(client, WIDGETS, **way) as (widgets, view):
            story: list[str] = []
            widgets.add_event_handler(
                on_event=lambda event: story.append(text_of(event))
            )
            await widgets.wait_synced(timeout=10)
            await asyncio.sleep(1)
            story.clear()
            # It is deleted while the watch is down; otherwise its objects are deleted
            # by events first.
            await server.stop()
            server.unregister(WIDGETS)
            await server.start()
            await asyncio.sleep(30)
            assert len(widgets.lister.list()) == 2, (
                "a single failed list removes nothing"
            )
            assert not_served(widgets)
            assert isinstance(widgets.status.last_error, NotFound)

            await asyncio.sleep(150)
            assert phase_of(widgets) == "absent"
            assert widgets.lister.list() == []
            assert story == ["missed one", "missed two"]

            server.register(WIDGETS)
            make_widgets(server, "two", "three")
            await widgets.wait_for_version(server.resource_version, timeout=120)
            await asyncio.sleep(1)

            assert sorted(story[2:]) == ["added three", "added two"]
            assert not not_served(widgets)
            assert phase_of(widgets) == "watching"
            assert_same(server, WIDGETS, widgets, view)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_informer_follows_a_crd_that_is_replaced_at_once(
    way: dict[str, Any],
) -> None:
    async with APIServer(resources=[WIDGETS]) as server, server.client() as client:
        make_widgets(server, "one", "two")
        async with live(client, WIDGETS, **way) as (widgets, view):
            await widgets.wait_synced(timeout=10)
            server.unregister(WIDGETS)
            server.register(WIDGETS)
            make_widgets(server, "two", "three")
            await widgets.wait_for_version(server.resource_version, timeout=60)
            await asyncio.sleep(1)

            assert_same(server, WIDGETS, widgets, view)


async def test_informer_waits_for_a_crd_created_later() -> None:
    async with (
        APIServer() as server,
        server.client() as client,
        live(client, WIDGETS) as (widgets, view),
    ):
        await asyncio.sleep(600)
        assert not widgets.has_synced

        server.register(WIDGETS)
        make_widgets(server, "one")
        await widgets.wait_synced(timeout=120, fail_fast=False)
        await widgets.wait_for_version(server.resource_version, timeout=60)
        await asyncio.sleep(1)

        assert_same(server, WIDGETS, widgets, view)


# ---------------------------------------------------------------- helpers


def allow(server: APIServer) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    server.create(CLUSTER_ROLES, {"metadata": {"name": "pods"}, "rules": [rule]})
    allow_again(server)


def allow_again(server: APIServer) -> None:
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "pods-to-alice"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "pods"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "alice"}],
    }
    server.create(CLUSTER_ROLE_BINDINGS, binding)


def make_widgets(server: APIServer, *names: str) -> None:
    for name in names:
        server.create(WIDGETS, {"metadata": {"name": name}, "spec": {"size": 1}})


@asynccontextmanager
async def live(
    client: Client, resource: Resource, **options: Any
) -> AsyncIterator[tuple[SharedInformer, View]]:
    """Run an informer, and a copy built from its handler's events."""
    informer = SharedInformer(
        ListWatch(client, resource),
        options=ReflectorOptions(**options),
        rng=random.Random(1),
    )
    view = View()
    informer.add_event_handler(on_event=view)
    async with running(informer.run()):
        yield informer, view


def not_served(informer: SharedInformer) -> bool:
    return informer.status.not_served


def phase_of(informer: SharedInformer) -> str:
    return informer.status.phase


def assert_same(
    server: APIServer, resource: Resource, informer: SharedInformer, view: View
) -> None:
    """Assert that the store equals the server, and that the events lead there."""
    truth = {
        f"{body['metadata']['namespace']}/{body['metadata']['name']}": body
        for body in server.objects(resource)
    }
    stored = {obj.key: obj for obj in informer.store.list()}
    assert {key: obj.to_dict() for key, obj in stored.items()} == truth
    assert view.broken == []
    assert view.objects == {k: obj.resource_version for k, obj in stored.items()}
