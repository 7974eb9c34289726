"""Operators with planted bugs of known kinds, each with its repaired twin.

Each makes a program for a client. `fixed` tells which of the two it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from aioinformer import (
    AlreadyExists,
    Client,
    Conflict,
    Controller,
    LeaderElector,
    Manager,
    NotFound,
    Resource,
    Result,
    TransportError,
)
from aioinformer.controller import LeaseLock, set_controller_reference
from aioinformer.errors import ApiError
from aioinformer.model.resources import CONFIG_MAPS, LEASES
from aioinformer.testing.simulation.run import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioinformer.testing.simulation import Cluster

__all__ = ["OPERATORS", "SITES", "Operator"]

SITES = Resource("example.com", "v1", "sites", "Site")
FINALIZER = "example.com/cleanup"
NAMES = [f"s{number}" for number in range(3)]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Operator with a bug, and what it violates."""

    name: str
    program: Callable[[Client, bool], Any]
    workload: Callable[[Cluster], Any]
    invariants: Sequence[Callable[[Cluster], object]] = ()
    eventually: Callable[[Cluster], object] | None = None
    setup: Callable[[Cluster], None] = field(default=lambda it: it.register(SITES))
    replicas: int = 1

    def run(self, simulation: Any, *, fixed: bool, seeds: int | None = None) -> Any:
        """Simulate the operator, or its repaired twin."""
        return simulation.run(
            partial(self._program, fixed),
            workload=self.workload,
            invariants=self.invariants,
            eventually=self.eventually,
            setup=self.setup,
            replicas=self.replicas,
            seeds=seeds,
        )

    def scenario(self, *, fixed: bool) -> Scenario:
        """Return the operator, or its repaired twin, for single runs."""
        return Scenario(
            program=partial(self._program, fixed),
            workload=self.workload,
            invariants=self.invariants,
            eventually=self.eventually,
            setup=self.setup,
            replicas=self.replicas,
        )

    def _program(self, fixed: bool, client: Client) -> Any:
        return self.program(client, fixed)


def child(site: Any, name: str = "", **data: str) -> dict[str, Any]:
    body = {
        "metadata": {"name": name or site.name, "namespace": site.namespace},
        "data": {"site": site.name, **data},
    }
    return set_controller_reference(site, body)


def children(cluster: Cluster) -> dict[str, dict[str, Any]]:
    found = cluster.objects(CONFIG_MAPS)
    return {
        it["metadata"]["name"]: it for it in found if "site" in (it.get("data") or {})
    }


async def make_sites(cluster: Cluster) -> None:
    for name in NAMES:
        cluster.create(SITES, {"metadata": {"name": name}, "spec": {"size": 1}})
        await cluster.sleep(cluster.random.uniform(0.1, 10))
        cluster.patch(SITES, name, {"spec": {"size": 2}})
        await cluster.sleep(cluster.random.uniform(0.1, 10))


async def come_and_go(cluster: Cluster) -> None:
    for kept in range(2):
        for name in NAMES:
            with suppress(AlreadyExists):  # it waits for its finalizer
                cluster.create(SITES, {"metadata": {"name": name}})

            await cluster.sleep(cluster.random.uniform(0.1, 6))

        for name in NAMES[kept:]:
            with suppress(NotFound):
                cluster.delete(SITES, name)

            await cluster.sleep(cluster.random.uniform(0.1, 6))


def names_of_sites(cluster: Cluster) -> set[str]:
    return {it["metadata"]["name"] for it in cluster.objects(SITES)}


# ------------------------------------------------------------ 1, 2: creations


def one_child_for_each_site(cluster: Cluster) -> None:
    sites = [it["data"]["site"] for it in children(cluster).values()]
    assert len(sites) == len(set(sites)), f"several children: {sorted(sites)}"


def all_sites_have_children(cluster: Cluster) -> bool:
    return names_of_sites(cluster) <= {
        it["data"]["site"] for it in children(cluster).values()
    }


def stale_read_then_create(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites, maps = manager.informer(SITES), manager.informer(CONFIG_MAPS)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        if site is None:
            return

        mine = [it for it in maps.lister.list() if it.at("data.site") == site.name]
        if not mine:
            body = child(site)
            if not fixed:
                body["metadata"]["generateName"] = f"{body['metadata'].pop('name')}-"

            with suppress(AlreadyExists):
                await client.create(CONFIG_MAPS, body, namespace=site.namespace)

    manager.add(Controller("sites", reconcile, for_=sites))
    return manager


def create_again_after_a_timeout(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites = manager.informer(SITES)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        if site is None:
            return

        # The newest state, so that only the retry can be wrong.
        found = await client.list(CONFIG_MAPS, namespace=site.namespace)
        if any(it.at("data.site") == site.name for it in found):
            return

        for attempt in range(3):
            name = site.name if fixed else f"{site.name}-{attempt}"
            try:
                await client.create(
                    CONFIG_MAPS, child(site, name), namespace=site.namespace
                )
            except AlreadyExists:
                return
            except TransportError:
                continue
            else:
                return

    manager.add(Controller("sites", reconcile, for_=sites))
    return manager


# ------------------------------------------------------------ 3, 4: deletions


def no_child_outlives_its_site(cluster: Cluster) -> bool:
    sites = names_of_sites(cluster)
    return {it["data"]["site"] for it in children(cluster).values()} == sites


def lost_delete(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites, maps = manager.informer(SITES), manager.informer(CONFIG_MAPS)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        if site is not None:
            with suppress(AlreadyExists):
                await client.create(CONFIG_MAPS, child(site), namespace=site.namespace)

        elif fixed or request.key in deleted:
            namespace, _, name = request.key.partition("/")
            with suppress(NotFound):
                await client.delete(CONFIG_MAPS, name, namespace=namespace)

    deleted: set[str] = set()
    # A deletion while the program is down is an event that nobody sees.
    sites.add_event_handler(on_delete=lambda it: deleted.add(it.key))
    sites.add_event_handler(on_add=lambda it: deleted.discard(it.key))
    # With the children, a request also comes for those whose site is gone.
    owns = [maps] if fixed else []
    manager.add(Controller("sites", reconcile, for_=sites, owns=owns))
    return manager


def external(cluster: Cluster) -> set[str]:
    """Return the records of an external system, which are config maps here."""
    return {
        name.removeprefix("external-")
        for name in (it["metadata"]["name"] for it in cluster.objects(CONFIG_MAPS))
        if name.startswith("external-")
    }


def external_records_go_with_their_sites(cluster: Cluster) -> bool:
    left = external(cluster) - names_of_sites(cluster)
    assert not left, f"nobody will delete {left}"
    return True


def finalizer_removed_too_early(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites = manager.informer(SITES)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        if site is None:
            return

        record = f"external-{site.name}"
        if site.deletion_timestamp is None:
            # Before the record. If the site is gone, nobody would delete the record.
            if FINALIZER not in site.finalizers and not await set_finalizers(
                client, site, [FINALIZER]
            ):
                return

            body = {"metadata": {"name": record, "namespace": site.namespace}}
            with suppress(AlreadyExists):
                await client.create(CONFIG_MAPS, body, namespace=site.namespace)

            return

        async def clean() -> None:
            with suppress(NotFound):
                await client.delete(CONFIG_MAPS, record, namespace=site.namespace)

        if fixed:
            await clean()

        if FINALIZER in site.finalizers:
            await set_finalizers(client, site, [])

        if not fixed:
            await clean()

    manager.add(Controller("sites", reconcile, for_=sites))
    return manager


async def set_finalizers(client: Client, site: Any, finalizers: list[str]) -> bool:
    """Set the finalizers of a site; return False if it is gone."""
    metadata = {"finalizers": finalizers, "resourceVersion": site.resource_version}
    try:
        await client.patch(
            SITES, site.name, {"metadata": metadata}, namespace=site.namespace
        )
    except NotFound:
        return False

    return True


# ------------------------------------------------------------ 5, 6: writes and errors


async def grow(cluster: Cluster) -> None:
    cluster.create(SITES, {"metadata": {"name": "s0"}, "spec": {"size": 0}})
    for size in range(1, 12):
        await cluster.sleep(cluster.random.uniform(0.05, 8))
        cluster.patch(SITES, "s0", {"spec": {"size": size}})


def sizes_only_grow(cluster: Cluster) -> None:
    site = cluster.get(SITES, "s0")
    if site is not None:
        size = site["spec"]["size"]
        highest = site["metadata"]["generation"] - 1
        assert size == highest, f"size {size} after {highest} changes"


def status_is_current(cluster: Cluster) -> bool:
    site = cluster.get(SITES, "s0")
    assert site is not None
    return bool(site.get("status", {}).get("size") == site["spec"]["size"])


def status_of_an_old_object(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites = manager.informer(SITES)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        if site is None or site.at("status.size") == site.at("spec.size"):
            return

        status = {"size": site.at("spec.size")}
        if fixed:
            await client.patch_status(
                SITES, site.name, {"status": status}, namespace=site.namespace
            )
            return

        body = site.to_dict() | {"status": status}
        del body["metadata"]["resourceVersion"]  # because of those conflicts
        await client.update(SITES, body)
        await client.update_status(SITES, body)

    manager.add(Controller("sites", reconcile, for_=sites))
    return manager


def missed_requeue(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites = manager.informer(SITES)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        if site is None:
            return

        try:
            await client.create(CONFIG_MAPS, child(site), namespace=site.namespace)
        except AlreadyExists:
            pass
        except (ApiError, TransportError):
            if fixed:
                raise

    manager.add(Controller("sites", reconcile, for_=sites))
    return manager


# ------------------------------------------------------------ 7: leadership


def only_the_leader_writes(cluster: Cluster) -> None:
    for lease in cluster.objects(LEASES):
        holder = lease["spec"].get("holderIdentity") or ""
        for it in cluster.objects(CONFIG_MAPS):
            data = it.get("data") or {}
            key = it["metadata"]["resourceVersion"]
            if "writer" not in data or key in _judged:
                continue

            _judged.add(key)
            assert data["writer"] == holder, f"{data['writer']} wrote, {holder} leads"


_judged: set[str] = set()


def work_after_lost_leadership(client: Client, fixed: bool) -> Any:
    elector = LeaderElector(LeaseLock(client, "demo", namespace="default"))
    manager = Manager(client, elector=elector)

    async def work() -> None:
        count = 0
        while True:
            count += 1
            writer = elector.identity
            body = {
                "metadata": {"name": "state", "namespace": "default"},
                "data": {"writer": writer, "count": str(count)},
            }
            with suppress(ApiError, TransportError):
                await client.apply(
                    body, resource=CONFIG_MAPS, field_manager=writer, force=True
                )

            await asyncio.sleep(1)

    if fixed:
        manager.add(work, name="work")
        return manager

    started: list[Any] = []

    async def start_once() -> None:
        # Outlives the leadership, because nobody ends it.
        started.append(asyncio.get_running_loop().create_task(work()))
        await asyncio.get_running_loop().create_future()

    manager.add(start_once, name="work")

    async def keep_running() -> None:
        while True:
            try:
                await manager.run()
            except Exception:  # noqa: BLE001 - the bug
                await asyncio.sleep(3600)

    return keep_running()


# ------------------------------------------------------------ 8: names and uids


def ownership_by_name(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites = manager.informer(SITES)
    maps = manager.informer(CONFIG_MAPS)

    async def reconcile(request: Any, ctx: Any) -> Result | None:
        namespace, _, name = request.key.partition("/")
        site = sites.lister.get(request.key)
        if site is not None:
            try:
                await client.create(CONFIG_MAPS, child(site), namespace=namespace)
            except AlreadyExists:
                if not fixed:
                    return None

                it = await client.get(CONFIG_MAPS, name, namespace=namespace)
                if it.owner_references[0]["uid"] != site.uid:
                    # Of an earlier site of that name, or of a later one.
                    if await owner_of(client, name, namespace) == site.uid:
                        with suppress(NotFound, Conflict):
                            await client.delete(
                                CONFIG_MAPS, name, namespace=namespace, uid=it.uid
                            )

                    return Result(requeue_after=5)

            return None

        try:
            it = await client.get(CONFIG_MAPS, name, namespace=namespace)
            uid = it.owner_references[0]["uid"]
            owner = await owner_of(client, name, namespace)
            if fixed and owner == uid:
                return None

            await client.delete(
                CONFIG_MAPS, name, namespace=namespace, uid=it.uid if fixed else None
            )
        except (NotFound, Conflict):
            pass

        return None

    owns = [maps] if fixed else []
    manager.add(Controller("sites", reconcile, for_=sites, owns=owns))
    return manager


async def owner_of(client: Client, name: str, namespace: str) -> str:
    try:
        return (await client.get(SITES, name, namespace=namespace)).uid
    except NotFound:
        return ""


def each_child_belongs_to_its_site(cluster: Cluster) -> bool:
    uids = {it["metadata"]["uid"] for it in cluster.objects(SITES)}
    owners = [
        it["metadata"]["ownerReferences"][0]["uid"] for it in children(cluster).values()
    ]
    return sorted(uids) == sorted(owners)


# ------------------------------------------------------------ 9, 10: events


async def config_then_site(cluster: Cluster) -> None:
    for name in NAMES:
        config = {"metadata": {"name": f"config-{name}"}, "data": {"size": "3"}}
        cluster.create(CONFIG_MAPS, config)
        cluster.create(SITES, {"metadata": {"name": name}, "spec": {"size": 1}})
        await cluster.sleep(cluster.random.uniform(0.1, 20))


def all_sites_are_configured(cluster: Cluster) -> bool:
    sites = cluster.objects(SITES)
    return all(it.get("status", {}).get("size") == "3" for it in sites)


def order_between_informers(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites, maps = manager.informer(SITES), manager.informer(CONFIG_MAPS)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        if site is None or site.at("status.size"):
            return

        config = maps.lister.get(f"{site.namespace}/config-{site.name}")
        size = "none" if config is None else config.at("data.size")
        if config is None and fixed:
            raise LookupError("its configuration is not known yet")

        await client.patch_status(
            SITES, site.name, {"status": {"size": size}}, namespace=site.namespace
        )

    manager.add(Controller("sites", reconcile, for_=sites))
    return manager


def count_is_right(cluster: Cluster) -> bool:
    counter = cluster.get(CONFIG_MAPS, "counter")
    found = len(cluster.objects(SITES))
    return counter is not None and counter["data"]["count"] == str(found)


def counts_events(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites = manager.informer(SITES)

    async def reconcile(request: Any, ctx: Any) -> None:
        if fixed:
            count = len(sites.lister.list())
        else:
            try:
                it = await client.get(CONFIG_MAPS, "counter", namespace="default")
                count = int(it.at("data.count"))
            except NotFound:
                count = 0

            count += 1 if sites.lister.get(request.key) is not None else -1
            if request.key in counted and sites.lister.get(request.key) is not None:
                return

        counted.add(request.key)
        body = {"metadata": {"name": "counter"}, "data": {"count": str(count)}}
        await client.apply(
            body,
            resource=CONFIG_MAPS,
            namespace="default",
            field_manager="me",
            force=True,
        )

    counted: set[str] = set()
    # One worker: of two, the one with the older count may write last.
    manager.add(Controller("sites", reconcile, for_=sites, concurrency=1))
    return manager


# ------------------------------------------------------------ 11, 12


async def broken_site(cluster: Cluster) -> None:
    cluster.create(SITES, {"metadata": {"name": "s0"}, "spec": {"size": -1}})
    await cluster.sleep(60)
    cluster.patch(SITES, "s0", {"spec": {"size": 1}})
    await cluster.sleep(20)


def few_requests(cluster: Cluster) -> None:
    recent = cluster.requests_within(10.0)
    assert recent <= 60, f"{recent} requests within 10 s"


def unbounded_retry(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites = manager.informer(SITES)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        while site is not None:
            try:
                await client.create(CONFIG_MAPS, child(site), namespace=site.namespace)
            except AlreadyExists:
                return
            except (ApiError, TransportError):
                if fixed:
                    raise

                # Until it works, which it soon will.
                for _ in range(200):
                    try:
                        await client.get(CONFIG_MAPS, site.name, namespace="default")
                    except (ApiError, TransportError):
                        continue
            else:
                return

    manager.add(Controller("sites", reconcile, for_=sites))
    return manager


def sites_have_both_children(cluster: Cluster) -> bool:
    found = children(cluster).keys()
    return {f"{it}-{part}" for it in NAMES for part in "ab"} <= found


def killed_between_two_writes(client: Client, fixed: bool) -> Manager:
    manager = Manager(client)
    sites = manager.informer(SITES)

    async def reconcile(request: Any, ctx: Any) -> None:
        site = sites.lister.get(request.key)
        if site is None:
            return

        for part in "ab":
            body = child(site, f"{site.name}-{part}")
            try:
                await client.create(CONFIG_MAPS, body, namespace=site.namespace)
            except AlreadyExists:
                if not fixed:
                    return  # the first exists, so the second does, too

    manager.add(Controller("sites", reconcile, for_=sites))
    return manager


async def wait_a_while(cluster: Cluster) -> None:
    _judged.clear()
    await cluster.sleep(180)


OPERATORS = [
    Operator(
        name="stale read, then create",
        program=stale_read_then_create,
        workload=make_sites,
        invariants=[one_child_for_each_site],
        eventually=all_sites_have_children,
    ),
    Operator(
        name="double create after a timeout",
        program=create_again_after_a_timeout,
        workload=make_sites,
        invariants=[one_child_for_each_site],
        eventually=all_sites_have_children,
    ),
    Operator(
        name="lost delete",
        program=lost_delete,
        workload=come_and_go,
        eventually=no_child_outlives_its_site,
    ),
    Operator(
        name="finalizer removed too early",
        program=finalizer_removed_too_early,
        workload=come_and_go,
        invariants=[],
        eventually=external_records_go_with_their_sites,
    ),
    Operator(
        name="status written from an old object",
        program=status_of_an_old_object,
        workload=grow,
        invariants=[sizes_only_grow],
        eventually=status_is_current,
    ),
    Operator(
        name="missed requeue",
        program=missed_requeue,
        workload=make_sites,
        eventually=all_sites_have_children,
    ),
    Operator(
        name="work after lost leadership",
        program=work_after_lost_leadership,
        workload=wait_a_while,
        invariants=[only_the_leader_writes],
        replicas=2,
    ),
    Operator(
        name="ownership by name and not by uid",
        program=ownership_by_name,
        workload=come_and_go,
        eventually=each_child_belongs_to_its_site,
        replicas=2,
    ),
    Operator(
        name="assumption of order between informers",
        program=order_between_informers,
        workload=config_then_site,
        eventually=all_sites_are_configured,
    ),
    Operator(
        name="event counting",
        program=counts_events,
        workload=come_and_go,
        eventually=count_is_right,
    ),
    Operator(
        name="unbounded retry",
        program=unbounded_retry,
        workload=make_sites,
        invariants=[few_requests],
        eventually=all_sites_have_children,
    ),
    Operator(
        name="killed between two writes",
        program=killed_between_two_writes,
        workload=make_sites,
        eventually=sites_have_both_children,
    ),
]
