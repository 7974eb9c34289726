"""`ObjectPages`: what is known of one object, as a feed and as JSON of its states."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aioinformer import json_codec
from aioinformer._tasks import run_concurrently
from aioinformer.budget import LoopBudget
from aioinformer.errors import InformerStopped, OptionsError
from aioinformer.model.validation import shown
from aioinformer.web.dashboard.object_body import details_of, shown_body
from aioinformer.web.dashboard.object_events import FoundEvents, events_about
from aioinformer.web.dashboard.owner_graph import kind_of, owner_graph, trouble_of
from aioinformer.web.dashboard.sources import NotShown, find_informer
from aioinformer.web.responses import encode_json_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from aioinformer.client.client import Client
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.web.dashboard.object_body import ShownBody
    from aioinformer.web.dashboard.states import Details, ShownState, StateHistory

    Informers: TypeAlias = Callable[[], Mapping[str, SharedInformer]]
    ReconcilesOf: TypeAlias = Callable[[SharedInformer, str], Sequence[dict[str, Any]]]
    Send: TypeAlias = Callable[[bytes], Awaitable[None]]

__all__ = ["MAX_STATES", "ObjectFeed", "ObjectPages"]

MAX_STATES: Final = 200
"""Maximum number of states in an event; `ObjectPages.state` has the earlier ones, too."""

EVENT_SECONDS: Final = 0.5
"""Shortest time between two events of a feed."""

CHECK_SECONDS: Final = 2.0
"""Time after which reconciles are looked at again."""

GRAPH_SECONDS: Final = 5.0
"""Time after which the graph of owners is made again."""

FIRST_SECONDS: Final = 0.25
"""Time that the first event waits for events and graph, which follow otherwise."""

MAX_BODIES: Final = 16
"""Number of bodies that are kept for other readers of the same object."""

SCAN_SHARE: Final = 20
"""Least time between two scans of a page, as a multiple of the time that one takes: many
pages together do not take more."""

MAX_WAIT_SECONDS: Final = 60.0
"""Longest time between two scans."""

_MAX_KEY: Final = 1000


class _Shown(NamedTuple):
    """Parts of a page about an object, made once for all its readers."""

    obj: KubeObject
    body: ShownBody
    trouble: str


class _Bodies:
    """Bodies that were shown last."""

    def __init__(self) -> None:
        # By id, as objects are not hashable: the object stays alive with its entry.
        self._shown: OrderedDict[int, _Shown] = OrderedDict()

    def of(self, obj: KubeObject, resource: Resource | None) -> _Shown:
        """Return what a page shows of an object."""
        shown = self._shown.get(id(obj))
        if shown is None:
            shown = _Shown(obj, shown_body(obj, resource), trouble_of(obj))
            self._shown[id(obj)] = shown
            if len(self._shown) > MAX_BODIES:
                self._shown.popitem(last=False)

        return shown


@dataclass(frozen=True, slots=True)
class _Sources:
    """Sources of the pages; see `ObjectPages`."""

    history: StateHistory
    informers: Informers
    client: Client | None
    reconciles_of: ReconcilesOf
    reasons: bool
    bodies: _Bodies = field(default_factory=_Bodies)


class ObjectPages:
    """Pages of the objects of all informers.

    An object that does not exist has a page, too: it may have existed, or be created.

    Args:
        history: States of the objects. Informers that it follows have up to date pages,
            those of others are checked every 2 s.
        informers: Function that returns the informers by their ids.
        client: Client to request events with, if no informer has them; None for none.
        reconciles_of: Function that returns the JSON of the reconciles that an object of
            an informer, given by its key, has caused.
        reasons: True to show why events cannot be read.
    """

    def __init__(
        self,
        history: StateHistory,
        informers: Informers,
        client: Client | None = None,
        reconciles_of: ReconcilesOf = lambda _informer, _key: (),
        *,
        reasons: bool = True,
    ) -> None:
        self._sources = _Sources(history, informers, client, reconciles_of, reasons)

    def feed(self, place: str, key: str) -> ObjectFeed:
        """Return the feed of the page of an object.

        Args:
            place: Id of the informer.
            key: Key of the object.

        Raises:
            NotShown: If there is no such informer.
            OptionsError: If the key is malformed.
        """
        return ObjectFeed(self._sources, place, self._informer(place, key), key)

    def state(self, place: str, key: str, number: int) -> bytes:
        """Return the JSON of one state of an object.

        Args:
            place: Id of the informer.
            key: Key of the object.
            number: Number of the state.

        Raises:
            NotShown: If there is no such informer, or the state is not kept.
            OptionsError: If the key is malformed.
            InformerStopped, CacheError: See `StateHistory.timeline`.
        """
        informer = self._informer(place, key)
        obj = self._sources.history.state(informer, key, number)
        if obj is None:
            raise NotShown(f"state {number} of {shown(key)} is not kept any more")

        body, hidden = shown_body(obj, informer.resource)
        return json_codec.dumps({"number": number, "body": body, "hidden": hidden})

    def _informer(self, place: str, key: str) -> SharedInformer:
        informer = find_informer(self._sources.informers(), place)
        namespace, slash, name = key.partition("/")
        complete = bool(namespace and name) if slash else bool(key)
        resource = informer.resource
        if resource is not None and resource.namespaced is not bool(slash):
            complete = False

        if not complete or len(key) > _MAX_KEY:
            form = (
                "namespace/name" if resource is None or resource.namespaced else "name"
            )
            raise OptionsError(
                f"the key of an object of {place} is {form}, not {shown(key)}"
            )

        return informer


class ObjectFeed:
    """Feed of one object's page for one reader; made by `ObjectPages.feed`.

    Args:
        sources: Sources of the page.
        place: Id of the informer.
        informer: The informer.
        key: Key of the object.
    """

    def __init__(
        self, sources: _Sources, place: str, informer: SharedInformer, key: str
    ) -> None:
        self._sources = sources
        self._place = place
        self._informer = informer
        self._key = key
        # Set when there may be something to send, and once everything was read.
        self._news = asyncio.Event()
        self._complete = asyncio.Event()
        self._events: FoundEvents | None = None
        self._graph: dict[str, Any] | None = None
        self._shown: _Shown | None = None

    async def run(self, send: Send) -> None:
        """Send events until cancelled: the first at once, then after changes.

        At most two events a second are made, each after the one before was sent.

        Args:
            send: Function that sends an event, and may wait.

        Raises:
            InformerStopped: If the informer is removed, within two seconds.
            InformerStopped, CacheError: See `StateHistory.timeline`.
            Exception: Error of `send`.

        Cancellation:
            The normal end.
        """
        history = self._sources.history
        unwatch = history.watch(self._informer, self._key, self._news.set)
        try:
            await run_concurrently(
                self._send_changes(send), self._keep_events(), self._keep_graph()
            )
        finally:
            unwatch()

    async def _send_changes(self, send: Send) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self._complete.wait()

        sent: dict[str, Any] = {}
        while True:
            self._check_shown()
            self._news.clear()
            page = await self._page()
            if page != sent:
                await send(encode_json_event("object", page))
                sent = page

            await asyncio.sleep(EVENT_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS - EVENT_SECONDS):
                    await self._news.wait()

    def _check_shown(self) -> None:
        # Another informer may have got its id, which has the current objects.
        if self._sources.informers().get(self._place) is not self._informer:
            raise InformerStopped(f"{self._place} was removed")

    async def _keep_events(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            obj = self._last_known()
            found = FoundEvents([])
            if obj is not None:
                informers, client = self._sources.informers(), self._sources.client
                found = await events_about(
                    obj.uid, obj.namespace, informers.values(), client
                )
                if found.error and not self._sources.reasons:
                    found = found._replace(error="they cannot be read")

                if found.error and not found.events and self._events is not None:
                    # The events of before are better than none.
                    found = found._replace(events=self._events.events)

            self._events = found
            self._noted()
            await asyncio.sleep(_pause(found.fresh_for, clock() - began))

    async def _keep_graph(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            obj = self._last_known()
            if obj is None:
                self._graph = _NO_GRAPH
            else:
                informers = self._sources.informers()
                self._graph = await owner_graph(obj, self._place, informers)

            self._noted()
            await asyncio.sleep(_pause(GRAPH_SECONDS, clock() - began))

    def _noted(self) -> None:
        if self._events is not None and self._graph is not None:
            self._complete.set()

        self._news.set()

    def _last_known(self) -> KubeObject | None:
        """Return the object, or its last state if it does not exist any more."""
        history = self._sources.history
        states = history.timeline(self._informer, self._key, limit=1).states
        return states[-1].obj if states else None

    async def _page(self) -> dict[str, Any]:
        """Return the JSON of the page."""
        informer, key = self._informer, self._key
        # One more than is sent, to compare with.
        timeline = self._sources.history.timeline(informer, key, MAX_STATES + 1)
        states = await self._states_of(timeline.states)
        obj = current = None
        if timeline.states:
            obj = timeline.states[-1].obj
            current = None if timeline.states[-1].change == "deleted" else obj

        body, trouble = self._body_of(current)
        namespace = key.partition("/")[0] if "/" in key else ""
        found = self._events or FoundEvents([])
        return {
            "informer": self._place,
            "key": key,
            "uid": "" if obj is None else obj.uid,
            "exists": current is not None,
            "kind": kind_of(informer, obj),
            "namespace": namespace,
            "name": key.partition("/")[2] or key,
            "body": None if body is None else body.value,
            "hidden": [] if body is None else body.hidden,
            "trouble": trouble,
            "states": states[-MAX_STATES:],
            "earlier": timeline.earlier + max(0, len(states) - MAX_STATES),
            "forgotten": timeline.forgotten,
            "reconciles": list(self._sources.reconciles_of(informer, key)),
            "events": found.events,
            "events_error": found.error,
            "graph": self._graph or _NO_GRAPH,
        }

    def _body_of(self, obj: KubeObject | None) -> tuple[ShownBody | None, str]:
        """Return the body and the trouble of the object, made once for each state."""
        if obj is None:
            return None, ""

        if self._shown is None or self._shown.obj is not obj:
            self._shown = self._sources.bodies.of(obj, self._informer.resource)

        return self._shown.body, self._shown.trouble

    async def _states_of(self, states: list[ShownState]) -> list[dict[str, Any]]:
        """Return the JSON of states, whose details are computed once."""
        rows = []
        before: KubeObject | None = None
        budget = LoopBudget.current()
        await budget.start()
        for state in states:
            details = state.details
            if details is None:
                details = details_of(state.obj, before, self._informer.resource)
                self._sources.history.keep_details(
                    self._informer, self._key, state, details
                )

            rows.append(_row(state, details))
            before = state.obj
            if budget.over():
                await budget.start()

        budget.end()
        return rows


_NO_GRAPH: Final[dict[str, Any]] = {"nodes": [], "edges": [], "cut": 0, "skipped": []}


def _pause(least: float, took: float) -> float:
    """Return the seconds until the next scan, after one that took some seconds."""
    return max(least, min(SCAN_SHARE * took, MAX_WAIT_SECONDS))


def _row(state: ShownState, details: Details) -> dict[str, Any]:
    return {
        "number": state.number,
        "time": state.time,
        "change": state.change,
        "version": state.obj.resource_version,
        "bytes": details.size,
        "paths": details.paths,
        "more": details.more,
    }
