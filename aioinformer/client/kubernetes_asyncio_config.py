"""The configuration of a client of kubernetes_asyncio, as one of ours.

Nothing of that library is imported here: who has one of its objects has loaded it. Of
`kubernetes.aio` everything here holds as well.
"""

from __future__ import annotations

import inspect
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioinformer.client.config import ClientConfig
from aioinformer.client.credentials import Credentials
from aioinformer.client.proof import Proof
from aioinformer.client.proxies import proxy_of_environment
from aioinformer.client.tls import TLSOptions
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["load_kubernetes_asyncio"]

# Those that the library sets for itself, and that ours are in place of.
_OWN_HEADERS = {"accept", "authorization", "content-type", "user-agent"}

# How long requests wait for a hook, while there is a key from before.
_HOOK_SECONDS = 5.0


def load_kubernetes_asyncio(client: Any) -> ClientConfig:
    """Take over server, TLS, proxy and credentials, and the default headers.

    Args:
        client: An `ApiClient`, or a `Configuration`. Its `refresh_api_key_hook` is
            called before each request, on the event loop, as the library does.

    Raises:
        OptionsError: If it is neither, or what it says cannot work.
    """
    configuration = getattr(client, "configuration", client)
    if not hasattr(configuration, "auth_settings") or not hasattr(
        configuration, "host"
    ):
        raise OptionsError(
            "an ApiClient or a Configuration of kubernetes_asyncio is needed, not "
            f"{type(client).__name__}"
        )

    host = configuration.host
    headers: Mapping[str, str] = getattr(client, "default_headers", None) or {}
    return ClientConfig(
        server=host,
        credentials=Credentials(source=_Settings(configuration, headers).proof),
        tls=_tls(configuration),
        proxy=configuration.proxy or proxy_of_environment(host),
        headers=tuple(
            (name, value)
            for name, value in headers.items()
            if name.lower() not in _OWN_HEADERS
        ),
    )


class _Settings:
    """What the library would put into the Authorization header."""

    def __init__(self, configuration: Any, headers: Mapping[str, str]) -> None:
        self._configuration = configuration
        given = {name.lower(): value for name, value in headers.items()}
        self._given = given.get("authorization", "")

    async def proof(self) -> Proof:
        try:
            settings = self._configuration.auth_settings()
            settings = await settings if inspect.isawaitable(settings) else settings
        except Exception as exc:  # noqa: BLE001 - the user's hook
            # Not chained, and without its words: they may quote what they refuse.
            raise OptionsError(
                f"the refresh_api_key_hook of {self} failed with {type(exc).__name__}"
            ) from None

        values = [str(each["value"] or "") for each in settings.values()]
        header = next((value for value in values if value), self._given).strip()
        if not header.isprintable():
            raise OptionsError(f"the api_key of {self} has a line break or the like")

        # Asked each time: the hook knows when there is something to do, and others write
        # a new key into the configuration.
        return Proof(
            authorization=header, fresh_seconds=0.0, wait_seconds=_HOOK_SECONDS
        )

    def __repr__(self) -> str:
        return f"the configuration of {self._configuration.host}"


def _tls(configuration: Any) -> TLSOptions:
    ca: bytes | Path | None = None
    data = getattr(configuration, "ca_cert_data", None)
    if configuration.ssl_ca_cert:
        ca = Path(configuration.ssl_ca_cert)
    elif data:
        # As bytes it is DER.
        text = data if isinstance(data, str) else ssl.DER_cert_to_PEM_cert(data)
        ca = text.encode()

    certificate, key = configuration.cert_file, configuration.key_file
    return TLSOptions(
        ca=ca,
        certificate=Path(certificate) if certificate else None,
        # One file may hold both.
        key=Path(key or certificate) if certificate else None,
        server_name=configuration.tls_server_name or "",
        verify=bool(configuration.verify_ssl),
    )
