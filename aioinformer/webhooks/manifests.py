"""`webhook_manifests`: the objects that register webhooks in a cluster."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aioinformer.errors import OptionsError
from aioinformer.model.validation import is_subdomain
from aioinformer.webhooks.conversions import Conversion
from aioinformer.webhooks.hooks import AdmissionHook
from aioinformer.webhooks.reviews import hooks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.webhooks.reviews import Hook

__all__ = ["webhook_manifests"]

_ADMISSION = "admissionregistration.k8s.io/v1"
_LONGEST_LABEL = 63
_HIGHEST_PORT = 65535
_INJECT_CA = "cert-manager.io/inject-ca-from"


def webhook_manifests(
    hooks: Iterable[Hook] | Hook,
    *,
    name: str = "",
    service: str = "",
    namespace: str = "",
    port: int = 443,
    url: str = "",
    ca: bytes = b"",
    cert_manager: bool = False,
) -> list[dict[str, Any]]:
    """Return the objects that make an API server call webhooks.

    They are a ValidatingWebhookConfiguration and a MutatingWebhookConfiguration, and the
    part `spec.conversion` of each CRD with conversions, for a server-side apply.

    Args:
        hooks: Webhooks.
        name: Name of the configurations. Empty for that of the service.
        service: Service of the pods that serve the webhooks.
        namespace: Namespace of the service.
        port: Port of the service.
        url: URL of the server, instead of a service: for tests, or outside of the
            cluster.
        ca: Certificates of the CA that signed the server's certificate, as PEM. Empty if
            cert-manager or a later step adds them.
        cert_manager: True to let cert-manager create the certificate, in the Secret
            `SERVICE-tls`, and add the CA to all these objects.

    Raises:
        OptionsError: If the service or its namespace is missing or invalid, the port or
            URL is invalid, two webhooks have the same name, or arguments exclude each
            other.
    """
    found = hooks_of(hooks)
    if bool(url) == bool(service):
        raise OptionsError("webhook manifests need either a service or a url")

    if service and not all(map(_is_label, (service, namespace))):
        raise OptionsError(
            f"no Service can be named {service!r} in the namespace {namespace!r}"
        )

    if service and not 1 <= port <= _HIGHEST_PORT:
        raise OptionsError(f"the port of a service must be 1 to 65535, not {port}")

    if url and not _is_base_url(url):
        raise OptionsError(
            "the url of webhooks must be as https://host:port/path, without a user, a "
            "query or a fragment"
        )

    if cert_manager and (url or ca):
        raise OptionsError("cert-manager needs a service, and adds the CA itself")

    name = name or service
    if not is_subdomain(name):
        raise OptionsError(f"webhook manifests need a name, not {name!r}")

    def client(path: str) -> dict[str, Any]:
        where: dict[str, Any] = {"url": url.rstrip("/") + path}
        if service:
            place = {"name": service, "namespace": namespace}
            where = {"service": {**place, "path": path, "port": port}}

        return where | ({"caBundle": base64.b64encode(ca).decode()} if ca else {})

    documents = _issued(service, namespace) if cert_manager else []
    annotations = {_INJECT_CA: f"{namespace}/{service}"} if cert_manager else {}
    for mutates in (False, True):
        admissions = [
            _webhook(it, client(it.path))
            for it in found
            if isinstance(it, AdmissionHook) and it.mutates is mutates
        ]
        if admissions:
            kind = "Mutating" if mutates else "Validating"
            documents.append(
                {
                    "apiVersion": _ADMISSION,
                    "kind": f"{kind}WebhookConfiguration",
                    "metadata": _metadata(name, annotations),
                    "webhooks": admissions,
                }
            )

    converted = {str(it.resource): it for it in found if isinstance(it, Conversion)}
    documents += [
        _converted(crd, client(f"/convert/{crd}"), annotations) for crd in converted
    ]
    return documents


def _is_label(name: str) -> bool:
    """Return whether services and namespaces can have this name."""
    return is_subdomain(name) and "." not in name and len(name) <= _LONGEST_LABEL


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False

    rest = parts.query or parts.fragment or parts.username is not None
    is_http = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_http and not rest and port != 0


def _metadata(name: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    return {"name": name, **({"annotations": dict(annotations)} if annotations else {})}


def _webhook(hook: AdmissionHook, client: dict[str, Any]) -> dict[str, Any]:
    resource = hook.resource
    rule = {
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "operations": list(hook.operations),
        "resources": ["/".join(filter(None, (resource.plural, hook.subresource)))],
        "scope": "Namespaced" if resource.namespaced else "Cluster",
    }
    webhook: dict[str, Any] = {
        "name": hook.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "rules": [rule],
        "failurePolicy": hook.failure_policy,
        "matchPolicy": hook.match_policy,
        "sideEffects": hook.side_effects,
        "timeoutSeconds": int(hook.timeout_seconds),
    }
    if hook.namespace_selector is not None:
        webhook["namespaceSelector"] = dict(hook.namespace_selector)

    if hook.object_selector is not None:
        webhook["objectSelector"] = dict(hook.object_selector)

    if hook.match_conditions:
        webhook["matchConditions"] = [
            {"name": name, "expression": it}
            for name, it in hook.match_conditions.items()
        ]

    if hook.reinvoke:
        webhook["reinvocationPolicy"] = "IfNeeded"

    return webhook


def _converted(
    crd: str, client: dict[str, Any], annotations: Mapping[str, str]
) -> dict[str, Any]:
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": _metadata(crd, annotations),
        "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}},
    }


def _issued(service: str, namespace: str) -> list[dict[str, Any]]:
    """Return the issuer and the certificate for cert-manager."""
    metadata = {"name": service, "namespace": namespace}
    host = f"{service}.{namespace}.svc"
    version = "cert-manager.io/v1"
    issuer = {"kind": "Issuer", "name": service}
    return [
        {
            "apiVersion": version,
            "kind": "Issuer",
            "metadata": metadata,
            "spec": {"selfSigned": {}},
        },
        {
            "apiVersion": version,
            "kind": "Certificate",
            "metadata": dict(metadata),
            "spec": {
                "secretName": f"{service}-tls",
                "dnsNames": [host, f"{host}.cluster.local"],
                "issuerRef": issuer,
            },
        },
    ]
