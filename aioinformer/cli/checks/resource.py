"""Checks of one resource, by the requests of an informer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from aioinformer.cli.checks import results
from aioinformer.cli.checks.findings import StepResult
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.resource_names import built_in, refuse_category
from aioinformer.client.rest_mapper import ServedResource
from aioinformer.errors import (
    DecodeError,
    Invalid,
    NotFound,
)
from aioinformer.informer.listwatch.watch_events import InitialEvents
from aioinformer.model.resource import Resource
from aioinformer.watch.events import EventType

if TYPE_CHECKING:
    from aioinformer.client import Client

__all__ = ["ResourceScope", "denied", "find", "listing", "watch_list", "watching"]

_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    False,
)

# A server sends the last bookmark 2 s before the end of a watch.
WATCH_SECONDS = 5
LEAST_WATCH_SECONDS = 4

# Servers that do not support it may send nothing.
INITIAL_SECONDS = 3.0

# Share of the step's timeout, so that the result is reported before it.
_SHARE = 0.9

# Selects no object, as a list of all objects would be expensive.
_NO_OBJECT = "metadata.name=aioinformer-doctor"


@dataclass(frozen=True, slots=True)
class ResourceScope:
    """Resource and namespace to list and watch."""

    resource: Resource
    namespace: str = ""
    """Namespace, or empty for all and for cluster-scoped resources."""

    @property
    def description(self) -> str:
        """Description of the namespace: `in namespace shop`."""
        if not self.resource.namespaced:
            return "cluster-scoped"

        if self.namespace:
            return f"in namespace {self.namespace}"

        return "in all namespaces"


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


async def find(name: str, client: Client, *, discovered: bool) -> ServedResource:
    """Find a resource by name.

    Args:
        name: Name, as for `Discovery`.
        client: Entered client.
        discovered: True if discovery succeeded. If not, built-in resources are assumed
            to exist, and others are requested from the server again.

    Raises:
        CommandError: If the server has no such resource.
        AioInformerError: If discovery failed, and the resource is not built in.

    Cancellation:
        Safe.
    """
    refuse_category(name)
    known = None if discovered else built_in(name)
    if known is not None:
        return ServedResource(known, known.kind.lower())

    try:
        return await client.discovery.served(name)
    except NotFound as exc:
        raise CommandError(exc.message) from exc


async def denied(
    scope: ResourceScope,
    client: Client,
    verbs: tuple[str, ...] = ("list", "watch", "get"),
) -> set[str]:
    """Return those of the verbs that are not permitted.

    Raises:
        ApiError: If the server refused the review.
        TransportError: If the network failed.
        DecodeError: If the response cannot be decoded.

    Cancellation:
        Safe.
    """
    found = set()
    for verb in verbs:
        attributes = {
            "namespace": scope.namespace,
            "verb": verb,
            "group": scope.resource.group,
            "version": scope.resource.version,
            "resource": scope.resource.plural,
        }
        review = await client.create(
            _REVIEWS, {"spec": {"resourceAttributes": attributes}}
        )
        if review.at("status.allowed", False) is not True:
            found.add(verb)

    return found


async def listing(scope: ResourceScope, client: Client) -> tuple[StepResult, str]:
    """List one object, and count all.

    Returns:
        Result, and the resource version to watch from.

    Raises:
        ApiError: If the server refused.
        TransportError: If the network failed.
        DecodeError: If the response is not a list.

    Cancellation:
        Safe: the connection is closed.
    """
    loop = asyncio.get_running_loop()
    before = loop.time()
    path = scope.resource.path(scope.namespace or None)
    async with client.stream("GET", path, {"limit": "1"}) as response:
        body = await response.read()

    try:
        document = msgspec.json.decode(body, type=_List)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DecodeError(f"{path} returned an invalid list: {exc}") from exc

    meta = document.metadata
    result = results.listed(
        len(document.items or ()),
        meta.remaining_item_count,
        loop.time() - before,
        more=bool(meta.continue_token),
    )
    return result, meta.resource_version


async def watching(
    scope: ResourceScope, client: Client, version: str, timeout: float
) -> StepResult:
    """Open a watch, and wait for a bookmark.

    Args:
        scope: Resource and namespace.
        client: Entered client.
        version: Resource version to watch from.
        timeout: Maximum seconds for the whole step.

    Raises:
        ApiError: If the server refused, or ended the watch with an error.
        TransportError: If the network failed.
        DecodeError: If the response is not a watch.

    Cancellation:
        Safe: the connection is closed.
    """
    # The response headers take time, too.
    seconds = max(1, min(WATCH_SECONDS, int(timeout - 1)))
    loop = asyncio.get_running_loop()
    before = loop.time()
    async with client.watch(
        scope.resource,
        namespace=scope.namespace or None,
        resource_version=version,
        timeout_seconds=seconds,
        bookmarks=True,
    ) as stream:
        opened = f"opened after {(loop.time() - before) * 1000:.0f} ms"
        try:
            ends = min(loop.time() + seconds, before + timeout * _SHARE)
            async with asyncio.timeout_at(ends):
                async for event in stream:
                    if event.type is EventType.ERROR:
                        raise event.error()

                    if event.type is EventType.BOOKMARK:
                        return StepResult("ok", f"{opened}, with bookmarks")

        except TimeoutError:
            pass

    if seconds < LEAST_WATCH_SECONDS:
        text = f"{opened}, but not enough time to see bookmarks: increase --timeout"
        return StepResult("ok", text)

    return StepResult(
        "warning",
        f"{opened}, but no bookmark within {seconds} s: a silently dead watch is detected "
        "minutes later, and relists are more frequent",
    )


async def watch_list(
    scope: ResourceScope, client: Client, timeout: float
) -> StepResult:
    """Request a streaming list that selects no objects.

    Raises:
        ApiError: If the server refused for another reason than missing support.
        TransportError: If the network failed.
        DecodeError: If the response is not a watch.

    Cancellation:
        Safe: the connection is closed.
    """
    loop = asyncio.get_running_loop()
    limit = min(INITIAL_SECONDS, timeout * _SHARE)
    initial = InitialEvents()
    try:
        async with client.watch(
            scope.resource,
            namespace=scope.namespace or None,
            field_selector=_NO_OBJECT,
            timeout_seconds=WATCH_SECONDS,
            send_initial_events=True,
        ) as stream:
            try:
                async with asyncio.timeout(limit):
                    while not initial.complete:
                        events = await stream.next_batch()
                        if not events:
                            break

                        initial.take(events, loop.time())

            except TimeoutError:
                pass

    except Invalid as exc:
        text = f"not supported ({exc.status}): streaming_list=True falls back to pages, the "
        return StepResult("ok", f"{text}default of informers")

    if initial.complete:
        return StepResult("ok", "supported (not used: pages, the default, are faster)")

    text = "not supported: do not use streaming_list=True, or each first list waits "
    return StepResult("warning", f"{text}30 s for an end that is never sent")
