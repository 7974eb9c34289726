"""Watch and SharedInformer of the official client, which blocks."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from itertools import islice
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client, config, informer, watch
from official_clients import types_and_names
from peer_servers import (
    ADDED_CHANGED_DELETED,
    SHARED_SSL,
    config_map,
    in_a_thread,
    kubeconfig_of,
)

from aioinformer.testing import APIServer, faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from contract_servers import ServerUnderTest

pytestmark = [pytest.mark.realtime, pytest.mark.looptime(False), SHARED_SSL]

# Long enough that only a hanging test fails.
PATIENCE_SECONDS = 20


@pytest.fixture
def core(target: ServerUnderTest, tmp_path: Path) -> Iterator[Any]:
    file = kubeconfig_of(target, tmp_path)
    with config.new_client_from_config(config_file=str(file)) as api:
        yield client.CoreV1Api(api)


@pytest.fixture
def namespace(target: ServerUnderTest) -> str:
    return target.namespace


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer() as it:
        yield it


@pytest.fixture
def ours(server: APIServer, tmp_path: Path) -> Iterator[Any]:
    file = server.kubeconfig(tmp_path / "config")
    with config.new_client_from_config(config_file=str(file)) as api:
        yield client.CoreV1Api(api)


def live(core: Any, namespace: str, name: str) -> None:
    """Create, change and delete an object."""
    core.create_namespaced_config_map(namespace, config_map(name))
    core.patch_namespaced_config_map(name, namespace, {"data": {"k": "v"}})
    core.delete_namespaced_config_map(name, namespace)


# -------------------------------------------------------------------------- Watch


@in_a_thread
def test_kubernetes_watch_returns_models(core: Any, namespace: str) -> None:
    listed = core.list_namespaced_config_map(namespace)
    live(core, namespace, "a")
    version = listed.metadata.resource_version

    stream = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, resource_version=version
    )
    seen = list(islice(stream, 3))

    assert types_and_names(seen) == ADDED_CHANGED_DELETED
    assert {type(it["object"]) for it in seen} == {client.V1ConfigMap}
    assert [it["object"].data for it in seen[1:]] == [{"k": "v"}] * 2


@in_a_thread
def test_kubernetes_watch_can_be_stopped_in_loop(core: Any, namespace: str) -> None:
    for name in "abc":
        core.create_namespaced_config_map(namespace, config_map(name))

    watcher, seen = watch.Watch(), []
    for event in watcher.stream(core.list_namespaced_config_map, namespace):
        seen.append(event)
        if len(seen) == 2:
            watcher.stop()

    assert {kind for kind, _ in types_and_names(seen)} == {"ADDED"}
    assert len(seen) == 2


@in_a_thread
def test_kubernetes_watch_gets_end_of_initial_events(core: Any, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("a"))
    watcher = watch.Watch()
    stream = watcher.stream(
        core.list_namespaced_config_map,
        namespace,
        allow_watch_bookmarks=True,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
    )

    seen = list(islice(stream, 2))

    assert [it["type"] for it in seen] == ["ADDED", "BOOKMARK"]
    mark = seen[1]["raw_object"]["metadata"]
    assert mark["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (
        watcher.resource_version
        == seen[-1]["raw_object"]["metadata"]["resourceVersion"]
    )


@in_a_thread
def test_kubernetes_watch_of_old_version_raises_410(core: Any) -> None:
    custom = client.CustomObjectsApi(core.api_client)
    where = {"group": "example.com", "version": "v1", "plural": "widgets"}

    stream = watch.Watch().stream(
        custom.list_cluster_custom_object, **where, resource_version="1"
    )
    with pytest.raises(client.ApiException, match="too old resource version") as caught:
        next(stream)

    assert caught.value.status == 410


@in_a_thread
def test_kubernetes_watch_resumes_after_cut(server: APIServer, ours: Any) -> None:
    for name in "ab":
        ours.create_namespaced_config_map("default", config_map(name))

    server.faults.add(faults.End(after_events=1))
    watcher, seen = watch.Watch(), []
    for event in watcher.stream(ours.list_namespaced_config_map, "default"):
        seen.append(event)
        if len(seen) == 2:
            watcher.stop()

    assert types_and_names(seen) == [("ADDED", "a"), ("ADDED", "b")]


# ----------------------------------------------------------------------- informer


@contextmanager
def informed(
    core: Any, namespace: str, **options: Any
) -> Iterator[tuple[Any, Queue[Any]]]:
    """Run an informer of config maps; yield it and a queue of its notifications."""
    it = informer.SharedInformer(
        core.list_namespaced_config_map, namespace=namespace, **options
    )
    notifications: Queue[tuple[str, str]] = Queue()
    for kind in (informer.ADDED, informer.MODIFIED, informer.DELETED):
        it.add_event_handler(
            kind, lambda obj, kind=kind: notifications.put((kind, obj.metadata.name))
        )
    it.add_event_handler(
        informer.ERROR, lambda error: notifications.put(("ERROR", str(error.status)))
    )
    it.start()
    try:
        yield it, notifications
    finally:
        it.stop()


def next_of(notifications: Queue[Any], count: int) -> list[Any]:
    return [notifications.get(timeout=PATIENCE_SECONDS) for _ in range(count)]


@in_a_thread
def test_kubernetes_informer_caches_objects(core: Any, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("before"))
    with informed(core, namespace) as (it, notifications):
        assert next_of(notifications, 1) == [("ADDED", "before")]

        live(core, namespace, "a")
        assert next_of(notifications, 3) == ADDED_CHANGED_DELETED

        core.create_namespaced_config_map(namespace, config_map("b"))
        assert next_of(notifications, 1) == [("ADDED", "b")]
        assert sorted(it.cache.list_keys()) == [f"{namespace}/b", f"{namespace}/before"]


@in_a_thread
def test_kubernetes_informer_relists_after_410(server: APIServer, ours: Any) -> None:
    ours.create_namespaced_config_map("default", config_map("a"))
    server.faults.add(faults.Gone(verb="watch"))
    with informed(ours, "default") as (it, notifications):
        # The relist reports known objects as modified.
        expected = [("ADDED", "a"), ("ERROR", "410"), ("MODIFIED", "a")]
        assert next_of(notifications, 3) == expected

        ours.create_namespaced_config_map("default", config_map("b"))
        assert next_of(notifications, 1) == [("ADDED", "b")]
        assert it.cache.get_by_key("default/b").metadata.labels == {"is": "b"}

    requested = Counter(one.verb for one in server.requests)
    assert (requested["list"], requested["watch"]) == (2, 2)
