"""`ListWatch`: the identity of its server and cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from canned import CannedServer
from shortages import no_descriptors

from aioinformer.client import Client, ClientConfig, Credentials, ListWatch, TLSOptions
from aioinformer.client.list_watch import DiscoveredListWatch
from aioinformer.errors import DecodeError, OptionsError, ServerError, TransportError
from aioinformer.model.resources import NAMESPACES, PODS
from aioinformer.testing import APIServer
from aioinformer.watch import Identified

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


async def cluster_uid(server: CannedServer) -> str:
    async with Client.from_url(server.url) as client:
        return await ListWatch(client, PODS, namespace="shop").cluster_uid()


# ---------------------------------------------------------------- cluster


async def test_cluster_uid_is_that_of_the_namespace_kube_system() -> None:
    async with APIServer() as server:
        expected = server.get(NAMESPACES, "kube-system")["metadata"]["uid"]
        direct = server.list_watch(PODS)
        async with server.client() as client:
            over_http = ListWatch(client, PODS)
            discovered = DiscoveredListWatch(client, PODS)
            for source in (direct, over_http, discovered):
                assert isinstance(source, Identified)
                assert await source.cluster_uid() == expected

    assert expected
    assert [it.verb for it in server.requests] == ["get"] * 3


async def test_cluster_uid_survives_restarts_but_not_a_new_history() -> None:
    async with APIServer() as server, APIServer() as other:
        first = await server.list_watch(PODS).cluster_uid()
        assert first != await other.list_watch(PODS).cluster_uid()

        await server.restart()
        assert await server.list_watch(PODS).cluster_uid() == first

        await server.restart(snapshot=server.snapshot())
        assert await server.list_watch(PODS).cluster_uid() == first

        await server.restart(new_history=True)
        assert await server.list_watch(PODS).cluster_uid() != first


async def test_cluster_uid_requests_only_metadata(server: CannedServer) -> None:
    server.json({"kind": "PartialObjectMetadata", "metadata": {"uid": "u-1"}})

    assert await cluster_uid(server) == "u-1"
    assert [it.target for it in server.seen] == ["/api/v1/namespaces/kube-system"]
    assert "PartialObjectMetadata" in server.seen[0].headers["Accept"]


@pytest.mark.parametrize("status", [403, 404])
async def test_cluster_uid_is_empty_if_it_cannot_be_read(
    server: CannedServer, status: int
) -> None:
    server.json({"kind": "Status", "code": status}, status)

    assert await cluster_uid(server) == ""


async def test_cluster_uid_raises_other_refusals(server: CannedServer) -> None:
    server.json({"kind": "Status", "code": 503}, 503)

    with pytest.raises(ServerError):
        await cluster_uid(server)


async def test_cluster_uid_raises_decode_error_for_other_document(
    server: CannedServer,
) -> None:
    server.text("[]", 200, "application/json")

    with pytest.raises(DecodeError, match="kube-system"):
        await cluster_uid(server)


async def test_cluster_uid_raises_transport_error_without_a_server() -> None:
    async with APIServer() as server:
        source = server.list_watch(PODS)

    with pytest.raises(TransportError):
        await source.cluster_uid()


# ---------------------------------------------------------------- endpoint


def print_of(url: str, **tls: object) -> str:
    return ClientConfig(server=url, tls=TLSOptions(**tls)).endpoint_print()  # type: ignore[arg-type]


def test_endpoint_print_with_an_authority_ignores_the_address() -> None:
    here = print_of("https://10.0.0.1:6443", ca=b"CA 1\n")

    assert here == print_of("https://api.example.com", ca=b"CA 1")
    assert here != print_of("https://10.0.0.1:6443", ca=b"CA 2\n")


def test_endpoint_print_without_an_authority_has_the_address() -> None:
    here = print_of("https://api.example.com")

    assert here == print_of("https://API.example.com:443")
    assert here != print_of("https://api.example.com:6443")
    assert here != print_of("http://api.example.com:443")
    assert here == print_of("https://api.example.com", ca=b"CA 1", verify=False)


def test_endpoint_print_has_the_path_of_a_proxy() -> None:
    proxy = "https://rancher.example.com/k8s/clusters"

    assert print_of(f"{proxy}/a", ca=b"CA") != print_of(f"{proxy}/b", ca=b"CA")


async def test_endpoint_print_has_no_credentials_and_no_request(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(b"CA 1\n")
    config = ClientConfig(server="https://10.0.0.1", tls=TLSOptions(ca=b"CA 1"))
    prints = []
    for token in ("secret-1", "secret-2"):
        client = Client(replace(config, credentials=Credentials(token=token)))
        prints.append(await ListWatch(client, PODS).endpoint_print())

    assert prints == [print_of("https://10.0.0.1", ca=ca)] * 2


async def test_endpoint_print_is_empty_if_it_cannot_be_known(tmp_path: Path) -> None:
    config = ClientConfig(
        server="https://10.0.0.1", tls=TLSOptions(ca=tmp_path / "missing.pem")
    )

    assert await ListWatch(Client(config), PODS).endpoint_print() == ""
    assert await APIServer().list_watch(PODS).endpoint_print() == ""


async def test_endpoint_print_fails_while_no_file_can_be_opened(tmp_path: Path) -> None:
    """An empty print would be that of another server."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(b"CA 1\n")
    config = ClientConfig(server="https://10.0.0.1", tls=TLSOptions(ca=ca))
    source = ListWatch(Client(config), PODS)
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        await source.endpoint_print()

    assert await source.endpoint_print() == print_of("https://10.0.0.1", ca=b"CA 1")


async def test_endpoint_print_requires_a_client_that_was_entered() -> None:
    source = DiscoveredListWatch(Client.from_env(), PODS)

    with pytest.raises(OptionsError, match="not entered"):
        await source.endpoint_print()
