"""A store on disk answers like one in memory: for its writer, and for a reader.

Three informers follow one server: in memory, as writer of a cache, and as its reader.
Their answers are equal for any objects, and their handlers get the same of each object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from informer_helpers import text_of
from informers import settled

from aioinformer import Resource, SharedInformerFactory
from aioinformer.informer.notifications import object_of
from aioinformer.model.resources import CONFIG_MAPS, NODES
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from aioinformer import KubeObject, SharedInformer
    from aioinformer.informer.notifications import Notification

LABELS: list[dict[str, str]] = [
    {},
    {"a": "b"},
    {"a": "a"},
    {"a": "c", "c": "d"},
    {"app": "app"},
    {"example.com/x": ""},
    {"a.b-c_d": "E.f_g-1"},
]

SELECTORS = [
    "",
    "a",
    "!a",
    "a=b",
    "a=a",
    "a!=b",
    "a in (b,c)",
    "a notin (b)",
    "a=c,c=d",
    "app=app",
    "example.com/x",
    "example.com/x=",
    "a.b-c_d=E.f_g-1",
    "a=labels",
]

NAMESPACES = ["default", "a", "ab", "a-b", "n" * 63]

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")


def long_value(obj: KubeObject) -> str:
    return "x" * 600 + obj.name[:1]


def odd_values(obj: KubeObject) -> list[str]:
    return ["", "\0", "a\0b", "\u00fc" * 300 + obj.name[:1], obj.name, obj.name]


def unless_a(obj: KubeObject) -> str:
    if obj.name.startswith("a"):
        raise ValueError(obj.name)

    return obj.name[:1]


def nothing(_: KubeObject) -> None:
    return None


INDEXERS: dict[str, Callable[[KubeObject], Any]] = {
    "long": long_value,
    "odd": odd_values,
    "failing": unless_a,
    "none": nothing,
}

# The same functions with other prints: a reader keeps these indexes in memory.
PRIVATE = {name: partial(function) for name, function in INDEXERS.items()}


class Follower:
    """One of the informers, and what its handler got of each object."""

    def __init__(self, informer: SharedInformer) -> None:
        self.informer = informer
        self.events: dict[str, list[tuple[str, str]]] = {}
        informer.add_event_handler(on_event=self._take)

    def _take(self, event: Notification) -> None:
        obj = object_of(event)
        state = obj.resource_version, obj.to_dict()
        events = self.events.setdefault(obj.key, [])
        events.append((text_of(event), json.dumps(state)))

    def answers(self, indexes: Iterable[str]) -> dict[str, object]:
        """Return what the lister and the indexes answer."""
        lister, indexer = self.informer.lister, self.informer.indexer
        found: dict[str, object] = {
            "objects": {obj.key: obj.to_dict() for obj in lister.list()},
            "labels": {obj.key: obj.labels for obj in lister.list()},
            "number": len(indexer),
        }
        for selector in SELECTORS:
            found[f"select {selector}"] = keys_of(lister.list(selector))
            found[f"json {selector}"] = names_in(lister.json(selector))
            for namespace in (*NAMESPACES, "absent", "x" * 600):
                selected = lister.namespace(namespace).list(selector)
                found[f"{namespace} {selector}"] = keys_of(selected)

        for name in indexes:
            values = sorted(indexer.list_index_func_values(name))
            for value in (*values, "absent", "x" * 700):
                objects = keys_of(indexer.by_index(name, value))
                assert objects == sorted(indexer.index_keys(name, value))
                found[f"{name} {value!r}"] = objects

        return found


def keys_of(objects: Iterable[KubeObject]) -> list[str]:
    return sorted(obj.key for obj in objects)


def names_in(document: bytes) -> list[str]:
    return sorted(json.dumps(it) for it in json.loads(document)["items"])


@contextlib.asynccontextmanager
async def followers(
    server: APIServer,
    path: Path,
    resource: Resource = CONFIG_MAPS,
    *,
    indexers: dict[str, Any] | None = None,
    readers: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[list[Follower]]:
    """Run an informer in memory, then the writer, then a reader of a cache.

    Args:
        server: Server with the objects.
        path: Directory of the cache.
        resource: Resource to follow.
        indexers: Index functions.
        readers: Index functions of the reader, if they differ.
        **options: Other options of the informers.
    """
    made = []
    async with contextlib.AsyncExitStack() as stack:
        for role in (None, "writer", "reader"):
            factory = SharedInformerFactory(
                server.client(), cache_dir=None if role is None else path
            )
            functions = (readers if role == "reader" else None) or indexers
            informer = factory.informer(resource, indexers=functions, **options)
            made.append(Follower(informer))
            await stack.enter_async_context(factory)
            await informer.wait_synced(timeout=60)
            status = informer.status.cache
            assert (None if status is None else status.role) == role

        yield made


async def check_equal(
    server: APIServer, made: list[Follower], indexes: Iterable[str] = ()
) -> None:
    """Check that answers and events of all informers are equal."""
    for it in made:
        await settled(server, it.informer)

    memory, *others = made
    answers = memory.answers(indexes)
    assert answers["number"] == len(memory.informer.lister.list()) > 0
    for other in others:
        assert other.answers(indexes) == answers
        assert other.events == memory.events


def odd_map(rng: random.Random, number: int) -> dict[str, Any]:
    start = rng.choice(["a", "b", "n" * 245, "a.b", "x-y", "a-b"])
    value = rng.choice(['"a":"b"', "labels", "\u2028\u00fc\\", "x" * 10, ""])
    return {
        "metadata": {
            "name": f"{start}{number}".ljust(253 if start == "a" else 0, "z"),
            "namespace": rng.choice(NAMESPACES),
            "labels": rng.choice(LABELS),
        },
        "data": {"value": value},
    }


def change(server: APIServer, rng: random.Random, number: int) -> None:
    """Create, patch, delete or replace an object."""
    metadata = rng.choice(server.objects(CONFIG_MAPS))["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    kind = rng.random()
    if kind < 0.4:
        patch = {"metadata": {"labels": rng.choice(LABELS)}}
        server.patch(CONFIG_MAPS, name, patch, namespace=namespace)
        return

    if kind < 0.8:
        server.delete(CONFIG_MAPS, name, namespace=namespace)

    body = odd_map(rng, number)
    if kind < 0.6:
        body["metadata"] |= {"name": name, "namespace": namespace}

    server.create(CONFIG_MAPS, body)


@pytest.mark.parametrize(
    ("readers", "stream"),
    [(INDEXERS, False), (PRIVATE, True)],
    ids=["stored-indexes", "private-indexes"],
)
async def test_answers_and_events_equal_those_of_memory(
    tmp_path: Path, readers: dict[str, Any], *, stream: bool
) -> None:
    rng = random.Random(1)
    async with APIServer(auto_namespaces=True) as server:
        for number in range(150):
            server.create(CONFIG_MAPS, odd_map(rng, number))

        async with followers(
            server,
            tmp_path,
            indexers=INDEXERS,
            readers=readers,
            page_size=20,
            streaming_list=stream,
        ) as made:
            for turn in range(30):
                for number in range(rng.randrange(6)):
                    change(server, rng, 1000 + 10 * turn + number)

                await asyncio.sleep(rng.choice([0.0, 0.01, 1.0]))

            await check_equal(server, made, INDEXERS)
            late = {"late": lambda obj: obj.name[1:3]}
            for it in made:
                it.informer.add_indexers(late)
                await it.informer.build_indexers({"built": odd_values})

            for number in range(20):
                change(server, rng, 2000 + number)

            await check_equal(server, made, [*INDEXERS, "late", "built"])


async def test_answers_after_relists_equal_those_of_memory(tmp_path: Path) -> None:
    """Their events differ: each relists at another time, and merges other changes."""
    rng = random.Random(2)
    async with APIServer(auto_namespaces=True) as server:
        for number in range(50):
            server.create(CONFIG_MAPS, odd_map(rng, number))

        async with followers(server, tmp_path, indexers=INDEXERS, page_size=7) as made:
            for turn in range(1, 5):
                server.faults.add(Gone(), Gone())
                for number in range(5):
                    change(server, rng, 100 * turn + number)

                for it in made:
                    await settled(server, it.informer)

            memory, *others = made
            answers = memory.answers(INDEXERS)
            assert [it.answers(INDEXERS) for it in others] == [answers, answers]


def drop_and_fail(obj: KubeObject) -> KubeObject | None:
    if obj.name.startswith("skip"):
        return None

    if obj.name.startswith("fail"):
        raise ValueError(obj.name)

    content = obj.to_dict()
    content.pop("data", None)
    return type(obj).of(content)


@pytest.mark.parametrize(
    ("resource", "options"),
    [
        (CONFIG_MAPS, {"transform": drop_and_fail}),
        (CONFIG_MAPS, {"metadata_only": True}),
        (CONFIG_MAPS, {"label_selector": "a=b"}),
        (CONFIG_MAPS, {"namespace": "default"}),
        (WIDGETS, {}),
        (NODES, {}),
    ],
    ids=["transform", "metadata", "labels", "namespace", "custom", "cluster-scoped"],
)
async def test_any_selection_equals_that_of_memory(
    tmp_path: Path, resource: Resource, options: dict[str, Any]
) -> None:
    async with APIServer(resources=[WIDGETS]) as server:
        for number in range(9):
            for start in ("skip", "fail", "ok"):
                metadata = {"name": f"{start}-{number}", "labels": {"a": "b"}}
                server.create(resource, {"metadata": metadata})

        async with followers(server, tmp_path, resource, **options) as made:
            for start in ("skip", "fail", "ok"):
                label = {"metadata": {"labels": {"a": "c"}}}
                server.patch(resource, f"{start}-1", label)
                server.patch(
                    resource, f"{start}-2", {"metadata": {"labels": {"c": "d"}}}
                )
                server.delete(resource, f"{start}-3")

            await check_equal(server, made)


async def test_large_objects_equal_those_of_memory(tmp_path: Path) -> None:
    rng = random.Random(3)

    def large() -> dict[str, str]:
        return {"value": rng.randbytes(300_000).hex()}

    async with APIServer() as server:
        for name in "abc":
            server.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": large()})

        async with followers(server, tmp_path) as made:
            server.patch(CONFIG_MAPS, "b", {"data": large()})
            await check_equal(server, made)
