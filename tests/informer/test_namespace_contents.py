"""Several namespaces in one informer: content of the store, and notifications."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fake_source import Page, Stream, added, deleted, error_event, modified
from informer_helpers import running, settle, text_of
from namespace_helpers import keys, of, slow_machine, two
from pipeline_helpers import View

from aioinformer.cache import index_by
from aioinformer.informer.namespace_sources import NamespaceSource

if TYPE_CHECKING:
    import pytest

    from aioinformer.informer import SharedInformer
    from aioinformer.informer.notifications import Notification


# ---------------------------------------------------------------- content


async def test_one_store_contains_the_objects_of_all_namespaces() -> None:
    pods = two()
    pods.add_indexers({"node": index_by("spec.nodeName")})

    async with running(pods.run()):
        await pods.wait_synced()

        assert keys(pods.lister.list()) == ["shop/a", "shop/b", "web/a", "web/c"]
        assert keys(pods.lister.namespace("web").list()) == ["web/a", "web/c"]
        assert len(pods.lister.by_index("node", "node-1")) == 4
        assert len(pods.lister.namespace("shop").by_index("node", "node-1")) == 2


async def test_one_handler_gets_the_changes_of_all_namespaces() -> None:
    shop, web = Stream(), Stream()
    pods = two(watch=shop, other=web)
    received: list[str] = []
    pods.add_event_handler(on_event=lambda event: received.append(text_of(event)))

    async with running(pods.run()):
        await pods.wait_synced()
        await settle()
        first, received[:] = sorted(received), []
        shop.send(modified(of("shop", "a", 6)))
        await settle()
        web.send(deleted(of("web", "c", 8)))
        await settle()

    assert first == ["initial a", "initial a", "initial b", "initial c"]
    assert received == ["updated a", "deleted c"]


async def test_relist_of_one_namespace_replaces_only_its_part() -> None:
    relisted = Page([of("shop", "b", 1), of("shop", "n", 8)], version=9)
    shop = Stream(5.0, [error_event(410)])
    pods = two(
        Page([of("shop", "a"), of("shop", "b")], version=5), relisted, watch=shop
    )
    pods.add_indexers({"node": index_by("spec.nodeName")})
    received: list[str] = []

    async with running(pods.run()):
        await pods.wait_synced()
        before = pods.store.get_by_key("web/a")
        await settle()
        pods.add_event_handler(on_event=lambda event: received.append(text_of(event)))
        await settle()
        received.clear()
        await pods.wait_for_version("9", namespace="shop")
        await settle()

        assert received == ["missed a", "added n"]
        assert keys(pods.store.list()) == ["shop/b", "shop/n", "web/a", "web/c"]
        assert pods.store.get_by_key("web/a") is before
        assert len(pods.store.by_index("node", "node-1")) == 4
        assert len(pods.store.by_index("namespace", "shop")) == 2


async def test_readers_see_a_relisted_namespace_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Changes of other namespaces during a relist are neither lost nor delayed."""
    slow_machine(monkeypatch)
    old = [of("shop", f"o{n}") for n in range(30)]
    new = [of("shop", f"n{n}", 8) for n in range(30)]
    shop, web = Stream(2.0, [error_event(410)]), Stream()
    pods = two(Page(old, 5), Page(new, 9), watch=shop, other=web)
    seen: set[tuple[int, int]] = set()
    wrong: list[tuple[int, str]] = []

    async with running(pods.run()):
        await pods.wait_synced()
        pods.add_event_handler(on_event=lambda event: None)
        version = 7
        while pods.status.namespaces["shop"].resource_version != "9":
            version += 1
            web.send(modified(of("web", "a", version)))
            await asyncio.sleep(0 if looks_busy(pods) else 0.01)
            names = [obj.name[0] for obj in pods.lister.namespace("shop").list()]
            seen.add((names.count("o"), names.count("n")))
            stored = pods.store.get_by_key("web/a")
            if stored is None:
                wrong.append((version, "gone"))

        await pods.wait_for_version(str(version), namespace="web", timeout=1)
        newest = pods.store.get_by_key("web/a")

    assert seen <= {(30, 0), (0, 30)}
    assert wrong == []
    assert newest is not None
    assert newest.resource_version == str(version)


def looks_busy(pods: SharedInformer) -> bool:
    return pods.status.namespaces["shop"].phase == "listing"


async def test_change_during_a_relist_of_another_namespace_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The change arrives in every turn of the relist."""
    slow_machine(monkeypatch)
    for turns in range(0, 100, 4):
        shop, web = Stream(), Stream()
        pods = two(
            Page([of("shop", "a")], version=5),
            Page([of("shop", "z", 8)], version=9),
            watch=shop,
            other=web,
        )
        view = View()
        pods.add_event_handler(on_event=view)
        async with running(pods.run()):
            await pods.wait_synced()
            shop.send(error_event(410))
            await asyncio.sleep(1.15)
            while len(sources(pods)["shop"].requests) < 3:
                await asyncio.sleep(0.001)

            for _ in range(turns):
                await asyncio.sleep(0)

            web.send(modified(of("web", "a", 8)), added(of("web", "d", 9)))
            await asyncio.sleep(1)
            stored = {obj.key: obj.resource_version for obj in pods.store.list()}

        assert stored == {"shop/z": "8", "web/a": "8", "web/c": "1", "web/d": "9"}
        assert view.objects == stored
        assert view.broken == []


def sources(pods: SharedInformer) -> dict[str, Any]:
    return {
        str(it.namespace): it.reflector.source
        for it in pods._sources.all
        if isinstance(it, NamespaceSource)
    }


async def test_index_added_during_a_relist_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_machine(monkeypatch)
    shop = Stream(2.0, [error_event(410)])
    new = [of("shop", f"n{n}", 8) for n in range(50)]
    pods = two(Page([of("shop", "a")], 5), Page(new, 9), watch=shop)
    calls = 0

    async with running(pods.run()):
        await pods.wait_synced()
        await asyncio.sleep(1.9)
        while pods.status.namespaces["shop"].resource_version != "9":
            calls += 1
            pods.add_indexers({f"node-{calls}": index_by("spec.nodeName")})
            await asyncio.sleep(0 if looks_busy(pods) else 0.05)

        await settle()
        names = [f"node-{number + 1}" for number in range(calls)]
        sizes = {len(pods.indexer.by_index(name, "node-1")) for name in names}

    assert calls > 2
    assert sizes == {52}


# ---------------------------------------------------------------- handlers


async def test_late_handler_gets_a_snapshot_then_every_change() -> None:
    web = Stream()
    shop = Page([of("shop", "a")], version=5, seconds=10)
    pods = two(shop, other=web)
    record: list[Notification] = []

    async with running(pods.run()):
        await asyncio.sleep(5)
        registration = pods.add_event_handler(on_event=record.append)
        web.send(added(of("web", "n", 8)))
        await settle()
        early = (sorted(map(text_of, record)), pods.has_synced, registration.has_synced)
        await registration.wait_synced()

    assert early == (["added n", "initial a", "initial c"], False, False)
    assert [text_of(event) for event in record[3:]] == ["initial a"]


async def test_handler_is_synced_after_all_first_lists(
    looptime: float,
) -> None:
    pods = two(Page([of("shop", "a")], version=5, seconds=3))
    registration = pods.add_event_handler(on_event=lambda event: None)

    async with running(pods.run()):
        await settle()
        before = registration.has_synced
        await registration.wait_synced()

    assert not before
    assert looptime == 3


async def test_equal_names_in_two_namespaces_are_two_objects() -> None:
    shop = Stream()
    pods = two(watch=shop)

    async with running(pods.run()):
        await pods.wait_synced()
        removed = asyncio.create_task(pods.wait_until(lambda it: it is None, "web/a"))
        shop.send(deleted(of("shop", "a", 6)))
        await pods.wait_until(lambda it: it is None, "shop/a")

        assert not removed.done()
        removed.cancel()
        await asyncio.wait({removed})
