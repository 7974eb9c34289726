"""Permissions that are revoked and granted again, and a rotated token."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from disclosures import secret
from scenes import (
    PATIENCE_SECONDS,
    client_of,
    config_map,
    create,
    following,
    remove,
    same,
    until,
    watched,
)
from wire import proxying

from aioinformer.errors import Forbidden, Unauthorized
from aioinformer.model.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]

RBAC = "apis/rbac.authorization.k8s.io/v1"


def binding(subject: dict[str, Any]) -> dict[str, Any]:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    return {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}


async def allow(
    server: ServerUnderTest, http: aiohttp.ClientSession, subject: dict[str, Any]
) -> None:
    """Let a user list and watch ConfigMaps in the namespace."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    role = {"metadata": {"name": "reader"}, "rules": [rule]}
    await create(http, server.path("roles", RBAC), [role])
    await create(http, server.path("rolebindings", RBAC), [binding(subject)])


async def answers(server: ServerUnderTest, token: str, status: int) -> None:
    """Wait until the server responds so to this token: it caches decisions."""
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        server.session(token) as http,
    ):
        while True:
            async with http.get(server.path("configmaps")) as answer:
                if answer.status == status:
                    return

            await asyncio.sleep(0.1)


async def test_informer_uses_restored_permissions(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
) -> None:
    path, token = server.path("configmaps"), server.user_token
    alice = {
        "kind": "User",
        "name": "alice",
        "apiGroup": "rbac.authorization.k8s.io",
    }
    await allow(server, http, alice)
    await answers(server, token, 200)
    await create(http, path, [config_map(f"old-{number}") for number in range(5)])
    async with proxying(server.url) as proxy:
        client = client_of(server, url=proxy.url, token=token)
        async with following(client, CONFIG_MAPS, namespace=server.namespace) as it:
            await watched(it, http, path)

            # The server checks permissions when a watch starts, and not again.
            await remove(http, f"{server.path('rolebindings', RBAC)}/reader")
            await answers(server, token, 403)
            proxy.cut("fin")
            await until(lambda: it.failed(Forbidden))
            await create(http, path, [config_map("new")])
            await remove(http, f"{path}/old-3")
            assert f"{server.namespace}/old-3" in it.stored

            await create(http, server.path("rolebindings", RBAC), [binding(alice)])
            await answers(server, token, 200)
            async with recovery("role"):
                await same(it, http, path)


class Account:
    """A service account whose tokens live as long as a Secret each."""

    def __init__(self, server: ServerUnderTest, http: aiohttp.ClientSession) -> None:
        self._server = server
        self._http = http
        self.subject = {
            "kind": "ServiceAccount",
            "name": "reader",
            "namespace": server.namespace,
        }

    async def make(self) -> None:
        body = {"metadata": {"name": "reader"}}
        await create(self._http, self._server.path("serviceaccounts"), [body])

    async def token(self, name: str) -> str:
        """Get a token that is bound to the Secret of this name."""
        path = self._server.path("secrets")
        data = {"key": secret(f"marker-{secrets.token_hex(16)}")}
        body = {"metadata": {"name": name}, "stringData": data}
        await create(self._http, path, [body])
        async with self._http.get(f"{path}/{name}") as answer:
            uid = (await answer.json())["metadata"]["uid"]

        bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid}
        asked = {"spec": {"boundObjectRef": bound, "expirationSeconds": 3600}}
        path = f"{self._server.path('serviceaccounts')}/reader/token"
        async with self._http.post(path, json=asked) as answer:
            assert answer.status == 201, await answer.text()
            return secret((await answer.json())["status"]["token"])

    async def end(self, name: str) -> None:
        """Invalidate the token of this name."""
        await remove(self._http, f"{self._server.path('secrets')}/{name}")


async def test_rotated_token_is_read_again(
    server: ServerUnderTest,
    http: aiohttp.ClientSession,
    recovery: Callable[[str], Recovery],
    tmp_path: Path,
) -> None:
    path, account, file = (
        server.path("configmaps"),
        Account(server, http),
        tmp_path / "token",
    )
    await account.make()
    await allow(server, http, account.subject)
    old, new = await account.token("old"), await account.token("new")
    file.write_text(old)
    await answers(server, old, 200)
    await create(http, path, [config_map("old")])
    async with proxying(server.url) as proxy:
        client = client_of(server, url=proxy.url, token_file=file)
        async with following(client, CONFIG_MAPS, namespace=server.namespace) as it:
            await watched(it, http, path)

            file.write_text(new)
            await account.end("old")
            await answers(server, old, 401)
            proxy.cut("fin")
            async with recovery("token"):
                await create(http, path, [config_map("new")])
                await same(it, http, path)

            # The refused token was read again at once, and disclosed nowhere.
            assert not it.failed(Unauthorized)
