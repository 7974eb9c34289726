"""Informers of several namespaces with scripted sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fake_source import FakeSource, Page, Stream, thing
from informer_helpers import Even

from aioinformer.informer import SharedInformer

if TYPE_CHECKING:
    import pytest

    from aioinformer.model import KubeObject


def of(namespace: str, name: str, version: int = 1, uid: str = "") -> KubeObject:
    return thing(name, version, uid, namespace=namespace)


def informer_of(**sources: FakeSource) -> SharedInformer:
    return SharedInformer(sources, name="pods", rng=Even())


def scripts(*shop: Any, watch: Stream | None = None) -> FakeSource:
    """Make the source of namespace `shop`: lists, and a watch."""
    lists = list(shop) or [Page([of("shop", "a"), of("shop", "b")], version=5)]
    return FakeSource(lists, [] if watch is None else [watch])


def two(
    *shop: Any, watch: Stream | None = None, other: Stream | None = None
) -> SharedInformer:
    """Make an informer of `shop` and `web`, each with two pods and a watch."""
    web = FakeSource(
        [Page([of("web", "a"), of("web", "c")], version=7)], [other or Stream()]
    )
    return informer_of(shop=scripts(*shop, watch=watch), web=web)


def keys(objects: list[KubeObject]) -> list[str]:
    return sorted(obj.key for obj in objects)


def slow_machine(patch: pytest.MonkeyPatch) -> None:
    """Make every slice of the loop's budget end at once, so all work waits some turns."""
    patch.setattr("aioinformer.budget.SLICE_SECONDS", 0.0)
