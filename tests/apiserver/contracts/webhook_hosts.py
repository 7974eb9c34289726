"""A webhook server for the contract tests, and configurations that call it."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from api_calls import ask, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import aiohttp
    from canned import Certificates
    from contract_servers import ServerUnderTest

    Reply = Callable[[dict[str, Any]], dict[str, Any] | web.Response]

__all__ = ["HookServer", "a_hook_server", "allow", "configured", "deny", "patching"]

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
PROBE = "/probe"
_ACTIVE_SECONDS = 10.0


def allow(request: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a review that allows a request."""
    return _review(request, {"allowed": True, **fields})


def deny(request: dict[str, Any], **status: Any) -> dict[str, Any]:
    """Return a review that rejects a request with a status; none if it is empty."""
    return _review(
        request, {"allowed": False, **({"status": status} if status else {})}
    )


def patching(*operations: dict[str, Any]) -> Reply:
    """Return a handler that patches every object."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda request: allow(request, patch=patch, patchType="JSONPatch")


def _review(request: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": request["uid"], **response},
    }


@dataclass(slots=True)
class HookServer:
    """HTTPS server for webhooks. Its handlers are chosen by path; others allow all."""

    url: str
    ca: bytes
    handlers: dict[str, Reply] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Path and `request` of each review, except probes."""

    probes: int = 0
    delays: dict[str, float] = field(default_factory=dict)
    """Seconds before each answer, by path."""

    @property
    def requests(self) -> list[dict[str, Any]]:
        """All requests so far, in the order of their arrival."""
        return [request for _, request in self.calls]

    @property
    def paths(self) -> list[str]:
        """Paths of all requests so far."""
        return [path for path, _ in self.calls]

    def config(self, path: str = "/hook") -> dict[str, Any]:
        """Return a `clientConfig` for a path."""
        ca = base64.b64encode(self.ca).decode()
        return {"url": f"{self.url}{path}", "caBundle": ca}

    async def respond(self, incoming: web.Request) -> web.Response:
        """Handle one review."""
        request = (await incoming.json())["request"]
        if incoming.path == PROBE:
            self.probes += 1
            return web.json_response(allow(request))

        self.calls.append((incoming.path, request))
        await asyncio.sleep(self.delays.get(incoming.path, 0))
        reply = self.handlers.get(incoming.path, allow)(request)
        return reply if isinstance(reply, web.Response) else web.json_response(reply)


@asynccontextmanager
async def a_hook_server(files: Certificates) -> AsyncIterator[HookServer]:
    """Run a webhook server with a certificate for 127.0.0.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)
    app = web.Application()
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    hooks = HookServer(url="", ca=files.ca.read_bytes())
    app.router.add_post("/{tail:.*}", hooks.respond)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        hooks.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield hooks
    finally:
        await runner.cleanup()


@asynccontextmanager
async def configured(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    *webhooks: dict[str, Any],
    kind: str = "Validating",
    name: str = "",
    plural: str = "configmaps",
    group: str = "",
) -> AsyncIterator[str]:
    """Configure webhooks for the namespace of this test, and wait until they are used.

    Args:
        target: Server under test.
        http: Session of the administrator.
        hooks: Server of the webhooks.
        webhooks: Fields of each webhook, besides usual ones.
        kind: `Validating` or `Mutating`.
        name: Name of the configuration; empty for a random one.
        plural: Resource of the usual rule.
        group: API group of the usual rule.
    """
    chosen = name or f"c{secrets.token_hex(5)}"
    here = {"matchLabels": {"kubernetes.io/metadata.name": target.namespace}}
    usual = {
        "clientConfig": hooks.config(),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "namespaceSelector": here,
        "rules": [a_rule(plural, group=group)],
    }
    probe = {
        **usual,
        "name": "probe.example.com",
        "clientConfig": hooks.config(PROBE),
        "rules": [a_rule("leases", group="coordination.k8s.io")],
    }
    made = [
        {**usual, "name": f"hook-{number}.example.com", **it}
        for number, it in enumerate(webhooks)
    ]
    path = f"{REGISTRATION}/{kind.lower()}webhookconfigurations"
    code, answer = await ask(http, "POST", path, named(chosen, webhooks=[*made, probe]))
    assert code == 201, answer
    try:
        await _wait_until_active(target, http, hooks)
        yield chosen
    finally:
        code, _ = await ask(http, "DELETE", f"{path}/{chosen}")
        assert code == 200


def a_rule(
    plural: str, *operations: str, group: str = "", **fields: Any
) -> dict[str, Any]:
    """Return a rule for a resource; without operations for all."""
    return {
        "operations": list(operations) or ["*"],
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": [plural],
        **fields,
    }


async def _wait_until_active(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    leases = target.path("leases", "apis/coordination.k8s.io/v1")
    before = hooks.probes
    async with asyncio.timeout(_ACTIVE_SECONDS):
        while hooks.probes == before:
            code, answer = await ask(http, "POST", leases, named("x"), dryRun="All")
            assert code == 201, answer
            if hooks.probes == before:
                await asyncio.sleep(0.05)
