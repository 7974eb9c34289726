"""`PendingWrites`: recorded writes, and when they are shown."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from controller_helpers import Lagging, informed, informer_of, named
from informer_helpers import settle

from aioinformer import HistoryReset, SharedInformer
from aioinformer.client.verbs import Request
from aioinformer.controller.pending_writes import ObjectPath, PendingWrites
from aioinformer.model import ShardSelector
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import CONFIG_MAPS, NODES, PODS
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POD = "/api/v1/namespaces/default/pods/web"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/namespaces/shop/pods", ("", "pods", "shop/")),
        ("/api/v1/namespaces/shop/pods/web", ("", "pods", "shop/web")),
        ("/api/v1/namespaces/shop/pods/web/status", ("", "pods", "shop/web")),
        (
            "/apis/apps/v1/namespaces/shop/deployments/a",
            ("apps", "deployments", "shop/a"),
        ),
        ("/api/v1/nodes/one", ("", "nodes", "one")),
        ("/api/v1/nodes", ("", "nodes", "")),
        ("/api/v1/namespaces", ("", "namespaces", "")),
        ("/api/v1/namespaces/shop", ("", "namespaces", "shop")),
        ("/api/v1/namespaces/shop/finalize", ("", "namespaces", "shop")),
        ("/apis/rbac/v1/clusterroles/a%3Ab", ("rbac", "clusterroles", "a:b")),
    ],
)
def test_object_path_is_parsed(path: str, target: tuple[str, str, str]) -> None:
    assert ObjectPath.of(path) == target


def request(method: str, path: str = POD, **params: str) -> Request:
    return Request(method, path, params)


def answer(version: int = 9, **more: Any) -> KubeObject:
    body = {**named("web", uid="u1", resourceVersion=str(version)), **more}
    return KubeObject.of({"apiVersion": "v1", "kind": "Pod", **body})


def ended(uid: str = "u1") -> KubeObject:
    return KubeObject.of({"kind": "Status", "details": {"name": "web", "uid": uid}})


def writes_of(*sources: Any) -> PendingWrites:
    return PendingWrites(informer_of(it) for it in sources or (FakeListerWatcher(),))


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        pytest.param("POST", POD.removesuffix("/web"), answer(), id="create"),
        pytest.param("PUT", POD, answer(), id="update"),
        pytest.param("PATCH", POD + "/status", answer(), id="patch-status"),
        pytest.param("DELETE", POD, ended(), id="delete"),
        pytest.param("DELETE", POD, answer(), id="delete-later"),
    ],
)
def test_write_is_pending(method: str, path: str, text: KubeObject) -> None:
    writes = writes_of()
    writes.add(request(method, path), text)

    assert len(writes) == 1


@pytest.mark.parametrize(
    ("write", "text"),
    [
        pytest.param(request("PUT", dryRun="All"), answer(), id="dry-run"),
        pytest.param(
            request("PUT", "/api/v1/namespaces/default/secrets/web"),
            answer(),
            id="other-kind",
        ),
        pytest.param(request("PUT"), answer(metadata={"name": "web"}), id="no-version"),
        pytest.param(request("POST", POD + "/eviction"), ended(), id="eviction"),
    ],
)
def test_dry_runs_and_other_resources_are_ignored(
    write: Request, text: KubeObject
) -> None:
    writes = writes_of(FakeListerWatcher(), FakeListerWatcher(resource=NODES))
    writes.add(write, text)

    assert len(writes) == 0


async def test_write_outside_of_selection_is_ignored() -> None:
    async with APIServer() as server:
        server.create(PODS, named("ours", labels={"app": "a"}))
        client = server.client()
        cases: list[dict[str, Any]] = [
            {"namespace": "shop"},
            {"label_selector": "app=a"},
            {"field_selector": "spec.nodeName=x"},
            {"shards": ShardSelector(())},
        ]
        for options in cases:
            writes = writes_of(server.list_watch(PODS, **options))
            writes.add(request("PUT"), answer())
            assert len(writes) == 0, options

        del client


async def test_write_that_leaves_selection_is_pending() -> None:
    source = FakeListerWatcher(named("web"))
    source.selects = lambda obj: False  # type: ignore[method-assign]
    pods = informer_of(source)
    async with informed(pods):
        writes = PendingWrites([pods])
        writes.add(request("PUT"), answer())

        assert len(writes) == 1


# ---------------------------------------------------------------- shown


class Cluster:
    """Server, and informers that are 2 s behind."""

    def __init__(self, server: APIServer, **selection: Any) -> None:
        self.server = server
        self.pods = informer_of(Lagging(server.list_watch(PODS, **selection), 2.0))
        self.writes = PendingWrites([self.pods])

    async def seconds_until_shown(self) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(100):
            await self.writes.applied()

        assert len(self.writes) == 0
        return loop.time() - began

    def wrote(self, method: str, body: dict[str, Any], path: str = POD) -> None:
        self.writes.add(request(method, path), KubeObject.of(body))


@asynccontextmanager
async def cluster(**selection: Any) -> AsyncIterator[Cluster]:
    async with APIServer() as server:
        it = Cluster(server, **selection)
        async with informed(it.pods):
            yield it


async def test_write_is_shown_when_store_reaches_its_version() -> None:
    async with cluster() as it:
        it.wrote("POST", it.server.create(PODS, named("web")))
        assert it.pods.store.get_by_key("default/web") is None

        assert await it.seconds_until_shown() == pytest.approx(2, abs=0.1)
        assert it.pods.store.get_by_key("default/web") is not None
        assert await it.seconds_until_shown() == 0


async def test_deletion_is_shown_when_object_is_removed() -> None:
    async with cluster() as it:
        uid = it.server.create(PODS, named("web"))["metadata"]["uid"]
        await it.pods.wait_for_version(it.server.resource_version)
        it.server.delete(PODS, "web")
        it.wrote("DELETE", {"kind": "Status", "details": {"uid": uid}})

        assert await it.seconds_until_shown() == pytest.approx(2, abs=0.1)
        assert it.pods.store.get_by_key("default/web") is None


async def test_deletion_is_shown_when_object_is_recreated() -> None:
    async with cluster() as it:
        uid = it.server.create(PODS, named("web"))["metadata"]["uid"]
        await it.pods.wait_for_version(it.server.resource_version)
        it.server.delete(PODS, "web")
        it.server.create(PODS, named("web"))
        it.wrote("DELETE", {"kind": "Status", "details": {"uid": uid}})

        assert await it.seconds_until_shown() < 5
        shown = it.pods.store.get_by_key("default/web")
        assert shown is None or shown.uid != uid


async def test_deletion_with_finalizer_is_shown_by_deletion_timestamp() -> None:
    async with cluster() as it:
        it.server.create(PODS, named("web", finalizers=["a.b/c"]))
        await it.pods.wait_for_version(it.server.resource_version)
        it.server.delete(PODS, "web")
        it.wrote("DELETE", it.server.get(PODS, "web"))

        assert await it.seconds_until_shown() == pytest.approx(2, abs=0.1)
        shown = it.pods.store.get_by_key("default/web")
        assert shown is not None
        assert shown.deletion_timestamp is not None


@pytest.mark.parametrize("grace", [None, 0])
async def test_removal_of_last_finalizer_is_shown_by_deletion(
    grace: int | None,
) -> None:
    async with cluster() as it:
        it.server.create(PODS, named("web", finalizers=["a.b/c"]))
        it.server.delete(PODS, "web")
        await it.pods.wait_for_version(it.server.resource_version)
        # Servers return the former object, with its former version.
        was = it.server.get(PODS, "web")
        it.server.patch(PODS, "web", {"metadata": {"finalizers": None}})
        assert it.server.objects(PODS) == []
        was["metadata"] |= {"finalizers": [], "deletionGracePeriodSeconds": grace}
        it.wrote("PATCH", was)

        assert await it.seconds_until_shown() == pytest.approx(2, abs=0.1)
        assert it.pods.store.get_by_key("default/web") is None


async def test_pod_in_grace_period_is_not_deleted() -> None:
    async with cluster() as it:
        it.server.create(PODS, named("web", finalizers=["a.b/c"]))
        it.server.delete(PODS, "web")
        await it.pods.wait_for_version(it.server.resource_version)
        ending = it.server.get(PODS, "web")
        ending["metadata"] |= {"finalizers": [], "deletionGracePeriodSeconds": 30}
        it.wrote("PATCH", ending)

        assert await it.seconds_until_shown() == 0


async def test_creation_and_deletion_are_waited_for() -> None:
    async with cluster() as it:
        made = it.server.create(PODS, named("web"))
        it.wrote("POST", made, POD.removesuffix("/web"))
        it.server.delete(PODS, "web")
        uid = made["metadata"]["uid"]
        it.wrote("DELETE", {"kind": "Status", "details": {"uid": uid}})

        await it.seconds_until_shown()
        seen: list[str] = []
        it.pods.add_event_handler(lambda obj: seen.append(obj.name))
        await asyncio.sleep(10)
        assert seen == []


async def test_writes_outside_of_selection_are_not_waited_for() -> None:
    async with cluster(label_selector="app=a") as it:
        made = it.server.create(PODS, named("web", labels={"app": "a"}))
        it.wrote("POST", made, POD.removesuffix("/web"))
        for label in "bc":
            body = {"metadata": {"labels": {"app": label}}}
            it.wrote("PATCH", it.server.patch(PODS, "web", body))

        # The informer gets the deletion, and no later events.
        assert await it.seconds_until_shown() < 5
        assert it.pods.store.get_by_key("default/web") is None


async def test_write_that_reenters_selection_is_waited_for() -> None:
    async with cluster(label_selector="app=a") as it:
        it.server.create(PODS, named("web", labels={"app": "a"}))
        for label in "bca":
            body = {"metadata": {"labels": {"app": label}}}
            it.wrote("PATCH", it.server.patch(PODS, "web", body))

        await it.seconds_until_shown()
        shown = it.pods.store.get_by_key("default/web")
        assert shown is not None
        assert shown.resource_version == it.server.resource_version


async def test_write_during_wait_is_waited_for() -> None:
    async with cluster() as it:
        it.wrote("POST", it.server.create(PODS, named("web")))
        waiting = asyncio.create_task(it.seconds_until_shown())
        await asyncio.sleep(1)
        it.wrote(
            "PATCH", it.server.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}})
        )

        assert await waiting > 2
        shown = it.pods.store.get_by_key("default/web")
        assert shown is not None
        assert shown.labels == {"a": "b"}


async def test_cancelled_wait_keeps_pending_writes() -> None:
    async with cluster() as it:
        it.wrote("POST", it.server.create(PODS, named("web")))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await it.writes.applied()

        assert len(it.writes) == 1
        assert await it.seconds_until_shown() == pytest.approx(1, abs=0.1)


async def test_history_reset_ends_wait() -> None:
    async with APIServer() as server:
        pods = informer_of(server.list_watch(PODS))
        maps = informer_of(server.list_watch(CONFIG_MAPS), "maps")
        async with informed(pods, maps):
            before = server.snapshot()
            server.create(PODS, named("web"))
            await pods.wait_for_version(server.resource_version)
            writes = PendingWrites([pods])
            writes.add(request("PUT"), answer(version=1_000_000))
            waiting = asyncio.create_task(writes.applied())
            await settle()
            await server.restart(snapshot=before)
            with pytest.raises(HistoryReset):
                async with asyncio.timeout(1000):
                    await waiting

        assert len(writes) == 0


async def test_ended_informer_is_not_waited_for() -> None:
    pods: SharedInformer = informer_of(FakeListerWatcher())
    async with informed(pods):
        writes = PendingWrites([pods])
        writes.add(request("PUT"), answer(version=1_000_000))
        waiting = asyncio.create_task(writes.applied())
        await settle()

    await waiting
    assert len(writes) == 0


def test_own_writes_are_noted_with_their_versions() -> None:
    writes = writes_of()
    patch, delete = request("PATCH"), request("DELETE")
    writes.add(patch, answer(9))
    writes.add(delete, ended())
    writes.add(request("PATCH", dryRun="All"), answer(10))

    assert [(it.key, it.version, it.request) for it in writes.own] == [
        ("default/web", "9", patch),
        ("default/web", "", delete),
    ]


def test_release_of_last_finalizer_is_noted_as_deletion() -> None:
    writes = writes_of()
    marked = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    body = named("web", uid="u1", resourceVersion="9", **marked)
    writes.add(request("PATCH"), answer(**body))

    assert [it.version for it in writes.own] == ["9", ""]


def test_own_writes_of_daemons_are_not_kept() -> None:
    writes = PendingWrites([informer_of(FakeListerWatcher())], limit=2)
    writes.add(request("PATCH"), answer())

    assert not writes.own
