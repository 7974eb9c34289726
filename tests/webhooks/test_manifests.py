"""`webhook_manifests`, and the command that prints them."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from aioinformer import KubeObject, Resource
from aioinformer.cli.commands import aioinformer
from aioinformer.errors import OptionsError
from aioinformer.model.resources import NODES
from aioinformer.webhooks import conversion, mutating, validating, webhook_manifests

if TYPE_CHECKING:
    from pathlib import Path

SITES = Resource("example.com", "v1", "sites", "Site")
PLACE: dict[str, Any] = {"service": "sites", "namespace": "prod"}


@validating(
    SITES,
    operations=("CREATE", "DELETE"),
    subresource="status",
    failure_policy="Ignore",
    side_effects="NoneOnDryRun",
    timeout=5,
    match_policy="Exact",
    namespace_selector={"matchLabels": {"checked": "yes"}},
    object_selector={"matchLabels": {"app": "web"}},
    match_conditions={"not-root": "request.userInfo.username != 'root'"},
)
async def check(site: KubeObject) -> None: ...


@mutating(NODES, reinvoke=True)
async def fill(node: dict[str, Any]) -> None: ...


@conversion(SITES, "v1beta1", "v1")
async def upgrade(site: dict[str, Any]) -> None: ...


@conversion(SITES, "v1", "v1beta1")
async def downgrade(site: dict[str, Any]) -> None: ...


HOOKS = (check, fill, upgrade, downgrade)


def test_manifests_have_all_options_of_the_hooks() -> None:
    validates, mutates, converts = webhook_manifests(HOOKS, **PLACE, ca=b"pem")
    bundle = base64.b64encode(b"pem").decode()

    def client(path: str) -> dict[str, Any]:
        service = {"name": "sites", "namespace": "prod", "path": path, "port": 443}
        return {"service": service, "caBundle": bundle}

    assert validates == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "sites"},
        "webhooks": [
            {
                "name": "check.sites.example.com",
                "admissionReviewVersions": ["v1"],
                "clientConfig": client("/validate/check.sites.example.com"),
                "rules": [
                    {
                        "apiGroups": ["example.com"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "DELETE"],
                        "resources": ["sites/status"],
                        "scope": "Namespaced",
                    }
                ],
                "failurePolicy": "Ignore",
                "matchPolicy": "Exact",
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": 5,
                "namespaceSelector": {"matchLabels": {"checked": "yes"}},
                "objectSelector": {"matchLabels": {"app": "web"}},
                "matchConditions": [
                    {
                        "name": "not-root",
                        "expression": "request.userInfo.username != 'root'",
                    }
                ],
            }
        ],
    }
    (webhook,) = mutates["webhooks"]
    assert mutates["kind"] == "MutatingWebhookConfiguration"
    assert webhook["clientConfig"] == client("/mutate/fill.nodes.core")
    assert webhook["rules"][0]["scope"] == "Cluster"
    assert webhook["rules"][0]["apiGroups"] == [""]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert converts == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.example.com"},
        "spec": {
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": client("/convert/sites.example.com"),
                    "conversionReviewVersions": ["v1"],
                },
            }
        },
    }


def test_cert_manager_issues_the_certificate_and_adds_its_ca() -> None:
    issuer, certificate, *others = webhook_manifests(HOOKS, **PLACE, cert_manager=True)

    assert (issuer["kind"], certificate["kind"]) == ("Issuer", "Certificate")
    assert certificate["spec"]["secretName"] == "sites-tls"
    assert certificate["spec"]["dnsNames"][0] == "sites.prod.svc"
    assert certificate["spec"]["issuerRef"]["name"] == issuer["metadata"]["name"]
    assert len(others) == 3
    for it in others:
        key = "cert-manager.io/inject-ca-from"
        assert it["metadata"]["annotations"] == {key: "prod/sites"}


def test_manifests_for_a_url_name_no_service() -> None:
    (document,) = webhook_manifests(check, name="a", url="https://127.0.0.1:9443/")

    client = document["webhooks"][0]["clientConfig"]
    assert client == {"url": f"https://127.0.0.1:9443{check.path}"}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "either a service or a url"),
        ({**PLACE, "url": "https://x"}, "either a service or a url"),
        ({"service": "sites"}, "no Service can be named"),
        ({**PLACE, "service": "Sites"}, "no Service can be named 'Sites'"),
        ({**PLACE, "service": 64 * "s"}, "no Service can be named"),
        ({**PLACE, "port": 0}, "1 to 65535, not 0"),
        ({"url": "https://x"}, "need a name"),
        ({"url": "operator:9443", "name": "a"}, "must be as https://"),
        ({"url": "https://x?a=b", "name": "a"}, "must be as https://"),
        ({"url": "https://[x", "name": "a"}, "must be as https://"),
        ({**PLACE, "cert_manager": True, "ca": b"x"}, "adds the CA itself"),
        ({"url": "https://x", "name": "a", "cert_manager": True}, "needs a service"),
    ],
)
def test_incomplete_options_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(OptionsError, match=match):
        webhook_manifests(HOOKS, **options)


# ------------------------------------------------------------ the command

MODULE = """
from aioinformer import Resource
from aioinformer.webhooks import WebhookServer, mutating, validating

SITES = Resource("example.com", "v1", "sites", "Site")

@validating(SITES)
async def check(site): ...

@mutating(SITES)
async def fill(site): ...

HOOKS = [check, fill]
server = WebhookServer(HOOKS)
nothing = []
twice = [check, check]

def anything(site): ...
"""


def printed(*arguments: str) -> tuple[int, str]:
    options = ["--service", "sites", "-n", "prod"]
    result = CliRunner().invoke(aioinformer, ["webhooks", *arguments, *options])
    return result.exit_code, result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "made_up_operator.py").write_text(MODULE)
    (tmp_path / "made_up_broken.py").write_text("import no_such_module")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "made_up_operator", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", ["HOOKS", "server", "check"])
def test_command_prints_the_manifests_of_a_module(folder: Path, name: str) -> None:
    (folder / "ca.crt").write_text("-----BEGIN CERTIFICATE-----")
    status, text = printed(f"made_up_operator:{name}", "--ca-file", "ca.crt")

    assert status == 0, text
    documents = list(yaml.safe_load_all(text))
    kinds = [it["kind"] for it in documents]
    both = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"]
    assert kinds == (both[:1] if name == "check" else both)
    assert documents[0]["webhooks"][0]["clientConfig"]["caBundle"]


def test_command_warns_of_manifests_without_a_ca(folder: Path) -> None:
    options = ["made_up_operator:HOOKS", "--service", "sites", "-n", "prod"]
    for more, warns in (([], True), (["--cert-manager"], False)):
        result = CliRunner().invoke(aioinformer, ["webhooks", *options, *more])
        assert result.exit_code == 0
        assert ("no caBundle" in result.stderr) is warns
        assert "no caBundle" not in result.stdout


def test_command_prints_the_manifests_of_a_url(folder: Path) -> None:
    options = ["made_up_operator:check", "--url", "http://127.0.0.1:9443"]
    result = CliRunner().invoke(aioinformer, ["webhooks", *options])

    assert (result.exit_code, result.stderr) == (0, "")
    document = yaml.safe_load(result.stdout)
    assert document["metadata"]["name"] == "made-up-operator"
    client = document["webhooks"][0]["clientConfig"]
    assert client == {"url": f"http://127.0.0.1:9443{check.path}"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "pass --service and -n, or --url."),
        (["-n", "prod"], "pass --service and -n, or --url."),
        (["--service", "s"], "--service needs its namespace: pass -n."),
        (["--service", "s", "--url", "http://a"], "--service cannot be combined"),
        (["--url", "http://a", "-n", "prod"], "-n belongs to --service"),
        (["--url", "http://a", "--port", "443"], "--port belongs to --service"),
    ],
)
def test_command_needs_one_place_of_the_server(
    folder: Path, options: list[str], message: str
) -> None:
    arguments = ["webhooks", "made_up_operator:check", *options]
    result = CliRunner().invoke(aioinformer, arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["made_up_operator"], "expected MODULE:NAME"),
        (["made_up_missing:HOOKS"], "cannot import made_up_missing"),
        (["made_up_broken:HOOKS"], "No module named 'no_such_module'"),
        (["made_up_operator:other"], "made_up_operator has no other"),
        (["made_up_operator:nothing"], "no webhooks"),
        (["made_up_operator:SITES"], "not a webhook"),
        (["made_up_operator:anything"], "Decorate the function"),
        (["made_up_operator:twice"], "two webhooks are named check"),
        (["made_up_operator:HOOKS", "--ca-file", "x"], "x: No such file"),
        (["made_up_operator:HOOKS", "--ca-file", "made_up_operator.py"], "PEM"),
    ],
)
def test_command_names_what_is_wrong(
    folder: Path, arguments: list[str], message: str
) -> None:
    status, text = printed(*arguments)

    assert status == 2
    assert message in text
    assert "Traceback" not in text
