"""Users and clusters in kubeconfig files: precedence and validation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from credential_helpers import V1, V1BETA1, kubeconfig
from each_case import each_case

from aioinformer.client.kubeconfig import load_kubeconfig
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "s3cr3t-t0ken"

EXEC = {"apiVersion": V1, "command": "aws", "interactiveMode": "Never"}


def without(key: str, settings: dict[str, Any] = EXEC) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != key}


@each_case(
    "user, messages",
    [
        pytest.param({"exec": "aws"}, ["exec of user", "mapping"], id="no-mapping"),
        pytest.param(
            {"exec": without("command")},
            ["exec of user", "no command"],
            id="no-command",
        ),
        pytest.param(
            {"exec": without("apiVersion")},
            ["no apiVersion", V1, V1BETA1],
            id="no-version",
        ),
        pytest.param(
            {"exec": EXEC | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            ["v1alpha1", f"one of {V1}"],
            id="old-version",
        ),
        pytest.param(
            {"exec": without("interactiveMode")},
            ["no interactiveMode", "IfAvailable"],
            id="no-mode",
        ),
        pytest.param(
            {"exec": EXEC | {"interactiveMode": "Maybe"}},
            ["'Maybe'"],
            id="unknown-mode",
        ),
        pytest.param(
            {"exec": EXEC | {"args": [TOKEN, 7]}}, ["args of exec", "quote"], id="args"
        ),
        pytest.param(
            {"exec": EXEC | {"env": [TOKEN]}}, ["env of exec", "mappings"], id="env"
        ),
        pytest.param(
            {"exec": EXEC | {"env": [{"value": TOKEN}]}},
            ["env of exec", "without a name"],
            id="env-without-name",
        ),
        pytest.param(
            {"exec": EXEC | {"env": [{"name": "A", "value": 7}]}},
            ["value of env of exec", "quote"],
            id="env-number",
        ),
        pytest.param(
            {"exec": EXEC | {"provideClusterInfo": "yes"}},
            ["provideClusterInfo of exec", "true or false"],
            id="flag",
        ),
        pytest.param(
            {"exec": EXEC, "auth-provider": {"name": "gcp"}},
            ["exec and auth-provider"],
            id="exec-and-provider",
        ),
        pytest.param(
            {"auth-provider": {"name": "gcp", "config": {"access-token": TOKEN}}},
            ["'gcp'", "gke-gcloud-auth-plugin"],
            id="gcp",
        ),
        pytest.param(
            {"auth-provider": {"name": "azure"}},
            ["'azure'", "kubelogin convert-kubeconfig"],
            id="azure",
        ),
        pytest.param(
            {"auth-provider": {"name": "oidc", "config": {"id-token": TOKEN}}},
            ["'oidc'", "oidc-login"],
            id="oidc",
        ),
        pytest.param(
            {"auth-provider": {"name": "own"}}, ["'own'", "exec plugin"], id="another"
        ),
        pytest.param(
            {"token": TOKEN, "username": "me"}, ["token and a username"], id="two-ways"
        ),
        pytest.param({"password": 7, "username": "me"}, ["password of"], id="password"),
    ],
)
def test_invalid_user_raises_error_that_names_field(
    tmp_path: Path, user: dict[str, Any], messages: list[str]
) -> None:
    file = kubeconfig(tmp_path / "config", user)

    with pytest.raises(OptionsError) as caught:
        load_kubeconfig(file)

    error_text = str(caught.value)
    assert all(complaint in error_text for complaint in messages), error_text
    assert f"user 'main' in {file}" in error_text
    assert TOKEN not in error_text


@each_case(
    "cluster, messages",
    [
        pytest.param(
            {"insecure-skip-tls-verify": "true"}, ["true or false"], id="no-flag"
        ),
        pytest.param(
            {"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"},
            ["certificate-authority and insecure-skip-tls-verify"],
            id="insecure-with-authority",
        ),
        pytest.param({"server": "ftp://api"}, ["server must be a URL"], id="server"),
        pytest.param({"certificate-authority-data": "é"}, ["base64"], id="no-ascii"),
    ],
)
def test_invalid_cluster_raises_error_that_names_field(
    tmp_path: Path, cluster: dict[str, Any], messages: list[str]
) -> None:
    file = kubeconfig(tmp_path / "config", None, cluster)

    with pytest.raises(OptionsError) as caught:
        load_kubeconfig(file)

    error_text = str(caught.value)
    assert all(complaint in error_text for complaint in messages), error_text
    assert f"in {file}" in error_text


def test_token_takes_precedence_over_exec_plugin(tmp_path: Path) -> None:
    """As in kubectl, `kubectl config set-credentials --token` is enough."""
    file = kubeconfig(tmp_path / "config", {"exec": EXEC, "token": TOKEN})

    proof = asyncio.run(load_kubeconfig(file).credentials.auth_info())

    assert proof.authorization == f"Bearer {TOKEN}"


def test_token_takes_precedence_over_auth_provider(tmp_path: Path) -> None:
    user = {"auth-provider": {"name": "oidc"}, "token": TOKEN}

    credentials = load_kubeconfig(kubeconfig(tmp_path / "config", user)).credentials

    assert repr(credentials) == "<Credentials bearer>"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param("aws", "aws", id="to-be-found-on-the-path"),
        pytest.param("bin/aws", "{}/bin/aws", id="beside-the-file"),
        pytest.param("/opt/aws", "/opt/aws", id="absolute"),
    ],
)
def test_exec_command_is_relative_to_kubeconfig(
    tmp_path: Path, command: str, expected: str
) -> None:
    file = kubeconfig(tmp_path / "config", {"exec": EXEC | {"command": command}})

    shown = repr(load_kubeconfig(file).credentials)

    assert f"command={expected.format(tmp_path)!r}" in shown


def test_insecure_skip_tls_verify_disables_verification(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", None, {"insecure-skip-tls-verify": True})
    assert not load_kubeconfig(file).tls.verify

    kubeconfig(file, None, {"insecure-skip-tls-verify": None})
    assert load_kubeconfig(file).tls.verify


@pytest.mark.parametrize(
    ("server", "sent"),
    [
        ("https://main.example", True),
        ("http://127.0.0.1:8001", True),
        ("http://localhost", True),
        ("http://localhost.:8001", True),
        ("http://[::1]:8001", True),
        ("http://main.example", False),
        ("http://localhost.example", False),
        ("HTTP://10.0.0.1:8080", False),
        (" http://10.0.0.1", False),
    ],
)
def test_user_is_ignored_if_its_credentials_would_be_readable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, server: str, sent: bool
) -> None:
    file = kubeconfig(tmp_path / "config", {"token": TOKEN}, {"server": server})

    proof = asyncio.run(load_kubeconfig(file).credentials.auth_info())

    assert bool(proof.authorization) is sent
    assert bool(caplog.messages) is not sent
    assert all("is ignored, as" in it and TOKEN not in it for it in caplog.messages)


def test_user_is_ignored_if_a_proxy_would_read_its_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = {"server": "http://localhost:1", "proxy-url": "http://me:pw@proxy:3128"}
    file = kubeconfig(tmp_path / "config", {"token": TOKEN}, cluster)

    assert not asyncio.run(load_kubeconfig(file).credentials.auth_info()).authorization
    (line,) = caplog.messages
    assert line.startswith("user 'main' in ")
    assert "pw" not in line
