"""Sources of a client configuration, and its validation."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from each_case import each_case

from aioinformer.client import Client, ClientConfig, Credentials, TLSOptions
from aioinformer.client.config import is_loopback
from aioinformer.client.environment import load_from_environment, load_in_cluster
from aioinformer.client.kubeconfig import load_kubeconfig
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN = "s3cr3t-t0ken"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Provide an empty home directory, and no variable that a loader reads."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def kubeconfig(
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    name: str = "main",
    current: str = "main",
    **more: Any,
) -> dict[str, Any]:
    server = {"server": f"https://{name}.example:6443"}
    return {
        "clusters": [{"name": name, "cluster": server | dict(cluster or {})}],
        "users": [{"name": name, "user": dict(user or {})}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": current,
    } | more


def written(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def service_account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    written(folder / "token", f"{TOKEN}\n")
    written(folder / "ca.crt", "PEM")
    return folder


# ---------------------------------------------------------------- ClientConfig


@each_case(
    "url, message",
    [
        pytest.param("api.example:6443", "must be a URL", id="no-scheme"),
        pytest.param("ftp://api.example", "must be a URL", id="wrong-scheme"),
        pytest.param("https://", "must be a URL", id="no-host"),
        pytest.param("https://api.example:port", "not a URL", id="port-no-number"),
        pytest.param("https://me:pw@api.example", "credentials", id="password"),
        pytest.param("http://[::1", "not a URL", id="half-of-brackets"),
        pytest.param("https://api.example?x=1", "query", id="query"),
    ],
)
def test_config_rejects_server_that_is_no_url(url: str, message: str) -> None:
    with pytest.raises(OptionsError, match=message) as caught:
        ClientConfig(server=url)

    assert "pw" not in str(caught.value)
    with pytest.raises(OptionsError, match=message):
        Client.from_url(url)


def test_config_keeps_path_of_server_without_trailing_slash() -> None:
    config = ClientConfig(server="https://rancher.example/k8s/clusters/c-1/")

    assert config.server == "https://rancher.example/k8s/clusters/c-1"


def test_config_rejects_timeout_of_zero() -> None:
    with pytest.raises(OptionsError, match="head_seconds"):
        ClientConfig(server="http://api.example", head_seconds=0)


def test_config_repr_shows_no_secret() -> None:
    config = ClientConfig(
        server="https://api.example",
        credentials=Credentials(token=TOKEN),
        tls=TLSOptions(certificate=b"CERTIFICATE", key=b"PRIVATE"),
        proxy="http://me:pw-of-proxy@proxy.example",
    )

    assert TOKEN not in repr(config)
    assert "PRIVATE" not in repr(config)
    assert "pw-of-proxy" not in repr(config)


def test_error_for_rejected_proxy_hides_password() -> None:
    with pytest.raises(OptionsError) as caught:
        ClientConfig(server="https://api.example", proxy="socks5://me:pw@proxy.example")

    assert "socks5://proxy.example" in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "proxy",
    [
        pytest.param("http://me:pw/x@proxy.example", id="slash-in-password"),
        pytest.param("http://me:pw\u2100@proxy.example", id="not-normal"),
        pytest.param("http://me:pw@proxy.example:x", id="port"),
    ],
)
def test_error_for_malformed_proxy_url_hides_password(proxy: str) -> None:
    with pytest.raises(OptionsError) as caught:
        ClientConfig(server="https://api.example", proxy=proxy)

    assert "pw" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("https:/me:pw@api.example", id="one-slash"),
        pytest.param("me:pw@api.example", id="no-scheme"),
        pytest.param("https://me:pw/x@api.example", id="slash-in-password"),
        pytest.param("https://me:pw@[api.example", id="bracket"),
    ],
)
def test_error_for_malformed_server_url_hides_password(url: str) -> None:
    with pytest.raises(OptionsError) as caught:
        ClientConfig(server=url)

    assert "pw" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    "host", ["foo..bar", ".bar", "a" * 64 + ".example", "\u00e9." + "x" * 64]
)
def test_config_rejects_impossible_host_name(host: str) -> None:
    with pytest.raises(OptionsError, match="1 to 63 characters"):
        ClientConfig(server=f"http://{host}:1")

    with pytest.raises(OptionsError, match="1 to 63 characters"):
        ClientConfig(server="http://api.example", proxy=f"http://{host}:1")


@pytest.mark.parametrize("host", ["api.example.", "a" * 63, "[::1]", "10.0.0.1"])
def test_config_accepts_unusual_host_names(host: str) -> None:
    assert ClientConfig(server=f"http://{host}:1").server == f"http://{host}:1"


# ---------------------------------------------------------------- kubeconfig


async def test_kubeconfig_loads_current_context(tmp_path: Path) -> None:
    content = kubeconfig(
        {"tls-server-name": "api.test", "proxy-url": "http://proxy.example:3128"},
        {"token": f" {TOKEN}\n"},
    )
    content["contexts"][0]["context"]["namespace"] = "shop"
    path = written(tmp_path / "config", content)

    config = load_kubeconfig(path)

    assert config.server == "https://main.example:6443"
    assert config.namespace == "shop"
    assert config.tls == TLSOptions(server_name="api.test")
    assert config.proxy == "http://proxy.example:3128"
    assert (await config.credentials.auth_info()).authorization == f"Bearer {TOKEN}"


def test_kubeconfig_prefers_embedded_data_to_files(tmp_path: Path) -> None:
    data = {
        key: base64.b64encode(key.encode()).decode() + "\n"
        for key in ("certificate-authority", "client-certificate", "client-key")
    }
    path = written(
        tmp_path / "config",
        kubeconfig(
            {
                "certificate-authority": "unused.crt",
                "certificate-authority-data": data["certificate-authority"],
            },
            {
                "client-certificate-data": data["client-certificate"],
                "client-key-data": data["client-key"],
            },
        ),
    )

    tls = load_kubeconfig(path).tls

    assert tls.ca == b"certificate-authority"
    assert tls.certificate == b"client-certificate"
    assert tls.key == b"client-key"


async def test_kubeconfig_paths_are_relative_to_its_file(tmp_path: Path) -> None:
    written(tmp_path / "secrets/token", TOKEN)
    absolute = str(tmp_path / "absolute.key")
    path = written(
        tmp_path / "config",
        kubeconfig(
            {"certificate-authority": "ca.crt"},
            {
                "tokenFile": "secrets/token",
                "client-certificate": "~/me.crt",
                "client-key": absolute,
            },
        ),
    )

    config = load_kubeconfig(path)

    assert config.tls.ca == tmp_path / "ca.crt"
    assert config.tls.certificate == tmp_path / "home/me.crt"
    assert config.tls.key == Path(absolute)
    assert (await config.credentials.auth_info()).authorization == f"Bearer {TOKEN}"


async def test_kubeconfig_paths_survive_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of the kubeconfig itself is relative to the working directory."""
    written(tmp_path / "here/token", TOKEN)
    written(
        tmp_path / "here/config",
        kubeconfig({"certificate-authority": "ca.crt"}, {"tokenFile": "token"}),
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    config = load_kubeconfig("config")
    url = Client.from_url("https://a.example", token_file="token", ca_file="ca.crt")

    monkeypatch.chdir(tmp_path / "elsewhere")

    for each in (config, url.config):
        assert each.tls.ca == tmp_path / "here/ca.crt"
        assert (await each.credentials.auth_info()).authorization == f"Bearer {TOKEN}"


def test_first_kubeconfig_to_define_a_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kubeconfig({"server": "https://first.example"})
    first["current-context"] = ""
    second = kubeconfig({"server": "https://second.example"})
    second["clusters"].append({"name": "other", "cluster": {"server": "other.example"}})
    second["contexts"].append({"name": "other", "context": {"cluster": "other"}})
    paths = [
        tmp_path / "absent",
        written(tmp_path / "1", first),
        written(tmp_path / "2", second),
    ]
    monkeypatch.setenv("KUBECONFIG", ":".join(["", *map(str, paths)]))

    # Its current-context is that of the second file, as the first one has none.
    assert load_kubeconfig().server == "https://first.example"
    assert load_kubeconfig(context="other").server == "https://other.example"


def test_default_kubeconfig_is_read_without_variable(tmp_path: Path) -> None:
    written(tmp_path / "home/.kube/config", kubeconfig())

    assert load_kubeconfig().server == "https://main.example:6443"


def test_context_without_user_is_anonymous(tmp_path: Path) -> None:
    content = kubeconfig()
    del content["contexts"][0]["context"]["user"]

    config = load_kubeconfig(written(tmp_path / "config", content))

    assert "anonymous" in repr(config.credentials)


@each_case(
    "content, messages",
    [
        pytest.param("", ["config is empty"], id="empty"),
        pytest.param("- a\n- b\n", ["top level"], id="a-list"),
        pytest.param(
            "kind: Website\n", ["not a kubeconfig: it has kind 'Website'"], id="kind"
        ),
        pytest.param(
            f"users: [\ntoken: '{TOKEN}\n",
            ["is not YAML: found unexpected end of stream (line ", "Fix it"],
            id="no-yaml",
        ),
        pytest.param(
            kubeconfig(current=""),
            ["no current-context", "main", "use-context"],
            id="no-current-context",
        ),
        pytest.param(
            kubeconfig(current="other"),
            ["no context 'other'", "Existing contexts: main"],
            id="unknown-context",
        ),
        pytest.param(
            kubeconfig(clusters=[]), ["cluster 'main'", "not defined"], id="no-cluster"
        ),
        pytest.param(kubeconfig({"server": ""}), ["no server"], id="no-server"),
        pytest.param(kubeconfig({"server": "https://:1"}), ["URL"], id="bad-server"),
        pytest.param(
            kubeconfig(None, {"token": 12345678}), ["quote"], id="token-is-a-number"
        ),
        pytest.param(
            kubeconfig(None, {"token": f"{TOKEN}\x07"}), ["characters"], id="bad-token"
        ),
        pytest.param(
            kubeconfig({"certificate-authority-data": "%%%"}), ["base64"], id="base64"
        ),
        pytest.param(
            kubeconfig(None, {"client-key": "key"}),
            ["client-certificate"],
            id="no-cert",
        ),
        pytest.param(
            kubeconfig() | {"current-context": 7},
            ["current-context", "quote"],
            id="current-no-text",
        ),
        pytest.param("[" * 200_000, ["nested deeper than 100"], id="deep-list"),
        pytest.param("a: " + "{b: " * 200_000, ["nested deeper"], id="deep-mapping"),
        pytest.param("- " * 200_000, ["nested deeper"], id="deep-block"),
        pytest.param(
            '{"a": ' + "[" * 500 + "]" * 500 + "}", ["nested deeper"], id="deep-json"
        ),
        pytest.param("x" * (8 << 20) + ": 1", ["larger than"], id="large"),
        pytest.param("a: &a [*a]", ["is not YAML"], id="alias-of-itself"),
        pytest.param(
            f"a: *{TOKEN}", ["is not YAML: found undefined alias ..."], id="alias"
        ),
        pytest.param(
            "a: b: c", ["is not YAML: mapping values are not allowed"], id="two-colons"
        ),
        pytest.param("a: 2024-99-99x\nb: !!timestamp x", ["is not YAML"], id="tag"),
        pytest.param("a: !!int ''", ["is not YAML"], id="empty-number"),
        pytest.param("a: !!bool maybe", ["is not YAML"], id="no-flag"),
        pytest.param(
            kubeconfig({"certificate-authority": "a\0b"}), ["is not a path"], id="nul"
        ),
        pytest.param(kubeconfig(users={}), ["must be a list"], id="users-no-list"),
        pytest.param(
            kubeconfig(users=[{"user": {}}]), ["must each have a name"], id="no-name"
        ),
        pytest.param(
            kubeconfig(users=[{"name": "me"}, {"name": "me"}]), ["twice"], id="twice"
        ),
    ],
)
def test_malformed_kubeconfig_raises_error_that_names_file(
    tmp_path: Path, content: object, messages: list[str]
) -> None:
    path = written(tmp_path / "config", content)

    with pytest.raises(OptionsError) as caught:
        load_kubeconfig(path)

    error_text = str(caught.value)
    assert all(message in error_text for message in messages), error_text
    assert TOKEN not in error_text
    assert caught.value.__suppress_context__ or TOKEN not in str(caught.value.__cause__)
    assert str(path) in error_text


def test_missing_named_kubeconfig_raises_options_error(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"absent.*does not exist"):
        load_kubeconfig(tmp_path / "absent")


def test_directory_as_kubeconfig_raises_options_error(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=f"cannot read the kubeconfig {tmp_path}"):
        load_kubeconfig(tmp_path)


# ---------------------------------------------------------------- in a cluster


async def test_in_cluster_reads_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service_account(tmp_path, monkeypatch)
    written(folder / "namespace", "shop\n")

    config = load_in_cluster(folder)

    assert config.server == "https://10.0.0.1:443"
    assert config.namespace == "shop"
    assert config.tls.ca == folder / "ca.crt"
    assert (await config.credentials.auth_info()).authorization == f"Bearer {TOKEN}"


def test_in_cluster_puts_ipv6_address_in_brackets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service_account(tmp_path, monkeypatch)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")

    config = load_in_cluster(folder)

    assert config.server == "https://[fd00::1]:443"
    assert config.namespace == "default"


@pytest.mark.parametrize("missing", ["host", "port", "token"])
def test_in_cluster_error_names_missing_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    folder = service_account(tmp_path, monkeypatch)
    if missing == "token":
        (folder / "token").unlink()
    else:
        monkeypatch.delenv(f"KUBERNETES_SERVICE_{missing.upper()}")

    with pytest.raises(OptionsError, match=f"(?i)not in a cluster: .*{missing}"):
        load_in_cluster(folder)


# ---------------------------------------------------------------- the environment


def test_from_env_prefers_kubeconfig_to_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service_account(tmp_path / "pod", monkeypatch)
    written(tmp_path / "home/.kube/config", kubeconfig(name="home", current="home"))
    monkeypatch.setenv("KUBECONFIG", str(written(tmp_path / "named", kubeconfig())))

    assert load_from_environment(None, folder).server == "https://main.example:6443"


def test_from_env_falls_back_to_home_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service_account(tmp_path / "pod", monkeypatch)
    written(tmp_path / "home/.kube/config", kubeconfig(name="home", current="home"))

    assert load_from_environment(None, folder).server == "https://home.example:6443"


def test_from_env_falls_back_to_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service_account(tmp_path / "pod", monkeypatch)
    monkeypatch.setenv("KUBECONFIG", str(written(tmp_path / "empty", "")))
    written(tmp_path / "home/.kube/config", kubeconfig(name="home", current="home"))

    assert load_from_environment(None, folder).server == "https://10.0.0.1:443"


def test_from_env_with_context_ignores_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service_account(tmp_path / "pod", monkeypatch)

    with pytest.raises(OptionsError) as caught:
        load_from_environment("staging", folder)

    error_text = str(caught.value)
    assert "no context 'staging': there is no kubeconfig" in error_text
    assert f"{tmp_path / 'home'}/.kube/config does not exist" in error_text


def test_from_env_error_lists_searched_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = written(tmp_path / "empty", "apiVersion: v1\n")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{empty}")

    with pytest.raises(OptionsError) as caught:
        load_from_environment()

    error_text = str(caught.value)
    assert f"{tmp_path / 'absent'} does not exist" in error_text
    assert f"{empty} is empty" in error_text
    assert "KUBERNETES_SERVICE_HOST is not set" in error_text
    assert "Client.from_url()" in error_text


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("localhost.", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost..", False),
        ("localhost.example", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_known_by_name_and_address(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
