"""`aioinformer webhooks`: the manifests of a program's webhooks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioinformer.cli.checks.rbac_rules import as_yaml
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import print_error, print_text
from aioinformer.errors import OptionsError
from aioinformer.webhooks import WebhookServer, webhook_manifests

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["WebhooksOptions", "print_manifests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhooksOptions:
    """Options of the command."""

    hooks: str
    """Place of the webhooks: `MODULE:NAME`."""

    service: str = ""
    """Service of the pods that serve them; empty with a URL."""

    namespace: str = ""
    """Namespace of the service."""

    url: str = ""
    """URL of the server, instead of a service."""

    port: int | None = None
    """Port of the service; None for 443."""

    ca_file: str | None = None
    """CA of the server's certificate, or None."""

    cert_manager: bool = False
    """True to let cert-manager make the certificate."""


async def print_manifests(options: WebhooksOptions) -> int:
    """Print the manifests, and return 0.

    Raises:
        CommandError: If the webhooks cannot be loaded, the file cannot be read, or an
            option is invalid.
    """
    _check_place(options)
    hooks = _load(options.hooks)
    module = options.hooks.partition(":")[0]
    try:
        documents = webhook_manifests(
            hooks,
            name=options.service or module.replace("_", "-").lower(),
            service=options.service,
            namespace=options.namespace,
            url=options.url,
            port=options.port or 443,
            ca=_read(options.ca_file),
            cert_manager=options.cert_manager,
        )
    except OptionsError as exc:
        raise CommandError(f"{exc}.") from exc

    print_text(as_yaml(documents).rstrip())
    plain = options.url.startswith("http:")
    if not (options.ca_file or options.cert_manager or plain):
        print_error(
            "the manifests have no caBundle, so an API server does not trust the "
            "webhooks: pass --ca-file or --cert-manager, or add it"
        )

    return 0


def _check_place(options: WebhooksOptions) -> None:
    """Reject options that do not name one place of the server."""
    if not (options.service or options.url):
        raise CommandError(
            "the manifests need the place of the webhooks: pass --service and -n, or --url."
        )

    if options.service and options.url:
        raise CommandError("--service cannot be combined with --url: omit one of them.")

    if options.service and not options.namespace:
        raise CommandError("--service needs its namespace: pass -n.")

    if options.url and (options.namespace or options.port is not None):
        name = "-n" if options.namespace else "--port"
        raise CommandError(
            f"{name} belongs to --service, and cannot be combined with --url: omit one "
            "of them."
        )


def _load(text: str) -> Iterable[Any]:
    """Return the webhooks of a module. As with `python -m`, it is found in this folder."""
    name, _, attribute = text.partition(":")
    if not name or not attribute:
        raise CommandError(
            f"{text}: expected MODULE:NAME, such as shop.webhooks:HOOKS, with a "
            "WebhookServer or its webhooks."
        )

    sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(name)
    except Exception as exc:
        reason = f"{type(exc).__name__}: {exc}"
        raise CommandError(f"cannot import {name}: {reason}.") from exc
    finally:
        sys.path.pop(0)

    found: Any = getattr(module, attribute, None)
    if found is None:
        raise CommandError(f"{name} has no {attribute}.")

    if isinstance(found, WebhookServer):
        return found.hooks

    return found if isinstance(found, list | tuple) else (found,)


def _read(path: str | None) -> bytes:
    if path is None:
        return b""

    try:
        content = Path(path).read_bytes()
    except OSError as exc:
        raise CommandError(f"--ca-file {path}: {exc.strerror}.") from exc

    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise CommandError(f"--ca-file {path}: it has no certificate in PEM format.")

    return content
