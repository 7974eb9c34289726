"""A webhook server with a certificate, registered in an API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from aioinformer.webhooks import WebhookServer, webhook_manifests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import aiohttp
    from credential_helpers import Authority

__all__ = ["CONFIGURATIONS", "Counts", "registered", "running"]

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Counts:
    """A sink that counts the results of each webhook."""

    enabled = True

    def __init__(self) -> None:
        self.results: Counter[tuple[str, str]] = Counter()
        self.durations: Counter[str] = Counter()
        self.errors = 0

    def count(self, name: str, amount: float = 1.0, /, **labels: str) -> None:
        if name == "aioinformer_webhook_requests_total":
            self.results[labels["webhook"], labels["result"]] += int(amount)
        else:
            assert name == "aioinformer_user_errors_total"
            self.errors += 1

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        raise AssertionError(name)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        assert name == "aioinformer_webhook_duration_seconds"
        assert value >= 0
        self.durations[labels["webhook"]] += 1

    def called(self, webhook: str) -> bool:
        return any(name == webhook for name, _ in self.results)


@contextlib.asynccontextmanager
async def running(server: WebhookServer) -> AsyncIterator[asyncio.Task[Any]]:
    """Run a server during the block, from its first connection on."""
    task = asyncio.create_task(server.run())
    try:
        while server.why_not_serving():
            await asyncio.sleep(0.01)
            if task.done():
                task.result()

        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextlib.asynccontextmanager
async def registered(
    http: aiohttp.ClientSession,
    hooks: Sequence[Any],
    authority: Authority,
    name: str,
    probe: str,
) -> AsyncIterator[tuple[WebhookServer, Counts, asyncio.Task[Any]]]:
    """Run and register webhooks, and wait until the API server calls each.

    Args:
        http: Session of the administrator.
        hooks: Webhooks of config maps, or conversions.
        authority: CA of the certificate.
        name: Name of the configurations.
        probe: Path of a collection of config maps that the webhooks are called for.
    """
    certfile, keyfile = authority.sign("webhook")
    counts = Counts()
    server = WebhookServer(
        hooks,
        port=0,
        host="127.0.0.1",
        certfile=certfile,
        keyfile=keyfile,
        metrics=counts,
    )
    paths: list[str] = []
    async with running(server) as task:
        url, ca = f"https://127.0.0.1:{server.port}", authority.file.read_bytes()
        try:
            bodies = webhook_manifests(hooks, name=name, url=url, ca=ca)
            paths += [await _apply(http, body) for body in bodies]

            for hook in hooks:
                while hasattr(hook, "name") and not counts.called(hook.name):
                    await _dry_run(http, probe)
                    await asyncio.sleep(0.1)

            yield server, counts, task
        finally:
            for path in filter(None, paths):
                async with http.delete(path) as answer:
                    assert answer.status == 200, await answer.text()


async def _apply(http: aiohttp.ClientSession, body: dict[str, Any]) -> str:
    """Create a configuration and return its path, or patch a CRD."""
    if body["kind"] == "CustomResourceDefinition":
        path = f"{_CRDS}/{body['metadata']['name']}"
        kind = {"Content-Type": "application/apply-patch+yaml"}
        query = {"fieldManager": "webhooks"}
        async with http.patch(path, json=body, headers=kind, params=query) as answer:
            assert answer.status == 200, await answer.text()

        return ""

    path = f"{CONFIGURATIONS}/{body['kind'].lower()}s"
    query = {"fieldValidation": "Strict"}
    async with http.post(path, json=body, params=query) as answer:
        assert answer.status == 201, await answer.text()

    return f"{path}/{body['metadata']['name']}"


async def _dry_run(http: aiohttp.ClientSession, probe: str) -> None:
    body = {"metadata": {"generateName": "probe-"}}
    async with http.post(probe, json=body, params={"dryRun": "All"}) as answer:
        await answer.read()
