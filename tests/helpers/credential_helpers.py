"""Plugins, certificates and servers, for the tests of credentials."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}}


def script(path: Path, *lines: str) -> Path:
    """Write a shell script, and return its path."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def printing(status: object, version: str = V1) -> str:
    """Return the line of a script that prints a response."""
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(answer)}\nEND"


def kubeconfig(
    path: Path,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> Path:
    """Write a file with one cluster, user and context, all named `main`."""
    server = {"server": "https://api.example:6443"}
    content = {
        "clusters": [{"name": "main", "cluster": server | dict(cluster or {})}],
        "users": [{"name": "main", "user": dict(user or {})}],
        "contexts": [{"name": "main", "context": {"cluster": "main", "user": "main"}}],
        "current-context": "main",
    }
    path.write_text(yaml.safe_dump(content))
    return path


class Authority:
    """A CA that signs certificates into files of a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs the openssl command")

        self._folder = folder
        self._name = name
        self.file = folder / f"{name}.crt"
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        self._openssl(
            *("req", "-x509", *_KEY, "-subj", f"/CN={name}", "-days", "2"),
            *("-keyout", f"{name}.key", "-out", f"{name}.crt"),
            *("-addext", "keyUsage=critical,keyCertSign"),
        )

    def sign(self, name: str, *, days: int = 2) -> tuple[Path, Path]:
        """Sign a certificate for a common name and 127.0.0.1, and return it with its key."""
        self._openssl(
            *("req", *_KEY, "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-days", str(days)),
            *(
                "-extfile",
                "names",
                "-CA",
                self.file.name,
                "-CAkey",
                f"{self._name}.key",
            ),
            *("-CAcreateserial", "-out", f"{name}.crt"),
        )
        return self._folder / f"{name}.crt", self._folder / f"{name}.key"

    def _openssl(self, *arguments: str) -> None:
        command = ["openssl", *arguments]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True)


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Door:
    """A server's access rules, and a record of its clients.

    Attributes:
        accepts: Tokens and common names; others get a 401. Empty for everybody.
        seen: Common name of the certificate, or token, of each request.
        headers: Headers of each request.
        connections: Number of connections.
        url: Address.
    """

    def __init__(self) -> None:
        self.accepts: set[str] = set()
        self.seen: list[str] = []
        self.headers: list[Any] = []
        self.url = ""
        self._transports: set[Any] = set()

    @property
    def connections(self) -> int:
        return len(self._transports)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        self.headers.append(request.headers.copy())
        shown = request.transport.get_extra_info("peercert")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        name = dict(pair for (pair,) in shown["subject"])["commonName"] if shown else ""
        self.seen.append(name or token)
        if self.accepts and self.seen[-1] not in self.accepts:
            refusal = {"kind": "Status", "code": 401, "reason": "Unauthorized"}
            return web.json_response(refusal, status=401)

        return web.json_response(POD)


@asynccontextmanager
async def door(
    certificate: tuple[Path, Path] | None = None, clients: Path | None = None
) -> AsyncIterator[Door]:
    """Run a server, with TLS if it has a certificate.

    Args:
        certificate: Certificate and key of the server.
        clients: Authority of the client certificates; None to request none.
    """
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        if clients is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(clients)

    seen = Door()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", seen.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        scheme = "http" if context is None else "https"
        seen.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
        yield seen
    finally:
        await runner.cleanup()
