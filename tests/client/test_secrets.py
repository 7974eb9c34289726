"""Scan for secrets in logs, `repr` and errors.

Each scene has the same secrets in other places and fails in another way. The scan collects
all output for users: every log record, every object's `repr`, and every error with its
causes, notes and attributes.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import traceback
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer, bytes_server
from credential_helpers import V1, Authority, door, kubeconfig, printing, script
from kubernetes_asyncio.client import ApiClient, Configuration

from aioinformer import SharedInformer
from aioinformer.client import Client, ListWatch
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path
    from typing import TypeAlias

TOKEN = "eyJhbGciOiJub25lIn0.c2VjcmV0LW9mLW1pbmU.c2lnbmF0dXJlLW9mLWl0"
PASSWORD = "pass-w0rd-of-mine"
ARGUMENT = "argument-0f-mine"
VARIABLE = "variable-0f-mine"
SECRETS = (TOKEN, PASSWORD, ARGUMENT, VARIABLE)


@dataclass
class Scan:
    """Collected output of a scene."""

    logs: pytest.LogCaptureFixture
    folder: Path
    seen: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def collect(self, *things: object) -> None:
        self.seen.extend(f"{thing!r} {thing}" for thing in things)

    def failed(self, exc: BaseException | None) -> None:
        """Collect an error like an error reporter that shows all details."""
        if exc is None:
            return

        self.seen.extend(traceback.format_exception(exc))
        self.collect(exc, exc.args, vars(exc), *getattr(exc, "__notes__", ()))
        for attribute in ("request_info", "history", "headers", "os_error"):
            self.collect(getattr(exc, attribute, None))

        self.failed(exc.__cause__)
        if not exc.__suppress_context__:
            self.failed(exc.__context__)

    async def use(self, client: Client, times: int = 2) -> None:
        """Enter a client, send requests, and collect their output."""
        self.collect(client)
        try:
            async with client:
                config = client.config
                self.collect(client, config, config.credentials, config.tls)
                for _ in range(times):
                    await self._send_requests(client)

        except Exception as exc:  # noqa: BLE001 - whatever it is, it is looked at
            self.failed(exc)

        self.collect(client)

    async def _send_requests(self, client: Client) -> None:
        try:
            await client.get(PODS, "a", namespace="x")
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is looked at
            self.failed(exc)

        informer = SharedInformer(ListWatch(client, PODS))
        running = asyncio.create_task(informer.run())
        await asyncio.sleep(5)
        self.collect(informer, informer.status)
        running.cancel()
        await asyncio.wait({running})

    def found(self) -> list[str]:
        """Return the secrets in the collected output."""
        records = [f"{it.getMessage()} {it.__dict__}" for it in self.logs.records]
        everything = "\n".join([*self.seen, *records, self.logs.text])
        hidden = (*SECRETS, *self.keys)
        encoded = [base64.b64encode(each.encode()).decode() for each in hidden]
        pair = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
        return [each for each in (*hidden, *encoded, pair) if each in everything]


Scene: TypeAlias = "Callable[[Scan], Awaitable[None]]"


def client(scan: Scan, user: dict[str, Any], **cluster: Any) -> Client:
    return Client.from_kubeconfig(kubeconfig(scan.folder / "config", user, cluster))


def plugin(scan: Scan, *lines: str) -> dict[str, Any]:
    command = script(scan.folder / "plugin", *lines)
    return {
        "exec": {
            "apiVersion": V1,
            "command": str(command),
            "args": [ARGUMENT],
            "env": [{"name": "MINE", "value": VARIABLE}],
            "interactiveMode": "Never",
        }
    }


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    """Run a server that echoes requests in refusals and in broken responses."""
    async with door() as seen:
        seen.accepts = {"nobody"}
        yield seen.url


async def refused_token(scan: Scan) -> None:
    async with refusing() as url:
        await scan.use(client(scan, {"token": TOKEN}, server=url))


async def accepted_token(scan: Scan) -> None:
    async with door() as seen:
        await scan.use(client(scan, {"token": TOKEN}, server=seen.url))


async def token_of_a_url(scan: Scan) -> None:
    await scan.use(Client.from_url("http://127.0.0.1:9", token=TOKEN))


async def password(scan: Scan) -> None:
    async with refusing() as url:
        user = {"username": "me", "password": PASSWORD}
        await scan.use(client(scan, user, server=url))


async def token_file(scan: Scan) -> None:
    file = scan.folder / "token"
    file.write_text(TOKEN)
    async with refusing() as url:
        each = client(scan, {"tokenFile": str(file)}, server=url)
        await scan.use(each)
        async with each:
            file.write_text(f"{TOKEN} {TOKEN}")
            await asyncio.sleep(61)
            await scan._send_requests(each)
            file.write_bytes(TOKEN.encode() + b"\xff")
            await asyncio.sleep(61)
            await scan._send_requests(each)

        await scan.use(each)


async def token_that_is_none(scan: Scan) -> None:
    await scan.use(client(scan, {"token": f"{TOKEN}\x07"}))


async def yaml_that_is_none(scan: Scan) -> None:
    file = scan.folder / "config"
    file.write_text(f"users: [\ntoken: '{TOKEN}\n")
    await scan.use(Client.from_kubeconfig(file))


async def plugin_that_works(scan: Scan) -> None:
    async with refusing() as url:
        await scan.use(
            client(scan, plugin(scan, printing({"token": TOKEN})), server=url)
        )


async def plugin_that_prints_junk(scan: Scan) -> None:
    await scan.use(client(scan, plugin(scan, f"echo {TOKEN}")))


async def plugin_that_complains(scan: Scan) -> None:
    lines = f'echo "$1 $MINE {TOKEN}" >&2', "exit 1"
    await scan.use(client(scan, plugin(scan, *lines)))


async def plugin_with_half_an_answer(scan: Scan) -> None:
    status = {"token": TOKEN, "clientKeyData": PASSWORD}
    await scan.use(client(scan, plugin(scan, printing(status))))


async def plugin_with_a_bad_token(scan: Scan) -> None:
    await scan.use(client(scan, plugin(scan, printing({"token": f"{TOKEN} x"}))))


async def plugin_with_a_bad_certificate(scan: Scan) -> None:
    status = {"clientCertificateData": "no PEM", "clientKeyData": PASSWORD}
    await scan.use(client(scan, plugin(scan, printing(status))))


async def proxy_with_a_password(scan: Scan) -> None:
    async with CannedServer() as proxy:
        proxy.text("<html>who are you</html>", 407, "text/html")
        at = proxy.url.removeprefix("http://")
        for scheme in ("http", "https"):
            await scan.use(
                client(
                    scan,
                    {"token": TOKEN},
                    server=f"{scheme}://api.test",
                    **{"proxy-url": f"http://me:{PASSWORD}@{at}"},
                )
            )


async def proxy_that_is_none(scan: Scan) -> None:
    wrong = f"socks5://me:{PASSWORD}@proxy.test"
    await scan.use(client(scan, {}, **{"proxy-url": wrong}))


async def server_that_speaks_no_http(scan: Scan) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.read(65536)
        writer.write(b"HTTP/1.1 banana\r\n" + received)
        writer.close()

    async with bytes_server(talk) as address:
        await scan.use(client(scan, {"token": TOKEN}, server=f"http://{address}"))


async def certificates_that_do_not_verify(scan: Scan) -> None:
    authority = Authority(scan.folder)
    certificate, key = authority.sign("me")
    scan.keys.append(key.read_text().splitlines()[1])
    user = {
        "token": TOKEN,
        "client-certificate-data": base64.b64encode(certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    async with door(authority.sign("server"), authority.file) as seen:
        await scan.use(client(scan, user, server=seen.url))
        skipping = {"insecure-skip-tls-verify": True}
        await scan.use(client(scan, user, server=seen.url, **skipping))


async def key_of_another_certificate(scan: Scan) -> None:
    authority = Authority(scan.folder)
    certificate, key = authority.sign("me")[0], authority.sign("you")[1]
    scan.keys.append(key.read_text().splitlines()[1])
    user = {
        "client-certificate-data": base64.b64encode(certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    await scan.use(client(scan, user))


async def auth_provider(scan: Scan) -> None:
    config = {"refresh-token": TOKEN, "client-secret": PASSWORD}
    await scan.use(client(scan, {"auth-provider": {"name": "oidc", "config": config}}))


async def impersonation(scan: Scan) -> None:
    async with refusing() as url:
        user = {"token": TOKEN, "as": "jane", "as-user-extra": {"x": [PASSWORD]}}
        await scan.use(client(scan, user, server=url))


async def somebody_elses_client(scan: Scan) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError(f"cannot renew {TOKEN}")

    async with refusing() as url:
        theirs = Configuration(host=url)
        theirs.api_key = {"BearerToken": f"Bearer {TOKEN}"}
        async with ApiClient(theirs) as api:
            await scan.use(Client.from_kubernetes_asyncio(api))
            each = Client.from_kubernetes_asyncio(theirs)
            async with each:
                theirs.refresh_api_key_hook = fail
                await scan._send_requests(each)

            await scan.use(each)


SCENES: list[Scene] = [
    accepted_token,
    auth_provider,
    certificates_that_do_not_verify,
    impersonation,
    key_of_another_certificate,
    password,
    plugin_that_complains,
    plugin_that_prints_junk,
    plugin_that_works,
    plugin_with_a_bad_certificate,
    plugin_with_a_bad_token,
    plugin_with_half_an_answer,
    proxy_that_is_none,
    proxy_with_a_password,
    refused_token,
    server_that_speaks_no_http,
    somebody_elses_client,
    token_file,
    token_of_a_url,
    token_that_is_none,
    yaml_that_is_none,
]


@pytest.fixture
def scan(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Iterator[Scan]:
    # All loggers, including aiohttp and asyncio, at DEBUG.
    with caplog.at_level(logging.DEBUG):
        yield Scan(caplog, tmp_path)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_no_output_contains_a_secret(scan: Scan, scene: Scene) -> None:
    await scene(scan)

    assert scan.seen
    assert scan.found() == []


def test_scan_finds_secrets_in_each_place(scan: Scan) -> None:
    """The places are those that the scan searches."""
    places: list[Callable[[], None]] = [
        lambda: logging.getLogger("any").debug("with %s", TOKEN),
        lambda: logging.getLogger("any").debug("with", extra={"key": TOKEN}),
        lambda: scan.collect({"key": TOKEN}),
        lambda: scan.collect(base64.b64encode(TOKEN.encode()).decode()),
        lambda: scan.failed(ValueError(TOKEN)),
        lambda: scan.failed(caused_by(ValueError(TOKEN))),
    ]
    for place in places:
        scan.seen.clear()
        scan.logs.clear()
        assert not scan.found()
        place()
        assert scan.found()


def caused_by(cause: Exception) -> Exception:
    try:
        raise RuntimeError from cause
    except RuntimeError as exc:
        return exc
