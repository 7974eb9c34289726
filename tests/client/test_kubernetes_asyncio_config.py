"""`Client.from_kubernetes_asyncio`: settings copied from clients of that library."""

from __future__ import annotations

import ssl
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from credential_helpers import Authority, door
from kubernetes_asyncio_helpers import LIBRARIES

from aioinformer.client import Client
from aioinformer.client.kubernetes_asyncio import load_kubernetes_asyncio
from aioinformer.errors import OptionsError, TransportError, Unauthorized
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "s3cr3t-t0ken"


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return import_module(f"{request.param}.client")


def configuration(library: Any, url: str, **settings: Any) -> Any:
    found = library.Configuration(host=url)
    for name, value in settings.items():
        setattr(found, name, value)

    return found


def keys(token: str) -> dict[str, Any]:
    return {
        "api_key": {"BearerToken": token},
        "api_key_prefix": {"BearerToken": "Bearer"},
    }


async def get_pods(client: Client) -> None:
    assert (await client.get(PODS, "a", namespace="x")).key == "x/a"


async def test_client_uses_token_of_configuration(library: Any) -> None:
    async with door() as seen:
        theirs = configuration(library, seen.url, **keys(TOKEN))
        async with Client.from_kubernetes_asyncio(theirs) as client:
            await get_pods(client)
            # As the token helpers of the library do.
            theirs.api_key["BearerToken"] = "another"
            await get_pods(client)

    assert seen.seen == [TOKEN, "another"]


async def test_client_uses_token_and_headers_of_api_client(library: Any) -> None:
    async with door() as seen:
        theirs = configuration(library, seen.url, **keys(TOKEN))
        async with library.ApiClient(theirs) as api:
            api.set_default_header("Impersonate-User", "jane")
            client = Client.from_kubernetes_asyncio(api)

        # That client is closed. Ours has its own connections.
        async with client:
            await get_pods(client)

    (headers,) = seen.headers
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Impersonate-User"] == "jane"
    assert headers["User-Agent"].startswith("aioinformer/")


async def test_client_uses_authorization_header_of_api_client(library: Any) -> None:
    async with (
        door() as seen,
        library.ApiClient(
            configuration(library, seen.url), "authorization", f"Bearer {TOKEN}"
        ) as api,
        Client.from_kubernetes_asyncio(api) as client,
    ):
        await get_pods(client)

    assert seen.seen == [TOKEN]
    assert len(seen.headers[0].getall("Authorization")) == 1


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "coroutine"])
async def test_client_calls_refresh_hook_before_each_request(
    library: Any, plain: bool
) -> None:
    calls: list[Any] = []

    def renew(theirs: Any) -> None:
        calls.append(theirs)
        token = "old" if len(calls) <= 3 else "new"
        theirs.api_key = {"BearerToken": f"Bearer {token}"}

    async def renew_slowly(theirs: Any) -> None:
        renew(theirs)

    async with door() as seen:
        theirs = configuration(
            library,
            seen.url,
            api_key={"BearerToken": ""},
            refresh_api_key_hook=renew if plain else renew_slowly,
        )
        async with Client.from_kubernetes_asyncio(theirs) as client:
            await get_pods(client)
            seen.accepts = {"new"}
            await get_pods(client)  # refused, and the hook called once more
            seen.accepts = {"other"}
            with pytest.raises(Unauthorized):
                await get_pods(client)

    assert seen.seen == ["old", "old", "new", "new"]


async def test_failing_refresh_hook_shows_no_secret(
    library: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError(f"refused {TOKEN}")

    async with door() as seen:
        theirs = configuration(
            library,
            seen.url,
            api_key={"BearerToken": TOKEN},
            refresh_api_key_hook=fail,
        )
        with pytest.raises(OptionsError) as caught:
            await Client.from_kubernetes_asyncio(theirs).start()

        theirs.refresh_api_key_hook = None
        async with Client.from_kubernetes_asyncio(theirs) as client:
            theirs.refresh_api_key_hook = fail
            await get_pods(client)

    assert "refresh_api_key_hook" in str(caught.value)
    assert "RuntimeError" in str(caught.value)
    assert "credential renewal failed, using the old ones" in caplog.text
    assert TOKEN not in f"{caught.value!r} {caplog.text} {client!r} {client.config!r}"


@pytest.mark.parametrize("form", ["file", "text", "bytes"])
async def test_client_uses_certificates_and_server_name(
    library: Any, tmp_path: Path, form: str
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("me")
    text = authority.file.read_text()
    forms: dict[str, dict[str, Any]] = {
        "file": {"ssl_ca_cert": str(authority.file)},
        "text": {"ca_cert_data": text},
        "bytes": {"ca_cert_data": ssl.PEM_cert_to_DER_cert(text)},
    }
    async with door(authority.sign("server"), authority.file) as seen:
        theirs = configuration(
            library,
            seen.url,
            cert_file=str(certificate),
            key_file=str(key),
            **forms[form],
        )
        async with Client.from_kubernetes_asyncio(theirs) as client:
            await get_pods(client)

        theirs.tls_server_name = "other.test"
        async with Client.from_kubernetes_asyncio(theirs) as client:
            with pytest.raises(TransportError, match="tls-server-name"):
                await get_pods(client)

    assert seen.seen == ["me"]


async def test_client_verifies_tls_unless_disabled_with_warning(
    library: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    async with door(authority.sign("server")) as seen:
        theirs = configuration(library, seen.url)
        async with Client.from_kubernetes_asyncio(theirs) as client:
            with pytest.raises(TransportError, match="cannot be verified"):
                await get_pods(client)

        assert not caplog.records
        theirs.verify_ssl = False
        async with Client.from_kubernetes_asyncio(theirs) as client:
            await get_pods(client)

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "TLS verification" in caplog.text


def test_client_uses_proxy_of_configuration(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment.example:1")
    theirs = configuration(library, "https://api.example/k8s/")

    found = load_kubernetes_asyncio(theirs)
    assert found.server == "https://api.example/k8s"
    assert found.proxy == "http://environment.example:1"

    theirs.proxy = "http://own.example:1"
    assert load_kubernetes_asyncio(theirs).proxy == "http://own.example:1"


@pytest.mark.parametrize("wrong", [None, "https://api.example", object()], ids=type)
async def test_object_that_is_no_client_or_configuration_is_rejected(
    wrong: Any,
) -> None:
    with pytest.raises(OptionsError, match="ApiClient or a Configuration"):
        await Client.from_kubernetes_asyncio(wrong).start()


async def test_api_key_invalid_in_header_is_rejected(library: Any) -> None:
    """A line break at the end, as read from a token file, is removed."""
    async with door() as seen:
        theirs = configuration(
            library, seen.url, api_key={"BearerToken": f"Bearer {TOKEN}\n"}
        )
        async with Client.from_kubernetes_asyncio(theirs) as client:
            await get_pods(client)

        theirs.api_key = {"BearerToken": f"Bearer {TOKEN}\nX: y"}
        with pytest.raises(OptionsError, match="control character") as caught:
            await Client.from_kubernetes_asyncio(theirs).start()

    assert seen.seen == [TOKEN]
    assert TOKEN not in str(caught.value)
