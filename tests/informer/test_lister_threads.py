"""`Lister` in 8 threads while the cache changes: each read sees one snapshot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from store_helpers import reading_in_threads

from aioinformer.cache import Indexer, index_by_label
from aioinformer.cache.index import NAMESPACE_INDEX, by_namespace
from aioinformer.informer import Lister
from aioinformer.model import KubeObject
from aioinformer.model.views import ObjectContext

if TYPE_CHECKING:
    from collections.abc import Iterable

THREADS = 8
ROUNDS = 100
HERE, ELSEWHERE = 20, 60
CONTEXT = ObjectContext()


def by_team(obj: KubeObject) -> Iterable[str]:
    return ["all"]


def state(namespace: str, number: int, version: int) -> KubeObject:
    name = f"p{number:02}"
    metadata = (
        f'"name":"{name}","namespace":"{namespace}","resourceVersion":"{version}"'
    )
    body = b'{"metadata":{' + metadata.encode() + b"}}"
    labels = {"parity": str(version % 2), "app": "web"}
    return KubeObject(body, f"{namespace}/{name}", "", str(version), labels, CONTEXT)


def generation(version: int) -> list[KubeObject]:
    """Make objects of one version, few in one namespace and more in another."""
    return [
        *(state("here", number, version) for number in range(HERE)),
        *(state("elsewhere", number, version) for number in range(ELSEWHERE)),
    ]


@pytest.fixture
def indexer() -> Indexer[KubeObject]:
    indexers = {
        NAMESPACE_INDEX: by_namespace,
        "team": by_team,
        "parity": index_by_label("parity"),
    }
    made: Indexer[KubeObject] = Indexer(indexers, key_func=lambda obj: obj.key)
    made.replace(generation(1000), "1000")
    return made


@pytest.fixture
def lister(indexer: Indexer[KubeObject]) -> Lister:
    return Lister(indexer, lambda *_, **__: None, lambda *_: None)


def check_between_two_writes(objects: list[KubeObject], count: int) -> None:
    """Assert that first objects have the new version, and all others the previous one."""
    in_order = sorted(objects, key=lambda obj: obj.key)
    versions = [int(obj.resource_version) for obj in in_order]
    assert len({obj.key for obj in objects}) == len(objects) == count
    assert versions == sorted(versions, reverse=True)
    assert versions[0] - versions[-1] <= 1


def test_each_read_sees_one_state_between_two_writes(
    indexer: Indexer[KubeObject], lister: Lister
) -> None:
    here = lister.namespace("here")

    def read() -> None:
        check_between_two_writes(here.list(), HERE)
        check_between_two_writes(here.list("app=web"), HERE)
        check_between_two_writes(here.by_index("team", "all"), HERE)
        check_between_two_writes(here.list("parity in (0,1)"), HERE)
        assert len(lister.list("parity in (0,1)")) == HERE + ELSEWHERE
        assert len(lister.by_index("team", "all")) == HERE + ELSEWHERE
        assert here.get("p00") is not None

    with reading_in_threads(read, THREADS):
        for version in range(1001, 1001 + ROUNDS):
            for obj in generation(version):
                indexer.update(obj)


def test_json_is_of_the_version_it_names(
    indexer: Indexer[KubeObject], lister: Lister
) -> None:
    """Versions may go back, as those of a restored server do."""
    here = lister.namespace("here")

    def read() -> None:
        for narrowed in (lister, here):
            content = json.loads(narrowed.json())
            versions = {it["metadata"]["resourceVersion"] for it in content["items"]}
            assert versions == {content["metadata"]["resourceVersion"]}

    with reading_in_threads(read, THREADS):
        for version in range(999, 999 - ROUNDS, -1):
            indexer.replace(generation(version), str(version))
