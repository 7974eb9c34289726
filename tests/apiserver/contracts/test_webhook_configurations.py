"""Webhook configurations: defaults and validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api_calls import ask, change, make, named, remove
from each_case import each_case
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


RULE = a_rule("configmaps", "CREATE")
URL = "https://example.com"


@each_case(
    "fields, problems",
    [
        ({"name": ""}, ["name: Required value"]),
        (
            {"name": "a.b"},
            [
                (
                    'name: Invalid value: "a.b": should be a domain with at least three '
                    "segments separated by dots"
                )
            ],
        ),
        (
            {"name": "A.example.com"},
            [
                (
                    'name: Invalid value: "A.example.com": a lowercase RFC 1123 subdomain '
                    "must consist of lower case alphanumeric characters, '-' or '.', and "
                    "must start and end with an alphanumeric character (e.g. "
                    "'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                )
            ],
        ),
        (
            {"sideEffects": "Some"},
            [
                (
                    'sideEffects: Unsupported value: "Some": supported values: "None", '
                    '"NoneOnDryRun"'
                )
            ],
        ),
        (
            {"sideEffects": None},
            ["sideEffects: Required value: must specify one of None, NoneOnDryRun"],
        ),
        (
            {"timeoutSeconds": 31},
            [
                (
                    "timeoutSeconds: Invalid value: 31: the timeout value must be between "
                    "1 and 30 seconds"
                )
            ],
        ),
        (
            {"failurePolicy": "Maybe", "matchPolicy": "Any"},
            [
                (
                    'failurePolicy: Unsupported value: "Maybe": supported values: "Fail", '
                    '"Ignore"'
                ),
                (
                    'matchPolicy: Unsupported value: "Any": supported values: '
                    '"Equivalent", "Exact"'
                ),
            ],
        ),
        (
            {"rules": [{**RULE, "operations": [], "apiGroups": [], "resources": []}]},
            [
                "rules[0].operations: Required value",
                "rules[0].apiGroups: Required value",
                "rules[0].resources: Required value",
            ],
        ),
        (
            {"rules": [{**RULE, "operations": ["*", "PUT"], "apiVersions": ["*", ""]}]},
            [
                (
                    'rules[0].operations: Invalid value: ["*","PUT"]: if \'*\' is present, '
                    "must not specify other operations"
                ),
                (
                    'rules[0].operations[1]: Unsupported value: "PUT": supported values: '
                    '"*", "CONNECT", "CREATE", "DELETE", "UPDATE"'
                ),
                (
                    'rules[0].apiVersions: Invalid value: ["*",""]: if \'*\' is present, '
                    "must not specify other API versions"
                ),
                "rules[0].apiVersions[1]: Required value",
            ],
        ),
        (
            {"rules": [{**RULE, "resources": ["pods/*", "pods/status", "*/*"]}]},
            [
                (
                    "rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is "
                    "present, must not specify pods/status"
                ),
                (
                    'rules[0].resources: Invalid value: ["pods/*","pods/status","*/*"]: if '
                    "'*/*' is present, must not specify other resources"
                ),
            ],
        ),
        (
            {"rules": [{**RULE, "scope": "All"}]},
            [
                (
                    'rules[0].scope: Unsupported value: "All": supported values: "*", '
                    '"Cluster", "Namespaced"'
                )
            ],
        ),
        (
            {"clientConfig": {}},
            ["clientConfig: Required value: exactly one of url or service is required"],
        ),
        (
            {"clientConfig": {"url": "http://u@/x?a#b"}},
            [
                (
                    "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed "
                    "URL scheme; desired format: https://host[/path]"
                ),
                (
                    'clientConfig.url: Invalid value: "": host must be specified; desired '
                    "format: https://host[/path]"
                ),
                (
                    'clientConfig.url: Invalid value: "u": user information is not '
                    "permitted in the URL"
                ),
                (
                    'clientConfig.url: Invalid value: "b": fragments are not permitted in '
                    "the URL"
                ),
                (
                    'clientConfig.url: Invalid value: "a": query parameters are not '
                    "permitted in the URL"
                ),
            ],
        ),
        (
            {"clientConfig": {"service": {"name": "s", "port": 0, "path": "x//y"}}},
            [
                "clientConfig.service.name: Required value",
                (
                    "clientConfig.service.port: Invalid value: 0: port is not valid: must "
                    "be between 1 and 65535, inclusive"
                ),
                (
                    'clientConfig.service.path: Invalid value: "x//y": must start with a '
                    "'/'"
                ),
                (
                    'clientConfig.service.path: Invalid value: "x//y": segment[0] may not '
                    "be empty"
                ),
                (
                    'clientConfig.service.path: Invalid value: "x//y": segment[1] may not '
                    "be empty"
                ),
            ],
        ),
        (
            {"admissionReviewVersions": []},
            [
                "admissionReviewVersions: Required value: must specify one of v1, v1beta1"
            ],
        ),
        (
            {"admissionReviewVersions": ["v2", "v2"]},
            [
                'admissionReviewVersions[1]: Invalid value: "v2": duplicate version',
                (
                    'admissionReviewVersions: Invalid value: ["v2","v2"]: must include at '
                    "least one of v1, v1beta1"
                ),
            ],
        ),
    ],
)
async def test_invalid_configuration_is_rejected(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    fields: dict[str, Any],
    problems: list[str],
) -> None:
    hook = {
        "name": "a.example.com",
        "clientConfig": {"url": URL},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **fields,
    }
    path = f"{REGISTRATION}/validatingwebhookconfigurations"
    body = named("invalid", webhooks=[hook])
    code, answer = await ask(http, "POST", path, body, dryRun="All")

    found = [f"{it['field']}: {it['message']}" for it in answer["details"]["causes"]]
    assert code == 422
    assert found == [f"webhooks[0].{it}" for it in problems]


async def test_names_of_webhooks_are_unique(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    hook = {
        "name": "a.example.com",
        "clientConfig": {"url": URL},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "reinvocationPolicy": "Always",
    }
    path = f"{REGISTRATION}/mutatingwebhookconfigurations"
    body = named("invalid", webhooks=[hook, {**hook, "reinvocationPolicy": "Never"}])
    code, answer = await ask(http, "POST", path, body, dryRun="All")

    found = [f"{it['field']}: {it['message']}" for it in answer["details"]["causes"]]
    assert code == 422
    assert found == [
        (
            'webhooks[0].reinvocationPolicy: Unsupported value: "Always": supported values: '
            '"IfNeeded", "Never"'
        ),
        'webhooks[1].name: Duplicate value: "a.example.com"',
    ]
