"""`aioinformer apiserver`, in this process and as a process."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from typing import TYPE_CHECKING

import aiohttp
import pytest
from click.testing import CliRunner
from conftest import pod
from doctor_helpers import examined
from processes import PROMPT_SECONDS, Process, start

from aioinformer.cli.apiserver import APIServerOptions, serve
from aioinformer.cli.commands import aioinformer
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.workload import NAMESPACES
from aioinformer.client import Client
from aioinformer.errors import Forbidden, NotFound, Unauthorized
from aioinformer.model import resources
from aioinformer.model.resources import PODS, ROLE_BINDINGS
from aioinformer.model.shards import HashRange, ShardSelector
from aioinformer.testing import User

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path


COMMAND = "from aioinformer.cli.main import main; main()"


async def served(options: APIServerOptions, capsys: pytest.CaptureFixture[str]) -> str:
    """Wait for the server, and return its URL."""
    task = asyncio.create_task(serve(options))
    output = ""
    while not (url := address(output)):
        assert not task.done(), task.result()
        await asyncio.sleep(0.01)
        output += capsys.readouterr().out

    _running.append(task)
    return url


def address(output: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", output)
    return found[0] if found else ""


_running: list[asyncio.Task[int]] = []


@pytest.fixture(autouse=True)
async def stopped() -> AsyncIterator[None]:
    yield
    while _running:
        task = _running.pop()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def pods(client: Client) -> list[str]:
    found = await client.list(PODS)
    return [f"{it.key} {it.resource_version}" for it in found]


async def test_apiserver_has_no_objects_by_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = await served(APIServerOptions(port=0), capsys)

    async with Client.from_url(url) as client:
        assert await pods(client) == []


@pytest.mark.parametrize("count", [1, 4, 5, 37])
async def test_pods_option_creates_pods_config_maps_and_nodes(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    url = await served(APIServerOptions(port=0, pods=count), capsys)

    async with Client.from_url(url) as client:
        assert len(await pods(client)) == count
        names = {it.name for it in await client.list(resources.NAMESPACES)}

    assert names.issuperset(NAMESPACES)


@pytest.mark.parametrize("collects", [True, False])
async def test_garbage_collector_option_deletes_dependents(
    collects: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    url = await served(APIServerOptions(port=0, garbage_collector=collects), capsys)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "u"}
    metadata = {"name": "a", "namespace": "default", "ownerReferences": [owner]}

    async with Client.from_url(url) as client:
        await client.create(resources.CONFIG_MAPS, {"metadata": metadata})
        await asyncio.sleep(1)
        left = await client.list(resources.CONFIG_MAPS)

    assert [it.name for it in left] == ([] if collects else ["a"])


@pytest.mark.parametrize("filters", [True, False])
async def test_feature_gates_option_switches_gates(
    filters: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = {"ShardedListAndWatch": filters}
    url = await served(APIServerOptions(port=0, feature_gates=gates, pods=3), capsys)
    none = {"shardSelector": str(ShardSelector((HashRange(0, 1),)))}

    async with (
        aiohttp.ClientSession(url) as http,
        http.get("/api/v1/pods", params=none) as answer,
    ):
        found = await answer.json()

    assert len(found["items"]) == (0 if filters else 3)


def test_feature_gates_are_parsed_as_of_a_kube_apiserver() -> None:
    def ran(*arguments: str) -> str:
        command = ["apiserver", "--port", "0", "--for", "0.01s", *arguments]
        return CliRunner().invoke(aioinformer, command).output

    good = "--feature-gates=ShardedListAndWatch=TRUE, ShardedListAndWatch=false,"
    assert "Kubernetes API server for tests at" in ran(good)
    assert "'Sharded' is not a gate such as Name=true" in ran("--feature-gates=Sharded")
    assert "'A=1' is not a gate" in ran("--feature-gates=A=1")
    unknown = ran("--feature-gates=Unheard=true")
    assert "has ManagedFieldsOptOut, ShardedListAndWatch" in unknown


async def test_apiserver_creates_no_namespaces_on_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = await served(APIServerOptions(port=0), capsys)

    async with Client.from_url(url) as client:
        with pytest.raises(NotFound, match="nowhere"):
            await client.create(PODS, body("a", "nowhere"))


async def test_initial_pods_are_on_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    url = await served(APIServerOptions(port=0, pods=40), capsys)

    async with Client.from_url(url) as client:
        nodes = {it.name for it in await client.list(resources.NODES)}
        used = {it["spec"]["nodeName"] for it in await client.list(PODS)}

    assert len(nodes) == 4
    assert used <= nodes


async def test_manifest_may_contain_namespace_of_initial_pods(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(
        f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACES[0]}}}}}"
    )
    options = APIServerOptions(port=0, pods=6, manifests=(str(file),), seconds=1)

    assert await serve(options) == 0


async def test_apiserver_starts_with_objects_of_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        text = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}"
        (tmp_path / name).write_text(text)

    files = (str(tmp_path / "one"), str(tmp_path / "two"))
    url = await served(APIServerOptions(port=0, manifests=files), capsys)

    async with Client.from_url(url) as client:
        found = [it.name for it in await client.list(resources.CONFIG_MAPS)]

    assert found == ["one", "two"]


async def test_churn_changes_pods(capsys: pytest.CaptureFixture[str]) -> None:
    options = APIServerOptions(port=0, pods=30, changes_per_second=20)
    url = await served(options, capsys)

    async with Client.from_url(url) as client:
        before = set(await pods(client))
        await asyncio.sleep(2)
        changed = set(await pods(client)) - before

    assert 10 < len(changed) <= 41


async def test_churn_continues_after_user_deletes_pods(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = APIServerOptions(port=0, pods=30, changes_per_second=50)
    url = await served(options, capsys)

    async with Client.from_url(url) as client:
        for name in NAMESPACES[1:]:
            await client.delete(resources.NAMESPACES, name)

        await asyncio.sleep(10)
        left = await pods(client)

    assert not _running[0].done()
    assert left
    assert all(it.startswith(f"{NAMESPACES[0]}/") for it in left)


async def test_apiserver_ends_after_duration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = APIServerOptions(port=0, pods=6, changes_per_second=10, seconds=3)
    start_time = asyncio.get_running_loop().time()

    assert await serve(options) == 0
    assert asyncio.get_running_loop().time() - start_time == pytest.approx(3, abs=0.1)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Stopped after 3\.0 s: (29|30) changes made\.", lines[-1])


async def test_apiserver_requires_its_token(capsys: pytest.CaptureFixture[str]) -> None:
    url = await served(APIServerOptions(port=0, token="right"), capsys)

    async with Client.from_url(url, token="right") as client:
        assert await pods(client) == []

    async with Client.from_url(url, token="wrong") as client:
        with pytest.raises(Unauthorized):
            await pods(client)


# ---------------------------------------------------------------- kubeconfigs


async def test_apiserver_writes_kubeconfig(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config"
    options = APIServerOptions(port=0, token="right", kubeconfig=str(config))
    await served(options, capsys)

    async with ConnectionOptions(kubeconfig=str(config)).client() as client:
        assert await pods(client) == []

    assert config.stat().st_mode & 0o777 == 0o600


async def test_apiserver_prints_commands_for_kubeconfig(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "my config"
    await serve(APIServerOptions(port=0, kubeconfig=str(config), seconds=1))

    assert f"export KUBECONFIG='{config}'" in capsys.readouterr().out


async def test_apiserver_with_token_prints_that_kubectl_sends_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config"
    options = {"port": 0, "token": "right", "seconds": 1}
    await serve(APIServerOptions(**options, kubeconfig=str(config)))  # type: ignore[arg-type]

    output = capsys.readouterr().out
    assert f"The kubeconfig {config} contains it:" in output
    assert f"aioinformer watch pods -A --kubeconfig {config}" in output
    assert "kubectl sends none over plain HTTP" in output
    assert "kubectl get" not in output
    assert "right" not in output


async def test_apiserver_has_users_with_the_permissions_of_roles(
    capfd: pytest.CaptureFixture[str],
) -> None:
    users = (("bobs-token", User("bob", ("devs",))), ("eves-token", User("eve")))
    url = await served(APIServerOptions(port=0, token="admin", users=users), capfd)
    with pytest.raises(Forbidden, match='User "bob" cannot list'):
        await listed(url, "bobs-token")

    bob = ConnectionOptions(server=url, token="bobs-token")
    options = {"namespaces": ("default",), "group": "devs"}
    found = await examined(bob, "pods", capfd=capfd, **options)
    async with Client.from_url(url, token="admin") as admin:
        for role in found.rules:
            kind = resources.ROLES if role["kind"] == "Role" else ROLE_BINDINGS
            await admin.create(kind, role, namespace="default")

    assert await listed(url, "bobs-token") == 0
    with pytest.raises(Forbidden, match='User "eve" cannot list'):
        await listed(url, "eves-token")


async def listed(url: str, token: str) -> int:
    async with Client.from_url(url, token=token) as client:
        return len(await client.list(PODS, namespace="default"))


async def test_users_without_administrator_are_refused() -> None:
    bob = ("bobs-token", User("bob"))
    with pytest.raises(CommandError, match="pass --token, too"):
        await serve(APIServerOptions(port=0, users=(bob,)))
    with pytest.raises(CommandError, match="have the same token"):
        await serve(APIServerOptions(port=0, token="admin", users=(bob, bob)))


async def test_apiserver_prints_how_users_get_permissions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    users = (("bobs-token", User("bob")), ("eves-token", User("eve")))
    await serve(APIServerOptions(port=0, token="admin", users=users, seconds=1))

    output = capsys.readouterr().out
    assert "Only roles grant permissions to bob, eve." in output
    assert "bobs-token" not in output


async def test_apiserver_can_be_stopped_while_it_creates_pods() -> None:
    task = asyncio.create_task(serve(APIServerOptions(port=0, pods=1000)))
    await asyncio.sleep(0.001)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_apiserver_replaces_kubeconfig_of_test_server(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.touch()
    for _ in range(2):
        options = APIServerOptions(port=0, kubeconfig=str(config), seconds=1)
        assert await serve(options) == 0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("clusters: [{cluster: {server: 'https://prod'}}]", id="another"),
        pytest.param("clusters: []", id="no-cluster"),
        pytest.param("just: notes", id="no-kubeconfig"),
        pytest.param("{", id="no-yaml"),
        pytest.param("- a", id="a-list"),
    ],
)
async def test_apiserver_does_not_overwrite_other_files(
    tmp_path: Path, text: str
) -> None:
    config = tmp_path / "config"
    config.write_text(text)

    with pytest.raises(CommandError, match="not overwriting it"):
        await serve(APIServerOptions(port=0, kubeconfig=str(config)))

    assert config.read_text() == text


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param(".", "Is a directory", id="folder"),
        pytest.param("missing/config", "No such file", id="no-folder"),
    ],
)
async def test_unwritable_kubeconfig_is_reported(
    tmp_path: Path, path: str, reason: str
) -> None:
    options = APIServerOptions(port=0, kubeconfig=str(tmp_path / path))

    with pytest.raises(CommandError, match=reason):
        await serve(options)


# ---------------------------------------------------------------- wrong input


async def test_taken_port_raises_command_error() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(
            CommandError, match=f"cannot listen on 127.0.0.1:{port}: .* already in use"
        ):
            await serve(APIServerOptions(port=port))


async def test_churn_without_pods_is_refused() -> None:
    with pytest.raises(CommandError, match="use --pods"):
        await serve(APIServerOptions(port=0, changes_per_second=5))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "-1"],
        ["--port", "65536"],
        ["--pods", "-1"],
        ["--pods", "many"],
        ["--churn", "-1"],
        ["--churn", "nan"],
        ["--for", "0"],
        ["--token", ""],
        ["--user", "bob"],
        ["--user", "=bob"],
        ["--user", "t="],
        ["--user", "t=bob,,devs"],
        ["--pods", "100001"],
        ["--kubeconfig", " "],
        ["now"],
    ],
    ids="=".join,
)
def test_invalid_apiserver_options_are_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(aioinformer, ["apiserver", *arguments])

    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith("Error: ")


def test_empty_token_is_refused_with_advice() -> None:
    result = CliRunner().invoke(aioinformer, ["apiserver", "--token", ""])

    assert "omit --token to require none" in result.output


def test_user_option_takes_a_token_a_name_and_groups() -> None:
    arguments = ["--port", "0", "--for", "0.1", "--token", "admin"]
    users = ["--user", "t=system:serviceaccount:shop:app", "--user", "u=bob,devs,ops"]
    result = CliRunner().invoke(aioinformer, ["apiserver", *arguments, *users])

    assert result.exit_code == 0
    assert "permissions to system:serviceaccount:shop:app, bob." in result.output


def test_load_option_is_repeatable(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}")
    arguments = ["--port", "0", "--for", "0.1", "--load", str(good)]
    runner = CliRunner()

    well = runner.invoke(aioinformer, ["apiserver", *arguments])
    ill = runner.invoke(aioinformer, ["apiserver", *arguments, "--crd", "missing"])

    assert (well.exit_code, ill.exit_code) == (0, 2)
    assert re.search(r":\d+: 1 loaded object\.\n", well.output)
    assert "aioinformer: missing does not exist in " in ill.output


# ---------------------------------------------------------------- as a process


def command(*arguments: str) -> AbstractAsyncContextManager[Process]:
    return start("-c", COMMAND, "apiserver", *arguments)


def body(name: str, namespace: str) -> dict[str, object]:
    made = pod(name, namespace)
    del made["metadata"]["resourceVersion"]
    return made


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_apiserver_ends_soon_after_sigterm() -> None:
    async with command("--port", "0", "--pods", "20", "--churn", "50") as process:
        url = address(await process.line("http://"))
        async with Client.from_url(url) as client:
            await client.list(PODS)

        process.interrupt(signal.SIGTERM)
        end = await process.end()

    assert (end.status, end.err) == (143, "")
    assert end.out.splitlines()[-1].startswith("Stopped after ")
    assert end.seconds < PROMPT_SECONDS
