"""Proxies of the environment, and impersonation headers."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer, bytes_server
from credential_helpers import POD, Authority, door, kubeconfig
from each_case import each_case

from aioinformer.client import Client, ClientConfig, Credentials, TLSOptions
from aioinformer.client.config import impersonation_headers, proxy_of_environment
from aioinformer.client.environment import load_in_cluster
from aioinformer.client.kubeconfig import load_kubeconfig
from aioinformer.errors import OptionsError
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


PROXY = "http://proxy.example:3128"


SERVER = "https://api.example:6443"


PASSWORD = "pw-of-proxy"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@each_case(
    "server, environment, expected",
    [
        pytest.param(SERVER, {}, "", id="none"),
        pytest.param(SERVER, {"HTTPS_PROXY": PROXY}, PROXY, id="tls"),
        pytest.param(SERVER, {"https_proxy": PROXY}, PROXY, id="lower-case"),
        pytest.param(SERVER, {"HTTP_PROXY": PROXY}, "", id="only-for-plain"),
        pytest.param("http://api.example", {"HTTP_PROXY": PROXY}, PROXY, id="plain"),
        pytest.param(
            "http://api.example", {"HTTPS_PROXY": PROXY}, "", id="only-for-tls"
        ),
        pytest.param(
            SERVER, {"HTTPS_PROXY": "proxy:1"}, "http://proxy:1", id="no-scheme"
        ),
        pytest.param("https://localhost", {"HTTPS_PROXY": PROXY}, "", id="localhost"),
        pytest.param("https://127.8.0.1", {"HTTPS_PROXY": PROXY}, "", id="loopback"),
        pytest.param("https://[::1]:1", {"HTTPS_PROXY": PROXY}, "", id="loopback-6"),
        pytest.param("api.example", {"HTTPS_PROXY": PROXY}, PROXY, id="bare-name"),
        pytest.param("https://a:x", {"HTTPS_PROXY": PROXY}, "", id="no-url"),
    ],
)
def test_proxy_is_read_from_environment(
    server: str, environment: dict[str, str], expected: str
) -> None:
    assert proxy_of_environment(server, environment) == expected


@each_case(
    "listed, server, spared",
    [
        ("*", "api.example", True),
        ("api.example", "api.example", True),
        ("API.Example", "api.example", True),
        ("example", "api.example", True),
        ("example", "apiexample", False),
        ("other, api.example ,", "api.example", True),
        (".example", "api.example", True),
        (".example", "example", False),
        ("*.example", "api.example", True),
        ("*.example", "example", False),
        ("api.example:6443", "api.example", True),
        ("api.example:443", "api.example", False),
        ("api.example", "api.example.", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1:6443", "10.0.0.1", True),
        ("10.0.0.1:443", "10.0.0.1", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "[fd00::1]", False),
        ("fd00::/8", "[fd00::1]", True),
        ("fd00::1", "[fd00::1]", True),
        ("[fd00::1]:6443", "[fd00::1]", True),
        ("0.0.1", "10.0.0.1", False),
        ("10.0.0.1", "api.example", False),
        ("", "api.example", False),
    ],
)
def test_no_proxy_excludes_listed_hosts(listed: str, server: str, spared: bool) -> None:
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": listed}

    found = proxy_of_environment(f"https://{server}:6443", environment)

    assert found == ("" if spared else PROXY)


async def test_client_uses_proxy_of_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with CannedServer() as proxy:
        proxy.json(POD)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with Client.from_url("http://api.test") as client:
            await client.get(PODS, "a", namespace="x")

    (seen,) = proxy.seen
    assert seen.headers["Host"] == "api.test"


def test_proxy_of_kubeconfig_takes_precedence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    file = kubeconfig(tmp_path / "config")

    assert load_kubeconfig(file).proxy == PROXY

    kubeconfig(file, None, {"proxy-url": "http://own.example:1"})
    assert load_kubeconfig(file).proxy == "http://own.example:1"


def test_in_cluster_client_uses_proxy_of_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("x")

    assert load_in_cluster(tmp_path).proxy == PROXY

    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert not load_in_cluster(tmp_path).proxy


@pytest.mark.parametrize("where", ["environment", "kubeconfig"])
def test_error_names_unusable_proxy_without_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    wrong = f"socks5://me:{PASSWORD}@proxy.example"
    cluster = {"proxy-url": wrong} if where == "kubeconfig" else {}
    if where == "environment":
        monkeypatch.setenv("HTTPS_PROXY", wrong)

    file = kubeconfig(tmp_path / "config", None, cluster)
    with pytest.raises(OptionsError) as caught:
        load_kubeconfig(file)

    error_text = str(caught.value)
    assert f"in {file}" in error_text
    assert "the proxy (see proxy-url, HTTPS_PROXY) must be a URL" in error_text
    assert PASSWORD not in f"{error_text} {caught.value.__cause__!r}"


@asynccontextmanager
async def tunnel(heads: list[bytes]) -> AsyncIterator[str]:
    """Run a proxy that supports CONNECT and records request heads."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
        except ConnectionError:
            pass  # the client aborts its connections
        finally:
            writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        host, port = heads[-1].split()[1].decode().split(":")
        inner, outer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(copy(reader, outer))
            group.create_task(copy(inner, writer))

    async with bytes_server(talk) as address:
        yield address


async def test_connect_request_carries_headers_of_the_proxy_only(
    tmp_path: Path,
) -> None:
    """CONNECT is sent in plain text: impersonation headers are for the server only."""
    authority = Authority(tmp_path)
    heads: list[bytes] = []
    async with (
        door(authority.sign("server")) as seen,
        tunnel(heads) as proxy,
        Client(
            ClientConfig(
                server=seen.url,
                credentials=Credentials(token="s3cr3t-t0ken"),
                tls=TLSOptions(ca=authority.file),
                proxy=f"http://me:{PASSWORD}@{proxy}",
                headers=(
                    *impersonation_headers("jane", groups=["a", "b"]),
                    ("X-Api-Key", "s3cr3t-key"),
                ),
                user_agent="own/1",
            )
        ) as client,
    ):
        await client.get(PODS, "a", namespace="x")

    (head,) = heads
    first, *lines = head.decode().strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert first.startswith("CONNECT 127.0.0.1:")
    assert headers.keys() <= {
        "host",
        "user-agent",
        "accept",
        "accept-encoding",
        "proxy-authorization",
    }
    assert headers["user-agent"].startswith("aioinformer")
    pair = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    assert f"Proxy-Authorization: Basic {pair}" in lines

    (headers,) = seen.headers
    assert headers["Impersonate-User"] == "jane"
    assert headers.getall("Impersonate-Group") == ["a", "b"]
    assert headers["X-Api-Key"] == "s3cr3t-key"
    assert headers["Authorization"] == "Bearer s3cr3t-t0ken"
    assert headers.getall("User-Agent") == ["own/1"]
    assert "Proxy-Authorization" not in headers


def test_impersonation_headers_have_user_uid_groups_and_extra() -> None:
    headers = impersonation_headers(
        "jane", uid="7", groups=["dev", "ops"], extra={"scopes": ["a", "b"]}
    )

    assert headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-scopes", "a"),
        ("Impersonate-Extra-scopes", "b"),
    )


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("acme.com/project", "acme.com%2Fproject"),
        ("a b%c:d", "a%20b%25c%3Ad"),
        ("é", "%C3%A9"),
        ("!#$&'*+-.^_`|~", "!#$&'*+-.^_`|~"),
    ],
)
def test_impersonation_headers_escape_extra_names(name: str, header: str) -> None:
    (_, (found, _)) = impersonation_headers("jane", extra={name: ["x"]})

    assert found == f"Impersonate-Extra-{header}"


@pytest.mark.parametrize(
    "wrong", [{"uid": "7"}, {"groups": ["dev"]}, {"extra": {"scopes": ["a"]}}]
)
def test_impersonation_without_user_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="requires a user"):
        impersonation_headers("", **wrong)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(("X", "a\r\nAuthorization: b"), id="value"),
        pytest.param(("X: a\r\nY", "b"), id="name"),
        pytest.param(("", "b"), id="no-name"),
    ],
)
def test_headers_with_line_breaks_are_rejected(header: tuple[str, str]) -> None:
    with pytest.raises(OptionsError, match="header"):
        ClientConfig(server="http://api.example", headers=(header,))


async def test_impersonation_of_kubeconfig_is_sent_with_every_request(
    tmp_path: Path,
) -> None:
    async with door() as seen:
        user = {
            "token": "mine",
            "as": "jane",
            "as-uid": "7",
            "as-groups": ["dev", "ops"],
            "as-user-extra": {"acme.com/project": ["a", "b"]},
        }
        file = kubeconfig(tmp_path / "config", user, {"server": seen.url})
        async with Client.from_kubeconfig(file) as client:
            await client.get(PODS, "a", namespace="x")
            await client.get(PODS, "a", namespace="x")

    for headers in seen.headers:
        assert headers["Authorization"] == "Bearer mine"
        assert headers.getall("Impersonate-User") == ["jane"]
        assert headers.getall("Impersonate-Uid") == ["7"]
        assert headers.getall("Impersonate-Group") == ["dev", "ops"]
        assert headers.getall("Impersonate-Extra-acme.com%2Fproject") == ["a", "b"]


@each_case(
    "user, words",
    [
        pytest.param({"as-groups": ["dev"]}, "add `as`", id="groups-without-user"),
        pytest.param({"as": "a", "as-groups": "dev"}, "as-groups of", id="no-list"),
        pytest.param({"as": "a", "as-groups": [1]}, "as-groups of", id="no-texts"),
        pytest.param(
            {"as": "a", "as-user-extra": []}, "mapping", id="extra-no-mapping"
        ),
        pytest.param(
            {"as": "a", "as-user-extra": {"b": "c"}}, "b of as-user-extra", id="extra"
        ),
        pytest.param({"as": "a\nb"}, "control character", id="line-break"),
    ],
)
def test_invalid_impersonation_error_names_field(
    tmp_path: Path, user: dict[str, Any], words: str
) -> None:
    file = kubeconfig(tmp_path / "config", user)

    with pytest.raises(OptionsError) as caught:
        load_kubeconfig(file)

    assert words in str(caught.value)
    assert f"in {file}" in str(caught.value)
