"""Handlers: from an HTTP request to what is done about it.

The only order that matters is that of a real server: who are you, what do you ask for,
may the answer be in a format of ours, and then the resource itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from aioinformer.errors import ApiError
from aioinformer.testing import discovery, statuses
from aioinformer.testing.bell import Bell
from aioinformer.testing.encoding import list_pieces, plain, status_of
from aioinformer.testing.faults import Faults, Gone, Refuse
from aioinformer.testing.lists import page_of
from aioinformer.testing.outlet import Answer, Outlet
from aioinformer.testing.queries import ListQuery, WatchQuery, scope_of
from aioinformer.testing.routes import RequestRecord, Target, target_of
from aioinformer.testing.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.testing.changes import Stored
    from aioinformer.testing.faults import Fault
    from aioinformer.testing.registry import Registry
    from aioinformer.testing.rules import Part

__all__ = ["HandlerOptions", "Handlers"]

_HEALTH_PATHS = frozenset({"/livez", "/readyz", "/healthz"})
_JSON_TYPES = frozenset({"application/json", "application/*", "*/*"})
_MERGE_PATCH = "application/merge-patch+json"
# Requests remembered for tests to look at.
_RECORDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """The times of the server, in seconds of the loop's clock."""

    bookmark_seconds: float
    watch_seconds: float
    fresh_seconds: float


class Handlers:
    """Answers requests. `handle` is given to the HTTP server."""

    def __init__(
        self, registry: Registry, options: HandlerOptions, *, token: str | None
    ) -> None:
        self.faults = Faults()
        self.token = token
        self.records: deque[RequestRecord] = deque(maxlen=_RECORDS)
        self._registry = registry
        self._storage = registry.storage
        self._options = options
        self._stopping = False
        self._bells: set[Bell] = set()

    def open(self) -> None:
        """Take up work (again)."""
        self._stopping = False

    def stop(self) -> None:
        """End all watches cleanly, and whatever else waits."""
        self._stopping = True
        for bell in tuple(self._bells):
            bell.ring()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request.

        Cancellation:
            Happens when the client leaves; what was written to the storage stays.
        """
        bell = Bell()
        self._bells.add(bell)
        try:
            return await self._handle(request, bell)
        finally:
            self._bells.discard(bell)

    async def _handle(self, request: web.BaseRequest, bell: Bell) -> web.StreamResponse:
        fault: Fault | None = None
        try:
            answer = self._about_the_server(request)
            if answer is None:
                target = self._target(request)
                fault = self.faults.take(
                    target.verb, target.collection.kind.resource.plural
                )
                _refuse(fault, target.verb)
                _check_accept(request)
                if target.verb == "watch":
                    return await self._watch(request, target, fault, bell)

                answer = await self._resource(request, target, bell)
        except ApiError as exc:
            answer = _refusal(exc)

        outlet = Outlet(request, fault, bell)
        return await outlet.send(answer)

    # ---------------------------------------------------------------- before resources

    def _about_the_server(self, request: web.BaseRequest) -> Answer | None:
        """Answer what is not about a resource; None if it is."""
        if request.path in _HEALTH_PATHS:
            return Answer(body=[b"ok"], content_type="text/plain")

        expected = f"Bearer {self.token}"
        if self.token is not None and request.headers.get("Authorization") != expected:
            self._record(request)
            raise statuses.unauthorized()

        document = discovery.document_at(self._storage, request.path)
        if document is None:
            return None

        self._record(request)
        if request.method != "GET":
            raise statuses.method_not_allowed()

        return Answer(body=[plain(document) + b"\n"])

    def _target(self, request: web.BaseRequest) -> Target:
        try:
            target = target_of(
                self._storage,
                request.method,
                request.rel_url.raw_path,
                request.rel_url.query,
            )
        except ApiError:
            self._record(request)
            raise

        self._record(request, target.verb, target.collection.kind.resource.plural)
        return target

    def _record(
        self, request: web.BaseRequest, verb: str = "", resource: str = ""
    ) -> None:
        query = dict(request.rel_url.query)
        record = RequestRecord(request.method, request.path, query, verb, resource)
        self.records.append(record)

    # ---------------------------------------------------------------- reading

    async def _watch(
        self, request: web.BaseRequest, target: Target, fault: Fault | None, bell: Bell
    ) -> web.StreamResponse:
        collection, parameters = target.collection, request.rel_url.query
        scope = scope_of(collection.kind, target.namespace, parameters)
        query = WatchQuery.parse(parameters)
        if query.initial:
            await self._wait_fresh(query.version, bell)

        outlet = Outlet(request, fault, bell)
        stream = Stream(
            self._storage,
            collection,
            query,
            scope,
            outlet,
            bell=bell,
            stopping=lambda: self._stopping,
            seconds=query.timeout or self._options.watch_seconds,
            bookmark_seconds=self._options.bookmark_seconds,
            fault=fault,
        )
        try:
            await outlet.open(Answer(headers={"Cache-Control": "no-cache, private"}))
            if not outlet.broken:
                await stream.run()
        except ConnectionError:
            # The client has left: there is nobody to tell.
            return outlet.response

        return outlet.response

    async def _list(
        self, request: web.BaseRequest, target: Target, bell: Bell
    ) -> Answer:
        collection, parameters = target.collection, request.rel_url.query
        scope = scope_of(collection.kind, target.namespace, parameters)
        query = ListQuery.parse(parameters)
        await self._wait_fresh(query.not_older, bell)
        page = page_of(collection, self._storage.version, query, scope)
        return self._listed(target, page.metadata, page.objects)

    def _listed(
        self, target: Target, metadata: dict[str, Any], objects: Iterable[Stored]
    ) -> Answer:
        bodies = (stored.raw for stored in objects)
        return Answer(body=list_pieces(target.collection.kind, metadata, bodies))

    async def _wait_fresh(self, version: int, bell: Bell) -> None:
        """Wait until the storage has reached `version`.

        Raises:
            ApiError: 504, if it does not in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.fresh_seconds
        unsubscribe = self._storage.subscribe(bell.ring)
        try:
            while self._storage.version < version:
                if loop.time() >= deadline or self._stopping:
                    current = self._storage.version
                    raise statuses.too_large_version(version, current)

                await bell.wait(until=deadline)
        finally:
            unsubscribe()

    # ---------------------------------------------------------------- resources

    async def _resource(
        self, request: web.BaseRequest, target: Target, bell: Bell
    ) -> Answer:
        collection, namespace, name = target.collection, target.namespace, target.name
        match target.verb:
            case "list":
                return await self._list(request, target, bell)
            case "get":
                return _object(self._registry.require(collection, namespace, name))
            case "create":
                body = await _json_body(request)
                stored = self._registry.create(
                    collection, namespace, body, dry_run=_is_dry_run(request, {})
                )
                return _object(stored, status=201)
            case "update" | "patch":
                return await self._write(request, target)
            case "delete":
                options = await _delete_options(request)
                return self._delete(request, target, options)
            case _:
                options = await _delete_options(request)
                return self._delete_all(request, target, options)

    async def _write(self, request: web.BaseRequest, target: Target) -> Answer:
        part: Part = "status" if target.subresource else "main"
        if target.verb == "patch":
            write, body = self._registry.patch, await _json_body(request, _MERGE_PATCH)
        else:
            write, body = self._registry.update, await _json_body(request)

        stored = write(
            target.collection,
            target.namespace,
            target.name,
            body,
            part=part,
            dry_run=_is_dry_run(request, {}),
        )
        return _object(stored)

    def _delete(
        self, request: web.BaseRequest, target: Target, options: Mapping[str, Any]
    ) -> Answer:
        collection, namespace, name = target.collection, target.namespace, target.name
        preconditions = options.get("preconditions") or {}
        uid = self._registry.require(collection, namespace, name).uid
        waiting = self._registry.delete(
            collection,
            namespace,
            name,
            uid=str(preconditions.get("uid") or ""),
            version=str(preconditions.get("resourceVersion") or ""),
            dry_run=_is_dry_run(request, options),
        )
        if waiting is not None:
            return _object(waiting)

        resource = collection.kind.resource
        details = {
            "name": name,
            "group": resource.group,
            "kind": resource.plural,
            "uid": uid,
        }
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {key: value for key, value in details.items() if value},
        }
        return Answer(body=[plain(status) + b"\n"])

    def _delete_all(
        self, request: web.BaseRequest, target: Target, options: Mapping[str, Any]
    ) -> Answer:
        collection, parameters = target.collection, request.rel_url.query
        scope = scope_of(collection.kind, target.namespace, parameters)
        found = [it for it in collection.snapshot() if scope.matches(it)]
        dry_run = _is_dry_run(request, options)
        for stored in found:
            self._registry.delete(
                collection, stored.namespace, stored.name, dry_run=dry_run
            )

        metadata = {"resourceVersion": str(self._storage.version)}
        return self._listed(target, metadata, found)


def _refuse(fault: Fault | None, verb: str) -> None:
    """Raise the refusal that a fault scripts, if it scripts one."""
    if isinstance(fault, Refuse):
        raise statuses.of_code(
            fault.status,
            reason=fault.reason,
            message=fault.message,
            retry_after=fault.retry_after,
        )

    if isinstance(fault, Gone) and (verb != "watch" or not fault.after_events):
        raise statuses.of_code(410)


def _check_accept(request: web.BaseRequest) -> None:
    """Refuse who accepts only formats that this server cannot write.

    Raises:
        ApiError: 406.
    """
    accepted = request.headers.get("Accept") or "*/*"
    for item in accepted.split(","):
        kind, *parameters = [part.strip() for part in item.split(";")]
        transformed = any(it.startswith("as=") for it in parameters)
        if kind in _JSON_TYPES and not transformed:
            return

    message = "only the following media types are accepted: application/json"
    raise statuses.failure(406, "NotAcceptable", message)


async def _json_body(
    request: web.BaseRequest, content_type: str = "application/json"
) -> object:
    """Read and decode the body.

    Raises:
        ApiError: 415 if it is of another type, 413 if it is too large, 400 if it is no
            JSON.
    """
    given = request.headers.get("Content-Type", content_type).partition(";")[0].strip()
    if given != content_type:
        message = "the body of the request was in an unknown format - accepted media "
        message += f"types include: {content_type}"
        raise statuses.failure(415, "UnsupportedMediaType", message)

    return _decoded(await _read(request))


async def _delete_options(request: web.BaseRequest) -> Mapping[str, Any]:
    """Read the options of a delete; they may be missing.

    Raises:
        ApiError: 400, if there is a body that is none.
    """
    raw = await _read(request)
    options = _decoded(raw) if raw else {}
    if not isinstance(options, dict):
        raise statuses.bad_request("the body of the request is not DeleteOptions")

    return options


async def _read(request: web.BaseRequest) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as exc:
        raise statuses.of_code(413) from exc


def _decoded(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        message = f"couldn't get version/kind; json parse error: {exc}"
        raise statuses.bad_request(message) from exc


def _is_dry_run(request: web.BaseRequest, options: Mapping[str, Any]) -> bool:
    values = options.get("dryRun") or ()
    return request.rel_url.query.get("dryRun") == "All" or "All" in values


def _object(stored: Stored, *, status: int = 200) -> Answer:
    return Answer(status=status, body=[stored.raw + b"\n"])


def _refusal(error: ApiError) -> Answer:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(int(error.retry_after))

    return Answer(
        status=error.status, body=[plain(status_of(error)) + b"\n"], headers=headers
    )
