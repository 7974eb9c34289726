"""`Webhooks`: reviews of the API server in, responses out, as bytes.

A function that raises or takes too long is answered by an HTTP error. The API server then
applies the failure policy of the webhook, as if it were down. A refusal would be one in
spite of the policy `Ignore`.
"""

from __future__ import annotations

import asyncio
import base64
import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aioinformer import json_codec
from aioinformer._tasks import Notifier
from aioinformer._user_code import user_errors
from aioinformer.errors import AioInformerError, DecodeError, OptionsError
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.metrics import NULL_SINK, GuardedSink, ScopedSink
from aioinformer.model.objects import KubeObject
from aioinformer.model.resource import Resource
from aioinformer.web.responses import HTTPResponse
from aioinformer.webhooks.calls import LARGE_BYTES, Calls
from aioinformer.webhooks.conversions import Conversion, ConversionError, Converter
from aioinformer.webhooks.hooks import (
    AdmissionHook,
    AdmissionRequest,
    AdmissionResponse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from typing import TypeAlias

    from aioinformer.errors import HandlerError
    from aioinformer.metrics import MetricsSink

    Hook: TypeAlias = AdmissionHook | Conversion

__all__ = ["Webhooks", "hooks_of", "status_response"]

ADMISSION_BYTES: Final = 7 * 2**20
"""Maximum size of an AdmissionReview. API servers accept objects of 3 MiB, and a review has
the old and the new one."""

CONVERSION_BYTES: Final = 16 * 2**20
"""Maximum size of a ConversionReview. API servers send one object, but may send lists."""

MAX_LARGE = 16
"""Maximum number of large reviews at the same time, as each caller could fill the memory."""

BODY_SECONDS = 30.0
"""Maximum time to receive a review, and to wait for the place of a large one."""

CONVERSION_SECONDS = 30.0
"""Timeout of a conversion, which is fixed in the API server."""

# Time before the API server's timeout to send the answer: a tenth, up to half a second.
_MARGIN, _MAX_MARGIN_SECONDS = 0.1, 0.5

_ADMISSION = "admission.k8s.io/v1", "AdmissionReview"
_CONVERSION = "apiextensions.k8s.io/v1", "ConversionReview"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|s|m)")


class _Kind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""
    resource: str = ""


class _User(msgspec.Struct):
    username: str = ""
    groups: list[str] | None = None


class _Admission(msgspec.Struct, rename="camel"):
    """Request in an AdmissionReview."""

    uid: str
    operation: str
    resource: _Kind
    kind: _Kind = msgspec.field(default_factory=_Kind)
    sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    user_info: _User = msgspec.field(default_factory=_User)
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None
    options: dict[str, Any] | None = None


class _AdmissionReview(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Admission | None = None


class _Conversion(msgspec.Struct, rename={"api_version": "desiredAPIVersion"}):
    """Request in a ConversionReview."""

    uid: str
    api_version: str
    objects: list[msgspec.Raw]


class _ConversionReview(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Conversion | None = None


_admission_review = msgspec.json.Decoder(_AdmissionReview)
_conversion_review = msgspec.json.Decoder(_ConversionReview)


class _Refused(Exception):
    """Review that is not answered by a function."""

    def __init__(self, code: int, reason: str, message: str, result: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.result = result


def hooks_of(hooks: Iterable[Hook] | Hook) -> tuple[Hook, ...]:
    """Return webhooks as a tuple.

    Raises:
        OptionsError: If there are none, a value is no webhook, or two have the same name
            or convert between the same versions.
    """
    given: tuple[object, ...] = (hooks,)
    if not isinstance(hooks, AdmissionHook | Conversion) and not callable(hooks):
        given = tuple(hooks)

    found: list[Hook] = []
    for it in given:
        if not isinstance(it, AdmissionHook | Conversion):
            raise OptionsError(
                f"not a webhook: {it!r}. Decorate the function by @validating, "
                "@mutating or @conversion"
            )

        found.append(it)

    if not found:
        raise OptionsError(
            "no webhooks: pass functions decorated by @validating, @mutating or "
            "@conversion"
        )

    _endpoints_of(found)
    return tuple(found)


class Webhooks:
    """Endpoints of webhooks, for any web framework.

    Args:
        hooks: Webhooks to serve.
        metrics: Sink that counts calls and measures their durations.
        on_error: Function called with each failure of a function.

    Raises:
        OptionsError: If there are no webhooks, two have the same name, or `on_error` is
            not a plain function.
    """

    def __init__(
        self,
        hooks: Iterable[Hook] | Hook,
        *,
        metrics: MetricsSink | None = None,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        self.hooks: tuple[Hook, ...] = hooks_of(hooks)
        self.calls: Calls = Calls()
        self._scope = ScopedSink(metrics or NULL_SINK, "webhooks")
        self._metrics = GuardedSink(self._scope, "webhooks")
        self._errors = ErrorReporter("webhooks", on_error, self._scope)
        self._endpoints = _endpoints_of(self.hooks)
        self._large = 0
        self._large_ended = Notifier()

    def set_metrics(self, sink: MetricsSink) -> None:
        """Set the sink of metrics, unless there is one."""
        self._scope.connect(sink)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the endpoints."""
        return tuple(self._endpoints)

    async def answer_received(
        self, path: str, receive: Callable[[], Awaitable[bytes]], timeout: str = ""
    ) -> HTTPResponse:
        """Receive a review, and answer it.

        Args:
            path: See `answer`.
            receive: Function that returns the next bytes of the body, and none at its end.
            timeout: See `answer`.

        Raises:
            Exception: Exception of `receive`.

        Cancellation:
            Safe; see `Calls.call`.
        """
        is_admission = isinstance(self._endpoints.get(path), AdmissionHook)
        limit = ADMISSION_BYTES if is_admission else CONVERSION_BYTES
        async with AsyncExitStack() as places:
            try:
                body = await self._received(receive, limit, places)
            except _Refused as refused:
                return status_response(refused.code, refused.reason, str(refused))

            return await self.answer(path, body, timeout)

    async def _received(
        self,
        receive: Callable[[], Awaitable[bytes]],
        limit: int,
        places: AsyncExitStack,
    ) -> bytes:
        """Receive a review of at most `limit` bytes, and enter the place of a large one.

        Raises:
            _Refused: If it is too large, takes too long, or gets no place.
        """
        body = bytearray()
        waits_for_place = False
        time_limit = asyncio.timeout(BODY_SECONDS)
        try:
            async with time_limit:
                while chunk := await receive():
                    is_small = len(body) <= LARGE_BYTES
                    body += chunk
                    if len(body) > limit:
                        text = f"a review may have {limit // 2**20} MiB"
                        raise _Refused(413, "RequestEntityTooLarge", text, "malformed")

                    if is_small and len(body) > LARGE_BYTES:
                        waits_for_place = True
                        await places.enter_async_context(self._large_one())
                        waits_for_place = False
        except TimeoutError as exc:
            if not time_limit.expired():
                raise

            if waits_for_place:
                text = "too many large reviews at the same time"
                raise _Refused(429, "TooManyRequests", text, "timeout") from exc

            text = f"the review was not received within {BODY_SECONDS:g} s"
            raise _Refused(408, "Timeout", text, "timeout") from exc

        return bytes(body)

    @asynccontextmanager
    async def _large_one(self) -> AsyncIterator[None]:
        """Wait for the place of a large review, and hold it during the block."""
        while self._large >= MAX_LARGE:
            await self._large_ended.wait()

        self._large += 1
        try:
            yield
        finally:
            self._large -= 1
            self._large_ended.notify()

    async def answer(self, path: str, body: bytes, timeout: str = "") -> HTTPResponse:
        """Answer a review.

        Args:
            path: Path of an endpoint.
            body: Body of the request.
            timeout: Parameter `timeout` of the query, such as `"10s"`, or empty.

        Cancellation:
            Safe; see `Calls.call`.
        """
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            return status_response(404, "NotFound", "no webhook has this path")

        began = asyncio.get_running_loop().time()
        limit = _limit_of(timeout, endpoint)
        try:
            async with asyncio.timeout(limit):
                if isinstance(endpoint, AdmissionHook):
                    result, response = await self._admission(endpoint, body)
                else:
                    result, response = await self._conversion(endpoint, body)
        except _Refused as refused:
            result = refused.result
            response = status_response(refused.code, refused.reason, str(refused))
        except TimeoutError as exc:
            result = "timeout"
            message = f"webhook {endpoint.name} did not answer within {limit:g} s"
            self._errors.failed("webhook", endpoint.name, path, exc)
            response = status_response(504, "Timeout", message)

        labels = {"webhook": endpoint.name, "result": result}
        seconds = asyncio.get_running_loop().time() - began
        self._metrics.count("aioinformer_webhook_requests_total", **labels)
        self._metrics.observe("aioinformer_webhook_duration_seconds", seconds, **labels)
        return response

    async def _admission(
        self, hook: AdmissionHook, body: bytes
    ) -> tuple[str, HTTPResponse]:
        request = _request_of(body)
        try:
            answer = await hook.answer(request, self.calls)
            # Texts of the function may not be valid Unicode.
            response = _encoded(_ADMISSION, _admission_response(request.uid, answer))
        except user_errors() as exc:
            if _is_cancelled(exc):
                raise

            raise self._failed(hook.name, request, exc) from exc

        return "allowed" if answer.allowed else "denied", response

    async def _conversion(
        self, converter: Converter, body: bytes
    ) -> tuple[str, HTTPResponse]:
        asked, objects = await self.calls.compute(
            lambda: _conversion_of(body), len(body)
        )
        try:
            result, answer = await self._converted(converter, asked, objects)
            response = await self.calls.compute(
                lambda: _encoded(_CONVERSION, answer), len(body)
            )
        except user_errors() as exc:
            if _is_cancelled(exc):
                raise

            raise self._failed(converter.name, asked.api_version, exc) from exc

        return result, response

    async def _converted(
        self, converter: Converter, asked: _Conversion, objects: list[Any]
    ) -> tuple[str, dict[str, Any]]:
        """Return the result for the metrics, and the response."""
        try:
            converted = await converter.convert(objects, asked.api_version, self.calls)
        except ConversionError as exc:
            self._errors.failed(
                "conversion", converter.name, str(exc), exc.__cause__ or exc
            )
            status = {"status": "Failure", "message": str(exc)}
            return "failed", {
                "uid": asked.uid,
                "result": status,
                "convertedObjects": [],
            }

        status = {"status": "Success"}
        answer = {"uid": asked.uid, "result": status, "convertedObjects": converted}
        return "converted", answer

    def _failed(self, name: str, subject: object, error: BaseException) -> _Refused:
        """Report a failure, and return an answer that does not quote the object."""
        self._errors.failed("webhook", name, subject, error)
        text = f"webhook {name} failed: {type(error).__name__}, see its log"
        return _Refused(500, "InternalError", text, "failed")


def status_response(code: int, reason: str, message: str) -> HTTPResponse:
    """Return an error as a `Status`, whose message the API server passes on."""
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return HTTPResponse(code, json_codec.dumps(status), "application/json")


# ------------------------------------------------------------ decoding


def _request_of(body: bytes) -> AdmissionRequest:
    """Decode an AdmissionReview.

    Raises:
        _Refused: If it is malformed.
    """
    try:
        review = _admission_review.decode(body)
        _check_kind(review, _ADMISSION)
        asked = review.request
        if asked is None or not asked.uid:
            raise _malformed("its request has no uid")

        what = asked.resource
        return AdmissionRequest(
            operation=asked.operation,
            resource=Resource(
                what.group,
                what.version,
                what.resource,
                asked.kind.kind,
                namespaced=bool(asked.namespace),
            ),
            subresource=asked.sub_resource or "",
            name=asked.name or "",
            namespace=asked.namespace or "",
            object=_object(asked.object),
            old_object=_object(asked.old_object),
            user=asked.user_info.username,
            groups=tuple(asked.user_info.groups or ()),
            dry_run=bool(asked.dry_run),
            options=asked.options or {},
            uid=asked.uid,
        )
    except (ValueError, RecursionError, DecodeError, AioInformerError) as exc:
        raise _malformed(str(exc)) from exc


def _object(raw: msgspec.Raw) -> KubeObject | None:
    body = bytes(raw)
    return None if body == b"null" else KubeObject.of(body)


def _conversion_of(body: bytes) -> tuple[_Conversion, list[Any]]:
    """Decode a ConversionReview, and its objects.

    Raises:
        _Refused: If it is malformed.
    """
    try:
        review = _conversion_review.decode(body)
        _check_kind(review, _CONVERSION)
        if review.request is None or not review.request.uid:
            raise _malformed("its request has no uid")

        # One by one, as other threads have to wait for each call of the decoder.
        objects = [msgspec.json.decode(it) for it in review.request.objects]
    except (ValueError, RecursionError) as exc:
        raise _malformed(str(exc)) from exc

    return review.request, objects


def _check_kind(
    review: _AdmissionReview | _ConversionReview, expected: tuple[str, str]
) -> None:
    if (review.api_version, review.kind) != expected:
        raise _malformed(f"it is not {' '.join(reversed(expected))}")


def _malformed(reason: str) -> _Refused:
    return _Refused(400, "BadRequest", f"malformed review: {reason}", "malformed")


def _limit_of(text: str, endpoint: AdmissionHook | Converter) -> float:
    """Return the seconds to answer in, a bit below the timeout of the API server."""
    usual = (
        endpoint.timeout_seconds
        if isinstance(endpoint, AdmissionHook)
        else CONVERSION_SECONDS
    )
    parts = _DURATION.findall(text)
    given = sum(float(number) * _UNITS[unit] for number, unit in parts)
    complete = "".join(map("".join, parts)) == text
    seconds = given if complete and 0 < given <= CONVERSION_SECONDS else usual
    return float(seconds - min(seconds * _MARGIN, _MAX_MARGIN_SECONDS))


# ------------------------------------------------------------ encoding


def _admission_response(uid: str, answer: AdmissionResponse) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": answer.allowed}
    if answer.warnings:
        response["warnings"] = list(answer.warnings)

    if not answer.allowed:
        response["status"] = answer.status()

    if answer.patch:
        patch = json_codec.dumps(answer.patch)
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(patch).decode()

    return response


def _encoded(kind: tuple[str, str], response: dict[str, Any]) -> HTTPResponse:
    review = {"apiVersion": kind[0], "kind": kind[1], "response": response}
    return HTTPResponse(200, json_codec.dumps(review), "application/json")


def _is_cancelled(error: BaseException) -> bool:
    """Return whether the call was cancelled. A function can also raise that error itself."""
    task = asyncio.current_task()
    is_cancellation = isinstance(error, asyncio.CancelledError)
    return is_cancellation and (task is None or task.cancelling() > 0)


def _endpoints_of(hooks: Iterable[Hook]) -> dict[str, AdmissionHook | Converter]:
    """Return the endpoints by path: one for the conversions of each resource.

    Raises:
        OptionsError: If two webhooks have the same name, or versions.
    """
    found: dict[str, AdmissionHook | Converter] = {}
    conversions: dict[str, list[Conversion]] = {}
    for hook in hooks:
        if isinstance(hook, Conversion):
            conversions.setdefault(str(hook.resource), []).append(hook)
        elif hook.path in found:
            raise OptionsError(f"two webhooks are named {hook.name}: set name=")
        else:
            found[hook.path] = hook

    converters = [Converter(it) for it in conversions.values()]
    return found | {it.path: it for it in converters}
