"""A real etcd and kube-apiserver on loopback ports, for the duration of a block.

There is no controller manager, scheduler, kubelet or garbage collector, because the
tests are about the API. Data, keys and logs are in a temporary folder.
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from binaries import SetupError
from children import in_background, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from binaries import Binaries

    Server: TypeAlias = Literal["etcd", "kube-apiserver"]

__all__ = [
    "ADMIN_TOKEN",
    "USER_TOKEN",
    "ControlPlane",
    "a_control_plane",
    "environment_of",
    "kubeconfig_of",
]

ADMIN_TOKEN = "token-of-the-admin"
"""Token of a member of system:masters, who may do everything."""

USER_TOKEN = "token-of-alice"
"""Token of the user alice, who has no role."""

_START_SECONDS = 60.0
_POLL_SECONDS = 0.1
# Ports are free when chosen, and may be taken when opened.
_ATTEMPTS = 3
_LOG_LINES = 12
_GATES = "--feature-gates="


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Addresses and state of the servers, which can be killed and restarted."""

    url: str
    etcd_url: str
    folder: Path
    commands: dict[Server, list[str | Path]] = field(default_factory=dict)
    children: dict[Server, subprocess.Popen[bytes]] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def certificate(self) -> Path:
        """CA file of the server's certificate."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def ready(self) -> bool:
        """True if it serves and has the initial objects of a cluster. Blocks."""
        return _ready(self)

    def failure(self) -> str:
        """Return which server has ended, with the end of its log; empty if none has."""
        for name, child in self.children.items():
            if child.poll() is not None:
                return _obituary(name, child.returncode, self.folder / f"{name}.log")

        return ""

    def start(self, name: Server) -> None:
        """Start a server, on the port and with the data it had before.

        Call it in the main thread: a child dies with the thread that started it.
        """
        log = self._stack.enter_context((self.folder / f"{name}.log").open("ab"))
        child = in_background(self.commands[name], output=log)
        self.children[name] = self._stack.enter_context(child)

    def kill(self, name: Server) -> None:
        """Kill a server without warning, as in a crash."""
        child = self.children.pop(name)
        child.kill()
        child.wait()

    def end(self, name: Server) -> None:
        """End a server as an upgrade does: it closes its watches and connections.

        It may be called in a thread, because this takes seconds.
        """
        stop(self.children.pop(name))

    def set_feature_gates(self, **gates: bool) -> None:
        """Set the feature gates of the kube-apiserver, from its next start on."""
        command = self.commands["kube-apiserver"]
        command[:] = [it for it in command if not str(it).startswith(_GATES)]
        command.append(
            _GATES + ",".join(f"{it}={str(gates[it]).lower()}" for it in gates)
        )

    def revive(self) -> None:
        """Start the servers that do not run, for example after a failed test."""
        for name in self.commands:
            if name not in self.children or self.children[name].poll() is not None:
                self.start(name)

    def stop(self) -> None:
        """End both servers, kube-apiserver first."""
        self._stack.close()
        self.children.clear()

    def save(self) -> None:
        """Copy etcd's data for `restore()`; etcd must not run."""
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.copytree(self._data, self._backup)

    def restore(self) -> None:
        """Restore the data of `save()`; etcd must not run."""
        shutil.rmtree(self._data)
        self._backup.rename(self._data)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _backup(self) -> Path:
        return self.folder / "backup"


def environment_of(plane: ControlPlane, binaries: Binaries) -> dict[str, str]:
    """Return the environment variables with the servers and programs, for tests."""
    return {
        "AIOINFORMER_E2E_SERVER": plane.url,
        "AIOINFORMER_E2E_CA": str(plane.certificate),
        "AIOINFORMER_E2E_TOKEN": ADMIN_TOKEN,
        "AIOINFORMER_E2E_USER_TOKEN": USER_TOKEN,
        "AIOINFORMER_E2E_ETCD": plane.etcd_url,
        "AIOINFORMER_E2E_KUBECTL": str(binaries.kubectl),
        "AIOINFORMER_E2E_ELECTOR": str(binaries.elector),
        "AIOINFORMER_E2E_PROGRAMS": str(binaries.etcd.parent),
    }


def kubeconfig_of(plane: ControlPlane) -> str:
    """Return a kubeconfig with the contexts `admin` and `alice`, as JSON."""
    cluster = {"server": plane.url, "certificate-authority": str(plane.certificate)}
    tokens = {"admin": ADMIN_TOKEN, "alice": USER_TOKEN}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": it, "user": {"token": tokens[it]}} for it in tokens],
        "contexts": [
            {"name": it, "context": {"cluster": "e2e", "user": it}} for it in tokens
        ],
        "current-context": "admin",
    }
    return json.dumps(document, indent=2)


@contextmanager
def a_control_plane(binaries: Binaries, *options: str) -> Iterator[ControlPlane]:
    """Run both servers during the block; they serve when it starts.

    Args:
        binaries: Programs to run.
        *options: Further options of the kube-apiserver.

    Raises:
        SetupError: They are not ready within 60 s, or end before.
    """
    with ExitStack() as stack:
        for attempts_left in reversed(range(_ATTEMPTS)):
            attempt = stack.enter_context(ExitStack())
            try:
                plane = _start(binaries, attempt, options)
                break
            except _PortTakenError as exc:
                attempt.close()
                if not attempts_left:
                    raise SetupError(str(exc)) from exc
        else:
            raise AssertionError("the last attempt raises")

        yield plane


class _PortTakenError(Exception):
    """Another process took the port."""


def _start(
    binaries: Binaries, stack: ExitStack, options: tuple[str, ...]
) -> ControlPlane:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="e2e-")))
    client_port, peer_port, secure_port = _free_ports(3)
    plane = ControlPlane(
        url=f"https://127.0.0.1:{secure_port}",
        etcd_url=f"http://127.0.0.1:{client_port}",
        folder=folder,
    )
    stack.callback(plane.stop)
    _write_credentials(binaries, folder)
    plane.commands["etcd"] = _etcd_command(binaries, plane, peer_port)
    apiserver = _apiserver_command(binaries, plane, secure_port)
    plane.commands["kube-apiserver"] = [*apiserver, *options]
    plane.start("etcd")
    plane.start("kube-apiserver")
    _wait_ready(plane)
    return plane


def _etcd_command(
    binaries: Binaries, plane: ControlPlane, peer_port: int
) -> list[str | Path]:
    return [
        binaries.etcd,
        f"--data-dir={plane._data}",
        f"--listen-client-urls={plane.etcd_url}",
        f"--advertise-client-urls={plane.etcd_url}",
        f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
        "--log-level=error",
        "--unsafe-no-fsync",
    ]


def _apiserver_command(
    binaries: Binaries, plane: ControlPlane, port: int
) -> list[str | Path]:
    folder = plane.folder
    return [
        binaries.kube_apiserver,
        f"--etcd-servers={plane.etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={plane.certificate.parent}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'accounts.pub'}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        # Nothing creates the service accounts and tokens for pods.
        "--disable-admission-plugins=ServiceAccount",
    ]


def _write_credentials(binaries: Binaries, folder: Path) -> None:
    subprocess.run(
        [binaries.keys, folder / "accounts.key", folder / "accounts.pub"], check=True
    )
    (folder / "tokens.csv").write_text(
        f'{ADMIN_TOKEN},admin,1,"system:masters"\n{USER_TOKEN},alice,2,""\n'
    )
    (folder / "kubeconfig").touch(mode=0o600)


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago; all differ, as all were held at once."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for it in sockets:
            it.bind(("127.0.0.1", 0))

        return [it.getsockname()[1] for it in sockets]


# ---------------------------------------------------------------- waiting


def _wait_ready(plane: ControlPlane) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _ready(plane):
        if failure := plane.failure():
            taken = "address already in use" in failure
            raise (_PortTakenError if taken else SetupError)(failure)

        if time.monotonic() > deadline:
            tail = _tail(plane.folder / "kube-apiserver.log")
            raise SetupError(
                f"kube-apiserver is not ready after {_START_SECONDS:g} s:\n{tail}"
            )

        time.sleep(_POLL_SECONDS)


def _ready(plane: ControlPlane) -> bool:
    """Return whether it serves and has the initial objects of a cluster."""
    if not plane.certificate.exists():
        return False

    context = ssl.create_default_context(cafile=plane.certificate)
    return all(
        _answers(f"{plane.url}{path}", context)
        for path in ("/readyz", "/api/v1/namespaces/default")
    )


def _answers(url: str, context: ssl.SSLContext) -> bool:
    request = urllib.request.Request(
        url, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}
    )
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _obituary(name: str, status: int, log: Path) -> str:
    return f"{name} has ended with status {status}:\n{_tail(log)}"


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])
