"""`aioinformer doctor` reports problems of servers and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer, bytes_server
from discovery_helpers import aggregated
from doctor_helpers import HANG, TOKEN, Front, examined, serving

from aioinformer.cli.connection import ConnectionOptions
from aioinformer_apiserver.faults import (
    Cut,
    End,
    ErrorEvent,
    NoBookmarks,
    Refuse,
    Stall,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from aioinformer.testing import APIServer

    Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with serving() as server:
        yield server


@pytest.fixture
def admin(server: APIServer) -> ConnectionOptions:
    return ConnectionOptions(server=server.url, token=TOKEN)


# ---------------------------------------------------------------- the server


async def test_doctor_fails_the_version_on_refused_credentials(
    server: APIServer, capfd: Captured
) -> None:
    target = ConnectionOptions(server=server.url, token="a-strangers-token")
    found = await examined(target, capfd=capfd)

    assert (found.status, found.failed) == (1, ["version"])
    assert "401 Unauthorized" in found.text("version")
    assert found.mark("identity") == "skipped"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param({"hello": "world"}, "not return a Kubernetes version", id="json"),
        pytest.param("<html>hello</html>", "answered with a web page", id="web-page"),
        pytest.param(404, "has no /version", id="not-found"),
        pytest.param(503, "Server error", id="trouble"),
    ],
)
async def test_doctor_fails_only_the_version_of_another_web_server(
    answer: Any, words: str, server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers["/version"] = answer
        found = await examined(
            ConnectionOptions(server=front.url, token=TOKEN), capfd=capfd
        )

    assert (found.status, found.failed) == (1, ["version"])
    assert words in found.text("version")


async def test_doctor_fails_the_version_of_a_server_without_http(
    capfd: Captured,
) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")

    async with bytes_server(talk) as address:
        found = await examined(
            ConnectionOptions(server=f"http://{address}"), capfd=capfd
        )

    assert (found.status, found.failed) == (1, ["version"])
    assert "not HTTP" in found.text("version")


@pytest.mark.parametrize(
    ("name", "mark"),
    [("v1.23.17", "warning"), ("v1.24.0", "ok"), ("v1.31.2+k3s1", "ok")],
)
async def test_doctor_warns_of_an_old_server(
    name: str, mark: str, server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers["/version"] = {"gitVersion": name}
        found = await examined(
            ConnectionOptions(server=front.url, token=TOKEN), capfd=capfd
        )

    assert (found.status, found.mark("version")) == (0, mark)
    assert name in found.text("version")


async def test_doctor_warns_of_a_forbidden_version(
    server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers["/version"] = 403
        found = await examined(
            ConnectionOptions(server=front.url, token=TOKEN), capfd=capfd
        )

    assert (found.status, found.mark("version")) == (0, "warning")
    assert found.mark("watch", "pods") == "ok"


async def test_doctor_fails_the_version_of_a_server_without_json(
    capfd: Captured,
) -> None:
    async with CannedServer() as canned:
        canned.text("hello", 200, "text/plain")
        found = await examined(ConnectionOptions(server=canned.url), capfd=capfd)

    assert (found.status, found.failed) == (1, ["version"])
    assert "Is this the URL of an API server?" in found.text("version")


async def test_doctor_warns_if_reading_the_identity_is_forbidden(
    server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = 403
        found = await examined(
            ConnectionOptions(server=front.url, token=TOKEN), capfd=capfd
        )

    assert (found.status, found.mark("identity")) == (0, "warning")


async def test_doctor_skips_the_identity_without_self_subject_reviews(
    server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = 404
        found = await examined(
            ConnectionOptions(server=front.url, token=TOKEN), capfd=capfd
        )

    assert (found.status, found.mark("identity")) == (0, "skipped")
    assert "SelfSubjectReview" in found.text("identity")


async def test_doctor_warns_of_an_unavailable_api_group(
    server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers["/apis"] = aggregated(("metrics.k8s.io", {"v1beta1": None}))
        found = await examined(
            ConnectionOptions(server=front.url, token=TOKEN), capfd=capfd
        )

    assert (found.status, found.mark("discovery")) == (0, "warning")
    assert "metrics.k8s.io/v1beta1" in found.text("discovery")
    assert found.mark("watch", "pods") == "ok"


async def test_doctor_finds_built_in_resources_without_discovery(
    server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers |= {"/api": 500, "/apis": 500}
        target = ConnectionOptions(server=front.url, token=TOKEN)
        found = await examined(target, "pods", "widgets", capfd=capfd)

    assert (found.status, found.failed) == (1, ["discovery", "found"])
    assert found.mark("watch", "pods") == "ok"
    assert "refused by the test" in found.text("found", "widgets")


# ---------------------------------------------------------------- a resource


async def test_doctor_suggests_a_name_for_an_unknown_resource(
    admin: ConnectionOptions, capfd: Captured
) -> None:
    found = await examined(admin, "deploymentz", "pods", capfd=capfd)

    assert (found.status, found.failed) == (1, ["found"])
    assert "Did you mean 'deployments'" in found.text("found", "deploymentz")
    assert found.mark("watch", "deploymentz") == "skipped"
    assert found.mark("watch", "pods") == "ok"


async def test_doctor_fails_a_resource_without_list_and_watch(
    admin: ConnectionOptions, capfd: Captured
) -> None:
    found = await examined(admin, "tokenreviews", capfd=capfd)

    assert (found.status, found.failed) == (1, ["found"])
    told = found.text("found", "tokenreviews")
    assert "not support list or watch" in told


async def test_doctor_accepts_a_server_that_refuses_watch_lists(
    server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.refused = {"sendInitialEvents"}
        found = await examined(
            ConnectionOptions(server=front.url, token=TOKEN), capfd=capfd
        )

    assert (found.status, found.mark("watch list", "pods")) == (0, "ok")
    assert "falls back to pages" in found.text("watch list", "pods")


async def test_doctor_warns_of_a_server_that_ignores_watch_lists(
    admin: ConnectionOptions, server: APIServer, capfd: Captured
) -> None:
    server.faults.add(NoBookmarks(skip=1))
    found = await examined(admin, capfd=capfd, seconds=2)

    server.faults.check()
    assert (found.status, found.mark("watch list", "pods")) == (0, "warning")
    assert "do not use streaming_list=True" in found.text("watch list", "pods")


async def test_doctor_warns_of_a_watch_list_that_ends_early(
    admin: ConnectionOptions, server: APIServer, capfd: Captured
) -> None:
    server.faults.add(End(after_bytes=0, skip=1))
    found = await examined(admin, capfd=capfd)

    server.faults.check()
    assert (found.status, found.mark("watch list", "pods")) == (0, "warning")


async def test_doctor_prints_rules_for_a_watch_that_is_forbidden_despite_permissions(
    admin: ConnectionOptions, server: APIServer, capfd: Captured
) -> None:
    """Proxies can refuse requests that access reviews permit."""
    server.faults.add(Refuse(verb="watch", status=403))
    found = await examined(admin, capfd=capfd)

    assert (found.status, found.failed) == (1, ["watch"])
    assert found.mark("permissions", "pods") == "ok"
    assert [it["kind"] for it in found.rules] == ["ClusterRole", "ClusterRoleBinding"]


async def test_doctor_warns_of_a_watch_without_bookmarks(
    admin: ConnectionOptions, server: APIServer, capfd: Captured
) -> None:
    server.faults.add(NoBookmarks())
    found = await examined(admin, capfd=capfd)

    assert (found.status, found.mark("watch", "pods")) == (0, "warning")
    assert "no bookmark within 5 s" in found.text("watch", "pods")


async def test_doctor_ignores_missing_bookmarks_with_a_short_timeout(
    admin: ConnectionOptions, server: APIServer, capfd: Captured
) -> None:
    server.faults.add(NoBookmarks())
    found = await examined(admin, capfd=capfd, seconds=2)

    assert (found.status, found.mark("watch", "pods")) == (0, "ok")
    assert "not enough time" in found.text("watch", "pods")


@pytest.mark.parametrize(
    ("fault", "step", "words"),
    [
        pytest.param(Refuse(verb="list", status=503), "list", "503", id="list-503"),
        pytest.param(
            Cut(verb="list", head=False, times=2), "list", "closed", id="list-cut"
        ),
        pytest.param(
            Stall(verb="list", head=False),
            "list",
            "timed out after 2 s",
            id="list-hangs",
        ),
        pytest.param(Refuse(verb="watch", status=500), "watch", "500", id="watch-500"),
        pytest.param(ErrorEvent(status=500), "watch", "500", id="watch-error"),
        pytest.param(
            Stall(verb="watch", head=False), "watch", "timed out after 2 s", id="hangs"
        ),
    ],
)
async def test_doctor_fails_the_step_of_a_failed_list_or_watch(
    fault: Any,
    step: str,
    words: str,
    admin: ConnectionOptions,
    server: APIServer,
    capfd: Captured,
) -> None:
    server.faults.add(fault)
    found = await examined(admin, capfd=capfd, seconds=2)

    assert (found.status, found.failed) == (1, [step])
    assert words in found.text(step, "pods")
    assert found.mark("watch list", "pods") == "skipped"
    assert found.rules == []


async def test_doctor_fails_an_invalid_list(server: APIServer, capfd: Captured) -> None:
    async with Front(server.url) as front:
        front.answers["/api/v1/pods"] = {"items": 3}
        found = await examined(
            ConnectionOptions(server=front.url, token=TOKEN), capfd=capfd
        )

    assert found.failed == ["list"]
    assert "returned an invalid list" in found.text("list", "pods")


# ---------------------------------------------------------------- timeouts


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/version", "version"),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", "identity"),
        ("/apis", "discovery"),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "permissions"),
    ],
    ids=lambda it: it.rpartition("/")[2],
)
async def test_doctor_times_out_on_a_hanging_path(
    path: str, step: str, server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers[path] = HANG
        target = ConnectionOptions(server=front.url, token=TOKEN)
        found = await examined(target, capfd=capfd, seconds=2)

    assert (found.status, found.failed) == (1, [step])
    resource = "pods" if step == "permissions" else None
    assert "timed out after 2 s (--timeout)" in found.text(step, resource)


async def test_doctor_times_out_on_a_silent_tls_server(capfd: Captured) -> None:
    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with bytes_server(talk) as address:
        target = ConnectionOptions(server=f"https://{address}")
        found = await examined(target, capfd=capfd, seconds=2)

    assert (found.status, found.failed) == (1, ["TLS"])
