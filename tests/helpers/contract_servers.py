"""The two servers of the contract suite: ours, and a real kube-apiserver.

A test with the fixture `target` runs once against each. The half against the real one
is marked `e2e` and skipped by default: `make e2e` starts a server and names its address
(see `REAL_*` below). Against ours, time is virtual. Against the real one it is real, so
such tests never wait for long.

Tests share both servers, so each test works in its own namespace, and chooses unique
names for cluster-scoped objects.
"""

from __future__ import annotations

import os
import secrets
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from yarl import URL

from aioinformer import Client
from aioinformer.model.resource import Resource
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Addresses of the real server, set by the program that starts it.
REAL_URL = "AIOINFORMER_E2E_SERVER"
REAL_CA = "AIOINFORMER_E2E_CA"
REAL_TOKEN = "AIOINFORMER_E2E_TOKEN"
REAL_USER_TOKEN = "AIOINFORMER_E2E_USER_TOKEN"
REAL_ETCD = "AIOINFORMER_E2E_ETCD"

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")

WIDGETS_DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WIDGETS_PATH = "/apis/example.com/v1/widgets"

# A test with this mark, or with the fixture `target`, needs the real server.
REAL = pytest.param(
    "real", marks=[pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUnderTest:
    """One server, with a namespace of this test."""

    url: str
    token: str
    """Token of the administrator."""

    user_token: str
    """Token of the user alice, who has no permissions by default."""

    namespace: str
    ca: str = ""
    """CA file; empty for plain HTTP."""

    etcd: str = ""
    """Address of the real server's etcd; empty for ours."""

    ours: APIServer | None = None
    """The server object, if it is ours."""

    @property
    def real(self) -> bool:
        """True for a kube-apiserver."""
        return self.ours is None

    def path(self, plural: str, group_version: str = "api/v1") -> str:
        """Return the path of a namespaced collection, in this test's namespace."""
        return f"/{group_version}/namespaces/{self.namespace}/{plural}"

    def session(self, token: str | None = None) -> aiohttp.ClientSession:
        """Open a session with the token of the administrator."""
        context = ssl.create_default_context(cafile=self.ca) if self.ca else True
        return aiohttp.ClientSession(
            self.url,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {token or self.token}"},
            timeout=aiohttp.ClientTimeout(total=None),
        )

    def client(self) -> Client:
        """Make a client of the administrator, to be entered."""
        options: dict[str, Any] = {"ca_file": self.ca} if self.ca else {}
        return Client.from_url(self.url, token=self.token, **options)

    async def compact(self) -> None:
        """Compact the history: older versions cannot be listed any more."""
        if self.ours is not None:
            self.ours.compact()
            return

        async with aiohttp.ClientSession(self.etcd) as etcd:
            async with etcd.post("/v3/kv/range", json={"key": "AA=="}) as answer:
                revision = (await answer.json())["header"]["revision"]

            body = {"revision": revision, "physical": True}
            async with etcd.post("/v3/kv/compaction", json=body) as answer:
                assert answer.status == 200, await answer.text()


@pytest.fixture(params=["ours", REAL])
async def target(request: pytest.FixtureRequest) -> AsyncIterator[ServerUnderTest]:
    """Yield each server in turn, with an empty namespace of this test."""
    namespace = f"test-{secrets.token_hex(6)}"
    if request.param == "real":
        found = real_server(namespace)
        await _prepare(found)
        yield found
        return

    async with APIServer(
        resources=[WIDGETS],
        token="admin-token",
        users={"alice-token": "alice"},
        history=200,
        feature_gates={"ShardedListAndWatch": True},
    ) as server:
        found = ServerUnderTest(
            url=server.url,
            token="admin-token",
            user_token="alice-token",
            namespace=namespace,
            ours=server,
        )
        await _prepare(found)
        yield found


@pytest.fixture
async def http(target: ServerUnderTest) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session of the administrator."""
    async with target.session() as session:
        yield session


@pytest.fixture
async def alice(target: ServerUnderTest) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session of a user without permissions."""
    async with target.session(target.user_token) as session:
        yield session


def real_server(namespace: str) -> ServerUnderTest:
    """Return the real server, with the name of a namespace to create."""
    missing = [
        name
        for name in (REAL_URL, REAL_CA, REAL_TOKEN, REAL_USER_TOKEN, REAL_ETCD)
        if not os.environ.get(name)
    ]
    if missing:
        pytest.fail(f"no real server: {', '.join(missing)} not set; run `make e2e`")

    return ServerUnderTest(
        url=os.environ[REAL_URL],
        ca=os.environ[REAL_CA],
        token=os.environ[REAL_TOKEN],
        user_token=os.environ[REAL_USER_TOKEN],
        etcd=os.environ[REAL_ETCD],
        namespace=namespace,
    )


async def _prepare(target: ServerUnderTest) -> None:
    """Create the namespace and, on the real server, the CRD of widgets."""
    async with target.session() as session:
        body = {"metadata": {"name": target.namespace}}
        async with session.post("/api/v1/namespaces", json=body) as answer:
            assert answer.status == 201, await answer.text()

        if not target.real or await _serves_widgets(session):
            return

        async with session.post(_DEFINITIONS, json=WIDGETS_DEFINITION) as answer:
            assert answer.status in {201, 409}, await answer.text()

        while not await _serves_widgets(session):
            pass


async def _serves_widgets(session: aiohttp.ClientSession) -> bool:
    async with session.get(URL(_WIDGETS_PATH)) as answer:
        return answer.status == 200
