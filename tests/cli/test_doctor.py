"""`aioinformer doctor` with healthy and failing servers."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer
from click.testing import CliRunner
from doctor_helpers import TOKEN, examined, serving

from aioinformer.cli.commands import aioinformer
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.doctor import DoctorOptions, doctor
from aioinformer.cli.error_messages import CommandError
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer.testing import APIServer

    Captured = pytest.CaptureFixture[str]

SERVER_STEPS = ["configuration", "credentials", "connection", "TLS", "version"]
SERVER_STEPS += ["identity", "discovery"]
RESOURCE_STEPS = ["found", "permissions", "list", "watch", "watch list"]


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with serving() as server:
        yield server


@pytest.fixture
def admin(server: APIServer) -> ConnectionOptions:
    return ConnectionOptions(server=server.url, token=TOKEN)


# ---------------------------------------------------------------- all is well


async def test_doctor_reports_healthy_cluster(
    admin: ConnectionOptions, capfd: Captured
) -> None:
    found = await examined(admin, capfd=capfd)

    assert (found.status, found.document["ok"], found.rules) == (0, True, [])
    steps = [(it["step"], it["resource"]) for it in found.document["findings"]]
    assert steps == [
        *((it, None) for it in SERVER_STEPS),
        *((it, "pods") for it in RESOURCE_STEPS),
    ]
    marks = {it["step"]: it["mark"] for it in found.document["findings"]}
    assert {step for step, mark in marks.items() if mark != "ok"} == {"TLS"}
    assert found.text("TLS") == "plain HTTP, to this machine"
    assert found.text("version") == "Kubernetes v1.36.0"
    assert found.text("identity").startswith("kubernetes-admin, in the groups ")
    assert found.text("discovery").endswith(" resources (aggregated)")
    assert found.text("found", "pods") == "pods, Pod of v1, in all namespaces"
    assert found.text("list", "pods").startswith("3 objects")
    assert found.text("watch", "pods").endswith("with bookmarks")
    assert found.text("watch list", "pods").startswith("supported")


async def test_doctor_sends_no_writes_except_reviews(
    admin: ConnectionOptions, server: APIServer, capfd: Captured
) -> None:
    version = server.resource_version
    await examined(admin, "pods", "nodes", "secrets", capfd=capfd)

    assert server.resource_version == version
    posted = {
        it.path.rpartition("/")[2] for it in server.requests if it.method != "GET"
    }
    assert posted == {"selfsubjectreviews", "selfsubjectaccessreviews"}


async def test_doctor_prints_lines_and_summary(
    admin: ConnectionOptions, capfd: Captured
) -> None:
    assert await doctor(DoctorOptions(), admin) == 0

    out, err = capfd.readouterr()
    *lines, empty, last = out.splitlines()
    assert (err, empty) == ("", "")
    assert len(lines) == len(SERVER_STEPS) + len(RESOURCE_STEPS)
    assert lines[4].split() == ["ok", "version", "Kubernetes", "v1.36.0"]
    assert lines[3].startswith("skipped  TLS ")
    assert last == "Informers will work: 11 ok, 1 skipped."
    assert "\x1b" not in out


@pytest.mark.parametrize(("variable", "coloured"), [("", True), ("1", False)])
async def test_statuses_have_colors_on_terminal(
    variable: str,
    coloured: bool,
    admin: ConnectionOptions,
    capfd: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", variable)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    await doctor(DoctorOptions(), admin)

    out = capfd.readouterr().out
    assert out.startswith("\x1b[32mok\x1b[0m       configuration ") == coloured
    assert ("\x1b" in out) == coloured


@pytest.mark.parametrize(
    ("options", "place", "count"),
    [
        pytest.param({}, "in all namespaces", 3, id="of-a-url"),
        pytest.param({"namespaces": ("shop",)}, "in namespace shop", 3, id="named"),
        pytest.param({"namespaces": ("else",)}, "in namespace else", 0, id="empty"),
        pytest.param({"all_namespaces": True}, "in all namespaces", 3, id="all"),
    ],
)
async def test_doctor_checks_given_namespace(
    options: dict[str, Any],
    place: str,
    count: int,
    admin: ConnectionOptions,
    capfd: Captured,
) -> None:
    found = await examined(admin, "po", capfd=capfd, **options)

    assert found.text("found", "po").endswith(place)
    assert found.text("list", "po").startswith(f"{count} objects")


async def test_doctor_defaults_to_namespace_of_context(
    server: APIServer, tmp_path: Path, capfd: Captured
) -> None:
    path = server.kubeconfig(tmp_path / "config", namespace="shop")
    found = await examined(
        ConnectionOptions(kubeconfig=str(path)), "po", "no", capfd=capfd
    )

    assert found.status == 0
    assert found.text("found", "po").endswith("in namespace shop")
    assert found.text("found", "no").endswith("cluster-scoped")
    text = found.text("configuration")
    assert text == (
        f"context 'test' of {path} (from --kubeconfig): {server.url}, credentials: a "
        "token"
    )


async def test_doctor_reads_kubeconfig_of_environment(
    server: APIServer,
    tmp_path: Path,
    capfd: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = server.kubeconfig(tmp_path / "config")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{path}")
    found = await examined(ConnectionOptions(), capfd=capfd)

    assert found.status == 0
    text = found.text("configuration")
    assert text.startswith(f"context 'test' of {path} (from KUBECONFIG): ")


async def test_missing_configuration_fails_first_step(
    tmp_path: Path, capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    found = await examined(ConnectionOptions(), capfd=capfd)

    assert (found.status, found.failed) == (1, ["configuration"])
    assert f"{tmp_path}/absent does not exist" in found.text("configuration")
    assert "pass --server" in found.text("configuration")


async def test_anonymous_user_gets_no_rules(server: APIServer, capfd: Captured) -> None:
    found = await examined(ConnectionOptions(server=server.url), capfd=capfd)

    assert found.status == 1
    assert found.mark("identity") == "warning"
    assert "system:anonymous" in found.text("identity")
    assert found.failed == ["list"]
    assert found.rules == []

    await doctor(DoctorOptions(), ConnectionOptions(server=server.url))
    assert "Cannot generate rules" in capfd.readouterr().out


async def test_repeated_resource_is_checked_once(
    admin: ConnectionOptions, capfd: Captured
) -> None:
    found = await examined(admin, "pods", "pods", capfd=capfd)

    assert len(found.document["findings"]) == len(SERVER_STEPS) + len(RESOURCE_STEPS)


# ---------------------------------------------------------------- the way there


async def test_refused_connection_fails_step_and_skips_later_ones(
    capfd: Captured,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and closed again
        port = taken.getsockname()[1]
        target = ConnectionOptions(server=f"http://127.0.0.1:{port}")
        found = await examined(target, capfd=capfd)

    assert (found.status, found.failed) == (1, ["connection"])
    assert f"refused the connection to port {port}" in found.text("connection")
    assert found.mark("version") == "skipped"
    assert found.text("found", "pods") == "no connection"


async def test_unresolvable_host_fails_connection(capfd: Captured) -> None:
    target = ConnectionOptions(server="https://nowhere.invalid:6443")
    found = await examined(target, capfd=capfd)

    assert (found.status, found.failed) == (1, ["connection"])
    assert "cannot resolve" in found.text("connection")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("a: [", "is not YAML", id="no-yaml"),
        pytest.param("clusters: 3", "must be a list", id="no-list"),
        pytest.param("- a", "must be a mapping", id="no-mapping"),
        pytest.param("", "config is empty", id="empty"),
    ],
)
async def test_malformed_kubeconfig_fails_configuration(
    content: str, words: str, tmp_path: Path, capfd: Captured
) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    found = await examined(ConnectionOptions(kubeconfig=str(path)), capfd=capfd)

    assert (found.status, found.failed) == (1, ["configuration"])
    assert words in found.text("configuration")
    steps = [it["step"] for it in found.document["findings"] if it["mark"] != "skipped"]
    assert steps == ["configuration"]


async def test_unknown_context_fails_configuration(
    server: APIServer, tmp_path: Path, capfd: Captured
) -> None:
    path = server.kubeconfig(tmp_path / "config")
    target = ConnectionOptions(kubeconfig=str(path), context="nowhere")
    found = await examined(target, capfd=capfd)

    assert found.failed == ["configuration"]
    assert "no context 'nowhere'" in found.text("configuration")


# ---------------------------------------------------------------- what is typed


@pytest.mark.parametrize(
    ("options", "target", "error"),
    [
        pytest.param(
            {"namespaces": ("a",), "all_namespaces": True}, {}, CommandError, id="-n -A"
        ),
        pytest.param({"namespaces": ("a/b",)}, {}, OptionsError, id="namespace"),
        pytest.param({}, {"server": "ftp://a"}, OptionsError, id="server"),
        pytest.param(
            {}, {"server": "http://a", "context": "b"}, CommandError, id="both"
        ),
        pytest.param({}, {"token": "a b"}, OptionsError, id="token"),
    ],
)
async def test_invalid_options_fail_before_kubeconfig_is_read(
    options: dict[str, Any],
    target: dict[str, str],
    error: type[Exception],
    capfd: Captured,
) -> None:
    with pytest.raises(error):
        await doctor(DoctorOptions(**options), ConnectionOptions(**target))

    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments", [["--timeout", "0"], ["-o", "xml"], ["-n", ""], ["--group", ""]]
)
def test_contradicting_options_exit_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(aioinformer, ["doctor", *arguments]).exit_code == 2


async def test_findings_have_no_control_characters(
    server: APIServer, capfd: Captured
) -> None:
    async with CannedServer() as canned:
        refusal = {"kind": "Status", "message": "a\x1b[2Jb\nc", "code": 400}
        canned.json(refusal, status=400)
        await doctor(DoctorOptions(), ConnectionOptions(server=canned.url))

    out = capfd.readouterr().out
    assert "\x1b" not in out
    assert "a\N{REPLACEMENT CHARACTER}[2Jb c" in out


async def test_token_repeated_by_server_is_removed_from_findings(
    capfd: Captured,
) -> None:
    token = "s3cr3t-of-mine"
    async with CannedServer() as canned:
        canned.json({"kind": "Status", "message": f"no {token}", "code": 400}, 400)
        target = ConnectionOptions(server=canned.url, token=token)
        found = await examined(target, capfd=capfd)

    assert found.failed == ["version"]
    assert token not in json.dumps(found.document)
    assert "no ..." in found.text("version")
