"""Fixtures of the scenarios: servers, and the measurement of recoveries.

Scenarios need the real server of `make e2e`, and are skipped without `-m e2e`. Those
that kill or restore servers share a control plane per process.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from binaries import Binaries
from control_plane import ControlPlane, a_control_plane
from disclosures import secrets_of
from recovery_table import ROWS
from scenes import Recovery, server_of, up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    import aiohttp
    from contract_servers import ServerUnderTest

__all__ = ["coordinating", "http", "own", "plane", "recovery", "server"]


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane that may be killed."""
    server_of(None)  # skips if there are no real servers
    with a_control_plane(_binaries()) as plane:
        secrets_of(plane.folder)
        yield plane


@pytest.fixture
async def coordinating() -> AsyncIterator[ServerUnderTest]:
    """Yield a server of its own that elects leaders, with a namespace of this test."""
    server_of(None)
    gate = "--feature-gates=CoordinatedLeaderElection=true"
    api = "--runtime-config=coordination.k8s.io/v1beta1=true"
    with a_control_plane(_binaries(), gate, api) as plane:
        secrets_of(plane.folder)
        yield await _with_namespace(server_of(plane))


def _binaries() -> Binaries:
    built = Path(os.environ["AIOINFORMER_E2E_PROGRAMS"])
    return Binaries(
        etcd=built / "etcd",
        kube_apiserver=built / "kube-apiserver",
        keys=built / "keys",
        kubectl=Path(os.environ["AIOINFORMER_E2E_KUBECTL"]),
        elector=Path(os.environ["AIOINFORMER_E2E_ELECTOR"]),
    )


@pytest.fixture
async def server() -> ServerUnderTest:
    """Return the shared server, with a namespace of this test."""
    return await _with_namespace(server_of(None))


@pytest.fixture
async def own(plane: ControlPlane) -> ServerUnderTest:
    """Return the server of `plane`, with a namespace of this test."""
    plane.revive()
    await up(plane)
    return await _with_namespace(server_of(plane))


@pytest.fixture
async def http(server: ServerUnderTest) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP session of the administrator."""
    async with server.session() as session:
        yield session


@pytest.fixture
def recovery(request: pytest.FixtureRequest) -> Callable[[str], Recovery]:
    """Return a function that measures a recovery and asserts its bound."""
    rows: list[Sequence[Any]] = []
    request.node.user_properties.append((ROWS, rows))
    return functools.partial(Recovery, rows)


async def _with_namespace(server: ServerUnderTest) -> ServerUnderTest:
    async with server.session() as session:
        body = {"metadata": {"name": server.namespace}}
        async with session.post("/api/v1/namespaces", json=body) as answer:
            assert answer.status == 201, await answer.text()

    return server
