"""Events about one object: from informers of events, or by a request."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from aioinformer.budget import LoopBudget
from aioinformer.cache.index import NAMESPACE_INDEX, index_by
from aioinformer.client.redaction import redacted
from aioinformer.errors import AioInformerError, DecodeError
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import EVENTS
from aioinformer.tables.cells import at, moment, number, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioinformer.client.client import Client
    from aioinformer.informer.shared_informer import SharedInformer

__all__ = ["MAX_EVENTS", "MAX_SCANNED", "FoundEvents", "events_about", "is_of_events"]

MAX_EVENTS: Final = 50
"""Maximum number of events of an object."""

MAX_SCANNED: Final = 20_000
"""Maximum number of objects of an informer without a fitting index that are looked at."""

INFORMER_SECONDS: Final = 2.0
"""Interval of reads of informers."""

REQUEST_SECONDS: Final = 10.0
"""Interval and timeout of requests."""

_MAX_MESSAGE: Final = 2000

_BY_UID: Final = index_by("involvedObject.uid")


class FoundEvents(NamedTuple):
    """Events of one object."""

    events: list[dict[str, Any]]
    """JSON of the events, the newest first."""
    error: str = ""
    """Error in one line; empty if they are complete."""
    fresh_for: float = INFORMER_SECONDS
    """Seconds after which to look again."""


def is_of_events(informer: SharedInformer) -> bool:
    """Return True if an informer has the events of the core group."""
    resource = informer.resource
    return resource is not None and (resource.group, resource.plural) == (
        EVENTS.group,
        EVENTS.plural,
    )


async def events_about(
    uid: str,
    namespace: str,
    informers: Iterable[SharedInformer],
    client: Client | None,
) -> FoundEvents:
    """Return the events of an object.

    Args:
        uid: Uid of the object. Without one, there are no events.
        namespace: Namespace of the object; empty if it is cluster-scoped.
        informers: Informers, of which those of events are read.
        client: Client for a request if there are none of events, or None.

    Cancellation:
        Safe.
    """
    sources = [it for it in informers if is_of_events(it)]
    if not uid:
        return FoundEvents([])

    try:
        if sources:
            return await _stored(uid, namespace, sources)

        if client is None:
            return FoundEvents([], "no informer of events, and no client")

        return await _requested(uid, namespace, client)
    except TimeoutError:
        error = f"no response within {REQUEST_SECONDS:g} s"
    except AioInformerError as exc:
        error = redacted(str(exc))

    return FoundEvents([], error, REQUEST_SECONDS)


async def _stored(
    uid: str, namespace: str, sources: Sequence[SharedInformer]
) -> FoundEvents:
    found: list[KubeObject] = []
    errors = []
    for informer in sources:
        if not informer.has_synced:
            errors.append(f"{informer.name}: {informer.why_not_synced()}")

        indexer = informer.indexer
        indexes = indexer.indexers.items()
        name = next((name for name, it in indexes if it == _BY_UID), None)
        if name is not None:
            found += indexer.by_index(name, uid)
            continue

        # Events are in the namespace of their object.
        keys = (
            indexer.index_keys(NAMESPACE_INDEX, namespace)
            if namespace
            else indexer.list_keys()
        )
        if len(keys) > MAX_SCANNED:
            errors.append(
                f"{informer.name} has {len(keys)} events and no index "
                "index_by('involvedObject.uid')"
            )
        else:
            found += await _scanned(uid, keys, informer)

    return FoundEvents(_rows(found), redacted("; ".join(errors)))


async def _scanned(
    uid: str, keys: list[str], informer: SharedInformer
) -> list[KubeObject]:
    found = []
    wanted = uid.encode()
    budget = LoopBudget.current()
    await budget.start()
    for key in keys:
        event = informer.indexer.get_by_key(key)
        # Much cheaper than decoding.
        if event is not None and wanted in event.raw and _is_about(event, uid):
            found.append(event)

        if budget.over():
            await budget.start()

    budget.end()
    return found


def _is_about(event: KubeObject, uid: str) -> bool:
    try:
        return uid in _BY_UID(event)
    except DecodeError:
        return False  # the informer counts it


class _List(msgspec.Struct):
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)


_decode: Final = msgspec.json.Decoder(_List).decode


async def _requested(uid: str, namespace: str, client: Client) -> FoundEvents:
    escaped = uid
    for special in "\\,=":
        escaped = escaped.replace(special, f"\\{special}")

    parameters = {
        "fieldSelector": f"involvedObject.uid={escaped}",
        "limit": str(MAX_EVENTS),
    }
    async with asyncio.timeout(REQUEST_SECONDS):
        path = EVENTS.path(namespace or None)
        async with client.stream("GET", path, parameters) as response:
            body = await response.read()

    try:
        found = [KubeObject.of(bytes(it)) for it in _decode(body).items]
    except msgspec.DecodeError as exc:
        raise DecodeError(f"the server returned no list of events: {exc}") from exc

    return FoundEvents(_rows(found), fresh_for=REQUEST_SECONDS)


def _rows(found: list[KubeObject]) -> list[dict[str, Any]]:
    rows = []
    for event in found:
        with suppress(DecodeError):
            rows.append(_row(dict(event)))

    rows.sort(key=lambda row: row["last"] or 0.0, reverse=True)
    return rows[:MAX_EVENTS]


def _row(event: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of an event of any age: newer ones have a series."""
    times = [
        _seconds(at(event, *path))
        for path in (
            ("firstTimestamp",),
            ("eventTime",),
            ("metadata", "creationTimestamp"),
            ("lastTimestamp",),
            ("series", "lastObservedTime"),
        )
    ]
    known = [time for time in times if time is not None]
    return {
        "type": text(event, "type"),
        "reason": text(event, "reason"),
        "message": text(event, "message")[:_MAX_MESSAGE],
        "count": number(event, "series", "count") or number(event, "count") or 1,
        "first": next(iter(known), None),
        "last": max(known, default=None),
        "source": text(event, "source", "component")
        or text(event, "reportingComponent"),
    }


def _seconds(timestamp: object) -> float | None:
    time = moment(timestamp)
    return None if time is None else time.timestamp()
