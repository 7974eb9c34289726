"""Metrics endpoint for Prometheus."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from aioinformer._extras import import_extra
from aioinformer.errors import OptionsError
from aioinformer.web.responses import HTTPResponse

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from aioinformer.web.responses import EndpointRequest, Responder

__all__ = ["exposition", "metrics_responders"]


def metrics_responders(
    registry: CollectorRegistry | None = None, *, path: str = "/metrics"
) -> dict[str, Responder]:
    """Return the responder of the metrics, by path.

    Args:
        registry: Registry to export. None for the default one of prometheus-client,
            which `PrometheusSink()` uses.
        path: Path of the endpoint.

    Raises:
        OptionsError: If prometheus-client is missing, or the path has no leading slash.
    """
    if not path.startswith("/"):
        raise OptionsError(f"the path {path!r} must begin with a slash")

    _library("prometheus_client")  # fail now, not at the first request
    return {path: partial(_exposition, registry)}


def exposition(
    registry: CollectorRegistry | None = None, accept: str = ""
) -> HTTPResponse:
    """Return all metrics of a registry, in the format of the `Accept` header.

    An invalid header is ignored. Call it in a thread: collectors of prometheus-client
    read files.

    Raises:
        OptionsError: If prometheus-client is missing.
    """
    if registry is None:
        registry = _library("prometheus_client").REGISTRY

    choose_encoder = _library("prometheus_client.exposition").choose_encoder
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # Raised for invalid versions, such as `version=abc`.
        encode, content_type = choose_encoder("")

    return HTTPResponse(200, encode(registry), content_type)


async def _exposition(
    registry: CollectorRegistry | None, request: EndpointRequest
) -> HTTPResponse:
    # Collectors read files, and many metrics take time to format.
    return await asyncio.to_thread(exposition, registry, request.accept)


def _library(module: str) -> Any:
    return import_extra(module, "metrics", "metrics need prometheus-client")
