"""Clients whose credentials come from an exec plugin."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from credential_helpers import (
    V1,
    V1BETA1,
    Authority,
    door,
    kubeconfig,
    printing,
    script,
)

from aioinformer.client import Client
from aioinformer.client.kubeconfig import load_kubeconfig
from aioinformer.errors import TransportError, Unauthorized
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from pathlib import Path

    from credential_helpers import Door

TOKEN = "s3cr3t-t0ken"


async def get_pods(client: Client) -> None:
    await client.get(PODS, "a", namespace="x")


def one_token_a_run(folder: Path, **status: str) -> Path:
    """Write a plugin that prints `token-1`, then `token-2`, and so on."""
    text = printing({"token": "token-N"} | status)
    return script(
        folder / "plugin",
        f"echo x >> {folder}/runs",
        f"runs=$(wc -l < {folder}/runs)",
        text.replace("<<'END'", "<<END").replace("token-N", "token-$(($runs))"),
    )


def client_of(folder: Path, seen: Door, command: Path | str) -> Client:
    settings = {"apiVersion": V1, "command": str(command), "interactiveMode": "Never"}
    file = kubeconfig(folder / "config", {"exec": settings}, {"server": seen.url})
    return Client.from_kubeconfig(file)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().split())


async def test_concurrent_requests_run_exec_plugin_once(tmp_path: Path) -> None:
    async with (
        door() as seen,
        client_of(tmp_path, seen, one_token_a_run(tmp_path)) as client,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(5):
            group.create_task(get_pods(client))

    assert set(seen.seen) == {"token-1"}
    assert runs(tmp_path) == 1


async def test_concurrent_401s_run_exec_plugin_once(
    tmp_path: Path,
) -> None:
    async with (
        door() as seen,
        client_of(tmp_path, seen, one_token_a_run(tmp_path)) as client,
    ):
        seen.accepts = {"token-2"}
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(get_pods(client))

    assert runs(tmp_path) == 2
    assert seen.seen.count("token-2") == 5


async def test_exec_plugin_repeating_refused_token_is_run_once_more_only(
    tmp_path: Path,
) -> None:
    command = script(
        tmp_path / "plugin", f"echo x >> {tmp_path}/runs", printing({"token": TOKEN})
    )
    async with door() as seen, client_of(tmp_path, seen, command) as client:
        seen.accepts = {"another"}
        with pytest.raises(Unauthorized):
            await get_pods(client)

    assert runs(tmp_path) == 2
    assert len(seen.seen) == 1


async def test_later_exec_plugin_failure_is_transport_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Valid credentials stay in use, expired ones do not, and the plugin runs again."""
    ends = datetime.now(tz=UTC) + timedelta(seconds=1000)
    command = one_token_a_run(tmp_path, expirationTimestamp=ends.isoformat())

    async with door() as seen, client_of(tmp_path, seen, command) as client:
        await get_pods(client)
        script(command, "echo no network >&2", "exit 1")
        await asyncio.sleep(970)
        await get_pods(client)
        while "credential renewal failed, using the old ones" not in caplog.text:
            await asyncio.sleep(1)  # the failure happens in the background

        await asyncio.sleep(60)
        with pytest.raises(TransportError, match="failed with code 1"):
            await get_pods(client)

        one_token_a_run(tmp_path)
        await get_pods(client)

    assert seen.seen == ["token-1", "token-1", "token-2"]


@pytest.mark.realtime
@pytest.mark.parametrize("when", ["due", "refused"])
async def test_close_does_not_wait_for_exec_plugin(tmp_path: Path, when: str) -> None:
    started = tmp_path / "started"
    ends = datetime.now(tz=UTC) + timedelta(seconds=-1 if when == "due" else 1000)
    status = {"token": TOKEN, "expirationTimestamp": ends.isoformat()}
    command = script(tmp_path / "plugin", printing(status))
    async with door() as seen:
        seen.accepts = {"another"}
        client = client_of(tmp_path, seen, command)
        await client.start()
        script(command, f"touch {started}", "exec sleep 1000")
        if when == "due":
            # Five seconds are too long to wait for it.
            client.config.credentials._due_at = 0.0

        asking = asyncio.create_task(get_pods(client))
        while not started.exists():
            await asyncio.sleep(0.01)

        await client.close()
        with pytest.raises(TransportError, match="was closed during the request"):
            await asking


async def test_client_uses_certificate_printed_by_exec_plugin(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")

    def answer(name: str) -> None:
        certificate, key = authority.sign(name)
        status = {
            "clientCertificateData": certificate.read_text(),
            "clientKeyData": key.read_text(),
        }
        script(tmp_path / "plugin", printing(status))

    answer("first")
    async with door(server, authority.file) as seen:
        settings = {
            "apiVersion": V1,
            "command": str(tmp_path / "plugin"),
            "interactiveMode": "Never",
        }
        file = kubeconfig(
            tmp_path / "config",
            {"exec": settings},
            {"server": seen.url, "certificate-authority": "ca.crt"},
        )
        async with Client.from_kubeconfig(file) as client:
            await get_pods(client)
            seen.accepts = {"second"}
            answer("second")
            await get_pods(client)

    assert seen.seen == ["first", "first", "second"]


def test_exec_plugin_of_kubeconfig_gets_all_settings(tmp_path: Path) -> None:
    """The kubeconfig has every setting of a plugin."""
    (tmp_path / "bin").mkdir()
    script(
        tmp_path / "bin/plugin",
        f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info',
        f'printf "%s" "$1 $REGION" > {tmp_path}/seen',
        printing({"token": TOKEN}, V1BETA1),
    )
    settings = {
        "apiVersion": V1BETA1,
        "command": "./bin/plugin",
        "args": ["get-token"],
        "env": [{"name": "REGION", "value": "north"}],
        "provideClusterInfo": True,
        "interactiveMode": "Never",
        "installHint": "no",
    }
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}
    file = kubeconfig(
        tmp_path / "config",
        {"exec": settings},
        {
            "tls-server-name": "api.test",
            "certificate-authority-data": base64.b64encode(b"PEM").decode(),
            "extensions": [{"name": "other"}, extension],
        },
    )

    credentials = load_kubeconfig(file).credentials
    asyncio.run(credentials.auth_info())

    assert "./bin/plugin" not in repr(credentials)
    assert str(tmp_path / "bin/plugin") in repr(credentials)
    assert (tmp_path / "seen").read_text() == "get-token north"
    assert json.loads((tmp_path / "info").read_text())["spec"] == {
        "interactive": False,
        "cluster": {
            "server": "https://api.example:6443",
            "tls-server-name": "api.test",
            "certificate-authority-data": base64.b64encode(b"PEM").decode(),
            "config": {"a": 1},
        },
    }


@pytest.mark.parametrize("named", ["config", "./config", "sub/../config"])
async def test_relative_exec_plugin_path_survives_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Another plugin of the same name on `PATH` is not run."""
    (tmp_path / "path").mkdir()
    (tmp_path / "here/sub").mkdir(parents=True)
    script(tmp_path / "path/plugin", printing({"token": "wrong"}))
    script(tmp_path / "here/plugin", printing({"token": TOKEN}))
    monkeypatch.setenv("PATH", f"{tmp_path}/path", prepend=os.pathsep)
    settings = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"}
    kubeconfig(tmp_path / "here/config", {"exec": settings})
    monkeypatch.chdir(tmp_path / "here")
    relative = load_kubeconfig(named).credentials
    kubeconfig(tmp_path / "here/config", {"exec": settings | {"command": "plugin"}})
    listed = load_kubeconfig(named).credentials

    monkeypatch.chdir(tmp_path)

    assert (await relative.auth_info()).authorization == f"Bearer {TOKEN}"
    assert (await listed.auth_info()).authorization == "Bearer wrong"


def test_exec_plugin_gets_yaml_extension_as_json(tmp_path: Path) -> None:
    """YAML has dates and keys that are not strings. A plugin gets JSON."""
    script(
        tmp_path / "plugin",
        f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info',
        printing({"token": TOKEN}),
    )
    settings = {
        "apiVersion": V1,
        "command": "./plugin",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    name = "client.authentication.k8s.io/exec"
    file = kubeconfig(
        tmp_path / "config",
        {"exec": settings},
        {"extensions": [{"name": name, "extension": {1: "DATE"}}]},
    )
    file.write_text(file.read_text().replace("DATE", "2024-01-31"))

    asyncio.run(load_kubeconfig(file).credentials.auth_info())

    exec_info = json.loads((tmp_path / "info").read_text())
    assert exec_info["spec"]["cluster"]["config"] == {"1": "2024-01-31"}
