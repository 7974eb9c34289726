"""Log lines of requests."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioinformer.errors import Forbidden, TransportError
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Cut

LOGGER = "aioinformer_apiserver.http.request_log"


async def test_request_is_logged_with_query_user_status_and_duration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with (
        APIServer(token="admin", users={"a": "alice"}) as server,
        server.client(token="a") as client,
    ):
        with pytest.raises(Forbidden):
            await client.list(PODS, namespace="default", label_selector="app in (a,b)")

    (line,) = caplog.messages
    path = "/api/v1/namespaces/default/pods?labelSelector=app+in+(a,b)"
    assert line == f"GET {path}: answered (status=403, user=alice, 0.0 ms)"


async def test_watch_is_logged_at_begin_and_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with APIServer() as server, server.client() as client:
        async with client.watch(PODS, resource_version="1"):
            await server.until(lambda: "began" in caplog.text)
            assert caplog.messages[0].endswith(
                ": watch began (status=200, user=kubernetes-admin)"
            )
            await asyncio.sleep(7)

        await server.until(lambda: "ended" in caplog.text)

    assert len(caplog.messages) == 2
    assert caplog.messages[1].startswith("GET /api/v1/pods?watch=")
    assert caplog.messages[1].endswith(
        ": watch ended (status=200, user=kubernetes-admin, 7.0 s)"
    )


async def test_broken_request_is_logged_without_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with APIServer() as server, server.client() as client:
        server.faults.add(Cut(head=False, verb="watch"))
        with pytest.raises(TransportError):
            async with client.watch(PODS) as events:
                await anext(events)

    (line,) = caplog.messages
    assert line.endswith(": ended without a response (user=kubernetes-admin, 0.0 ms)")


async def test_line_ends_of_requests_are_escaped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with (
        APIServer(token="admin", users={"a": "alice\nbob"}) as server,
        server.client(token="a") as client,
    ):
        with pytest.raises(Forbidden):
            await client.list(PODS, label_selector="a in (b,\nc)")

    (line,) = caplog.messages
    assert line.isprintable()
    assert "labelSelector=a+in+(b,%0Ac): answered (" in line
    assert "user=alice%0Abob" in line


async def test_requests_are_not_logged_by_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with APIServer() as server, server.client() as client:
        await client.list(PODS)

    assert caplog.messages == []
