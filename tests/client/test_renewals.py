"""Renewals of credentials while a client is entered."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from credential_helpers import V1, Authority, Door, door, kubeconfig, printing, script

from aioinformer import SharedInformer
from aioinformer.client import Client, ClientConfig, Credentials, ListWatch, TLSOptions
from aioinformer.client.auth.credentials import AuthInfo
from aioinformer.errors import OptionsError, TransportError, Unauthorized
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def seen() -> AsyncIterator[Door]:
    async with door() as seen:
        yield seen


class TokenSource:
    """Source of the tokens `1`, `2`, ...: fresh for 80 s, valid for 100 s.

    Attributes:
        seconds: Duration of a renewal.
        failure: Exception to raise instead.
        same: True to return the first token forever.
    """

    def __init__(self) -> None:
        self.began = self.ended = 0
        self.seconds = 0.0
        self.failure: BaseException | None = None
        self.same = False

    async def auth_info(self) -> AuthInfo:
        self.began += 1
        await asyncio.sleep(self.seconds)
        self.ended += 1
        if self.failure is not None:
            raise self.failure

        number = 1 if self.same else self.began
        return AuthInfo(
            authorization=f"Bearer {number}", fresh_seconds=80, valid_seconds=100
        )

    def client(self, seen: Door) -> Client:
        credentials = Credentials(source=self.auth_info)
        return Client(ClientConfig(server=seen.url, credentials=credentials))


@pytest.fixture
def source() -> TokenSource:
    return TokenSource()


async def get_pods(client: Client) -> None:
    assert (await client.get(PODS, "a", namespace="x")).key == "x/a"


# ---------------------------------------------------------------- requests and renewals


async def test_cancelled_requests_do_not_cancel_renewal(
    seen: Door, source: TokenSource
) -> None:
    async with source.client(seen) as client:
        await asyncio.sleep(200)
        source.seconds = 5
        for _ in range(9):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await get_pods(client)

        await get_pods(client)

    assert (source.began, source.ended) == (2, 2)
    assert seen.seen == ["2"]


async def test_requests_with_valid_credentials_do_not_wait_for_renewal(
    seen: Door, source: TokenSource
) -> None:
    loop = asyncio.get_running_loop()
    async with source.client(seen) as client:
        await asyncio.sleep(81)
        source.seconds = 10
        before = loop.time()
        for _ in range(3):
            await get_pods(client)

        assert loop.time() == before
        await asyncio.sleep(11)
        await get_pods(client)

    assert seen.seen == ["1", "1", "1", "2"]
    assert source.began == 2


async def test_requests_without_valid_credentials_time_out(
    seen: Door, source: TokenSource
) -> None:
    loop = asyncio.get_running_loop()
    async with source.client(seen) as client:
        await asyncio.sleep(101)
        source.seconds = 10_000
        before = loop.time()
        with pytest.raises(
            TransportError, match=r"no credentials from .* within 330 s"
        ):
            await get_pods(client)

        assert loop.time() - before == 330

    assert seen.seen == []


async def test_failed_renewal_is_retried_after_ten_seconds(
    seen: Door, source: TokenSource, caplog: pytest.LogCaptureFixture
) -> None:
    async with source.client(seen) as client:
        await asyncio.sleep(81)
        source.failure = OptionsError("no network")
        await get_pods(client)
        await asyncio.sleep(1)
        await get_pods(client)
        assert source.began == 2
        assert (
            caplog.text.count(
                "credential renewal failed, using the old ones: no network"
            )
            == 1
        )

        source.failure = None
        await asyncio.sleep(10)
        await get_pods(client)
        await asyncio.sleep(1)
        await get_pods(client)

    assert seen.seen == ["1", "1", "1", "3"]


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(OSError(errno.EAGAIN, "can't start new thread"), id="no-thread"),
        pytest.param(OSError(errno.EACCES, "Permission denied"), id="os-error"),
        pytest.param(ZeroDivisionError("s3cr3t"), id="a-bug-of-the-source"),
        pytest.param(asyncio.CancelledError(), id="cancels-itself"),
    ],
)
async def test_any_exception_of_source_is_failed_renewal(
    seen: Door,
    source: TokenSource,
    failure: BaseException,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with source.client(seen) as client:
        source.failure = failure
        await asyncio.sleep(81)
        await get_pods(client)
        await asyncio.sleep(1)
        assert (
            "credential renewal failed, using the old ones: cannot get credentials"
            in caplog.text
        )

        await asyncio.sleep(30)
        with pytest.raises(TransportError, match="cannot get credentials") as caught:
            await get_pods(client)

    assert "s3cr3t" not in f"{caught.value} {caplog.text}"
    assert seen.seen == ["1"]


async def test_overlapping_401s_cause_one_renewal(
    seen: Door, source: TokenSource
) -> None:
    """Requests that get a 401 after a failed renewal do not start another one."""
    source.same = True
    seen.accepts = {"another"}
    async with source.client(seen) as client:
        late = client._endpoint.transport()._authenticator
        ticket = await late.current()
        with pytest.raises(Unauthorized):
            await get_pods(client)

        assert not await late.renew(ticket)
        assert source.began == 2

        source.failure = OptionsError("no network")
        ticket = await late.current()
        assert not await late.renew(ticket)
        assert not await late.renew(ticket)
        assert source.began == 3


async def test_close_cancels_renewal(seen: Door, source: TokenSource) -> None:
    loop = asyncio.get_running_loop()
    client = source.client(seen)
    await client.start()
    await asyncio.sleep(81)
    source.seconds = 10_000
    await get_pods(client)
    assert "credentials" in {task.get_name() for task in asyncio.all_tasks()}

    before = loop.time()
    await asyncio.gather(client.close(), client.close())

    assert loop.time() - before < 0.1
    assert "credentials" not in {task.get_name() for task in asyncio.all_tasks()}
    assert (source.began, source.ended) == (2, 1)


async def test_close_keeps_renewal_for_other_client(
    seen: Door, source: TokenSource
) -> None:
    config = ClientConfig(
        server=seen.url, credentials=Credentials(source=source.auth_info)
    )
    first, second = Client(config), Client(config)
    async with second:
        await first.start()
        await asyncio.sleep(101)
        source.seconds = 5
        asking = asyncio.create_task(get_pods(second))
        await asyncio.sleep(1)
        await first.close()
        await asking

    assert (source.began, source.ended) == (2, 2)


# ---------------------------------------------------------------- files and plugins


async def test_token_file_is_read_while_default_executor_is_busy(
    seen: Door, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    busy, pool = threading.Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    async with Client.from_url(seen.url, token_file=file) as client:
        file.write_text("second")
        await asyncio.sleep(61)
        pool.submit(busy.wait)
        try:
            async with asyncio.timeout(30):
                await get_pods(client)
        finally:
            busy.set()

    assert seen.seen == ["second"]


async def test_client_starts_without_threads_for_token_file(
    seen: Door,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thread reads the configuration, then no thread can be started for the token."""
    file = tmp_path / "token"
    file.write_text("first")
    original, refusing = threading.Thread.start, True

    def start(thread: threading.Thread) -> None:
        if refusing and reading.is_set():
            raise RuntimeError("can't start new thread")

        original(thread)

    def read() -> ClientConfig:
        reading.set()
        return ClientConfig(server=seen.url, credentials=Credentials(token_file=file))

    reading = threading.Event()
    monkeypatch.setattr(threading.Thread, "start", start)
    async with Client(read) as client:
        assert "can't start new thread" in caplog.text
        with pytest.raises(TransportError, match="can't start new thread"):
            await get_pods(client)

        refusing = False
        await get_pods(client)
        refusing = True
        await asyncio.sleep(61)
        await get_pods(client)
        assert "credential renewal failed, using the old ones" in caplog.text

    assert seen.seen == ["first", "first"]


async def test_full_temporary_folder_is_transient_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Starting the client and an informer both continue, and later requests work."""
    authority = Authority(tmp_path)
    certificate, key = authority.sign("me")
    full = True

    def folder(*arguments: object, **options: object) -> object:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")

        return original(*arguments, **options)  # type: ignore[call-overload]

    original = tempfile.TemporaryDirectory
    monkeypatch.setattr(tempfile, "TemporaryDirectory", folder)
    async with door(authority.sign("server"), authority.file) as seen:
        tls = TLSOptions(
            ca=authority.file,
            certificate=certificate.read_bytes(),
            key=key.read_bytes(),
        )
        async with Client(ClientConfig(server=seen.url, tls=tls)) as client:
            informer = SharedInformer(ListWatch(client, PODS))
            running = asyncio.create_task(informer.run())
            await asyncio.sleep(10)
            assert not running.done()
            assert "No space left on device" in caplog.text
            with pytest.raises(TransportError, match="No space left on device"):
                await get_pods(client)

            full = False
            await get_pods(client)
            running.cancel()
            await asyncio.wait({running})

    assert "me" in seen.seen


@pytest.mark.realtime
async def test_close_kills_renewing_exec_plugin(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = script(tmp_path / "plugin", printing({"token": "first"}))
    settings = {"apiVersion": V1, "command": str(command), "interactiveMode": "Never"}
    others = set(threading.enumerate())  # Those of earlier tests may still be ending.
    async with door() as seen:
        file = kubeconfig(tmp_path / "config", {"exec": settings}, {"server": seen.url})
        client = Client.from_kubeconfig(file)
        await client.start()
        script(command, f"echo $$ > {pid}.new; mv {pid}.new {pid}", "exec sleep 1000")
        seen.accepts = {"another"}
        asking = asyncio.create_task(get_pods(client))
        while not pid.exists():
            await asyncio.sleep(0.01)

        threads = [
            it
            for it in threading.enumerate()
            if it not in others and "aioinformer" in it.name
        ]
        asking.cancel()
        await asyncio.wait({asking})
        os.kill(int(pid.read_text()), 0)  # continues without the request

        await client.close()

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)

    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()

    assert len(threads) == 1
