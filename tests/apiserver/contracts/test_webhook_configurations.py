"""Webhook configurations: defaults and validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api_calls import change, make, named, remove
from test_admission_webhooks import hooks  # noqa: F401 - a fixture
from webhook_hosts import REGISTRATION, a_rule

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


async def test_configuration_gets_defaults(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    name = f"{target.namespace}-defaults"
    hook = {
        "name": "a.example.com",
        "clientConfig": {"service": {"namespace": "n", "name": "s"}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [a_rule("configmaps", "CREATE")],
    }
    for kind, more in (
        ("mutating", {"reinvocationPolicy": "Never"}),
        ("validating", {}),
    ):
        path = f"{REGISTRATION}/{kind}webhookconfigurations"
        made = await make(http, path, named(name, webhooks=[{**hook, "rules": []}]))
        assert made["metadata"]["generation"] == 1
        stored = await change(http, f"{path}/{name}", {"webhooks": [hook]})
        await remove(http, f"{path}/{name}")
        assert stored["metadata"]["generation"] == 2
        assert stored["webhooks"] == [
            {
                "name": "a.example.com",
                "clientConfig": {
                    "service": {"namespace": "n", "name": "s", "port": 443}
                },
                "rules": [{**a_rule("configmaps", "CREATE"), "scope": "*"}],
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "sideEffects": "None",
                "timeoutSeconds": 10,
                "admissionReviewVersions": ["v1"],
                **more,
            }
        ]
