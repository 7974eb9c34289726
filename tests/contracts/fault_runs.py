"""Runs of an informer of pods under changes and faults, and their verdict.

`Witness` is a handler that checks each event. `Run` is one informer with its witnesses.
Its `verdict()` lists the violations at the end: in the store, in the events, and in the
requests and their times.
"""

from __future__ import annotations

import asyncio
import operator
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from informer_helpers import running

from aioinformer import Added, Deleted, Updated
from aioinformer.backoff import SHORT_SECONDS
from aioinformer.client import Client, ListWatch
from aioinformer.informer import ReflectorOptions, SharedInformer
from aioinformer.informer.cached.place import CachePlace
from aioinformer.model.resources import PODS
from aioinformer_apiserver.faults import Cut, Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from ledger import Ledger

    from aioinformer import KubeObject, Registration
    from aioinformer.testing import APIServer

__all__ = ["GAP_SECONDS", "Attempt", "Run", "Witness", "attempts_of", "running_pods"]

GAP_SECONDS = 0.8
"""Minimum gap between attempts; the loop's clock may be a millisecond early."""

EARLY_SECONDS = 0.002


class Witness:
    """A handler that compares each event with the earlier ones and with the store.

    It records violations, because an exception here would only be logged.

    Args:
        ledger: History of all objects.
        informer: Informer with the store.
        seconds: Occasional pauses, as in a slow handler.
        lied_to: True if the server reports wrong data: a wrong version, or the deletion
            of an existing object.
        on_disk: True if the store is on disk: each read is another object.
    """

    def __init__(
        self,
        ledger: Ledger,
        informer: SharedInformer,
        *,
        seconds: float = 0.0,
        lied_to: bool = False,
        on_disk: bool = False,
    ) -> None:
        self._ledger = ledger
        self._informer = informer
        self._seconds = seconds
        self._lied_to = lied_to
        self._same = operator.eq if on_disk else operator.is_
        self.present: dict[str, KubeObject] = {}
        self.last: dict[str, int] = {}
        """Newest reported version, by uid."""
        self.ended: set[str] = set()
        self.received = 0
        self.wrong: list[str] = []

    async def __call__(self, event: Added | Updated | Deleted) -> None:
        self.received += 1
        match event:
            case Added(obj=obj):
                self._expect(obj.key not in self.present, f"G6: {obj} added twice")
                self._state(obj)
                self.present[obj.key] = obj
            case Updated(old=old, new=new):
                before = self.present.get(new.key)
                same = self._same(before, old) and old.uid == new.uid
                self._expect(same, f"G1: {new} does not follow the previous event")
                self._state(new)
                self.present[new.key] = new
            case Deleted(obj=obj, final_state_unknown=unknown):
                self._end(obj, unknown=unknown)

        self._store_shows(event)
        if self._seconds and self.received % 7 == 0:
            await asyncio.sleep(self._seconds)
            self._store_shows(event)

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)

    def _state(self, obj: KubeObject) -> None:
        """G1: the state existed, and is newer than those before."""
        version = int(obj.resource_version)
        before = self.last.get(obj.uid, 0)
        self.last[obj.uid] = version
        if self._lied_to:
            self.ended.discard(obj.uid)
            return

        self._expect(obj.uid not in self.ended, f"G6: {obj} delivered after its end")
        self._expect(version > before, f"G1: {obj} delivered after version {before}")
        known = version in self._ledger.states.get(obj.uid, ())
        self._expect(known, f"G1: {obj} is a state that never was")

    def _end(self, obj: KubeObject, *, unknown: bool) -> None:
        """G6: each deletion comes once, with the last known state."""
        before = self.present.pop(obj.key, None)
        if before is None or before.uid != obj.uid:
            self.wrong.append(f"G6: {obj} deleted, and {before} was there")
        elif unknown:
            same = obj.resource_version == before.resource_version
            self._expect(same, f"G6: {obj} is not the last known state, {before}")
        else:
            self._state(obj)

        self._expect(obj.uid not in self.ended, f"G6: {obj} deleted twice")
        self.ended.add(obj.uid)

    def _store_shows(self, event: Added | Updated | Deleted) -> None:
        """G3: the store has the state of the event, or a later one."""
        if self._lied_to:
            return

        obj = event.new if isinstance(event, Updated) else event.obj
        stored = self._informer.store.get_by_key(obj.key)
        order = self._ledger.order
        if stored is None:
            later = isinstance(event, Deleted) or obj.uid in self._ledger.ended
        elif stored.uid != obj.uid:
            later = order[stored.uid] > order[obj.uid]
        else:
            newer = int(stored.resource_version) >= int(obj.resource_version)
            later = newer and not isinstance(event, Deleted)

        self._expect(later, f"G3: the store has {stored} when {event} is delivered")

    def verdict(self, stored: Mapping[str, KubeObject]) -> list[str]:
        """Return all violations, at the end when no more events are expected.

        Args:
            stored: Objects of the store at the end.
        """
        wrong = list(self.wrong)
        last = self.present
        if any(not self._same(last.get(key), obj) for key, obj in stored.items()):
            wrong.append("G1: the last delivered state is not the last state")

        if self.present.keys() != stored.keys():
            wrong.append(
                f"G6: {self.present.keys() ^ stored.keys()} not delivered, or wrong"
            )

        missing = (self.last.keys() & self._ledger.ended) - self.ended
        wrong += [f"G6: the deletion of {uid} was never delivered" for uid in missing]
        wrong += [
            f"G6: {uid} exists, and was delivered as deleted"
            for uid in self.ended - self._ledger.ended
        ]
        return wrong


class Run:
    """An informer, its ledger, and three witnesses: prompt, slow and late."""

    def __init__(
        self,
        server: APIServer,
        ledger: Ledger,
        informer: SharedInformer,
        *,
        lied_to: bool,
        on_disk: bool = False,
    ) -> None:
        self.server = server
        self.ledger = ledger
        self.informer = informer
        self.stored: dict[str, KubeObject] = {}
        """Objects of the store at the end of the informer."""
        self._lied_to = lied_to
        self._on_disk = on_disk
        self._witnesses: list[Witness] = []
        self._registrations: list[Registration] = []
        self.witness()
        self.witness(seconds=0.4)

    def witness(self, *, seconds: float = 0.0) -> Witness:
        """Add another handler."""
        one = Witness(
            self.ledger,
            self.informer,
            seconds=seconds,
            lied_to=self._lied_to,
            on_disk=self._on_disk,
        )
        self._registrations.append(self.informer.add_event_handler(on_event=one))
        self._witnesses.append(one)
        return one

    async def list_again(self) -> None:
        """Make the informer relist, which reports what was missed."""
        self.server.faults.add(Gone())
        await self.server.until(lambda: not len(self.server.faults), timeout=900)
        # Only a list can report it.
        self.ledger.write()

    async def settled(self, timeout: float = 900.0) -> None:
        """Wait until the store has the newest version, and the handlers all events."""
        version = self.server.resource_version
        await self.informer.wait_for_version(version, timeout=timeout)
        await asyncio.sleep(5)
        await self.server.until(
            lambda: not any(one.depth for one in self._registrations), timeout=timeout
        )

    def verdict(self) -> list[str]:
        """Return the violations; empty if there are none."""
        wrong = [it for one in self._witnesses for it in one.verdict(self.stored)]
        truth = {
            f"{body['metadata']['namespace']}/{body['metadata']['name']}": body
            for body in self.server.objects(PODS)
        }
        stored = {key: obj.to_dict() for key, obj in self.stored.items()}
        if stored != truth:
            keys = sorted(stored.keys() | truth.keys())
            differ = [key for key in keys if stored.get(key) != truth.get(key)]
            wrong.append(f"the store differs from the server in {differ}")

        return wrong + self.early_attempts()

    def early_attempts(self) -> list[str]:
        """G7: return the attempts that began too soon after the previous one."""
        struck_at_once = [
            one.occasion.query
            for one in self.server.faults.struck
            if isinstance(one.fault, Cut) and not one.fault.head
        ]
        starts = attempts_of(self.server)
        wrong = []
        relisted = False
        for one, other in pairwise(starts):
            # A complete list is followed by its watch, and a request on a dead
            # kept-alive connection is sent once more: that is one attempt.
            resent = one.query == other.query and one.query in struck_at_once
            follows = other.kind == "watch" and one.kind.startswith("list")
            gap = other.time - one.time
            if gap >= SHORT_SECONDS:
                relisted = False

            if gap >= GAP_SECONDS - EARLY_SECONDS or resent or follows:
                continue

            # The first invalid version after a live watch causes a list at once.
            if other.kind in {"list newest", "stream"} and not relisted:
                relisted = True
                continue

            wrong.append(f"G7: a {other.kind} {gap:.3f} s behind a {one.kind}")

        # Streaming is given up once; the paged list that replaces it does not wait.
        given_up = (
            wrong and wrong[0].endswith("s behind a stream") and "list" in wrong[0]
        )
        return wrong[1:] if given_up else wrong


@dataclass(frozen=True)
class Attempt:
    """Return whether a request begins an attempt: no further page, no silence check."""

    time: float
    kind: str
    query: dict[str, str]


def attempts_of(
    server: APIServer, *, behind: dict[str, str] | None = None
) -> list[Attempt]:
    """Return the attempts of an informer of pods.

    Args:
        server: Server with the recorded requests.
        behind: Query of a request; attempts up to the first one with it are left out.
    """
    requested = [one for one in server.requests if one.resource == PODS.plural]
    if behind is not None:
        del requested[: [one.query for one in requested].index(behind) + 1]

    return [
        Attempt(one.time, kind, one.query)
        for one in requested
        if (kind := _kind_of(one.verb, one.query))
    ]


def _kind_of(verb: str, query: dict[str, str]) -> str:
    if verb == "watch":
        return "stream" if query.get("sendInitialEvents") == "true" else "watch"

    version = query.get("resourceVersion", "")
    if verb != "list" or query.get("continue"):
        return ""

    if not version:
        return "" if query.get("limit") == "1" else "list newest"

    return "list any" if version == "0" else "list not older"


@asynccontextmanager
async def running_pods(
    server: APIServer,
    ledger: Ledger,
    *,
    seed: int = 0,
    lied_to: bool = False,
    url: str = "",
    token: str | None = None,
    cache: Path | None = None,
    **options: Any,
) -> AsyncIterator[Run]:
    """Run an informer of all pods over HTTP during the block.

    Args:
        server: Server with the pods.
        ledger: Writer of the pods.
        seed: Seed of the jitter.
        lied_to: See `Witness`.
        url: Another address of the server.
        token: Token of another user than the administrator.
        cache: Directory of its store on disk; None for a store in memory.
        **options: Options of the reflector.
    """
    token = token or server.token
    async with Client.from_url(url or server.url, token=token) as client:
        informer = SharedInformer(
            ListWatch(client, PODS),
            name="pods",
            options=ReflectorOptions(**options),
            rng=random.Random(seed),
            place=None if cache is None else CachePlace(cache, "pods", "pods"),
        )
        on_disk = cache is not None
        run = Run(server, ledger, informer, lied_to=lied_to, on_disk=on_disk)
        async with running(informer.run()):
            yield run
            used = informer.status.cache
            assert (used is not None and used.role == "writer") == on_disk
            run.stored = {obj.key: obj for obj in informer.store.list()}
