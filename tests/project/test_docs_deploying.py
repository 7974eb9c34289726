"""docs/deploying.md ends with a deployed operator: its files and commands work."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import json
import re
import shutil
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from cookbook import apply
from credential_helpers import Authority
from custom_definitions import definition
from doc_blocks import Block, blocks_of, broken_links
from doc_sessions import Reader, files_of
from ports import free_port
from processes import ROOT, in_real_time, start

from aioinformer import Resource
from aioinformer.model.resources import (
    CLUSTER_ROLE_BINDINGS,
    DEPLOYMENTS,
    LEASES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from aioinformer.testing import APIServer, User
from aioinformer.webhooks import WebhookServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from processes import Process

PAGE = ROOT / "docs" / "deploying.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples"
ACCOUNT = "system:serviceaccount:site-operator:site-operator"
SITES = Resource("example.com", "v1", "sites", "Site")
SCRIPT = "site_operator.py"


def one(language: str) -> str:
    (found,) = blocks_of(TEXT, language)
    return found.text


def deployment() -> dict[str, Any]:
    first: dict[str, Any] = next(iter(yaml.safe_load_all(one("yaml"))))
    return first


def container() -> dict[str, Any]:
    (found,) = deployment()["spec"]["template"]["spec"]["containers"]
    return dict(found)


# ---------------------------------------------------------------- the image


def instructions() -> dict[str, str]:
    lines = one("dockerfile").splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    assert len(found) == len(lines)
    return found


def test_image_has_a_supported_python() -> None:
    (version,) = re.fullmatch(r"python:(3\.\d+)-slim", instructions()["FROM"]).groups()  # type: ignore[union-attr]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert f"Programming Language :: Python :: {version}" in project


def test_image_has_the_requirements_of_the_operator() -> None:
    """The command of the image, without an index: all is there, also the extra."""
    pip, *arguments = instructions()["RUN"].replace("'", "").split()
    command = [sys.executable, "-m", pip, *arguments, "--dry-run", "--no-index"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout
    assert "does not provide the extra" not in done.stderr
    assert "manager.serve(" in (EXAMPLES / SCRIPT).read_text()
    assert "[metrics]" in arguments[-1]


def test_image_runs_python_directly_and_not_as_root() -> None:
    user, _ = instructions()["USER"].split(":")
    source, target = instructions()["COPY"].split()

    assert int(user) > 0
    assert json.loads(instructions()["CMD"]) == ["python", f"{target}{source}"]
    assert source == SCRIPT


# ---------------------------------------------------------------- the manifests


async def test_manifests_are_valid_and_agree_with_the_image() -> None:
    async with APIServer(auto_namespaces=True) as server:
        await apply(server, one("yaml"))

    image = container()["image"]
    assert f"docker build -t {image} ." in one("sh")
    assert f"docker push {image}" in one("sh")
    ports = {it["name"]: it["containerPort"] for it in container()["ports"]}
    assert ports == {"http": 8080, "webhooks": 9443}
    assert f"port={ports['http']}" in (EXAMPLES / SCRIPT).read_text()
    assert inspect.signature(WebhookServer).parameters["port"].default == 9443
    annotations = deployment()["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["http"])


def test_grace_period_covers_the_documented_steps() -> None:
    table = TEXT.partition("| after SIGTERM |")[2].partition("\n\n")[0]
    seconds = [int(it) for it in re.findall(r"\| (\d+) s", table)]

    assert len(seconds) == 3
    spec = deployment()["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] > sum(seconds)


def test_links_resolve() -> None:
    assert broken_links(PAGE) == []


# ---------------------------------------------------------------- the whole page


def files() -> dict[str, str]:
    """Return the files of the reader's folder."""
    names = (SCRIPT, "site-crd.yaml", "site.yaml")
    return files_of(TEXT) | {it: (EXAMPLES / it).read_text() for it in names}


async def run_deployments(server: APIServer) -> None:
    """Report all replicas of each deployment as ready, as a cluster does."""
    async with server.client() as client, client.watch(DEPLOYMENTS) as events:
        async for event in events:
            found = event.object
            replicas = found.at("spec.replicas", 0)
            counts = (
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
            )
            status: dict[str, Any] = {"observedGeneration": found.generation}
            status |= dict.fromkeys(counts, replicas)
            if (
                event.type != "DELETED"
                and not status.items() <= found["status"].items()
            ):
                await client.patch_status(
                    DEPLOYMENTS,
                    found.name,
                    {"status": status},
                    namespace=found.namespace,
                )


@asynccontextmanager
async def replica(
    server: APIServer, folder: Path
) -> AsyncIterator[tuple[Process, dict[str, str]]]:
    """Start the command of the image as a pod would, with the rights of its account."""
    config = yaml.safe_load(server.kubeconfig(folder / "pod").read_text())
    config["users"][0]["user"] = {"token": "its"}
    config["contexts"][0]["context"]["namespace"] = "site-operator"
    (folder / "pod").write_text(yaml.safe_dump(config))
    ports = {"8080": str(free_port()), "9443": str(free_port())}
    _, path = json.loads(instructions()["CMD"])
    script = folder / f"replica-{ports['8080']}.py"
    text = (folder / path.removeprefix("/app/")).read_text(encoding="utf-8")
    text = text.replace("port=8080", f"port={ports['8080']}")
    script.write_text(text.replace("cert_dir", f"port={ports['9443']}, cert_dir"))
    (certs,) = container()["env"]
    (mount,) = container()["volumeMounts"]
    assert mount["mountPath"] == certs["value"]
    environment = {"KUBECONFIG": str(folder / "pod"), certs["name"]: str(folder)}
    async with start(script, environment=environment) as process:
        yield process, ports


async def is_ready(ports: dict[str, str]) -> None:
    """Wait until a replica is ready."""
    url = f"http://127.0.0.1:{ports['8080']}/readyz"
    async with asyncio.timeout(60), aiohttp.ClientSession() as http:
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with http.get(url) as answer:
                    if answer.ok:
                        return

            await asyncio.sleep(0.05)


async def assert_probes_succeed(url: str) -> None:
    probes = [container()[f"{it}Probe"]["httpGet"] for it in ("liveness", "readiness")]
    paths = [it["path"] for it in probes]
    async with aiohttp.ClientSession(url) as http:
        for path in [*paths, "/metrics"]:
            async with http.get(path) as answer:
                assert answer.status == 200, await answer.text()


def each_command(block: Block) -> list[Block]:
    texts = re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE)
    return [Block("console", it, block.line) for it in texts if it]


# kubectl sends no token to a server without TLS.
EVERYONE = {
    "metadata": {"name": "everyone"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    },
    "subjects": [{"kind": "User", "name": "system:anonymous"}],
}


# The kinds of cert-manager, without its controllers.
CERT_MANAGER = [
    definition("cert-manager.io", kind) for kind in ("Certificate", "Issuer")
]


def certificates(folder: Path) -> Authority:
    """Sign the certificate of the webhooks, as cert-manager does."""
    authority = Authority(folder)
    certificate, key = authority.sign("site-operator")
    certificate.rename(folder / "tls.crt")
    key.rename(folder / "tls.key")
    return authority


def call_webhook(server: APIServer, port: str, authority: Authority) -> None:
    """Let the server call a replica, which a Service would find, and know its CA."""
    found = server.get(VALIDATING_WEBHOOK_CONFIGURATIONS, "site-operator")
    (hook,) = found["webhooks"]
    path = hook["clientConfig"]["service"]["path"]
    bundle = base64.b64encode(authority.file.read_bytes()).decode()
    url = f"https://127.0.0.1:{port}{path}"
    changed = {**hook, "clientConfig": {"url": url, "caBundle": bundle}}
    patch = {"webhooks": [changed]}
    server.patch(VALIDATING_WEBHOOK_CONFIGURATIONS, "site-operator", patch)


class TestSession:
    pytestmark = in_real_time

    async def test_page_ends_with_a_deployed_operator(self, tmp_path: Path) -> None:
        if shutil.which("kubectl") is None:
            pytest.skip("the page is typed with kubectl, which is not here")

        for name, text in files().items():
            (tmp_path / name).write_text(text)

        permissions, webhooks, rollout, site, uninstall = blocks_of(TEXT, "console")
        (tmp_path / "cert-manager.yaml").write_text(yaml.safe_dump_all(CERT_MANAGER))
        authority = certificates(tmp_path)
        users = {"its": User(ACCOUNT)}
        async with (
            APIServer(token="admin", users=users) as server,
            Reader(tmp_path, [], {}) as reader,
            asyncio.TaskGroup() as group,
        ):
            server.create(CLUSTER_ROLE_BINDINGS, EVERYONE)
            cluster = group.create_task(run_deployments(server))
            config = server.kubeconfig(tmp_path / "config")
            export = f"$ export KUBECONFIG={config}\n"
            await reader.follow(Block("console", export, 0))
            await reader.follow(permissions)
            server.load(tmp_path / "cert-manager.yaml")
            await reader.follow(webhooks)
            await reader.follow(rollout)
            async with (
                replica(server, tmp_path) as (leader, ports),
                replica(server, tmp_path) as (standby, other),
            ):
                call_webhook(server, ports["9443"], authority)
                await server.until(lambda: server.objects(LEASES), timeout=60)
                await is_ready(ports)  # as a Service calls ready replicas only
                await reader.follow(site)
                await assert_probes_succeed(f"http://127.0.0.1:{ports['8080']}")
                await assert_probes_succeed(f"http://127.0.0.1:{other['8080']}")
                first, *others = each_command(uninstall)
                await reader.follow(first)
                assert server.objects(SITES) == []
                for process in (leader, standby):
                    process.interrupt(signal.SIGTERM)
                    end = await process.end()
                    assert end.status == 0, end.err
                    assert "403" not in end.err

            for command in others:
                await reader.follow(command)

            cluster.cancel()
