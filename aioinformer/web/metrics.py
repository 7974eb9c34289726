"""The metrics of a registry of prometheus-client, as Prometheus reads them."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError
from aioinformer.web.responses import HTTPResponse

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from aioinformer.web.responses import Responder

__all__ = ["exposition", "metrics_responders"]


def metrics_responders(
    registry: CollectorRegistry | None = None, *, path: str = "/metrics"
) -> dict[str, Responder]:
    """The route of the metrics, and what answers it.

    Args:
        registry: Whose metrics; None for prometheus-client's own, where a
            `PrometheusSink()` puts them.
        path: The route.

    Raises:
        OptionsError: prometheus-client is missing, or the path does not begin with a
            slash.
    """
    if not path.startswith("/"):
        raise OptionsError(f"the path {path!r} does not begin with a slash")

    _library("prometheus_client")  # now, and not when somebody asks
    return {path: partial(_exposition, registry)}


def exposition(
    registry: CollectorRegistry | None = None, accept: str = ""
) -> HTTPResponse:
    """All metrics of a registry, in the format that the header `Accept` prefers.

    A header that makes no sense is none.

    To be called in a thread: prometheus-client's own collectors read files.

    Raises:
        OptionsError: prometheus-client is missing.
    """
    if registry is None:
        registry = _library("prometheus_client").REGISTRY

    choose_encoder = _library("prometheus_client.exposition").choose_encoder
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # It fails for versions that are none, such as `version=abc`.
        encode, content_type = choose_encoder("")

    return HTTPResponse(200, encode(registry), content_type)


async def _exposition(registry: CollectorRegistry | None, accept: str) -> HTTPResponse:
    # In a thread: collectors read files, and text of many metrics takes its time.
    return await asyncio.to_thread(exposition, registry, accept)


def _library(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as exc:
        raise OptionsError(
            "metrics need prometheus-client: pip install 'aioinformer[metrics]'"
        ) from exc
