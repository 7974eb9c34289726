"""`RequestHandler`: from a request to its response.

The order of the checks is that of a real server: authentication, authorization, the
existence of the resource, the format of the response, and then the resource itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from aioinformer.errors import ApiError, NotFound
from aioinformer_apiserver.auth import reviews
from aioinformer_apiserver.discovery import discovery
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.faults import Faults
from aioinformer_apiserver.http.request_log import RequestLog
from aioinformer_apiserver.http.watch import WatchServer
from aioinformer_apiserver.http.webhooks import admitted_request, send_calls
from aioinformer_apiserver.reads.lists import page_of
from aioinformer_apiserver.reads.watches import wait_until_fresh
from aioinformer_apiserver.registry.pod_subresources import bind, evict, eviction_of
from aioinformer_apiserver.registry.scale import SCALE, Scales
from aioinformer_apiserver.requests.options import (
    convert_delete_options,
    delete_options_of,
    patch_type_of,
    write_options_of,
)
from aioinformer_apiserver.requests.queries import (
    ListQuery,
    WatchQuery,
    scope_of,
    version_of_get,
)
from aioinformer_apiserver.requests.routes import (
    RequestInfo,
    RequestRecord,
    Target,
    request_info_of,
    target_of,
)
from aioinformer_apiserver.serialization.formats import format_of
from aioinformer_apiserver.serialization.responses import (
    APIResponse,
    deletion_response,
    document_response,
    error_response,
    object_response,
    with_warnings,
)
from aioinformer_apiserver.storage.dispatcher import Waker
from aioinformer_apiserver.storage.storage import StoredObject
from aioinformer_apiserver.webhooks.admission import WebhookAdmission, has_webhooks
from aioinformer_apiserver.webhooks.calls import CallsNeeded, Ledger
from aioinformer_apiserver.webhooks.conversion import Conversion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.auth.access import AccessControl
    from aioinformer_apiserver.auth.rbac import User
    from aioinformer_apiserver.auth.service_tokens import ServiceTokens
    from aioinformer_apiserver.http.response import ResponseWriter
    from aioinformer_apiserver.registry.registry import Registry
    from aioinformer_apiserver.requests.options import Part, WriteResult
    from aioinformer_apiserver.requests.queries import Scope
    from aioinformer_apiserver.requests.request import APIRequest
    from aioinformer_apiserver.serialization.formats import Format
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Collection

__all__ = ["FEATURE_GATES", "HandlerDurations", "RequestHandler"]

MANAGED_FIELDS_OPT_OUT = "ManagedFieldsOptOut"
SHARDED_LIST_AND_WATCH = "ShardedListAndWatch"
FEATURE_GATES: Final = {MANAGED_FIELDS_OPT_OUT: False, SHARDED_LIST_AND_WATCH: False}
"""Feature gates, with the defaults of a real server."""

# Monitoring polls these all the time, so they are not recorded.
_HEALTH_PATHS = frozenset({"/livez", "/readyz", "/healthz"})
# Maximum number of recorded requests.
_RECORDS = 10_000
_CREATED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
# Calls of webhooks in a row for one write. A webhook that itself changes the object of the
# write would otherwise be called without end.
_MOST_ROUNDS = 200
_READING_VERBS = frozenset({"get", "list", "watch"})
# The part of an object that a write to a subresource may change.
_PARTS: dict[str, Part] = {"": "main", "finalize": "finalize", "status": "status"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerDurations:
    """Durations in seconds on the loop's clock; see `APIServer`."""

    bookmark_seconds: float
    watch_seconds: float
    fresh_seconds: float


class RequestHandler:
    """Handler of all requests, over HTTP and in memory.

    Args:
        registry: Reads and writes the objects.
        access_control: Authenticates and authorizes users.
        options: Durations.
        webhook_services: Base URLs of services with webhooks, by `"namespace/name"`.
        feature_gates: All feature gates, which may change.

    Attributes:
        faults: Pending faults.
        records: Requests so far, oldest first, except health checks.
    """

    def __init__(
        self,
        registry: Registry,
        access_control: AccessControl,
        options: HandlerDurations,
        webhook_services: Mapping[str, str],
        feature_gates: Mapping[str, bool],
    ) -> None:
        self.faults: Faults = Faults()
        self.records: deque[RequestRecord] = deque(maxlen=_RECORDS)
        self._resources = _ResourceHandler(
            registry, access_control.service_tokens, feature_gates
        )
        self._storage = registry.storage
        self._access_control = access_control
        self._options = options
        self._webhook_services = webhook_services
        self._feature_gates = feature_gates
        self._stopping = False
        self._wakers: set[Waker] = set()

    # ---------------------------------------------------------------- lifetime

    @property
    def stopping(self) -> bool:
        """True from `stop()` until the next `open()`."""
        return self._stopping

    def open(self) -> None:
        """Accept requests (again)."""
        self._stopping = False

    def stop(self) -> None:
        """End all watches cleanly, and everything else that waits."""
        self._stopping = True
        for waker in tuple(self._wakers):
            waker.close()

    @contextmanager
    def waker(self) -> Iterator[Waker]:
        """Make the waker of one request, which is closed when the server stops."""
        waker = Waker()
        if self._stopping:
            waker.close()

        self._wakers.add(waker)
        try:
            yield waker
        finally:
            self._wakers.discard(waker)

    # ---------------------------------------------------------------- one request

    async def respond(
        self, request: APIRequest, writer: ResponseWriter, waker: Waker
    ) -> None:
        """Handle one request and write its response.

        Args:
            request: The request.
            writer: Destination of the response.
            waker: Closed when the server stops.

        Cancellation:
            Happens when the client disconnects. Writes to the storage stay.
        """
        log = RequestLog(request, writer)
        try:
            await self._respond(request, writer, waker, log)
        finally:
            log.ended()

    async def _respond(
        self, request: APIRequest, writer: ResponseWriter, waker: Waker, log: RequestLog
    ) -> None:
        try:
            response = await self._handle(request, writer, waker, log)
        except ApiError as exc:
            response = error_response(exc, request)
        except (RecursionError, TypeError) as exc:
            # The body could be read, but not processed or encoded, mostly because its
            # nesting exceeds the limits of Python.
            message = f"the body of the request cannot be handled: {exc}"
            response = error_response(statuses.bad_request(message), request)

        if response is not None:
            await writer.send(with_warnings(response, request.warnings))

    async def _handle(
        self, request: APIRequest, writer: ResponseWriter, waker: Waker, log: RequestLog
    ) -> APIResponse | None:
        """Handle a request; None if the response has been written already."""
        info = request_info_of(request)
        user = self._admit(request, info, log)
        if info.version:
            instead = await self._strike(request, info, writer, waker)
            if instead is not None:
                return instead

            review = reviews.create_review(self._access_control, user, info, request)
            if review is not None:
                return document_response(review, request, status=201)

        found = discovery.document_at(self._storage, request)
        if found is not None:
            return found

        target = target_of(self._storage, info)
        if target.collection.kind.warning:
            request.warnings.append(target.collection.kind.warning)

        kind = _kind_of_response(target)
        format_ = format_of(
            kind,
            request.headers,
            request.query,
            verb=target.verb,
            may_drop=self._feature_gates[MANAGED_FIELDS_OPT_OUT],
        )
        if target.verb == "watch":
            await self._watch(request, target, format_, writer, waker, log)
            return None

        await self._wait_for_version(request, target, waker)
        await self._convert(target.collection)
        if self._resources.would_create(request, target):
            self._access_control.authorize(user, replace(info, verb="create"))

        if target.verb in _READING_VERBS or not has_webhooks(
            self._storage, target.collection
        ):
            return self._resources.handle(request, target, format_)

        return await self._write_with_webhooks(request, target, format_, user)

    async def _write_with_webhooks(
        self, request: APIRequest, target: Target, format_: Format, user: User
    ) -> APIResponse:
        """Handle a write that may call webhooks.

        The write is one synchronous step, which needs all answers. Until it has them,
        it changes nothing, and says which calls are missing.

        Raises:
            ApiError: If it is rejected; 504 if its object changes during each call.
        """
        ledger, before = Ledger(), len(request.warnings)
        admission = WebhookAdmission(
            self._storage,
            admitted_request(request, target, user),
            self._webhook_services,
            ledger,
        )
        request = replace(request, admission=admission)
        for _ in range(_MOST_ROUNDS):
            try:
                return self._resources.handle(request, target, format_)
            except CallsNeeded as needed:
                del request.warnings[before:]
                await send_calls(needed.calls, ledger)
                await self._convert(target.collection)

        raise statuses.of_code(
            504,
            message="Timeout: request did not complete within requested timeout - "
            "context deadline exceeded",
        )

    async def _convert(self, collection: Collection) -> None:
        """Convert objects in other versions by the webhook, if there are any.

        Raises:
            ApiError: 500 if the conversion fails.
        """
        while stored := collection.unconverted:
            ledger = Ledger()
            conversion = Conversion(collection.kind, self._webhook_services, ledger)
            bodies = [it.body() for it in stored]
            try:
                found = conversion.convert(bodies)
            except CallsNeeded as needed:
                await send_calls(needed.calls, ledger)
                found = conversion.convert(bodies)

            pairs = zip(stored, found, strict=True)
            collection.convert(
                {
                    it: StoredObject.of(collection.kind, body, it.version)
                    for it, body in pairs
                }
            )

    def _admit(self, request: APIRequest, info: RequestInfo, log: RequestLog) -> User:
        """Authenticate and authorize the user, and record the request.

        Raises:
            ApiError: 401 or 403 if the request is rejected.
        """
        try:
            user = self._access_control.authenticate(request, info)
            log.user = user.name
            self._access_control.authorize(user, info)
        finally:
            if info.path not in _HEALTH_PATHS:
                self.records.append(
                    RequestRecord(
                        request.method,
                        request.path,
                        dict(request.query),
                        info.verb if info.version else "",
                        info.plural,
                        log.user,
                        asyncio.get_running_loop().time(),
                    )
                )

        return user

    async def _strike(
        self,
        request: APIRequest,
        info: RequestInfo,
        writer: ResponseWriter,
        waker: Waker,
    ) -> APIResponse | None:
        """Let the next matching fault strike; return the response that it sends instead."""
        strike = self.faults.take(
            info.verb,
            info.plural,
            namespace=info.namespace,
            query=request.query,
            path=request.path,
        )
        writer.apply_fault(strike)
        if strike is None:
            return None

        response = await strike.fault.before(strike, self._storage, waker)
        if response is not None:
            strike.record_effect()

        return response

    # ---------------------------------------------------------------- resources

    async def _wait_for_version(
        self, request: APIRequest, target: Target, waker: Waker
    ) -> None:
        """Wait until the storage has reached the version that a read requires."""
        collection = target.collection
        match target.verb:
            case "get":
                version = version_of_get(request.query, cached=collection.cached)
            case "list" | "deletecollection":
                query, _ = self._resources.parse_list(request, target)
                version = query.not_older
            case _:
                return

        await wait_until_fresh(
            self._storage,
            collection,
            version,
            waker,
            seconds=self._options.fresh_seconds,
        )

    async def _watch(
        self,
        request: APIRequest,
        target: Target,
        format_: Format,
        writer: ResponseWriter,
        waker: Waker,
        log: RequestLog,
    ) -> None:
        collection = target.collection
        scope = scope_of(
            collection.kind, target.namespace, request.query, name=target.name
        )
        query = WatchQuery.parse(
            request.query,
            cached=collection.cached,
            sharded=self._feature_gates[SHARDED_LIST_AND_WATCH],
        )
        # Without a watch cache and other selectors, a real server filters nothing.
        if collection.cached or scope.selects:
            scope = replace(scope, shards=query.shards)

        rejection: ApiError | None = None
        if query.initial:
            try:
                await wait_until_fresh(
                    self._storage,
                    collection,
                    query.version,
                    waker,
                    seconds=self._options.fresh_seconds,
                    retry_after=1,
                )
            except ApiError as exc:
                rejection = exc  # Sent as the first event, not as the HTTP status.

        watch = WatchServer(
            self._storage,
            collection,
            query,
            scope,
            format_,
            writer,
            waker=waker,
            seconds=query.timeout or self._options.watch_seconds,
            bookmark_seconds=self._options.bookmark_seconds,
            rejection=rejection,
            convert=self._convert,
        )
        head = APIResponse(content_type=format_.content_type)
        try:
            await writer.open(with_warnings(head, request.warnings))
            log.watch_began()
            if not writer.broken:
                await watch.run()
        except ConnectionError:
            return  # The client has disconnected.


def _kind_of_response(target: Target) -> Kind:
    """Return the kind of the objects in the response: a scale has a kind of its own."""
    return SCALE if target.subresource == "scale" else target.collection.kind


class _ResourceHandler:
    """Handler of every verb except `watch`. Synchronous: each request is one step.

    Args:
        registry: Reads and writes the objects.
        tokens: Issues tokens of service accounts.
        feature_gates: All feature gates, which may change.
    """

    def __init__(
        self,
        registry: Registry,
        tokens: ServiceTokens,
        feature_gates: Mapping[str, bool],
    ) -> None:
        self._registry = registry
        self._tokens = tokens
        self._feature_gates = feature_gates
        self._scales = Scales(registry)

    def would_create(self, request: APIRequest, target: Target) -> bool:
        """Return whether an update or apply is for a missing object that it creates.

        Raises:
            ApiError: 415, if the kind does not support this type of patch.
        """
        collection = target.collection
        match target.verb:
            case _ if target.subresource:
                return False
            case "update" if collection.kind.created_by_update:
                pass
            case "patch" if patch_type_of(request, collection.kind) == "apply":
                pass
            case _:
                return False

        try:
            self._registry.require(collection, target.namespace, target.name)
        except NotFound:
            return True

        return False

    def parse_list(
        self, request: APIRequest, target: Target
    ) -> tuple[ListQuery, Scope]:
        """Parse the parameters of a list, or of the deletion of a collection.

        Raises:
            ApiError: If they are invalid.
        """
        collection = target.collection
        scope = scope_of(collection.kind, target.namespace, request.query)
        query = ListQuery.parse(
            request.query,
            cached=collection.cached,
            sharded=self._feature_gates[SHARDED_LIST_AND_WATCH],
        )
        return query, replace(scope, shards=query.shards)

    def handle(
        self, request: APIRequest, target: Target, format_: Format
    ) -> APIResponse:
        """Handle a request, and return its response.

        Raises:
            ApiError: If it is rejected; then nothing has changed.
        """
        collection, namespace, name = target.collection, target.namespace, target.name
        is_scale = target.subresource == "scale"
        match target.verb:
            case "list":
                return self._list(request, target, format_)
            case "get" if is_scale:
                scale = self._scales.get(collection, namespace, name)
                return _scale_response(format_, scale)
            case "get":
                stored = self._registry.require(collection, namespace, name)
                return object_response(format_, stored)
            case "update" | "patch" if is_scale:
                return self._write_scale(request, target, format_)
            case "create" if target.subresource:
                return self._create_subresource(request, target)
            case "create" | "update" | "patch":
                written = self._write(request, target)
                code = 201 if written.created else 200
                return object_response(format_, written.stored, status=code)
            case "delete":
                options = delete_options_of(request)
                deleted = self._registry.delete(collection, namespace, name, options)
                return deletion_response(request, target, format_, deleted)
            case _:
                return self._list(request, target, format_, delete=True)

    def _list(
        self,
        request: APIRequest,
        target: Target,
        format_: Format,
        *,
        delete: bool = False,
    ) -> APIResponse:
        """Return one page of a list, and delete its objects if `delete` is set."""
        collection = target.collection
        query, scope = self.parse_list(request, target)
        options = delete_options_of(request) if delete else None
        page = page_of(collection, self._registry.storage.version, query, scope)
        if options is not None:
            self._registry.delete_collection(collection, page.objects, options)

        pieces = format_.list(page.metadata, page.objects)
        return APIResponse(body=pieces, content_type=format_.content_type)

    def _write(self, request: APIRequest, target: Target) -> WriteResult:
        collection, namespace, name = target.collection, target.namespace, target.name
        part = _PARTS[target.subresource]
        registry = self._registry
        if target.verb != "patch":
            options = write_options_of(request, part)
            content = request.content()
            if target.verb == "create":
                return registry.create(collection, namespace, content, options)

            return registry.update(collection, namespace, name, content, options)

        patch_type = patch_type_of(request, collection.kind)
        options = write_options_of(request, part, patch_type=patch_type)
        return registry.patch(
            collection, namespace, name, request.patch(), options, patch_type=patch_type
        )

    def _create_subresource(self, request: APIRequest, target: Target) -> APIResponse:
        """Handle a token request, a binding or an eviction, which are never stored."""
        collection, namespace, name = target.collection, target.namespace, target.name
        options, body = write_options_of(request, "main"), request.content()
        match target.subresource:
            case "token":
                got = self._tokens.issue(namespace, name, body, options)
                return document_response(got, request, status=201)
            case "binding":
                bind(self._registry, collection, namespace, name, body, options)
            case _:
                eviction = eviction_of(namespace, name, body, options)
                # The deletion itself calls no webhook.
                how = convert_delete_options(
                    eviction.get("deleteOptions") or {},
                    replace(request, admission=None),
                )
                evict(self._registry, collection, namespace, name, how)

        return document_response(_CREATED, request, status=201)

    def _write_scale(
        self, request: APIRequest, target: Target, format_: Format
    ) -> APIResponse:
        collection, namespace, name = target.collection, target.namespace, target.name
        if target.verb == "update":
            options = write_options_of(request, "main")
            scale = self._scales.update(
                collection, namespace, name, request.content(), options
            )
        else:
            patch_type = patch_type_of(request, collection.kind)
            options = write_options_of(request, "main", patch_type=patch_type)
            scale = self._scales.patch(
                collection,
                namespace,
                name,
                request.patch(),
                options,
                patch_type=patch_type,
            )

        return _scale_response(format_, scale)


def _scale_response(format_: Format, scale: dict[str, Any]) -> APIResponse:
    version = int(scale["metadata"].get("resourceVersion") or 0)
    return object_response(format_, StoredObject.of(SCALE, scale, version))
