"""`aioinformer doctor`: certificates, credentials, proxies and secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from canned import bytes_server
from credential_helpers import V1, Authority, kubeconfig, printing, script
from doctor_helpers import TOKEN, Front, examined, serving

from aioinformer.cli.connection import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer.testing import APIServer

    Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with serving() as server:
        yield server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def speaking_tls(
    pair: tuple[Path, Path], clients: Path | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if clients is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(clients)

    return context


def target_of(
    folder: Path, server: str, user: dict[str, Any] | None = None, /, **cluster: Any
) -> ConnectionOptions:
    path = kubeconfig(
        folder / "config",
        {"token": TOKEN} if user is None else user,
        {"server": server, **cluster},
    )
    return ConnectionOptions(kubeconfig=str(path))


# ---------------------------------------------------------------- the server's certificate


@pytest.mark.parametrize(
    ("days", "mark"), [(400, "ok"), (15, "ok"), (13, "warning"), (1, "warning")]
)
async def test_server_certificate_expiry_is_reported(
    days: int,
    mark: str,
    server: APIServer,
    authority: Authority,
    tmp_path: Path,
    capfd: Captured,
) -> None:
    context = speaking_tls(authority.sign("server", days=days))
    async with Front(server.url, context) as front:
        target = target_of(
            tmp_path, front.url, **{"certificate-authority": str(authority.file)}
        )
        found = await examined(target, capfd=capfd)

    assert (found.status, found.mark("TLS")) == (0, mark)
    assert "for 127.0.0.1, valid until " in found.text("TLS")
    assert ("renew it" in found.text("TLS")) == (mark == "warning")
    assert found.text("watch", "pods").endswith("with bookmarks")


async def test_expired_server_certificate_fails_tls(
    server: APIServer, authority: Authority, tmp_path: Path, capfd: Captured
) -> None:
    context = speaking_tls(authority.sign("server", days=-1))
    async with Front(server.url, context) as front:
        target = target_of(
            tmp_path, front.url, **{"certificate-authority": str(authority.file)}
        )
        found = await examined(target, capfd=capfd)

    assert (found.status, found.failed) == (1, ["TLS"])
    assert "certificate has expired" in found.text("TLS")
    assert found.text("version") == "TLS failed"


async def test_certificate_of_unknown_authority_fails_tls(
    server: APIServer, authority: Authority, tmp_path: Path, capfd: Captured
) -> None:
    other = Authority(tmp_path, "other")
    async with Front(server.url, speaking_tls(authority.sign("server"))) as front:
        target = target_of(
            tmp_path, front.url, **{"certificate-authority": str(other.file)}
        )
        found = await examined(target, capfd=capfd)

    assert (found.status, found.failed) == (1, ["TLS"])
    assert "cannot be verified" in found.text("TLS")
    assert "certificate-authority" in found.text("TLS")


async def test_certificate_for_other_host_fails_tls(
    server: APIServer, authority: Authority, tmp_path: Path, capfd: Captured
) -> None:
    async with Front(server.url, speaking_tls(authority.sign("server"))) as front:
        ca = {"certificate-authority": str(authority.file)}
        target = target_of(tmp_path, front.url, **ca, **{"tls-server-name": "api.test"})
        found = await examined(target, capfd=capfd)

    assert (found.status, found.failed) == (1, ["TLS"])
    assert "api.test" in found.text("TLS")


@pytest.mark.parametrize(("days", "words"), [(400, "valid until"), (-1, "EXPIRED")])
async def test_unverified_certificates_are_warnings(
    days: int,
    words: str,
    server: APIServer,
    authority: Authority,
    tmp_path: Path,
    capfd: Captured,
) -> None:
    context = speaking_tls(authority.sign("server", days=days))
    async with Front(server.url, context) as front:
        unsafe = {"insecure-skip-tls-verify": True}
        found = await examined(target_of(tmp_path, front.url, **unsafe), capfd=capfd)

    assert (found.status, found.failed) == (0, [])
    assert found.mark("configuration") == "warning"
    assert "INSECURE" in found.text("configuration")
    assert found.mark("TLS") == "warning"
    assert "NOT VERIFIED" in found.text("TLS")
    assert words in found.text("TLS")


# ---------------------------------------------------------------- credentials


@pytest.mark.parametrize(("days", "mark"), [(400, "ok"), (3, "warning")])
@pytest.mark.parametrize("as_data", [False, True], ids=["file", "data"])
async def test_client_certificate_expiry_is_reported(
    days: int,
    mark: str,
    as_data: bool,
    server: APIServer,
    authority: Authority,
    tmp_path: Path,
    capfd: Captured,
) -> None:
    certificate, key = authority.sign("me", days=days)
    context = speaking_tls(authority.sign("server", days=400), authority.file)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    if as_data:
        user = {
            f"{name}-data": base64.b64encode(file.read_bytes()).decode()
            for name, file in (("client-certificate", certificate), ("client-key", key))
        }

    async with Front(server.url, context) as front:
        ca = {"certificate-authority": str(authority.file)}
        target = target_of(tmp_path, front.url, {**user, "token": TOKEN}, **ca)
        found = await examined(target, capfd=capfd)

    assert (found.status, found.mark("client certificate")) == (0, mark)
    text = found.text("configuration")
    assert text.endswith("credentials: a client certificate and a token")
    output = json.dumps(found.document)
    assert key.read_text().splitlines()[1] not in output
    assert certificate.read_text().splitlines()[1] not in output


async def test_expired_client_certificate_fails(
    server: APIServer, authority: Authority, tmp_path: Path, capfd: Captured
) -> None:
    certificate, key = authority.sign("me", days=-1)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    async with Front(server.url, speaking_tls(authority.sign("server"))) as front:
        ca = {"certificate-authority": str(authority.file)}
        found = await examined(target_of(tmp_path, front.url, user, **ca), capfd=capfd)

    assert (found.status, found.failed) == (1, ["credentials"])
    assert "expired at 20" in found.text("credentials")
    assert found.mark("connection") == "ok"
    assert found.text("TLS") == "no credentials"


def plugin(command: Path) -> dict[str, Any]:
    settings = {"apiVersion": V1, "command": str(command), "interactiveMode": "Never"}
    return {"exec": settings}


async def test_plugin_certificate_near_expiry_is_ok(
    server: APIServer, authority: Authority, tmp_path: Path, capfd: Captured
) -> None:
    certificate, key = authority.sign("me", days=1)
    status = {
        "clientCertificateData": certificate.read_text(),
        "clientKeyData": key.read_text(),
        "token": TOKEN,
    }
    command = script(tmp_path / "plugin", printing(status))
    context = speaking_tls(authority.sign("server", days=400), authority.file)
    async with Front(server.url, context) as front:
        ca = {"certificate-authority": str(authority.file)}
        target = target_of(tmp_path, front.url, plugin(command), **ca)
        found = await examined(target, capfd=capfd)

    assert (found.status, found.mark("client certificate")) == (0, "ok")
    text = found.text("client certificate")
    assert text.startswith("from the exec plugin, valid until ")
    assert key.read_text().splitlines()[1] not in json.dumps(found.document)


async def test_hanging_plugin_fails_credentials(
    server: APIServer, tmp_path: Path, capfd: Captured
) -> None:
    command = script(tmp_path / "plugin", "exec sleep 60")
    target = target_of(tmp_path, server.url, plugin(command))
    found = await examined(target, capfd=capfd, seconds=0.5)  # a process: real time

    assert (found.status, found.failed) == (1, ["credentials"])
    text = found.text("credentials")
    assert "timed out after 0.5 s (--timeout)" in text
    assert f"the exec plugin '{command}' of user 'main'" in text
    assert found.mark("connection") == "ok"


async def test_failing_plugin_fails_credentials(
    server: APIServer, tmp_path: Path, capfd: Captured
) -> None:
    command = script(tmp_path / "plugin", "echo log in first >&2", "exit 3")
    found = await examined(
        target_of(tmp_path, server.url, plugin(command)), capfd=capfd
    )

    assert (found.status, found.failed) == (1, ["credentials"])
    assert "failed with code 3" in found.text("credentials")


@pytest.mark.parametrize("way", ["plugin", "token", "file", "option", "password"])
async def test_doctor_shows_no_secrets(
    way: str, server: APIServer, tmp_path: Path, capfd: Captured
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    command = script(tmp_path / "plugin", printing({"token": TOKEN}))
    users: dict[str, dict[str, Any]] = {
        "plugin": plugin(command),
        "token": {"token": TOKEN},
        "file": {"tokenFile": str(tmp_path / "token")},
        "option": {},
        "password": {"username": "me", "password": TOKEN},
    }
    target = target_of(tmp_path, server.url, users[way])
    if way == "option":
        target = ConnectionOptions(kubeconfig=target.kubeconfig, token=TOKEN)

    found = await examined(target, capfd=capfd)

    kinds = {
        "plugin": f"the exec plugin '{command}' of user 'main' in {tmp_path}/config",
        "token": "a token",
        "file": f"the token in {tmp_path}/token",
        "option": "a token",
        "password": "a user name and password",
    }
    assert found.text("configuration").endswith(f"credentials: {kinds[way]}")
    assert TOKEN not in json.dumps(found.document)
    # A server treats a user with a password as anonymous.
    assert found.status == (1 if way == "password" else 0)


async def test_impersonated_user_is_reported(
    server: APIServer, tmp_path: Path, capfd: Captured
) -> None:
    user = {"token": TOKEN, "as": "eve", "as-groups": ["devs"]}
    found = await examined(target_of(tmp_path, server.url, user), capfd=capfd)

    assert found.text("configuration").endswith("a token, acting as 'eve'")
    assert found.text("identity").startswith("eve, in the groups devs")
    assert (found.status, found.failed) == (1, ["permissions"])


# ---------------------------------------------------------------- proxies


async def test_doctor_connects_through_proxy(
    server: APIServer, tmp_path: Path, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        proxy = front.url.replace("//", "//me:s3cr3t-pw@")
        file = target_of(tmp_path, "http://api.example", **{"proxy-url": proxy})
        # That of the file is not sent over plain HTTP.
        target = ConnectionOptions(kubeconfig=file.kubeconfig, token=TOKEN)
        found = await examined(target, capfd=capfd)

    assert found.status == 0
    text = found.text("configuration")
    assert text.endswith(f"through the proxy {front.url}")
    assert found.text("connection").startswith(
        "the proxy 127.0.0.1 accepts connections"
    )
    assert found.mark("TLS") == "warning"
    assert "INSECURE: plain HTTP to another machine" in found.text("TLS")
    assert "s3cr3t-pw" not in json.dumps(found.document)


async def test_unreachable_proxy_fails_connection(
    tmp_path: Path, capfd: Captured
) -> None:
    proxy = {"proxy-url": "http://127.0.0.1:1"}
    target = target_of(tmp_path, "https://api.example", **proxy)
    found = await examined(target, capfd=capfd)

    assert (found.status, found.failed) == (1, ["connection"])
    text = found.text("connection")
    assert text.startswith("the proxy 127.0.0.1 refused the connection to port 1")


@pytest.mark.parametrize("trusted", [True, False])
async def test_tls_is_checked_through_proxy(
    trusted: bool,
    server: APIServer,
    authority: Authority,
    tmp_path: Path,
    capfd: Captured,
) -> None:
    ca = authority if trusted else Authority(tmp_path, "other")
    context = speaking_tls(authority.sign("server"))
    async with Front(server.url, context) as front, bytes_server(_tunnel) as proxy:
        target = target_of(
            tmp_path,
            front.url,
            **{"certificate-authority": str(ca.file), "proxy-url": f"http://{proxy}"},
        )
        found = await examined(target, capfd=capfd)

        front.answers["/version"] = 401
        refused = await examined(target, capfd=capfd)

    if trusted:
        assert (refused.mark("TLS"), refused.failed) == ("ok", ["version"])
        assert found.status == 0
        assert found.text("TLS").startswith("trusted, but its expiry is unknown")
    else:
        assert (found.status, found.failed) == (1, ["TLS"])
        assert "cannot be verified" in found.text("TLS")


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Handle a CONNECT request."""
    head = await reader.readuntil(b"\r\n\r\n")
    host, _, port = head.split()[1].decode().partition(":")
    there, to_there = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    async with asyncio.TaskGroup() as group:
        group.create_task(_pump(reader, to_there))
        group.create_task(_pump(there, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
    except ConnectionError:
        pass  # one side closed the connection
    finally:
        writer.close()
