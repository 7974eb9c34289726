"""`ReconcileClient`: verbs, recorded writes and fencing."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from canned import CannedServer
from controller_helpers import informer_of
from informers import plain

from aioinformer import Client
from aioinformer.controller import ReconcileClient
from aioinformer.controller.pending_writes import PendingWrites
from aioinformer.errors import (
    ApiError,
    LeadershipLost,
    NotFound,
    OptionsError,
    TransportError,
)
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Delay, Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer.testing.faults import Fault


class Term:
    """Elector that leads until `leads` is False, or for a number of checks."""

    def __init__(self, checks: float = math.inf) -> None:
        self.over = False
        self.checks = checks

    def check(self) -> None:
        self.checks -= 1
        if self.over or self.checks < 0:
            raise LeadershipLost("somebody else may lead by now")


class Bench:
    def __init__(self, server: APIServer, client: Client) -> None:
        self.server = server
        self.term = Term()
        self.writes = PendingWrites([informer_of(server.list_watch(PODS))])
        self.client = ReconcileClient(client, self.writes, self.term)


@asynccontextmanager
async def bench(qps: int | None = None) -> AsyncIterator[Bench]:
    async with (
        APIServer() as server,
        Client.from_url(
            server.url, token=server.token, qps=qps, burst=qps and 1
        ) as client,
    ):
        yield Bench(server, client)


async def test_reconcile_client_has_all_verbs_of_client() -> None:
    async with bench() as it:
        client = it.client
        made = await client.create(PODS, plain("web"))
        changed = await client.patch(
            PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace="default"
        )
        assert made.uid == changed.uid
        assert (await client.get(PODS, "web", namespace="default")) == changed
        assert [pod.name for pod in await client.list(PODS)] == ["web"]
        async with client.watch(PODS, resource_version=made.resource_version) as watch:
            assert (await anext(watch)).object == changed

        await client.delete(PODS, "web", namespace="default")
        with pytest.raises(NotFound):
            await client.get(PODS, "web", namespace="default")


async def test_reconcile_client_records_writes_only() -> None:
    async with bench() as it:
        await it.client.list(PODS)
        assert len(it.writes) == 0

        await it.client.create(PODS, plain("web"))
        assert len(it.writes) == 1


async def test_refused_write_is_not_pending() -> None:
    async with bench() as it:
        with pytest.raises(NotFound):
            await it.client.delete(PODS, "web", namespace="default")

        assert len(it.writes) == 0


async def test_write_after_lost_leadership_is_not_sent() -> None:
    async with bench() as it:
        it.term.over = True
        with pytest.raises(LeadershipLost):
            await it.client.create(PODS, plain("web"))

        with pytest.raises(LeadershipLost):
            async with it.client.stream("POST", PODS.path("default")):
                pass

        assert await it.client.list(PODS) == []


@pytest.mark.parametrize(
    ("fault", "unanswered"),
    [
        (Refuse(status=409), False),
        (Refuse(status=429), False),
        (Refuse(status=504), True),
        (Delay(seconds=10), True),
    ],
    ids=["409", "429", "504", "late"],
)
@pytest.mark.parametrize("verb", ["create", "delete_collection", "stream"])
async def test_reconcile_client_notes_writes_without_an_answer(
    fault: Fault, unanswered: bool, verb: str
) -> None:
    async with bench() as it:
        it.server.faults.add(fault)
        with suppress(ApiError, TransportError, TimeoutError):
            async with asyncio.timeout(5):
                match verb:
                    case "create":
                        await it.client.create(PODS, plain("web"))
                    case "delete_collection":
                        await it.client.delete_collection(PODS, namespace="default")
                    case _:
                        path = PODS.path("default")
                        async with it.client.stream("POST", path, body=b"{}"):
                            pass

        assert it.writes.unanswered is unanswered


async def test_write_that_is_not_sent_needs_no_answer() -> None:
    async with bench() as it:
        it.term.over = True
        with pytest.raises(LeadershipLost):
            await it.client.create(PODS, plain("web"))

        with pytest.raises(OptionsError):
            await it.client.delete(PODS, "")

        assert not it.writes.unanswered


async def test_leadership_is_checked_after_wait_for_rate_limit() -> None:
    async with bench(qps=1) as it:
        await it.client.list(PODS)
        writing = asyncio.create_task(it.client.create(PODS, plain("web")))
        await asyncio.sleep(0.5)
        it.term.over = True
        with pytest.raises(LeadershipLost):
            await writing

        assert it.server.objects(PODS) == []


async def test_leadership_is_checked_after_connect() -> None:
    async with bench() as it:
        it.term.checks = 1  # lost during the connect
        with pytest.raises(LeadershipLost):
            await it.client.create(PODS, plain("web"))

        assert it.term.checks == -1
        assert not it.server.requests


async def test_leadership_is_checked_before_resend(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    term = Term()

    async def refuse(_: web.Request) -> web.StreamResponse:
        token.write_text("new")
        term.over = True
        return web.json_response({"kind": "Status", "code": 401}, status=401)

    async with (
        CannedServer() as server,
        Client.from_url(server.url, token_file=token) as plain_client,
    ):
        server.answer(refuse)
        client = ReconcileClient(plain_client, PendingWrites([]), term)
        with pytest.raises(LeadershipLost):
            await client.create(PODS, plain("web"))

    assert [seen.method for seen in server.seen] == ["POST"]


async def test_reads_need_no_leadership() -> None:
    async with bench() as it:
        it.term.over = True
        assert await it.client.list(PODS) == []


async def test_reconcile_client_shows_configuration_of_client() -> None:
    async with bench() as it:
        assert it.client.namespace == "default"
        assert it.client.config.server == it.server.url
        assert repr(it.client).startswith("<ReconcileClient of <Client http")


async def test_reconcile_clients_share_discovery() -> None:
    async with APIServer() as server, server.client() as client:
        requests = 0
        for _ in range(3):  # one for each reconcile
            one = ReconcileClient(client, PendingWrites([]))
            assert (await one.discovery.resource("po")).plural == "pods"
            requests = len(server.requests)

        assert (await client.discovery.resource("svc")).plural == "services"
        assert len(server.requests) == requests == 2  # core, and all groups
