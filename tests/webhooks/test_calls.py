"""Threads of plain functions, and what else a caller may pass."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, model_serializer, model_validator
from webhook_helpers import running

from aioinformer import KubeObject, Resource
from aioinformer.webhooks import (
    AdmissionRequest,
    Denied,
    WebhookServer,
    conversion,
    mutating,
    validating,
    webhook_app,
)
from aioinformer.webhooks.calls import LARGE_BYTES, MAX_THREADS, Calls
from aioinformer.webhooks.reviews import Webhooks

if TYPE_CHECKING:
    from aioinformer.errors import HandlerError

SITES = Resource("example.com", "v1", "sites", "Site")
SITE: dict[str, Any] = {"metadata": {"name": "blog"}, "spec": {}}

pytestmark = [pytest.mark.realtime, pytest.mark.looptime(False)]


async def test_threads_are_limited_also_after_a_cancellation() -> None:
    calls, release, began = Calls(), threading.Event(), []

    def stuck() -> None:
        began.append(1)
        release.wait(20)

    tasks = [asyncio.create_task(calls.call(stuck)) for _ in range(MAX_THREADS + 1)]
    while len(began) < MAX_THREADS:
        await asyncio.sleep(0.01)

    for task in tasks[:-1]:
        task.cancel()

    await asyncio.wait(tasks[:-1])
    assert not tasks[-1].done()
    assert len(began) == MAX_THREADS

    release.set()
    await tasks[-1]
    await calls.ended()
    assert len(began) == MAX_THREADS + 1


async def test_function_may_return_a_coroutine() -> None:
    async def warning() -> str:
        return "checked"

    hook = validating(SITES, name="check")(lambda obj: warning())

    assert (await hook.review(SITE)).warnings == ("checked",)


async def test_methods_and_callable_objects_are_functions() -> None:
    class Checks:
        def check(self, obj: KubeObject) -> str:
            return f"{obj.name} by a method"

        def __call__(self, obj: KubeObject) -> str:
            return f"{obj.name} by an object"

    method = validating(SITES)(Checks().check)
    called = validating(SITES, name="called")(Checks())

    assert (await method.review(SITE)).warnings == ("blog by a method",)
    assert (await called.review(SITE)).warnings == ("blog by an object",)


async def test_function_that_uses_a_wrong_type_fails() -> None:
    @mutating(SITES)
    def fill(obj: dict[str, Any]) -> None:
        obj["spec"]["ports"] = {80, 443}

    with pytest.raises(TypeError, match="set"):
        await fill.review(SITE)


async def test_model_of_a_large_object_is_computed_in_a_thread() -> None:
    decoded, encoded, called = [], [], []

    class Site(BaseModel):
        spec: dict[str, Any]

        @model_validator(mode="after")
        def decoded_here(self) -> Site:
            decoded.append(threading.current_thread())
            return self

        @model_serializer(mode="wrap")
        def encoded_here(self, serialize: Any) -> Any:
            encoded.append(threading.current_thread())
            return serialize(self)

    @mutating(SITES, into=Site)
    async def fill(site: Site) -> None:
        called.append(threading.current_thread())
        site.spec["replicas"] = 2

    answer = await fill.review({**SITE, "spec": {"x": "x" * LARGE_BYTES}})

    main = threading.main_thread()
    assert answer.object is not None
    assert answer.object.at("spec.replicas") == 2
    assert (len(decoded), len(encoded)) == (1, 2)
    assert main not in {*decoded, *encoded}
    assert called == [main]


async def test_plain_conversion_is_reviewed_in_a_thread() -> None:
    threads = []

    @conversion(SITES, "v1", "v2")
    def upgrade(site: dict[str, Any]) -> None:
        threads.append(threading.current_thread())

    assert (await upgrade.review(SITE)).api_version == "example.com/v2"
    assert threads != [threading.main_thread()]


async def test_base_exception_of_a_function_is_an_http_error() -> None:
    @conversion(SITES, "v1", "v2")
    def upgrade(site: dict[str, Any]) -> None:
        pytest.fail("tulip")  # derives from BaseException

    webhooks = Webhooks(upgrade)
    site = b'{"apiVersion": "example.com/v1", "kind": "Site", "metadata": {}}'
    body = (
        b'{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", '
        b'"request": {"uid": "1", "desiredAPIVersion": "example.com/v2", "objects": ['
        + site
        + b"]}}"
    )
    answer = await webhooks.answer("/convert/sites.example.com", body)

    assert answer.status == 500
    assert b"webhook sites.example.com failed: Failed" in answer.body
    assert b"tulip" not in answer.body


async def denied_by_no_text(site: Any, request: AdmissionRequest) -> None:
    raise Denied(ValueError("tulip"))  # type: ignore[arg-type]


async def denied_by_a_cause_that_is_no_text(
    site: Any, request: AdmissionRequest
) -> None:
    raise Denied("no", causes={"spec": ["tulip"]})  # type: ignore[dict-item]


async def denied_by_invalid_unicode(site: Any, request: AdmissionRequest) -> None:
    raise Denied("tulip \ud800")


async def warning_that_is_no_text(site: Any, request: AdmissionRequest) -> None:
    request.warnings.append(5)  # type: ignore[arg-type]


async def warning_of_invalid_unicode(site: Any, request: AdmissionRequest) -> None:
    request.warnings.append("tulip \ud800")


async def cancelled_by_itself(site: Any, request: AdmissionRequest) -> None:
    raise asyncio.CancelledError


def cancelled_in_a_thread(site: Any, request: AdmissionRequest) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("kind", [validating, mutating])
@pytest.mark.parametrize(
    "function",
    [
        denied_by_no_text,
        denied_by_a_cause_that_is_no_text,
        denied_by_invalid_unicode,
        warning_that_is_no_text,
        warning_of_invalid_unicode,
        cancelled_by_itself,
        cancelled_in_a_thread,
    ],
)
async def test_answer_that_cannot_be_sent_is_an_http_error(
    kind: Any, function: Any
) -> None:
    failures: list[HandlerError] = []
    hook = kind(SITES, name="check")(function)
    webhooks = Webhooks(hook, on_error=failures.append)
    body = (
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": '
        b'{"uid": "1", "operation": "CREATE", "resource": {"group": "example.com", '
        b'"version": "v1", "resource": "sites"}, "object": {}}}'
    )
    answer = await webhooks.answer(hook.path, body)

    assert answer.status == 500
    assert b"webhook check.sites.example.com failed: " in answer.body
    assert b"tulip" not in answer.body
    assert len(failures) == 1


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Denied("\ud800")])
async def test_conversion_that_cannot_be_answered_is_an_http_error(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    # pytest-xdist cannot send records of the log that are no Unicode text.
    caplog.set_level(logging.CRITICAL + 1, "aioinformer")

    @conversion(SITES, "v1", "v2")
    async def upgrade(site: dict[str, Any]) -> None:
        raise error

    body = (
        b'{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", '
        b'"request": {"uid": "1", "desiredAPIVersion": "example.com/v2", "objects": '
        b'[{"apiVersion": "example.com/v1", "kind": "Site", "metadata": {}}]}}'
    )
    answer = await Webhooks(upgrade).answer("/convert/sites.example.com", body)

    assert answer.status == 500
    assert b"webhook sites.example.com failed: " in answer.body


@pytest.mark.looptime(True)
async def test_server_does_not_wait_forever_for_a_stuck_function(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()

    @validating(SITES)
    def stuck(obj: KubeObject) -> None:
        release.wait(20)

    server = WebhookServer(stuck, port=0, host="127.0.0.1")
    async with running(server):
        call = asyncio.create_task(server._webhooks.calls.call(stuck.function, None))
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.wait({call})

    release.set()
    await server._webhooks.calls.ended()
    assert "a plain function still runs after the end of the server" in caplog.text


async def test_asgi_app_accepts_lifespans_and_callers_that_leave() -> None:
    app = webhook_app(validating(SITES, name="check")(lambda obj: None))
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    events = iter(["lifespan.startup", "lifespan.shutdown", "http.disconnect"])

    async def receive() -> Any:
        return {"type": next(events)}

    await app({"type": "lifespan"}, receive, send)
    path = "/validate/check.sites.example.com"
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    await app(scope, receive, send)

    assert [it["type"] for it in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert repr(app) == f"<WebhookApp {path}>"
