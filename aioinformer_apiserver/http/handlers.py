"""Handlers: from a request to what is done about it.

The only order that matters is that of a real server: who are you, may you do that, is
it there, may the answer be in a format of ours, and then the resource itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from aioinformer.errors import ApiError
from aioinformer_apiserver.auth import reviews
from aioinformer_apiserver.discovery import discovery
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.faults import Faults
from aioinformer_apiserver.faults.preempting import preempt
from aioinformer_apiserver.http.actions import Actions, shown_kind
from aioinformer_apiserver.reads.freshness import wait_fresh
from aioinformer_apiserver.reads.lists import page_of
from aioinformer_apiserver.reads.streams import Stream
from aioinformer_apiserver.requests.queries import (
    ListQuery,
    WatchQuery,
    scope_of,
    version_of_get,
)
from aioinformer_apiserver.requests.routes import (
    Attributes,
    RequestRecord,
    Target,
    attributes_of,
    target_of,
)
from aioinformer_apiserver.serialization.answers import (
    Answer,
    document,
    refusal,
    warned,
)
from aioinformer_apiserver.serialization.formats import format_of
from aioinformer_apiserver.storage.waker import Bell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.auth.gate import Access
    from aioinformer_apiserver.auth.rbac import User
    from aioinformer_apiserver.http.outlet import Outlet
    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.requests.request import Call
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.storage import Collection

__all__ = ["HandlerOptions", "Handlers"]

# Asked for all the time by those who watch over servers; not worth a record.
_HEALTH_PATHS = frozenset({"/livez", "/readyz", "/healthz"})
# Requests remembered for tests to look at.
_RECORDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """The times of the server, in seconds of the loop's clock."""

    bookmark_seconds: float
    watch_seconds: float
    fresh_seconds: float


class Handlers:
    """Answers requests, wherever they come from.

    Args:
        registry: Where objects are read and written.
        access: Who may do so.
        options: The times.
    """

    def __init__(
        self, registry: Registry, access: Access, options: HandlerOptions
    ) -> None:
        self.faults = Faults()
        self.records: deque[RequestRecord] = deque(maxlen=_RECORDS)
        self._actions = Actions(registry, access.service_tokens)
        self._storage = registry.storage
        self._access = access
        self._options = options
        self._stopping = False
        self._bells: set[Bell] = set()

    @property
    def stopping(self) -> bool:
        """True from `stop()` until it is opened again."""
        return self._stopping

    def open(self) -> None:
        """Take up work (again)."""
        self._stopping = False

    def stop(self) -> None:
        """End all watches cleanly, and whatever else waits."""
        self._stopping = True
        for bell in tuple(self._bells):
            bell.close()

    @contextmanager
    def bell(self) -> Iterator[Bell]:
        """Hang up the bell of one request: it is closed when the server stops."""
        bell = Bell()
        if self._stopping:
            bell.close()

        self._bells.add(bell)
        try:
            yield bell
        finally:
            self._bells.discard(bell)

    async def respond(self, call: Call, outlet: Outlet, bell: Bell) -> None:
        """Answer one request.

        Args:
            call: The request.
            outlet: Where the answer goes.
            bell: Rings when the server stops.

        Cancellation:
            Happens when the client leaves; what was written to the storage stays.
        """
        try:
            answer = await self._answer(call, outlet, bell)
        except ApiError as exc:
            answer = refusal(exc, call)
        except (RecursionError, orjson.JSONEncodeError) as exc:
            # A body that could be read, but not walked through or written: mostly one
            # that is nested deeper than Python goes.
            message = f"the body of the request cannot be handled: {exc}"
            answer = refusal(statuses.bad_request(message), call)

        if answer is not None:
            await outlet.send(warned(answer, call.warnings))

    async def _answer(self, call: Call, outlet: Outlet, bell: Bell) -> Answer | None:
        """Do what is asked; None if it has been answered already."""
        asked = attributes_of(call)
        user = self._user(call, asked)
        if asked.version:
            instead = await self._misbehave(call, asked, outlet, bell)
            if instead is not None:
                return instead

        answer = self._about_the_server(call, asked, user)
        if answer is not None:
            return answer

        target = target_of(self._storage, asked)
        if target.collection.kind.warning:
            call.warnings.append(target.collection.kind.warning)

        kind = shown_kind(target)
        shown = format_of(kind, call.headers, call.query, verb=target.verb)
        if target.verb == "watch":
            await self._watch(call, target, shown, outlet, bell)
            return None

        return await self._resource(call, target, shown, bell)

    # ---------------------------------------------------------------- before resources

    async def _misbehave(
        self, call: Call, asked: Attributes, outlet: Outlet, bell: Bell
    ) -> Answer | None:
        """Let the fault that is due strike; returns what is answered instead."""
        strike = self.faults.take(
            asked.verb,
            asked.plural,
            namespace=asked.namespace,
            query=call.query,
            path=call.path,
        )
        outlet.arm(strike)
        return await preempt(strike, self._storage, bell)

    def _user(self, call: Call, asked: Attributes) -> User:
        """Find out who asks, and let in only who may."""
        name = ""
        try:
            user = self._access.user_of(call, asked)
            name = user.name
            self._access.check(user, asked)
        finally:
            if asked.path not in _HEALTH_PATHS:
                self.records.append(
                    RequestRecord(
                        call.method,
                        call.path,
                        dict(call.query),
                        asked.verb if asked.version else "",
                        asked.plural,
                        name,
                        asyncio.get_running_loop().time(),
                    )
                )

        return user

    def _about_the_server(
        self, call: Call, asked: Attributes, user: User
    ) -> Answer | None:
        """Answer what is not about stored objects; None if it is."""
        if asked.version:
            review = reviews.answer_to(self._access, user, asked, call)
            if review is not None:
                return document(review, call, status=201)

        found = discovery.document_at(self._storage, call)
        if found is None:
            return None

        return Answer(
            status=found.status,
            body=[found.body],
            content_type=found.content_type,
            headers=dict(found.headers),
        )

    # ---------------------------------------------------------------- reading

    async def _watch(
        self,
        call: Call,
        target: Target,
        shown: Format,
        outlet: Outlet,
        bell: Bell,
    ) -> None:
        collection = target.collection
        kind, place = collection.kind, target.namespace
        scope = scope_of(kind, place, call.query, name=target.name)
        query = WatchQuery.parse(call.query, cached=collection.cached)
        refused: ApiError | None = None
        if query.initial:
            try:
                await self._wait_fresh(collection, query.version, bell, retry_after=1)
            except ApiError as exc:
                refused = exc  # Not told by the status, but as the first event.

        stream = Stream(
            self._storage,
            collection,
            query,
            scope,
            shown,
            outlet,
            bell=bell,
            seconds=query.timeout or self._options.watch_seconds,
            bookmark_seconds=self._options.bookmark_seconds,
            refused=refused,
        )
        head = Answer(content_type=shown.content_type)
        try:
            await outlet.open(warned(head, call.warnings))
            if not outlet.broken:
                await stream.run()
        except ConnectionError:
            return  # The client has left: there is nobody to tell.

    async def _list(
        self, call: Call, target: Target, shown: Format, bell: Bell
    ) -> Answer:
        collection = target.collection
        scope = scope_of(collection.kind, target.namespace, call.query)
        query = ListQuery.parse(call.query, cached=collection.cached)
        await self._wait_fresh(collection, query.not_older, bell)
        page = page_of(collection, self._storage.version, query, scope)
        pieces = shown.list(page.metadata, page.objects)
        return Answer(body=pieces, content_type=shown.content_type)

    async def _wait_fresh(
        self,
        collection: Collection,
        version: int,
        bell: Bell,
        *,
        retry_after: int | None = None,
    ) -> None:
        await wait_fresh(
            self._storage,
            collection,
            version,
            bell,
            seconds=self._options.fresh_seconds,
            retry_after=retry_after,
        )

    # ---------------------------------------------------------------- resources

    async def _resource(
        self, call: Call, target: Target, shown: Format, bell: Bell
    ) -> Answer:
        collection = target.collection
        match target.verb:
            case "list":
                return await self._list(call, target, shown, bell)
            case "get":
                version = version_of_get(call.query, cached=collection.cached)
                await self._wait_fresh(collection, version, bell)
                return self._actions.perform(call, target, shown)
            case "deletecollection":
                query = ListQuery.parse(call.query, cached=collection.cached)
                await self._wait_fresh(collection, query.not_older, bell)
                return self._actions.perform(call, target, shown)
            case _:
                return self._actions.perform(call, target, shown)
