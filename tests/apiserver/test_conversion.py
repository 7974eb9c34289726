"""Kinds in two versions, and account tokens, without a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from api_calls import a_server, a_session, an_event, ask, named

from aioinformer.model.resource import Resource
from aioinformer.model.resources import (
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    SERVICE_ACCOUNTS,
)
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    import aiohttp

NEWER_EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
FIRST = Resource(
    "autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
TOKEN = "/api/v1/namespaces/default/serviceaccounts/robot/token"
ME = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "no object",
        {"metrics": ["no metric", {"type": "Pods", "pods": {"metric": 1}}]},
    ],
)
def test_arranged_object_is_readable_in_both_versions(spec: object) -> None:
    server = APIServer()

    body = named("web") if spec is None else named("web", spec=spec)
    server.create(HORIZONTAL_POD_AUTOSCALERS, body)

    (shown,) = server.objects(FIRST)
    assert (shown["metadata"]["name"], shown["apiVersion"]) == ("web", "autoscaling/v1")


@pytest.mark.parametrize("new_history", [True, False])
async def test_versions_stay_in_sync_after_restart(
    new_history: bool,
) -> None:
    async with a_server() as server:
        server.create(EVENTS, an_event("a", "default", message="M"))
        backup = None if new_history else server.snapshot()
        await server.restart(new_history=new_history, snapshot=backup)

        server.create(NEWER_EVENTS, named("b", note="N"))

        shown = {it["metadata"]["name"]: it for it in server.objects(NEWER_EVENTS)}
        assert [it["message"] for it in server.objects(EVENTS)] == ["M", "N"]
        assert shown["a"]["note"] == "M"


async def token_of(http: aiohttp.ClientSession, **spec: object) -> dict[str, str]:
    code, answer = await ask(http, "POST", TOKEN, {"spec": spec})
    assert code == 201, answer
    return {"Authorization": f"Bearer {answer['status']['token']}"}


async def test_server_without_users_accepts_service_account_tokens() -> None:
    async with a_server() as server, a_session(server) as http:
        server.create(SERVICE_ACCOUNTS, named("robot"))
        headers = await token_of(http)

        async with http.post(ME, json={}, headers=headers) as answer:
            user = (await answer.json())["status"]["userInfo"]["username"]

        assert user == "system:serviceaccount:default:robot"


@pytest.mark.parametrize("again", [True, False])
async def test_token_expires_with_its_account(again: bool) -> None:
    async with a_server(token="admin") as server, a_session(server) as http:
        server.create(SERVICE_ACCOUNTS, named("robot"))
        http.headers["Authorization"] = "Bearer admin"
        headers = await token_of(http)
        server.delete(SERVICE_ACCOUNTS, "robot")
        if again:
            server.create(SERVICE_ACCOUNTS, named("robot"))

        async with http.post(ME, json={}, headers=headers) as answer:
            assert answer.status == 401


@pytest.mark.parametrize("token", ["a.b.c", "..", "ä.ö.ü", "x"])
async def test_malformed_service_account_token_is_rejected(token: str) -> None:
    async with a_server(token="admin") as server, a_session(server) as http:
        headers = {"Authorization": f"Bearer {token}"}
        async with http.post(ME, json={}, headers=headers) as answer:
            assert answer.status == 401
