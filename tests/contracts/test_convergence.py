"""An informer against a changing server with an unreliable connection.

1,000 pods, 1,500 random changes, 20 cuts at random bytes of the watch and two 410s. In
the end the store equals the server, and no handler gets an event that contradicts an
earlier one.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from aioinformer import Added, Deleted, SharedInformerFactory, Updated
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer_apiserver.faults import Cut, Gone

if TYPE_CHECKING:
    from typing import Any

    from aioinformer import KubeObject, SharedInformer
    from aioinformer.errors import HandlerError

PODS_AT_FIRST = 1000
CHANGES = 1500
CUTS = 20
GONES = 2


class EventChecker:
    """Events of one handler, checked against the earlier ones.

    For each key they are Added, any number of Updated, Deleted, and again.
    """

    def __init__(self, informer: SharedInformer, *, waits: bool) -> None:
        self.informer = informer
        self.waits = waits
        self.present: dict[str, KubeObject] = {}
        self.newest: dict[str, int] = {}
        self.received = 0

    async def __call__(self, event: Added | Updated | Deleted) -> None:
        self.received += 1
        match event:
            case Added(obj=obj):
                assert obj.key not in self.present, f"added twice: {obj}"
                self._state(obj)
                self.present[obj.key] = obj
            case Updated(old=old, new=new):
                before = self.present[new.key]
                assert (old.uid, new.uid) == (before.uid, before.uid)
                assert old.resource_version == before.resource_version
                self._state(new)
                self.present[new.key] = new
            case Deleted(obj=obj, final_state_unknown=unknown):
                before = self.present.pop(obj.key)
                assert obj.uid == before.uid
                if unknown:
                    # Not a new state, but the last known one.
                    assert obj.resource_version == before.resource_version
                else:
                    self._state(obj)

                self._store_is_not_behind(obj, removed=True)

        if self.waits and self.received % 97 == 0:
            await asyncio.sleep(0.5)

    def _state(self, obj: KubeObject) -> None:
        """G1: states of one object come in order, each at most once."""
        version = int(obj.resource_version)
        assert version > self.newest.get(obj.uid, 0), f"{obj} came again, or too late"
        self.newest[obj.uid] = version
        self._store_is_not_behind(obj, removed=False)

    def _store_is_not_behind(self, obj: KubeObject, *, removed: bool) -> None:
        """G3: the store has the state of the event, or a later one."""
        stored = self.informer.store.get_by_key(obj.key)
        if stored is None:
            return  # a later state: deleted

        if removed:
            assert stored.uid != obj.uid
        else:
            assert int(stored.resource_version) >= int(obj.resource_version)


async def pause_at_random(rng: random.Random) -> None:
    """Wait some seconds, or some turns of the loop, or not at all."""
    if rng.random() < 0.2:
        await asyncio.sleep(rng.uniform(0.0, 5.0))
        return

    for _ in range(rng.randrange(8)):
        await asyncio.sleep(0)


async def change_at_random(
    server: APIServer, rng: random.Random, names: list[str], changes: int
) -> None:
    made = 0
    while made < changes:
        await pause_at_random(rng)
        made += change_one(server, rng, names)


def change_one(server: APIServer, rng: random.Random, names: list[str]) -> int:
    """Do one random create, update or delete."""
    namespace, _, name = rng.choice(names).partition("/")
    kind = rng.random()
    if kind < 0.6:
        patch = {"metadata": {"annotations": {"changed": f"{rng.random()}"}}}
        server.patch(PODS, name, patch, namespace=namespace)
        return 1

    if kind < 0.75:
        server.delete(PODS, name, namespace=namespace)
        names.remove(f"{namespace}/{name}")
        return 1

    if kind < 0.85:
        # The same name again at once: another object, with another uid.
        server.delete(PODS, name, namespace=namespace)
        server.create(PODS, small_pod(name), namespace=namespace)
        return 2

    new = f"new-{rng.getrandbits(48):x}"
    server.create(PODS, small_pod(new), namespace=namespace)
    names.append(f"{namespace}/{new}")
    return 1


def small_pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "example/app:1"}]}
    return {"metadata": {"name": name, "labels": {"app": name[:3]}}, "spec": spec}


def script_faults(server: APIServer, rng: random.Random) -> None:
    """Cut each of the next watches at a random byte, or end it with a 410."""
    faults: list[Cut | Gone] = [
        Cut(after_bytes=rng.randrange(12_000), reset=rng.random() < 0.3)
        for _ in range(CUTS)
    ]
    faults += [Gone(after_events=rng.randrange(20)) for _ in range(GONES)]
    rng.shuffle(faults)
    server.faults.add(*faults)


@pytest.mark.parametrize("seed", range(2))
async def test_store_and_handlers_converge_through_random_faults(seed: int) -> None:
    rng = random.Random(seed)
    async with APIServer(auto_namespaces=True) as server:
        names = []
        for number in range(PODS_AT_FIRST):
            namespace, name = f"ns-{number % 20}", f"pod-{number}"
            server.create(PODS, small_pod(name), namespace=namespace)
            names.append(f"{namespace}/{name}")

        script_faults(server, rng)
        wrong: list[HandlerError] = []
        factory = SharedInformerFactory(server.client(), on_error=wrong.append)
        informer = factory.informer("v1", "pods")
        prompt = EventChecker(informer, waits=False)
        slow = EventChecker(informer, waits=True)
        late = EventChecker(informer, waits=False)
        informer.add_event_handler(on_event=prompt)
        informer.add_event_handler(on_event=slow)

        async with factory:
            await factory.wait_for_cache_sync(timeout=60)
            await change_at_random(server, rng, names, CHANGES // 2)
            informer.add_event_handler(on_event=late)
            await change_at_random(server, rng, names, CHANGES // 2)
            await informer.wait_for_version(server.resource_version, timeout=300)
            assert len(server.faults) == 0
            watches = [one for one in server.requests if one.verb == "watch"]
            assert len(watches) > CUTS + GONES

        truth = {
            f"{body['metadata']['namespace']}/{body['metadata']['name']}": body
            for body in server.objects(PODS)
        }
        assert {o.key: o.to_dict() for o in informer.store.list()} == truth

        cached = {obj.key: obj for obj in informer.store.list()}
        for checker in (prompt, slow, late):
            assert checker.present.keys() == cached.keys()
            assert all(checker.present[key] is obj for key, obj in cached.items())

        # A checker reports violations as handler errors, which stop nothing.
        assert [str(error.__cause__) for error in wrong] == []
        assert informer.status.degraded == 0
        assert informer.status.history_resets == 0
