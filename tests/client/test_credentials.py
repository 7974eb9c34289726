"""Renewal of tokens, and SSL contexts of certificates and keys."""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import shutil
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from canned import Certificates, make_certificates
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinformer.client import Credentials, TLSOptions
from aioinformer.client.auth.credentials import RETRY_SECONDS, AuthInfo
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")

    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def header(credentials: Credentials) -> str:
    return (await credentials.auth_info()).authorization


def written(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


# ---------------------------------------------------------------- credentials


async def test_anonymous_credentials_have_no_header() -> None:
    credentials = Credentials()

    assert await credentials.auth_info() == AuthInfo()
    assert not await credentials.invalidate(AuthInfo())


async def test_basic_credentials_are_base64_encoded() -> None:
    info = await Credentials(username="me", password="pw").auth_info()

    assert info.authorization == "Basic " + base64.b64encode(b"me:pw").decode()


@pytest.mark.parametrize("token", ["a b", "a\nb", "a\x00b", "päss"])
def test_credentials_reject_token_invalid_in_header(token: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Credentials(token=token)

    assert token not in str(caught.value)


@pytest.mark.realtime
def test_credentials_work_in_one_loop_after_another(tmp_path: Path) -> None:
    """Concurrent waits for one read would bind a lock to the loop."""
    file = written(tmp_path / "token", "first")
    credentials = Credentials(token_file=file)

    async def headers() -> set[str]:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(header(credentials)) for _ in range(5)]

        return {await task for task in calls}

    seen = [asyncio.run(headers())]
    written(file, "second")
    seen.append(asyncio.run(headers()))

    assert seen == [{"Bearer first"}, {"Bearer second"}]


async def test_token_file_is_reread_after_a_minute(tmp_path: Path) -> None:
    file = written(tmp_path / "token", "first\n")
    credentials = Credentials(token_file=file)
    seen = [await header(credentials)]

    written(file, "second")
    await asyncio.sleep(59)
    seen.append(await header(credentials))
    await asyncio.sleep(2)
    seen.append(await header(credentials))

    assert seen == ["Bearer first", "Bearer first", "Bearer second"]


@pytest.mark.parametrize("broken", [None, " \n", "a b"])
async def test_last_token_is_kept_while_file_is_broken(
    tmp_path: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path / "token", "first")
    credentials = Credentials(token_file=file)
    await credentials.auth_info()

    file.unlink()
    if broken is not None:
        written(file, broken)

    await asyncio.sleep(61)
    with caplog.at_level(logging.WARNING):
        assert await header(credentials) == "Bearer first"

    assert str(file) in caplog.text
    assert "first" not in caplog.text


@pytest.mark.parametrize("content", [None, "", "\n"])
async def test_first_read_without_token_raises_options_error(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        written(file, content)

    with pytest.raises(OptionsError, match=f"cannot read a token from {file}"):
        await Credentials(token_file=file).auth_info()


async def test_token_file_is_reread_after_401(tmp_path: Path) -> None:
    file = written(tmp_path / "token", "first")
    credentials = Credentials(token_file=file)
    refused = await credentials.auth_info()
    written(file, "second")

    assert await credentials.invalidate(refused)
    assert await header(credentials) == "Bearer second"


async def test_invalidate_returns_false_for_unchanged_token_file(
    tmp_path: Path,
) -> None:
    credentials = Credentials(token_file=written(tmp_path / "token", "first"))

    assert not await credentials.invalidate(await credentials.auth_info())


async def test_concurrent_invalidations_reread_token_file_once(tmp_path: Path) -> None:
    file = written(tmp_path / "token", "first")
    credentials = Credentials(token_file=file)
    refused = await credentials.auth_info()
    written(file, "second")
    first = asyncio.create_task(credentials.invalidate(refused))
    others = [asyncio.create_task(credentials.invalidate(refused)) for _ in range(9)]

    assert await first
    written(file, "third")  # another read would return this one
    assert all([await other for other in others])
    assert await header(credentials) == "Bearer second"


# ---------------------------------------------------------------- a source


class TokenSource:
    """Source of the tokens `1`, `2`, ...; raises `failure` if it is set."""

    def __init__(self, fresh: float = math.inf, valid: float = math.inf) -> None:
        self.given = 0
        self.failure = ""
        self._fresh, self._valid = fresh, valid

    async def auth_info(self) -> AuthInfo:
        await asyncio.sleep(1)
        if self.failure:
            self.given += 1
            raise OptionsError(self.failure)

        self.given += 1
        return AuthInfo(
            authorization=f"{self.given}",
            fresh_seconds=self._fresh,
            valid_seconds=self._valid,
        )


async def ten_headers(credentials: Credentials) -> set[str]:
    """Return ten concurrent results: headers, or the names of errors."""

    async def ask() -> str:
        try:
            return await header(credentials)
        except OptionsError as exc:
            return str(exc)

    return set(await asyncio.gather(*(ask() for _ in range(10))))


async def test_concurrent_requests_share_renewal_before_expiry() -> None:
    mint = TokenSource(fresh=80, valid=100)
    credentials = Credentials(source=mint.auth_info)

    seen = [await ten_headers(credentials)]
    await asyncio.sleep(79)
    seen.append(await ten_headers(credentials))
    await asyncio.sleep(2)
    seen.append(await ten_headers(credentials))

    assert seen == [{"1"}, {"1"}, {"2"}]


async def test_valid_credentials_stay_in_use_while_source_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mint = TokenSource(fresh=80, valid=100)
    credentials = Credentials(source=mint.auth_info)
    await credentials.auth_info()
    mint.failure = "no network"

    await asyncio.sleep(81)
    seen = [await ten_headers(credentials), await ten_headers(credentials)]
    assert mint.given == 2  # the next attempt is 10 s later
    assert (
        caplog.text.count("credential renewal failed, using the old ones: no network")
        == 1
    )

    await asyncio.sleep(20)
    seen.append(await ten_headers(credentials))
    assert mint.given == 3  # all of them share one failure

    mint.failure = ""
    seen.append(await ten_headers(credentials))
    assert seen == [{"1"}, {"1"}, {"no network"}, {"4"}]


async def test_concurrent_invalidations_call_source_once() -> None:
    mint = TokenSource()
    credentials = Credentials(source=mint.auth_info)
    refused = await credentials.auth_info()

    calls = (credentials.invalidate(refused) for _ in range(10))
    assert set(await asyncio.gather(*calls)) == {True}
    assert await header(credentials) == "2"


async def test_failed_renewal_after_401_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mint = TokenSource()
    credentials = Credentials(source=mint.auth_info)
    refused = await credentials.auth_info()
    mint.failure = "no network"

    calls = (credentials.invalidate(refused) for _ in range(10))
    assert set(await asyncio.gather(*calls)) == {False}
    assert mint.given == 2
    assert "no network" in caplog.text


async def test_cancelled_request_does_not_cancel_renewal_of_others() -> None:
    mint = TokenSource()
    credentials = Credentials(source=mint.auth_info)
    first = asyncio.create_task(credentials.auth_info())
    second = asyncio.create_task(header(credentials))
    await asyncio.sleep(0.5)
    first.cancel()

    assert await second == "1"
    assert first.cancelled()


# ---------------------------------------------------------------- TLS options


def test_ssl_context_trusts_only_given_authority(certificates: Certificates) -> None:
    comment = "# une autorité\n".encode()
    for ca in (certificates.ca, comment + certificates.ca.read_bytes()):
        context = TLSOptions(ca=ca).context()

        assert context.cert_store_stats()["x509_ca"] == 1
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname


def test_ssl_context_without_verification_accepts_any_certificate(
    certificates: Certificates,
) -> None:
    context = TLSOptions(ca=certificates.ca, verify=False).context()

    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(None, "No such file", id="absent"),
        pytest.param("", "is empty", id="empty"),
        pytest.param("not PEM", "readable file", id="no-pem"),
    ],
)
def test_error_names_authority_file(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        written(file, content)

    with pytest.raises(OptionsError, match=complaint) as caught:
        TLSOptions(ca=file).context()

    assert str(file) in str(caught.value)


def test_client_certificate_is_loaded_from_files_or_data(
    certificates: Certificates,
) -> None:
    TLSOptions(certificate=certificates.client, key=certificates.client_key).context()
    TLSOptions(
        certificate=certificates.client.read_bytes(),
        key=certificates.client_key.read_bytes(),
    ).context()


def test_error_names_key_of_other_certificate(
    certificates: Certificates,
) -> None:
    options = TLSOptions(certificate=certificates.client, key=certificates.server_key)

    with pytest.raises(OptionsError, match=r"client\.crt.*server\.key"):
        options.context()


def test_encrypted_key_raises_instead_of_prompting(certificates: Certificates) -> None:
    options = TLSOptions(certificate=certificates.client, key=certificates.locked_key)

    with pytest.raises(OptionsError, match="no passphrase"):
        options.context()


def test_certificate_without_key_raises_options_error(
    certificates: Certificates,
) -> None:
    with pytest.raises(
        OptionsError, match="certificate and key must be passed together"
    ):
        TLSOptions(certificate=certificates.client)


# Seconds for which credentials of the source are fresh, and valid.
FRESH, VALID = 80.0, 100.0


# A pause in seconds, or an action.
STEPS = st.one_of(
    st.sampled_from([1.0, 9.0, 11.0, 79.0, 81.0, 101.0]),
    st.sampled_from(["ask", "refuse", "refuse an old one", "break", "mend"]),
)


@dataclass
class RenewalModel:
    """A source, and the state that it should lead to."""

    broken: bool = False
    failed: bool = False
    called_at: list[float] = field(default_factory=list)
    returned_at: list[float] = field(default_factory=list)

    async def auth_info(self) -> AuthInfo:
        now = asyncio.get_running_loop().time()
        self.called_at.append(now)
        self.failed = self.broken
        if self.broken:
            raise OptionsError("broken")

        self.returned_at.append(now)
        return AuthInfo(
            authorization=str(len(self.returned_at)),
            fresh_seconds=FRESH,
            valid_seconds=VALID,
        )

    def age(self) -> float:
        """Return the age of the newest credentials in seconds."""
        now = asyncio.get_running_loop().time()
        return now - self.returned_at[-1] if self.returned_at else float("inf")

    async def ask(self, credentials: Credentials) -> AuthInfo | None:
        age, calls, failed = self.age(), len(self.called_at), self.failed
        tried = self.called_at[-1] if self.called_at else -float("inf")
        now = asyncio.get_running_loop().time()
        try:
            info = await credentials.auth_info()
        except OptionsError:
            assert self.broken
            assert age >= VALID
            return None

        renewed = len(self.called_at) - calls
        assert info.authorization == str(len(self.returned_at)), "not the newest"
        assert self.age() < VALID, "used when it was not valid any more"
        assert renewed <= 1
        if age < FRESH and not failed:
            assert not renewed, "renewed before it was time"

        if age >= FRESH and now - tried >= RETRY_SECONDS:
            assert renewed, "not renewed when it was time"

        return info

    async def refuse(self, credentials: Credentials, refused: RefusedInfo) -> None:
        newest, calls = str(len(self.returned_at)), len(self.called_at)
        better = await credentials.invalidate(refused.info)
        renewed = len(self.called_at) - calls
        assert renewed == (refused.calls == calls), (
            "renewed without need, or not renewed"
        )
        newer = refused.info.authorization != newest
        assert better == (newer or (renewed and not self.broken))


@dataclass(frozen=True)
class RefusedInfo:
    """Refused credentials, and the number of source calls before them."""

    info: AuthInfo
    calls: int


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=30))
async def test_any_sequence_of_renewals_returns_newest_valid_credentials(
    steps: list[float | str],
) -> None:
    world = RenewalModel()
    credentials = Credentials(source=world.auth_info)
    seen: list[RefusedInfo] = []
    for step in steps:
        match step:
            case "ask":
                info = await world.ask(credentials)
                given = len(world.called_at)
                seen += [RefusedInfo(info, given)] if info is not None else []
            case "refuse" if seen:
                await world.refuse(credentials, seen[-1])
            case "refuse an old one" if seen:
                await world.refuse(credentials, seen[0])
            case "break" | "mend":
                world.broken = step == "break"
            case float():
                await asyncio.sleep(step)
            case _:
                pass  # no credentials yet that could be refused
