"""Reviews over HTTP: of `WebhookServer`, of an aiohttp app and of an ASGI app."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import logging
import shutil
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import msgspec
import pytest
from aiohttp import web
from credential_helpers import Authority
from prometheus_client import CollectorRegistry, generate_latest
from web_hosts import by_aiohttp, needs_timeout_of_heads
from webhook_helpers import Counts, running

from aioinformer import KubeObject, Manager, Resource
from aioinformer.errors import HandlerError, OptionsError
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.testing import APIServer
from aioinformer.web.aiohttp import IDLE_SECONDS
from aioinformer.webhooks import (
    AdmissionRequest,
    Denied,
    WebhookServer,
    conversion,
    mutating,
    reviews,
    validating,
    webhook_app,
    webhook_routes,
)
from aioinformer.webhooks.calls import LARGE_BYTES
from aioinformer.webhooks.reviews import ADMISSION_BYTES, CONVERSION_BYTES, Webhooks
from aioinformer_apiserver.patches.json_patch import json_patch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    Logs = pytest.LogCaptureFixture

SITES = Resource("example.com", "v1", "sites", "Site")
SITE = {
    "apiVersion": "example.com/v1",
    "kind": "Site",
    "metadata": {"name": "blog", "namespace": "shop"},
    "spec": {"image": "blog:1"},
}
CHECK = "/validate/check.sites.example.com"
FILL = "/mutate/fill.sites.example.com"
CONVERT = "/convert/sites.example.com"


@validating(SITES)
async def check(site: KubeObject, request: AdmissionRequest) -> str | None:
    match site.at("spec.image"):
        case "bad":
            raise Denied("bad image", field="spec.image")
        case "secret":
            raise ValueError("tulip")
        case "slow":
            await asyncio.sleep(100)
        case "user":
            return f"{request.user} {' '.join(request.groups)} {request.dry_run}"
        case _:
            pass

    return None


@mutating(SITES)
async def fill(site: dict[str, Any]) -> None:
    site["spec"]["replicas"] = 2


@conversion(SITES, "v1", "v2")
async def upgrade(site: dict[str, Any]) -> None:
    if site["spec"]["image"] == "secret":
        raise ValueError("tulip")

    site["spec"] = {"images": [site["spec"]["image"]]}


HOOKS = (check, fill, upgrade)


def review(image: str = "blog:1", **fields: Any) -> dict[str, Any]:
    request = {
        "uid": "u-1",
        "kind": {"group": "example.com", "version": "v1", "kind": "Site"},
        "resource": {"group": "example.com", "version": "v1", "resource": "sites"},
        "name": "blog",
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "alice", "groups": ["devs"], "extra": {"a": ["b"]}},
        "object": {**SITE, "spec": {"image": image}},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions"},
        **fields,
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request,
    }


def conversion_review(*objects: Any, to: str = "example.com/v2") -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "u-2", "desiredAPIVersion": to, "objects": objects},
    }


async def answered(
    webhooks: Webhooks, path: str, body: dict[str, Any], timeout: str = ""
) -> tuple[int, Any]:
    answer = await webhooks.answer(path, json.dumps(body).encode(), timeout)
    return answer.status, json.loads(answer.body)


# ------------------------------------------------------------ reviews


async def test_review_is_answered_with_its_uid() -> None:
    counts = Counts()
    status, body = await answered(Webhooks(HOOKS, metrics=counts), CHECK, review())

    assert status == 200
    assert body == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }
    assert counts.results == {("check.sites.example.com", "allowed"): 1}
    assert counts.durations == {"check.sites.example.com": 1}


async def test_review_of_a_refusal_has_its_status() -> None:
    counts = Counts()
    webhooks = Webhooks(HOOKS, metrics=counts)
    status, body = await answered(webhooks, CHECK, review("bad"))

    assert status == 200
    assert body["response"]["allowed"] is False
    assert body["response"]["status"]["code"] == 422
    assert body["response"]["status"]["message"] == "bad image"
    assert counts.results == {("check.sites.example.com", "denied"): 1}


class SiteModel(msgspec.Struct):
    spec: Any


@pytest.mark.parametrize("into", [None, dict, KubeObject, SiteModel])
async def test_object_that_is_nested_too_deeply_to_be_changed_is_refused(
    into: Any,
) -> None:
    hook = mutating(SITES, into=into, name="keep")(lambda site: site)
    nested: Any = 1
    for _ in range(300):
        nested = [nested]

    given = review(object={**SITE, "spec": {"image": "blog:1", "x": nested}})
    status, body = await answered(Webhooks(hook), hook.path, given)

    assert status == 200
    assert body["response"]["status"]["code"] == 400
    assert "nested too deeply" in body["response"]["status"]["message"]


async def test_review_tells_the_function_about_the_user() -> None:
    _, body = await answered(Webhooks(HOOKS), CHECK, review("user", dryRun=True))

    assert body["response"]["warnings"] == ["alice devs True"]


async def test_review_of_a_mutation_has_a_patch() -> None:
    _, body = await answered(Webhooks(HOOKS), FILL, review())
    response = body["response"]

    assert response["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(response["patch"]))
    assert json_patch(SITE, patch)["spec"] == {"image": "blog:1", "replicas": 2}


async def test_failure_is_an_http_error_without_contents(caplog: Logs) -> None:
    failures: list[HandlerError] = []
    counts = Counts()
    webhooks = Webhooks(HOOKS, metrics=counts, on_error=failures.append)
    status, body = await answered(webhooks, CHECK, review("secret"))

    assert status == 500
    assert body["kind"] == "Status"
    assert body["message"] == (
        "webhook check.sites.example.com failed: ValueError, see its log"
    )
    (failure,) = failures
    assert (failure.where, failure.name) == ("webhook", "check.sites.example.com")
    assert isinstance(failure.__cause__, ValueError)
    assert counts.results == {("check.sites.example.com", "failed"): 1}
    assert counts.errors == 1
    assert "CREATE sites.example.com 'shop/blog'" in caplog.text


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("10s", 9.5),
        ("1s", 0.9),
        ("1500ms", 1.35),
        ("", 9.5),
        ("soon", 9.5),
        ("1h", 9.5),
    ],
)
async def test_function_is_cancelled_before_the_caller_gives_up(
    timeout: str, seconds: float, caplog: Logs
) -> None:
    loop = asyncio.get_running_loop()
    counts = Counts()
    began = loop.time()
    webhooks = Webhooks(HOOKS, metrics=counts)
    status, body = await answered(webhooks, CHECK, review("slow"), timeout)

    assert loop.time() - began == pytest.approx(seconds)
    assert status == 504
    assert f"did not answer within {seconds:g} s" in body["message"]
    assert counts.results == {("check.sites.example.com", "timeout"): 1}


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_plain_function_that_takes_too_long_is_answered(caplog: Logs) -> None:
    release = threading.Event()

    @validating(SITES)
    def stuck(site: KubeObject) -> None:
        release.wait(20)

    webhooks = Webhooks([stuck])
    path = "/validate/stuck.sites.example.com"
    began = time.monotonic()
    try:
        status, _ = await answered(webhooks, path, review(), "100ms")
    finally:
        release.set()

    assert status == 504
    assert time.monotonic() - began < 10
    await webhooks.calls.ended()


def changed(**changes: Any) -> dict[str, Any]:
    return {**review(), **changes}


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (CHECK, {}, "not AdmissionReview admission.k8s.io/v1"),
        (CHECK, changed(apiVersion="admission.k8s.io/v1beta1"), "not AdmissionReview"),
        (CHECK, changed(kind="Pod"), "not AdmissionReview"),
        (CHECK, conversion_review(), "missing required field `operation`"),
        (CHECK, changed(request=None), "no uid"),
        (CHECK, review(uid=""), "no uid"),
        (CHECK, review(object=[]), "object"),
        (CHECK, review(object={"metadata": []}), "metadata"),
        (CHECK, review(resource={}), "resource"),
        (CONVERT, {}, "not ConversionReview apiextensions.k8s.io/v1"),
        (CONVERT, review(), "missing required field"),
        (CONVERT, {**conversion_review(), "request": None}, "no uid"),
    ],
)
async def test_malformed_review_is_a_bad_request(
    path: str, body: dict[str, Any], reason: str
) -> None:
    counts = Counts()
    status, answer = await answered(Webhooks(HOOKS, metrics=counts), path, body)

    assert status == 400
    assert answer["message"].startswith("malformed review: ")
    assert reason in answer["message"]
    assert [result for _, result in counts.results] == ["malformed"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("path", [CHECK, CONVERT])
async def test_text_that_is_no_review_is_a_bad_request(path: str, body: bytes) -> None:
    assert (await Webhooks(HOOKS).answer(path, body)).status == 400


async def test_unknown_path_is_not_found() -> None:
    assert (await answered(Webhooks(HOOKS), "/validate/x", review()))[0] == 404


def test_webhooks_of_the_same_name_are_refused() -> None:
    with pytest.raises(OptionsError, match="two webhooks are named check"):
        Webhooks([check, check])

    with pytest.raises(OptionsError, match="two conversions of sites"):
        Webhooks([upgrade, upgrade])

    with pytest.raises(OptionsError, match="no webhooks"):
        Webhooks([])

    with pytest.raises(OptionsError, match="Decorate the function"):
        Webhooks([review])  # type: ignore[list-item]

    with pytest.raises(OptionsError, match="Decorate the function"):
        Webhooks(review)  # type: ignore[arg-type]


# ------------------------------------------------------------ conversions


async def test_objects_of_several_versions_are_converted_in_order() -> None:
    second = {**SITE, "apiVersion": "example.com/v2", "spec": {"images": ["x"]}}
    body = conversion_review(SITE, second, SITE)
    status, answer = await answered(Webhooks(HOOKS), CONVERT, body)

    assert status == 200
    response = answer["response"]
    assert (response["uid"], response["result"]) == ("u-2", {"status": "Success"})
    images = [it["spec"]["images"] for it in response["convertedObjects"]]
    assert images == [["blog:1"], ["x"], ["blog:1"]]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            conversion_review({**SITE, "spec": {"image": "secret"}}),
            "cannot convert sites.example.com shop/blog from v1 to v2: ValueError",
        ),
        (conversion_review(SITE, to="example.com/v3"), "from v1 to v3 is declared"),
        (conversion_review(SITE, to="example.org/v2"), "to 'example.org/v2'"),
        (conversion_review(7), "object 0 of the review is not one of sites"),
        (conversion_review({"apiVersion": "v1"}), "object 0 of the review"),
    ],
)
async def test_object_that_cannot_be_converted_fails_the_review(
    body: dict[str, Any], reason: str, caplog: Logs
) -> None:
    counts = Counts()
    status, answer = await answered(Webhooks(HOOKS, metrics=counts), CONVERT, body)

    assert status == 200
    assert answer["response"]["result"]["status"] == "Failure"
    assert reason in answer["response"]["result"]["message"]
    assert answer["response"]["convertedObjects"] == []
    assert "tulip" not in json.dumps(answer)
    assert counts.results == {("sites.example.com", "failed"): 1}


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_conversion_that_never_waits_lets_other_tasks_run() -> None:
    @conversion(SITES, "v1", "v2")
    async def upgrade(site: dict[str, Any]) -> None:
        steps.append("converted")

    async def other() -> None:
        steps.append("other")

    steps: list[str] = []
    task = asyncio.create_task(other())
    webhooks = Webhooks([upgrade])
    status, _ = await answered(webhooks, CONVERT, conversion_review(*[SITE] * 300))
    await task

    assert status == 200
    assert 0 < steps.index("other") < len(steps) - 1


async def test_plain_conversions_take_the_shortest_way_in_one_thread() -> None:
    threads = set()

    def step(number: int) -> Any:
        @conversion(SITES, f"v{number}", f"v{number + 1}")
        def convert(site: dict[str, Any]) -> None:
            threads.add(threading.current_thread())
            site["spec"].setdefault("steps", []).append(number)

        return convert

    @conversion(SITES, "v1", "v3")
    def shortcut(site: dict[str, Any]) -> None:
        threads.add(threading.current_thread())
        site["spec"]["steps"] = ["shortcut"]

    webhooks = Webhooks([step(1), step(2), step(3), shortcut])
    objects = [SITE] * 50
    body = conversion_review(*objects, to="example.com/v4")
    _, answer = await answered(webhooks, CONVERT, body)

    found = answer["response"]["convertedObjects"]
    assert [it["spec"]["steps"] for it in found] == [["shortcut", 3]] * 50
    assert {it["apiVersion"] for it in found} == {"example.com/v4"}
    assert len(threads) == 2
    assert threading.main_thread() not in threads


# ------------------------------------------------------------ apps


async def test_routes_of_an_aiohttp_app_answer_reviews() -> None:
    app = web.Application()  # whose limit is a megabyte
    app.add_routes(webhook_routes(HOOKS))
    padded = review(options={"padding": "x" * 2_000_000})
    large = io.BytesIO(json.dumps(padded).encode())
    async with by_aiohttp(app) as url, aiohttp.ClientSession(url) as http:
        async with http.post(f"{CHECK}?timeout=10s", data=large) as answer:
            assert (await answer.json())["response"]["allowed"] is True

        async with http.post(f"{CHECK}?timeout=1s", json=review("slow")) as answer:
            assert answer.status == 504

        async with http.get(CHECK) as answer:
            assert answer.status == 405

        too_large = {
            CHECK: (ADMISSION_BYTES + 1, "7 MiB"),
            CONVERT: (CONVERSION_BYTES + 1, "16 MiB"),
        }
        for path, (size, text) in too_large.items():
            async with http.post(path, data=io.BytesIO(b" " * size)) as answer:
                assert answer.status == 413
                assert text in (await answer.json())["message"]


async def test_body_that_cannot_be_decoded_is_a_bad_request(caplog: Logs) -> None:
    app = web.Application()
    app.add_routes(webhook_routes(HOOKS))
    body = json.dumps(review()).encode()
    headers = {"Content-Encoding": "gzip"}  # which it is not
    async with by_aiohttp(app) as url, aiohttp.ClientSession(url) as http:
        async with http.post(CHECK, data=body, headers=headers) as answer:
            assert answer.status == 400
            assert "cannot be decoded" in (await answer.json())["message"]

        assert (await _post(http, CHECK))["response"]["allowed"] is True

    assert not caplog.records


async def test_asgi_app_answers_reviews() -> None:
    transport = httpx.ASGITransport(webhook_app(HOOKS))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        answer = await http.post(f"{CHECK}?timeout=10s", json=review())
        assert answer.json()["response"]["allowed"] is True
        answer = await http.post(f"{CHECK}?timeout=1s", json=review("slow"))
        assert answer.status_code == 504
        assert (await http.get(CHECK)).status_code == 405
        assert (await http.post("/x", json={})).status_code == 404
        answer = await http.post(CHECK, content=b" " * (ADMISSION_BYTES + 1))
        assert answer.status_code == 413


# ------------------------------------------------------------ the server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.asynccontextmanager
async def serving(authority: Authority, folder: Path) -> AsyncIterator[WebhookServer]:
    """Run a server with a certificate of this folder."""
    for file in authority.sign("first"):
        file.rename(file.with_stem("tls"))

    server = WebhookServer(HOOKS, port=0, host="127.0.0.1", cert_dir=folder)
    async with running(server):
        yield server


async def name_of(server: WebhookServer, authority: Authority) -> str:
    """Return the common name of the certificate of a new connection."""
    context = ssl.create_default_context(cafile=authority.file)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    try:
        shown = writer.get_extra_info("peercert")
        return str(dict(pair for (pair,) in shown["subject"])["commonName"])
    finally:
        writer.close()
        await writer.wait_closed()


async def test_server_serves_https(authority: Authority, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    connector = aiohttp.TCPConnector(ssl=context)
    async with serving(authority, tmp_path) as server:
        assert server.why_not_serving() == ""
        url = f"https://127.0.0.1:{server.port}"
        async with aiohttp.ClientSession(url, connector=connector) as http:
            assert (await _post(http, CHECK))["response"]["allowed"] is True


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_changed_certificate_is_used_by_new_connections(
    authority: Authority, tmp_path: Path, caplog: Logs
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(authority, tmp_path) as server:
        certificate = server._certificate
        assert certificate is not None
        assert await name_of(server, authority) == "first"

        second = authority.sign("second")
        shutil.copy(second[0], tmp_path / "tls.crt")
        await certificate.check()  # the key is still that of the first
        await certificate.check()
        assert await name_of(server, authority) == "first"
        assert caplog.text.count("certificate not reloaded") == 1
        assert "key values mismatch" in caplog.text

        shutil.copy(second[1], tmp_path / "tls.key")
        await certificate.check()
        assert await name_of(server, authority) == "second"
        assert "certificate reloaded" in caplog.text

        (tmp_path / "tls.crt").write_text("no certificate")
        await certificate.check()
        (tmp_path / "tls.crt").unlink()
        await certificate.check()
        assert await name_of(server, authority) == "second"


async def test_server_checks_its_files_by_itself(
    authority: Authority, tmp_path: Path
) -> None:
    async with serving(authority, tmp_path) as server:
        for file, name in zip(authority.sign("second"), ("crt", "key"), strict=True):
            shutil.copy(file, tmp_path / f"tls.{name}")

        async with asyncio.timeout(100):
            while await name_of(server, authority) != "second":
                await asyncio.sleep(1)


@pytest.mark.parametrize("content", [None, "", "no certificate"])
async def test_server_without_a_valid_certificate_does_not_start(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "tls.crt").write_text(content)
        (tmp_path / "tls.key").write_text(content)

    server = WebhookServer(HOOKS, port=0, cert_dir=tmp_path)
    with pytest.raises(OptionsError, match=r"cannot load the certificate .*tls.crt"):
        await server.run()

    assert server.why_not_serving()


async def test_server_whose_port_is_in_use_does_not_start() -> None:
    first = WebhookServer(HOOKS, port=0, host="127.0.0.1")
    async with running(first):
        second = WebhookServer(HOOKS, port=first.port, host="127.0.0.1")
        with pytest.raises(OSError, match="webhook server cannot listen on 127"):
            await second.run()


async def test_ending_server_answers_reviews_in_progress() -> None:
    ready = asyncio.Event()

    @validating(SITES)
    async def waits(site: KubeObject) -> str:
        ready.set()
        await asyncio.sleep(1)
        return "done"

    server = WebhookServer([waits], port=0, host="127.0.0.1")
    async with running(server) as task, aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{server.port}/validate/waits.sites.example.com"
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(_post(http, url))
            await ready.wait()
            task.cancel()
            await asyncio.wait({task})

    assert answer.result()["response"]["warnings"] == ["done"]
    assert server.why_not_serving()


async def _post(http: aiohttp.ClientSession, url: str) -> Any:
    async with http.post(url, json=review()) as answer:
        return await answer.json()


async def test_server_runs_in_a_manager(caplog: Logs) -> None:
    server = WebhookServer(HOOKS, port=0, host="127.0.0.1")
    checks = {"webhooks": server.why_not_serving}
    registry = CollectorRegistry()
    async with APIServer() as apiserver:
        sink = PrometheusSink(registry)
        manager = Manager(apiserver.client(), metrics=sink)
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]

        manager.serve(port=port, host="127.0.0.1", checks=checks)
        ready = f"http://127.0.0.1:{port}/readyz/webhooks"
        async with manager, aiohttp.ClientSession() as http:
            async with http.get(ready) as answer:
                assert answer.status == 503

            manager.add(server, leader_only=False)
            async with asyncio.timeout(10):
                while server.why_not_serving():
                    await asyncio.sleep(0.1)

            async with http.get(ready) as answer:
                assert answer.status == 200

            body = await _post(http, f"http://127.0.0.1:{server.port}{CHECK}")
            assert body["response"]["allowed"] is True
            text = generate_latest(registry).decode()

    labels = 'result="allowed",webhook="check.sites.example.com"'
    assert f"aioinformer_webhook_requests_total{{{labels}}} 1.0" in text

    assert "plain HTTP, but a kube-apiserver requires HTTPS" in caplog.text
    assert server.why_not_serving()


@pytest.mark.parametrize(
    "options",
    [
        {"certfile": "a"},
        {"keyfile": "a"},
        {"cert_dir": "a", "certfile": "b", "keyfile": "c"},
    ],
)
def test_incomplete_files_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="certfile and keyfile"):
        WebhookServer(HOOKS, **options)


def test_invalid_port_is_refused() -> None:
    with pytest.raises(OptionsError, match="a port must be a number from 0 to 65535"):
        WebhookServer(HOOKS, port=99999)


async def test_server_runs_again_with_the_certificate_of_then(
    authority: Authority, tmp_path: Path
) -> None:
    async with serving(authority, tmp_path) as server:
        assert await name_of(server, authority) == "first"

    for file, name in zip(authority.sign("second"), ("crt", "key"), strict=True):
        shutil.copy(file, tmp_path / f"tls.{name}")

    async with running(server):
        assert await name_of(server, authority) == "second"


async def test_caller_that_leaves_in_the_middle_of_a_review_is_no_error(
    caplog: Logs,
) -> None:
    counts = Counts()
    server = WebhookServer(HOOKS, port=0, host="127.0.0.1", metrics=counts)
    async with running(server):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST {CHECK} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{"
        writer.write(head.encode())
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.1)

    (record,) = caplog.records  # only the warning of a server without a certificate
    assert "serves plain HTTP" in record.getMessage()
    assert not counts.results


@needs_timeout_of_heads
@pytest.mark.parametrize("path", [CHECK, CONVERT])
async def test_callers_that_do_not_go_on_are_disconnected(path: str) -> None:
    loop = asyncio.get_running_loop()
    server = WebhookServer(HOOKS, port=0, host="127.0.0.1")

    async def seconds_and_answer(sent: str) -> tuple[float, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        began = loop.time()
        writer.write(sent.encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return loop.time() - began, answer

    async with running(server):
        half_head = f"POST {path} HTTP/1.1\r\nHost: x\r\n"
        seconds, answer = await seconds_and_answer(half_head)
        assert answer == b""
        assert seconds == pytest.approx(IDLE_SECONDS, abs=1)

        half_body = f"{half_head}Content-Length: 9\r\n\r\n{{"
        seconds, answer = await seconds_and_answer(half_body)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert seconds < reviews.BODY_SECONDS + 11  # aiohttp reads on for 10 s


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_large_review_is_converted_without_blocking_the_loop() -> None:
    objects = [{**SITE, "data": "x" * 1000}] * 1000
    _, answer = await answered(Webhooks(HOOKS), CONVERT, conversion_review(*objects))

    assert len(answer["response"]["convertedObjects"]) == 1000
    status, answer = await answered(
        Webhooks(HOOKS), CONVERT, {"request": "x" * 1_000_000}
    )
    assert status == 400


async def test_large_reviews_wait_for_a_place_and_small_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reviews, "MAX_LARGE", 1)
    webhooks = Webhooks(HOOKS)
    go_on = asyncio.Event()

    async def answers(size: int) -> tuple[int, float]:
        """Send a review whose last byte comes when the test goes on."""
        body = json.dumps(review(options={"padding": "x" * size})).encode()
        parts = [body[:-1], body[-1:]]

        async def receive() -> bytes:
            if len(parts) == 1:
                await go_on.wait()

            return parts.pop(0) if parts else b""

        answer = await webhooks.answer_received(CHECK, receive)
        return answer.status, asyncio.get_running_loop().time()

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        large = [group.create_task(answers(LARGE_BYTES)) for _ in range(3)]
        small = group.create_task(answers(10))
        loop.call_later(reviews.BODY_SECONDS - 1, go_on.set)

    assert [it.result()[0] for it in (*large, small)] == [200] * 4
    assert loop.time() - began == pytest.approx(reviews.BODY_SECONDS - 1)

    go_on.clear()
    async with asyncio.TaskGroup() as group:
        large = [group.create_task(answers(LARGE_BYTES)) for _ in range(2)]
        small = group.create_task(answers(10))

    assert [it.result()[0] for it in (*large, small)] == [408, 429, 408]
    assert loop.time() - began == pytest.approx(2 * reviews.BODY_SECONDS - 1)


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_patch_of_a_large_object_does_not_block_the_loop() -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.001)
            beats += 1

    large = {**SITE, "spec": {"image": "blog:1", "x": [{"a": 1}] * 100_000}}
    body = json.dumps(review(object=large)).encode()
    beating = asyncio.create_task(beat())
    answer = await Webhooks(HOOKS).answer(FILL, body)
    beating.cancel()
    await asyncio.wait([beating])

    assert answer.status == 200
    assert beats > 5
