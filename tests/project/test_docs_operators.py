"""The operator of three frameworks: each does the same, and has as many lines as told.

`docs/operators/` has those with kopf and with controller-runtime, `examples/` ours. Only
`make e2e` builds the one in Go.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import os
import re
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from api_calls import ask, patch
from credential_helpers import Authority
from custom_definitions import OPEN, defined, definition, version
from doc_blocks import broken_links
from doc_sessions import files_of
from peer_servers import kubeconfig_of
from ports import free_port
from processes import ROOT, in_real_time, start

from aioinformer.model.resources import CLUSTER_ROLE_BINDINGS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from contract_servers import ServerUnderTest

FOLDER = ROOT / "docs" / "operators"
PAGE = FOLDER / "README.md"
EXAMPLES = ROOT / "examples"
SITE_CRD = yaml.safe_load((EXAMPLES / "site-crd.yaml").read_text(encoding="utf-8"))
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
PEERINGS = "/apis/kopf.dev/v1/clusterkopfpeerings"

# What `kopf run --peering` needs.
PEERING_CRD = definition(
    "kopf.dev",
    "ClusterKopfPeering",
    scope="Cluster",
    versions=[version(schema=OPEN)],
)

# client-go sends no token to a server without TLS, such as ours.
EVERYONE = {
    "metadata": {"name": "everyone"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    },
    "subjects": [{"kind": "User", "name": "system:anonymous"}],
}

# Runs a program in a folder, with one stream for its output and its log.
RUN = "import os, sys; os.dup2(1, 2); os.chdir(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"


PORTS = {it: str(free_port()) for it in ("8080", "8081", "9443")}


def with_free_ports(text: str) -> str:
    """Return a program, or a command, that listens on ports of this test run."""
    return re.sub(r"\b(8080|8081|9443)\b", lambda it: PORTS[it[1]], text)


@dataclass(frozen=True)
class Operator:
    """A program under test: how it is started, and what it serves where."""

    command: Callable[[Path], list[str]]
    ready: str
    hook_path: str
    standby: str
    """Path of the object by which replicas agree on a leader."""

    metric: str


def our_command(folder: Path) -> list[str]:
    text = (EXAMPLES / "site_operator.py").read_text(encoding="utf-8")
    text = text.replace("cert_dir", "port=9443, cert_dir")
    (folder / "site_operator.py").write_text(with_free_ports(text))
    return [sys.executable, "site_operator.py"]


def kopf_command(folder: Path) -> list[str]:
    text = (FOLDER / "site_kopf.py").read_text(encoding="utf-8")
    (folder / "site_kopf.py").write_text(with_free_ports(text))
    (typed,) = re.findall(r"^`(kopf run .*)`", PAGE.read_text(), re.MULTILINE)
    return [sys.executable, "-m", *with_free_ports(typed).split()]


def go_command(folder: Path) -> list[str]:
    return [str(go_binary(ROOT / "build" / "operators"))]


@functools.cache
def go_binary(folder: Path) -> Path:
    """Build the operator in Go, once."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in FOLDER.iterdir():
        if path.suffix in {".go", ".mod", ".sum"}:
            text = path.read_text(encoding="utf-8")
            again = with_free_ports(text) if path.suffix == ".go" else text
            (folder / path.name).write_text(again)

    build = ["nice", "go", "build", "-mod=readonly", "-o", "site-operator", "."]
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0"}
    done = subprocess.run(
        build, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "site-operator"


LEASE = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/site-operator"
OPERATORS = {
    "aioinformer": Operator(
        our_command,
        "8080/readyz",
        "/validate/check-image.sites.example.com",
        LEASE,
        "reconcile_total",
    ),
    "kopf": Operator(
        kopf_command,
        "8081/livez",
        "/check_image",
        f"{PEERINGS}/site-operator",
        "site_operator_handled",
    ),
    "go": Operator(
        go_command,
        "8081/readyz",
        "/validate-example-com-v1-site",
        LEASE,
        "controller_runtime_reconcile_total",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        "aioinformer",
        "kopf",
        pytest.param("go", marks=[pytest.mark.e2e, pytest.mark.timeout(600)]),
    ],
)
class TestOperators:
    pytestmark = in_real_time

    async def test_operator_does_what_the_page_says(
        self,
        name: str,
        target: ServerUnderTest,
        http: aiohttp.ClientSession,
        tmp_path: Path,
    ) -> None:
        operator = OPERATORS[name]
        command = await asyncio.to_thread(operator.command, tmp_path)
        authority = certificates(tmp_path)
        environment = {
            "KUBECONFIG": str(kubeconfig_of(target, tmp_path)),
            "POD_NAMESPACE": target.namespace,
            "CERTS": "certs",
        }
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(defined(http, SITE_CRD, PEERING_CRD))
            await prepare(http, target, operator, authority, stack)
            process = await stack.enter_async_context(
                start("-c", RUN, str(tmp_path), *command, environment=environment)
            )
            await served(operator.ready)
            await check_site(http, target)
            _, leader = await ask(
                http, "GET", operator.standby.format(namespace=target.namespace)
            )
            assert leader.get("spec", leader.get("status"))
            metrics = await answer_of(f"{PORTS['8080']}/metrics")
            assert operator.metric in metrics
            process.interrupt()
            assert (await process.end()).status == 0


def certificates(folder: Path) -> Authority:
    """Write certificates as cert-manager mounts them."""
    authority = Authority(folder)
    (folder / "certs").mkdir()
    certificate, key = authority.sign("site-operator")
    shutil.copy(certificate, folder / "certs" / "tls.crt")
    shutil.copy(key, folder / "certs" / "tls.key")
    return authority


async def prepare(
    http: aiohttp.ClientSession,
    target: ServerUnderTest,
    operator: Operator,
    authority: Authority,
    stack: AsyncExitStack,
) -> None:
    """Create what is applied beside a Deployment of the operator."""
    peering = {
        "apiVersion": "kopf.dev/v1",
        "kind": "ClusterKopfPeering",
        "metadata": {"name": "site-operator"},
    }
    await ask(http, "POST", PEERINGS, peering)
    if target.ours is not None:
        target.ours.create(CLUSTER_ROLE_BINDINGS, EVERYONE)

    bundle = base64.b64encode(authority.file.read_bytes()).decode()
    url = f"https://127.0.0.1:{PORTS['9443']}{operator.hook_path}"
    labels = {"kubernetes.io/metadata.name": target.namespace}
    rule = {
        "apiGroups": ["example.com"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["sites"],
    }
    hook = {
        "name": "sites.example.com",
        "clientConfig": {"url": url, "caBundle": bundle},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": labels},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": target.namespace},
        "webhooks": [hook],
    }
    code, answer = await ask(http, "POST", HOOKS, body)
    assert code == 201, answer
    stack.push_async_callback(ask, http, "DELETE", f"{HOOKS}/{target.namespace}")


async def check_site(http: aiohttp.ClientSession, target: ServerUnderTest) -> None:
    """Create a Site, deploy it, delete it, and check each effect."""
    sites = target.path("sites", "apis/example.com/v1")
    deployment = target.path("deployments", "apis/apps/v1") + "/blog"
    site: dict[str, Any] = {
        "apiVersion": "example.com/v1",
        "kind": "Site",
        "metadata": {"name": "blog"},
        "spec": {"image": "nginx", "replicas": 2},
    }
    # The server takes a moment to see a new webhook, and kopf to serve it.
    await until(
        http,
        "POST",
        sites,
        lambda _, it: "needs a tag or a digest" in it.get("message", ""),
        site,
    )

    site["spec"]["image"] = "nginx:1.29"
    code, made = await ask(http, "POST", sites, site)
    assert code == 201, made
    found = await until(http, "GET", deployment, lambda code, _: code == 200)
    service = await until(
        http, "GET", target.path("services") + "/blog", lambda code, _: code == 200
    )
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert (container["image"], found["spec"]["replicas"]) == ("nginx:1.29", 2)
    assert service["spec"]["ports"][0]["port"] == 80
    for child in (found, service):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)

    counts = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
    status = {"observedGeneration": 1, **dict.fromkeys(counts, 2)}
    await patch(http, f"{deployment}/status", {"status": status})
    done = await until(
        http,
        "GET",
        f"{sites}/blog",
        lambda _, it: it.get("status", {}).get("ready") == 2,
    )
    (ready,) = done["status"]["conditions"]
    assert (ready["type"], ready["status"]) == ("Ready", "True")
    assert (ready["reason"], ready["observedGeneration"]) == ("Deployed", 1)
    events = target.path("events", "apis/events.k8s.io/v1")
    await until(http, "GET", events, lambda _, it: "Deployed" in reasons(it))

    await ask(http, "DELETE", f"{sites}/blog")
    await until(http, "GET", f"{sites}/blog", lambda code, _: code == 404)


def reasons(events: dict[str, Any]) -> list[str]:
    return [it["reason"] for it in events["items"] if it["regarding"]["kind"] == "Site"]


async def until(
    http: aiohttp.ClientSession,
    method: str,
    path: str,
    expected: Callable[[int, dict[str, Any]], bool],
    body: object = None,
) -> dict[str, Any]:
    """Repeat a request until the response is as expected, and return its body."""
    dry = {"dryRun": "All"} if method == "POST" else {}
    async with asyncio.timeout(60):
        while True:
            code, answer = await ask(http, method, path, body, **dry)
            if expected(code, answer):
                return answer

            await asyncio.sleep(0.1)


async def served(place: str) -> None:
    """Wait until a probe of the operator succeeds."""
    port, _, path = place.partition("/")
    async with asyncio.timeout(60):
        while not await answer_of(f"{PORTS[port]}/{path}"):
            await asyncio.sleep(0.1)


async def answer_of(place: str) -> str:
    """Return the text of a successful response, and "" for any other."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{place}") as answer,
        ):
            return await answer.text() if answer.ok else ""
    except aiohttp.ClientConnectionError:
        return ""


# ---------------------------------------------------------------- the page


def test_page_shows_the_files_of_the_operators() -> None:
    shown = files_of(PAGE.read_text(encoding="utf-8"))
    assert sorted(shown) == ["main.go", "site_kopf.py", "site_types.go"]
    for name, text in shown.items():
        assert text == (FOLDER / name).read_text(encoding="utf-8"), name


@pytest.mark.parametrize(
    ("row", "files"),
    [
        ("aioinformer", [EXAMPLES / "site_operator.py"]),
        ("kopf", [FOLDER / "site_kopf.py"]),
        ("controller-runtime", [FOLDER / "main.go", FOLDER / "site_types.go"]),
    ],
)
def test_page_counts_the_lines(row: str, files: list[Path]) -> None:
    lines = [it for file in files for it in file.read_text().splitlines()]
    code = [it for it in lines if it.strip() and not it.strip().startswith(("#", "//"))]
    (told,) = re.findall(
        rf"^\| {row}: .* \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE
    )

    assert told == (str(len(lines)), str(len(code)))


def test_page_has_no_broken_links() -> None:
    assert broken_links(PAGE) == []
