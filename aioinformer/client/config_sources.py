"""Configuration sources of `Client`: functions that read files on each entry.

Each imports what it needs when it is called, so that `Client` imports fast.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioinformer.client.auth.credentials import Credentials
from aioinformer.client.auth.tls import TLSOptions
from aioinformer.client.config import ClientConfig, proxy_of_environment

if TYPE_CHECKING:
    from aioinformer.client.config import ConfigSource

__all__ = [
    "config_of_url",
    "source_of_environment",
    "source_of_kubeconfig",
    "source_of_kubernetes_asyncio",
    "source_of_pod",
]


def source_of_environment(context: str | None, *, gzip: bool) -> ConfigSource:
    """Return the source of `Client.from_env`."""

    def read() -> ClientConfig:
        from aioinformer.client.environment import load_from_environment

        return replace(load_from_environment(context), gzip=gzip)

    return read


def source_of_kubeconfig(
    path: str | Path | None, context: str | None, *, gzip: bool
) -> ConfigSource:
    """Return the source of `Client.from_kubeconfig`."""

    def read() -> ClientConfig:
        from aioinformer.client.kubeconfig import load_kubeconfig

        return replace(load_kubeconfig(path, context), gzip=gzip)

    return read


def source_of_pod(*, gzip: bool) -> ConfigSource:
    """Return the source of `Client.in_cluster`."""

    def read() -> ClientConfig:
        from aioinformer.client.environment import load_in_cluster

        return replace(load_in_cluster(), gzip=gzip)

    return read


def source_of_kubernetes_asyncio(client: Any, *, gzip: bool) -> ConfigSource:
    """Return the source of `Client.from_kubernetes_asyncio`."""

    def read() -> ClientConfig:
        from aioinformer.client import kubernetes_asyncio as bridge

        return replace(bridge.load_kubernetes_asyncio(client), gzip=gzip)

    return read


def config_of_url(
    url: str,
    *,
    token: str | None,
    token_file: str | Path | None,
    ca_file: str | Path | None,
    verify: bool,
    namespace: str,
    gzip: bool,
) -> ClientConfig:
    """Return the configuration of `Client.from_url`.

    Raises:
        OptionsError: If the URL or the token is malformed.
    """
    # Absolute: they are reread later, when the working directory may have changed.
    ca = Path(ca_file).absolute() if ca_file is not None else None
    file = Path(token_file).absolute() if token_file is not None else None
    return ClientConfig(
        server=url,
        namespace=namespace,
        credentials=Credentials(token=token or "", token_file=file),
        tls=TLSOptions(ca=ca, verify=verify),
        proxy=proxy_of_environment(url),
        gzip=gzip,
    )
