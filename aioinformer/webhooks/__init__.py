"""Admission and conversion webhooks: functions that the API server calls.

    hooks           `validating` and `mutating`, which decorate functions
    conversions     `conversion`, between the versions of a custom resource
    server, asgi    `WebhookServer`, and routes for apps of any framework
    manifests       `webhook_manifests`, which register the functions in a cluster
    reviews         reviews and responses as bytes, with timeouts and metrics
    certificates    TLS files that are loaded again when they change
    json_diff       JSON patches between two objects

Only the versions v1 of `admission.k8s.io` and `apiextensions.k8s.io` are supported, which
every Kubernetes since 1.16 has.
"""

from aioinformer.webhooks.asgi import WebhookApp, webhook_app
from aioinformer.webhooks.conversions import Conversion, conversion
from aioinformer.webhooks.hooks import (
    AdmissionHook,
    AdmissionRequest,
    AdmissionResponse,
    Denied,
    mutating,
    validating,
)
from aioinformer.webhooks.manifests import webhook_manifests
from aioinformer.webhooks.server import WebhookServer, webhook_routes

__all__ = [
    "AdmissionHook",
    "AdmissionRequest",
    "AdmissionResponse",
    "Conversion",
    "Denied",
    "WebhookApp",
    "WebhookServer",
    "conversion",
    "mutating",
    "validating",
    "webhook_app",
    "webhook_manifests",
    "webhook_routes",
]
