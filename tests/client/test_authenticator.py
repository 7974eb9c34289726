"""Certificates and authorities that are replaced while a client is in use."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import pytest
from credential_helpers import Authority, door, kubeconfig

from aioinformer import Manager, SharedInformerFactory
from aioinformer.client import Client, ClientConfig, Credentials, TLSOptions
from aioinformer.client.authenticator import Authenticator
from aioinformer.errors import OptionsError, TransportError, Unauthorized
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> dict[str, tuple[Path, Path]]:
    """Return certificates with their keys by name; `old` expired yesterday."""
    names = {"server": 2, "first": 2, "second": 2, "old": -1}
    return {name: authority.sign(name, days=days) for name, days in names.items()}


def put(folder: Path, pair: tuple[Path, Path]) -> TLSOptions:
    """Replace certificate and key like a mounted Secret."""
    for source, name in zip(pair, ("tls.crt", "tls.key"), strict=True):
        replace_file(folder / name, source)

    return TLSOptions(certificate=folder / "tls.crt", key=folder / "tls.key")


def replace_file(target: Path, source: Path) -> None:
    shutil.copy(source, f"{target}.new")
    os.replace(f"{target}.new", target)


async def get_pods(client: Client) -> None:
    assert (await client.get(PODS, "a", namespace="x")).key == "x/a"


def config_of(url: str, ca: Path, tls: TLSOptions) -> ClientConfig:
    tls = TLSOptions(ca=ca, certificate=tls.certificate, key=tls.key)
    return ClientConfig(server=url, tls=tls)


# ---------------------------------------------------------------- replaced files


async def test_authenticator_uses_replaced_certificate_within_a_minute(
    tmp_path: Path, authority: Authority, signed: dict[str, tuple[Path, Path]]
) -> None:
    tls = put(tmp_path, signed["first"])
    async with (
        door(signed["server"], authority.file) as seen,
        Client(config_of(seen.url, authority.file, tls)) as client,
    ):
        await get_pods(client)
        put(tmp_path, signed["second"])
        await asyncio.sleep(50)
        await get_pods(client)
        await asyncio.sleep(11)
        await get_pods(client)
        await get_pods(client)

    assert seen.seen == ["first", "first", "second", "second"]


async def test_authenticator_does_not_reuse_connections_of_old_certificate(
    tmp_path: Path, authority: Authority, signed: dict[str, tuple[Path, Path]]
) -> None:
    """They are closed after a minute without use."""
    tls = put(tmp_path, signed["first"])
    async with (
        door(signed["server"], authority.file) as seen,
        Client(config_of(seen.url, authority.file, tls)) as client,
    ):
        await get_pods(client)
        await get_pods(client)
        (old,) = client._endpoint.transport()._sockets
        put(tmp_path, signed["second"])
        await asyncio.sleep(59)
        await get_pods(client)
        assert seen.connections == 1

        await asyncio.sleep(2)
        await get_pods(client)
        assert seen.connections == 2
        while old.fileno() != -1:
            await asyncio.sleep(1)

        await get_pods(client)

    assert seen.seen[-2:] == ["second", "second"]


async def test_authenticator_rereads_certificate_after_401(
    tmp_path: Path, authority: Authority, signed: dict[str, tuple[Path, Path]]
) -> None:
    tls = put(tmp_path, signed["first"])
    async with (
        door(signed["server"], authority.file) as seen,
        Client(config_of(seen.url, authority.file, tls)) as client,
    ):
        seen.accepts = {"second"}
        put(tmp_path, signed["second"])
        await get_pods(client)

        seen.accepts = {"third"}
        with pytest.raises(Unauthorized):
            await get_pods(client)

    assert seen.seen == ["first", "second", "second"]


async def test_concurrent_401s_build_one_ssl_context(
    tmp_path: Path,
    authority: Authority,
    signed: dict[str, tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = counted(monkeypatch)
    tls = put(tmp_path, signed["first"])
    async with (
        door(signed["server"], authority.file) as seen,
        Client(config_of(seen.url, authority.file, tls)) as client,
    ):
        seen.accepts = {"second"}
        put(tmp_path, signed["second"])
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(get_pods(client))

    assert len(built) == 2
    assert seen.seen.count("second") == 5


@pytest.mark.parametrize("broken", ["half", "garbage", "absent", "expired"])
async def test_authenticator_keeps_last_certificate_while_files_are_broken(
    tmp_path: Path,
    authority: Authority,
    signed: dict[str, tuple[Path, Path]],
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    tls = put(tmp_path, signed["first"])
    file = tmp_path / "tls.crt"
    async with (
        door(signed["server"], authority.file) as seen,
        Client(config_of(seen.url, authority.file, tls)) as client,
    ):
        await get_pods(client)
        match broken:
            case "half":
                replace_file(file, signed["second"][0])
            case "garbage":
                file.write_text("garbage")
            case "absent":
                file.unlink()
            case _:
                put(tmp_path, signed["old"])

        await asyncio.sleep(61)
        await get_pods(client)
        assert "cannot reload certificates, using the old ones" in caplog.text
        assert str(file) in caplog.text

        put(tmp_path, signed["second"])
        await asyncio.sleep(61)
        await get_pods(client)

    assert seen.seen == ["first", "first", "second"]


async def test_authenticator_rereads_authority_after_failed_tls(
    tmp_path: Path, authority: Authority, signed: dict[str, tuple[Path, Path]]
) -> None:
    """The next request rereads the file without waiting for a minute."""
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other-ca")
    ca = tmp_path / "ca.crt"
    replace_file(ca, other.file)
    async with (
        door(signed["server"]) as seen,
        Client.from_url(seen.url, ca_file=ca) as client,
    ):
        with pytest.raises(TransportError, match="cannot be verified"):
            await get_pods(client)

        replace_file(ca, authority.file)
        await get_pods(client)

    assert len(seen.seen) == 1


async def test_watch_continues_when_certificates_are_replaced(
    tmp_path: Path, authority: Authority, signed: dict[str, tuple[Path, Path]]
) -> None:
    tls = put(tmp_path, signed["first"])
    async with (
        door(signed["server"], authority.file) as seen,
        Client(config_of(seen.url, authority.file, tls)) as client,
        client.stream("GET", "/api/v1/pods") as response,
    ):
        put(tmp_path, signed["second"])
        await asyncio.sleep(61)
        await get_pods(client)
        body = await response.read()

    assert b"Pod" in body
    assert seen.seen == ["first", "second"]


# ---------------------------------------------------------------- what it costs


def counted(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return the threads in which contexts were built."""
    built: list[threading.Thread] = []
    original = TLSOptions.context

    def context(options: TLSOptions) -> ssl.SSLContext:
        built.append(threading.current_thread())
        return original(options)

    monkeypatch.setattr(TLSOptions, "context", context)
    return built


async def test_ssl_context_is_built_once_in_thread(
    authority: Authority,
    signed: dict[str, tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = counted(monkeypatch)
    async with (
        door(signed["server"]) as seen,
        Client.from_url(seen.url, ca_file=authority.file) as client,
    ):
        for _ in range(3):
            await asyncio.sleep(100)
            await get_pods(client)

    (thread,) = built
    assert thread is not threading.main_thread()


async def test_plain_http_needs_no_ssl_context() -> None:
    access = Authenticator(ClientConfig(server="http://127.0.0.1:1"))
    ticket = await access.current()

    access.reload()

    assert ticket.context is None
    assert not await access.renew(ticket)
    assert await access.current() == ticket


async def test_cancelled_certificate_check_is_repeated(
    tmp_path: Path, authority: Authority, signed: dict[str, tuple[Path, Path]]
) -> None:
    tls = put(tmp_path, signed["first"])
    access = Authenticator(config_of("https://127.0.0.1:1", authority.file, tls))
    first = asyncio.create_task(access.current())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    assert (await access.current()).context is not None


async def test_renewed_token_keeps_ssl_context(
    tmp_path: Path, authority: Authority
) -> None:
    (tmp_path / "token").write_text("first")
    config = ClientConfig(
        server="https://127.0.0.1:1",
        credentials=Credentials(token_file=tmp_path / "token"),
        tls=TLSOptions(ca=authority.file),
    )
    access = Authenticator(config)
    ticket = await access.current()
    replace_token = asyncio.to_thread((tmp_path / "token").write_text, "second")
    await replace_token

    assert await access.renew(ticket)
    renewed = await access.current()
    assert renewed.info.authorization == "Bearer second"
    assert renewed.context is ticket.context


# ---------------------------------------------------------------- one clear error


async def entering(client: Client) -> str:
    with pytest.raises(OptionsError) as caught:
        await client.start()

    assert not client.entered
    return str(caught.value)


async def test_error_names_expired_client_certificate(
    tmp_path: Path, signed: dict[str, tuple[Path, Path]]
) -> None:
    certificate, key = signed["old"]
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    file = kubeconfig(tmp_path / "config", user)

    error_text = await entering(Client.from_kubeconfig(file))

    assert f"{certificate} (client-certificate of user 'main' in {file})" in error_text
    assert "expired at 20" in error_text


async def test_error_names_expired_server_certificate(
    authority: Authority, signed: dict[str, tuple[Path, Path]]
) -> None:
    async with (
        door(signed["old"]) as seen,
        Client.from_url(seen.url, ca_file=authority.file) as client,
    ):
        with pytest.raises(TransportError) as caught:
            await get_pods(client)

    assert seen.url in str(caught.value)
    assert "certificate has expired" in str(caught.value)


async def test_error_names_unusable_authority(tmp_path: Path) -> None:
    cluster: dict[str, Any] = {"certificate-authority": "absent.crt"}
    file = kubeconfig(tmp_path / "config", None, cluster)
    absent = await entering(Client.from_kubeconfig(file))

    cluster = {"certificate-authority-data": "bm8gUEVN"}
    kubeconfig(file, None, cluster)
    garbage = await entering(Client.from_kubeconfig(file))

    of = f"of cluster 'main' in {file}"
    assert f"{tmp_path}/absent.crt (certificate-authority {of})" in absent
    assert f"given as certificate-authority-data {of}" in garbage


async def test_closed_client_leaves_no_connection_open(
    tmp_path: Path, authority: Authority, signed: dict[str, tuple[Path, Path]]
) -> None:
    tls = put(tmp_path, signed["first"])
    async with door(signed["server"], authority.file) as seen:
        client = Client(config_of(seen.url, authority.file, tls))
        await client.start()
        await get_pods(client)
        put(tmp_path, signed["second"])
        await asyncio.sleep(61)
        await get_pods(client)
        opened = list(client._endpoint.transport()._sockets)
        await client.close()

    assert {each.fileno() for each in opened} == {-1}
    gc.collect()  # anything left open would warn, which is an error


# ---------------------------------------------------------------- a full disk


async def test_manager_starts_while_certificates_cannot_be_prepared(
    authority: Authority,
    signed: dict[str, tuple[Path, Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    tls = put(tmp_path, signed["first"])
    client = Client(config_of("https://127.0.0.1:1", authority.file, tls))
    manager = Manager(client)

    async with manager:
        assert manager.running
        with pytest.raises(TransportError, match="cannot write the client cert"):
            await client.get(PODS, "a", namespace="x")

        (tmp_path / "full").mkdir()
        with pytest.raises(TransportError, match="refused the connection"):
            await client.get(PODS, "a", namespace="x")

    assert "no credentials for https://127.0.0.1:1 yet" in caplog.text
    assert not client.entered


async def test_factory_retries_unreadable_configuration(
    tmp_path: Path,
) -> None:
    def read() -> ClientConfig:
        return ClientConfig(server=(tmp_path / "server").read_text())

    asyncio.get_running_loop().call_later(
        60, (tmp_path / "server").write_text, "http://127.0.0.1:1"
    )
    async with SharedInformerFactory(Client(read)) as factory:
        assert factory.running
        assert 60 <= asyncio.get_running_loop().time() < 60 + 60
