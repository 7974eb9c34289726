"""One resource: whether an informer can follow it, asked as an informer would ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from aioinformer.cli.checks import results as judging
from aioinformer.cli.checks.findings import StepResult
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.resource_names import built_in
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

# Some may say nothing at all, as those do that take it for a common watch.
INITIAL_SECONDS = 3.0

# Of the time of a step, so that it can tell what it has seen by then.
_SHARE = 0.9

# An object that nobody has: what there is would be told in full, for nothing.
_NOBODY = "metadata.name=aioinformer-doctor"


@dataclass(frozen=True, slots=True)
class ResourceScope:
    """What is listed and watched, and where."""

    resource: Resource
    namespace: str = ""
    """Empty for all of them, and for what is in none."""

    @property
    def words(self) -> str:
        """Where: `in the namespace shop`."""
        if not self.resource.namespaced:
            return "for the whole cluster"

        if self.namespace:
            return f"in the namespace {self.namespace}"

        return "in all namespaces"


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


async def find(word: str, client: Client, *, discovered: bool) -> ServedResource:
    """Find what a word means.

    Args:
        word: As `Discovery` takes it.
        client: Entered.
        discovered: The server has told what it serves. If not, built-in resources are
            taken for there, and the server is asked once more for others.

    Raises:
        CommandError: The server has, in all that it could tell of, none of this name.
        AioInformerError: Discovery failed, and it is none that is built in.

    Cancellation:
        Safe.
    """
    known = None if discovered else built_in(word)
    if known is not None:
        return ServedResource(known, known.kind.lower())

    try:
        return await client.discovery.served(word)
    except NotFound as exc:
        raise CommandError(exc.message) from exc


async def denied(place: ResourceScope, client: Client) -> set[str]:
    """Ask which of `list`, `watch` and `get` we may not do.

    Raises:
        ApiError: We may not ask, or not so.
        TransportError: The network failed.
        DecodeError: The answer cannot be read.

    Cancellation:
        Safe.
    """
    found = set()
    for verb in ("list", "watch", "get"):
        wanted = {
            "namespace": place.namespace,
            "verb": verb,
            "group": place.resource.group,
            "version": place.resource.version,
            "resource": place.resource.plural,
        }
        review = await client.create(_REVIEWS, {"spec": {"resourceAttributes": wanted}})
        if review.at("status.allowed", False) is not True:
            found.add(verb)

    return found


async def listing(place: ResourceScope, client: Client) -> tuple[StepResult, str]:
    """List one object, and see how many there are.

    Returns:
        What there is, and the version from which a watch goes on.

    Raises:
        ApiError: The server refused.
        TransportError: The network failed.
        DecodeError: The answer is no list.

    Cancellation:
        Safe: the connection is closed.
    """
    loop = asyncio.get_running_loop()
    before = loop.time()
    path = place.resource.path(place.namespace or None)
    async with client.stream("GET", path, {"limit": "1"}) as response:
        body = await response.read()

    try:
        said = msgspec.json.decode(body, type=_List)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DecodeError(f"{path} is no list that can be read: {exc}") from exc

    meta = said.metadata
    answer = judging.listed(
        len(said.items or ()),
        meta.remaining_item_count,
        loop.time() - before,
        more=bool(meta.continue_token),
    )
    return answer, meta.resource_version


async def watching(
    place: ResourceScope, client: Client, version: str, patience: float
) -> StepResult:
    """Open a watch, and wait for a bookmark.

    Args:
        place: What to watch.
        client: Entered.
        version: Where to begin.
        patience: For how many seconds all of it may last.

    Raises:
        ApiError: The server refused, or ended the watch with an error.
        TransportError: The network failed.
        DecodeError: What comes is no watch.

    Cancellation:
        Safe: the connection is closed.
    """
    # The head takes a while, too.
    seconds = max(1, min(WATCH_SECONDS, int(patience - 1)))
    loop = asyncio.get_running_loop()
    before = loop.time()
    async with client.watch(
        place.resource,
        namespace=place.namespace or None,
        resource_version=version,
        timeout_seconds=seconds,
        bookmarks=True,
    ) as stream:
        opened = f"opens after {(loop.time() - before) * 1000:.0f} ms"
        try:
            ends = min(loop.time() + seconds, before + patience * _SHARE)
            async with asyncio.timeout_at(ends):
                async for event in stream:
                    if event.type is EventType.ERROR:
                        raise event.error()

                    if event.type is EventType.BOOKMARK:
                        return StepResult("ok", f"{opened}, and bookmarks come")

        except TimeoutError:
            pass

    if seconds < LEAST_WATCH_SECONDS:
        text = f"{opened}; too little time to see bookmarks: see --timeout"
        return StepResult("ok", text)

    return StepResult(
        "warning",
        f"{opened}, but no bookmark came within {seconds} s: a watch that dies in silence "
        "is noticed minutes later, and lists are repeated more often",
    )


async def watch_list(
    place: ResourceScope, client: Client, patience: float
) -> StepResult:
    """Ask for a list as a stream, of nothing, and see how that ends.

    Raises:
        ApiError: The server refused for another reason than that it does not do that.
        TransportError: The network failed.
        DecodeError: What comes is no watch.

    Cancellation:
        Safe: the connection is closed.
    """
    loop = asyncio.get_running_loop()
    limit = min(INITIAL_SECONDS, patience * _SHARE)
    initial = InitialEvents()
    try:
        async with client.watch(
            place.resource,
            namespace=place.namespace or None,
            field_selector=_NOBODY,
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
        text = (
            f"refused ({exc.status}): streaming_list=True falls back to pages, which "
        )
        return StepResult("ok", f"{text}informers use anyway unless told")

    if initial.complete:
        return StepResult("ok", "works: streaming_list=True would list as a stream")

    text = "the server does not know it: leave streaming_list=True out, or each first "
    return StepResult("warning", f"{text}list waits 30 s for an end that never comes")
