"""`aioinformer doctor -o rules`, and the pure results of checks."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from credential_helpers import V1, kubeconfig, script
from doctor_helpers import HANG, TOKEN, Front, examined, serving
from processes import PROMPT_SECONDS, start

from aioinformer.cli.checks import results
from aioinformer.cli.checks.findings import Finding, StepStatus, has_failed, summary
from aioinformer.cli.checks.rbac_rules import (
    MissingPermission,
    as_yaml,
    manifests,
    subject_of,
)
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.doctor import DoctorOptions, doctor
from aioinformer.cli.error_messages import CommandError
from aioinformer.client import ClientConfig, Credentials
from aioinformer.client.rest_mapper import ServedResource
from aioinformer.errors import AlreadyExists
from aioinformer.model import Resource
from aioinformer.model.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
)
from aioinformer.testing import User

if TYPE_CHECKING:
    from collections.abc import Sequence


if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aioinformer.testing import APIServer

    Captured = pytest.CaptureFixture[str]


COMMAND = "from aioinformer.cli.main import main; main()"


KINDS = {it.kind: it for it in (ROLES, ROLE_BINDINGS)}


KINDS |= {it.kind: it for it in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)}


USERS = {
    "eves-token": User("eve", ("devs", "all")),
    "bobs-token": User("bob@example.com", ("devs",)),
    "pods-token": User("system:serviceaccount:shop:app"),
}


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with serving(users=USERS) as server:
        yield server


async def apply(server: APIServer, documents: list[dict[str, Any]]) -> None:
    """Create or update objects, as `kubectl apply` does."""
    async with server.client() as client:
        for body in documents:
            resource = KINDS[body["kind"]]
            try:
                await client.create(resource, body)
            except AlreadyExists:
                await client.update(resource, body)


async def printed(target: ConnectionOptions, capfd: Captured, **options: Any) -> str:
    """Return the output of `-o rules`. Its exit status is 1 if there are rules."""
    capfd.readouterr()
    status = await doctor(DoctorOptions(report="rules", **options), target)
    out = capfd.readouterr().out
    assert status == bool(out)
    return out


# ---------------------------------------------------------------- applied


@pytest.mark.parametrize("token", USERS)
@pytest.mark.parametrize(
    ("words", "options", "kinds"),
    [
        pytest.param(
            ("pods",),
            {"namespaces": ("shop",)},
            ["Role", "RoleBinding"],
            id="namespace",
        ),
        pytest.param(
            ("pods", "deploy", "cm"),
            {"all_namespaces": True},
            ["ClusterRole", "ClusterRoleBinding"],
            id="all-namespaces",
        ),
        pytest.param(
            ("nodes", "pods"),
            {"namespaces": ("shop",)},
            ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
            id="both",
        ),
    ],
)
async def test_applied_rules_grant_missing_permissions(
    token: str,
    words: tuple[str, ...],
    options: dict[str, Any],
    kinds: list[str],
    server: APIServer,
    capfd: Captured,
) -> None:
    target = ConnectionOptions(server=server.url, token=token)
    before = await examined(target, *words, capfd=capfd, **options)
    documents = list(
        yaml.safe_load_all(await printed(target, capfd, resources=words, **options))
    )

    assert before.status == 1
    assert set(before.failed) == {"permissions"}
    assert before.mark("list", words[0]) == "skipped"
    assert before.rules == documents
    assert [it["kind"] for it in documents] == kinds

    await apply(server, documents)
    after = await examined(target, *words, capfd=capfd, **options)

    assert (after.status, after.failed, after.rules) == (0, [], [])
    assert "get is not, and informers do not need it" in after.text(
        "permissions", words[0]
    )
    assert {it["mark"] for it in after.document["findings"] if it["resource"]} == {"ok"}
    assert await printed(target, capfd, resources=words, **options) == ""


async def test_several_namespaces_are_checked_one_by_one(
    server: APIServer, capfd: Captured
) -> None:
    target = ConnectionOptions(server=server.url, token="eves-token")
    both = {"namespaces": ("shop", "media")}
    half = await examined(target, capfd=capfd, namespaces=("media",))
    await apply(server, half.rules)
    before = await examined(target, capfd=capfd, **both)
    marks = {
        it["namespace"]: it["mark"]
        for it in before.document["findings"]
        if it["step"] == "permissions"
    }
    assert (before.status, marks) == (1, {"shop": "failed", "media": "ok"})
    assert {it["metadata"]["namespace"] for it in before.rules} == {"shop"}
    found = before.text("found", "pods")
    assert found.endswith("in namespace shop and in namespace media")

    await apply(server, before.rules)
    assert await doctor(DoctorOptions(**both), target) == 0  # type: ignore[arg-type]
    lines = capfd.readouterr().out.splitlines()
    permissions = [it for it in lines if "permissions" in it]
    assert [re.split("  +", it)[1] for it in permissions] == [
        "pods in shop: permissions",
        "pods in media: permissions",
    ]
    assert len({it.index("list and watch") for it in permissions}) == 1, "aligned"


async def test_doctor_checks_the_permissions_of_shards(
    server: APIServer, capfd: Captured
) -> None:
    target = ConnectionOptions(server=server.url, token="eves-token")
    options: dict[str, Any] = {"namespaces": ("shop",), "shards": True}
    before = await examined(target, capfd=capfd, **options)
    verbs = {
        "leases": "list and watch and create and update and delete",
        "events": "create and patch",
    }
    refusal = "not permitted: apply the rules below"
    for name, needed in verbs.items():
        assert before.text("shards", name) == f"{needed} {refusal}"

    (role,) = [it for it in before.rules if it["kind"] == "Role"]
    by_resource = {it["resources"][0]: it["verbs"] for it in role["rules"]}
    expected = {name: needed.split(" and ") for name, needed in verbs.items()}
    assert by_resource == {**expected, "pods": ["list", "watch"]}

    await apply(server, before.rules)
    after = await examined(target, capfd=capfd, **options)

    assert (after.status, after.rules) == (0, [])
    for name, needed in verbs.items():
        assert after.text("shards", name) == f"{needed} permitted"


async def test_applied_rules_grant_no_other_permissions(
    server: APIServer, capfd: Captured
) -> None:
    target = ConnectionOptions(server=server.url, token="eves-token")
    options = {"namespaces": ("shop",)}
    await apply(server, (await examined(target, capfd=capfd, **options)).rules)

    elsewhere = await examined(target, "pods", capfd=capfd, namespaces=("other",))
    others = await examined(target, "secrets", capfd=capfd, **options)
    bob = ConnectionOptions(server=server.url, token="bobs-token")
    somebody = await examined(bob, "pods", capfd=capfd, **options)

    assert [it.status for it in (elsewhere, others, somebody)] == [1, 1, 1]


async def test_rules_applied_later_keep_earlier_permissions(
    server: APIServer, capfd: Captured
) -> None:
    """`kubectl apply` replaces objects of the same name."""
    eve, bob = (
        ConnectionOptions(server=server.url, token=it)
        for it in ("eves-token", "bobs-token")
    )
    targets = [(eve, "pods"), (bob, "pods"), (eve, "secrets"), (eve, "nodes")]
    for target, word in targets:
        found = await examined(target, word, capfd=capfd, namespaces=("shop",))
        await apply(server, found.rules)

    for target, word in targets:
        found = await examined(target, word, capfd=capfd, namespaces=("shop",))
        assert found.status == 0


async def test_group_rules_grant_permissions_to_all_members(
    server: APIServer, capfd: Captured
) -> None:
    eve = ConnectionOptions(server=server.url, token="eves-token")
    found = await examined(eve, capfd=capfd, group="devs", namespaces=("shop",))
    await apply(server, found.rules)

    for token in ("eves-token", "bobs-token"):
        target = ConnectionOptions(server=server.url, token=token)
        assert (await examined(target, capfd=capfd, namespaces=("shop",))).status == 0


async def test_group_of_others_is_refused(server: APIServer) -> None:
    eve = ConnectionOptions(server=server.url, token="eves-token")
    with pytest.raises(CommandError, match="but in devs, all"):
        await doctor(DoctorOptions(group="admins"), eve)


async def test_list_permission_without_watch_is_failure(
    server: APIServer, capfd: Captured
) -> None:
    target = ConnectionOptions(server=server.url, token="eves-token")
    found = await examined(target, capfd=capfd, namespaces=("shop",))
    found.rules[0]["rules"][0]["verbs"] = ["list"]
    await apply(server, found.rules)
    half = await examined(target, capfd=capfd, namespaces=("shop",))

    assert (half.status, half.failed) == (1, ["permissions"])
    assert half.text("permissions", "pods").startswith("watch not permitted")
    assert half.mark("list", "pods") == "ok"
    assert half.text("watch", "pods") == "watch is not permitted"
    assert half.rules[0]["rules"][0]["verbs"] == ["list", "watch"]


async def test_refused_list_yields_rules_without_access_reviews(
    server: APIServer, capfd: Captured
) -> None:
    async with Front(server.url) as front:
        front.answers["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = 404
        front.answers["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"] = 403
        target = ConnectionOptions(server=front.url, token="eves-token")
        found = await examined(target, capfd=capfd, namespaces=("shop",))
        await apply(server, found.rules)
        after = await examined(target, capfd=capfd, namespaces=("shop",))

    assert (found.mark("permissions", "pods"), found.failed) == ("skipped", ["list"])
    assert found.rules[1]["subjects"][0]["name"] == "eve"
    assert after.status == 0


# ---------------------------------------------------------------- printed


async def test_doctor_prints_rules_after_lines(
    server: APIServer, capfd: Captured
) -> None:
    target = ConnectionOptions(server=server.url, token="pods-token")
    assert await doctor(DoctorOptions(namespaces=("shop",)), target) == 1

    out = capfd.readouterr().out
    lines, _, rules = out.partition("\n# For an administrator")
    assert "failed   pods: permissions " in lines
    assert "Informers will not work: 1 failed, " in lines
    role, binding = yaml.safe_load_all(f"# {rules}")
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    ]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "app", "namespace": "shop"}
    ]


async def test_rules_output_prints_failures_on_stderr(
    server: APIServer, capfd: Captured
) -> None:
    target = ConnectionOptions(server=server.url, token="eves-token")
    await doctor(DoctorOptions(report="rules", resources=("pods", "x")), target)

    out, err = capfd.readouterr()
    assert out.startswith("---\napiVersion: rbac.authorization.k8s.io/v1\n")
    assert "failed   pods: permissions" in err
    assert "failed   x: found" in err
    assert "TLS" not in err


async def test_rules_output_reports_no_missing_rules(
    server: APIServer, capfd: Captured
) -> None:
    assert (
        await doctor(
            DoctorOptions(report="rules"),
            ConnectionOptions(server=server.url, token=TOKEN),
        )
        == 0
    )

    out, err = capfd.readouterr()
    assert (out, err) == ("", "aioinformer: no missing rules found.\n")


def test_rule_names_are_short_and_unique() -> None:
    words = [f"things-{number}" for number in range(50)]
    needs = [
        MissingPermission(Resource("example.com", "v1", it, "Thing")) for it in words
    ]
    subject = subject_of("someone")
    assert subject is not None
    names = [it["metadata"]["name"] for it in manifests(needs, subject)]
    fewer = manifests(needs[:-1], subject)

    assert max(map(len, names)) <= 110
    assert names[0] != fewer[0]["metadata"]["name"]


def test_no_rules_are_empty_yaml() -> None:
    assert as_yaml([]) == ""


def test_rules_quote_names_that_kubectl_reads_as_numbers() -> None:
    account = subject_of("system:serviceaccount:1e3:12e4")
    assert account is not None

    text = as_yaml(manifests([MissingPermission(PODS, "0o7")], account))

    assert "name: '12e4'\n" in text
    assert "namespace: '1e3'\n" in text
    assert "namespace: '0o7'\n" in text


@pytest.mark.parametrize("user", ["", "system:anonymous"])
def test_anonymous_user_has_no_subject(user: str) -> None:
    assert subject_of(user) is None


# ---------------------------------------------------------------- as a process


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_interrupt_ends_doctor_during_request(server: APIServer) -> None:
    async with Front(server.url) as front:
        front.answers["/version"] = HANG
        arguments = ("--server", front.url, "--timeout", "1h")
        async with start("-c", COMMAND, "doctor", *arguments) as process:
            await process.line("TLS")
            process.interrupt(signal.SIGINT)
            end = await process.end()

    assert (end.status, end.err) == (130, "")
    assert end.seconds < PROMPT_SECONDS


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_interrupt_ends_doctor_during_name_resolution() -> None:
    silence = (
        "import socket, time; socket.getaddrinfo = lambda *_, **__: time.sleep(600)"
    )
    arguments = ("--server", "https://api.example", "--timeout", "1h")
    code = f"{silence}; {COMMAND}"
    async with start("-c", code, "doctor", *arguments) as process:
        await process.line("credentials")
        process.interrupt(signal.SIGINT)
        end = await process.end()

    assert (end.status, end.err) == (130, "")
    assert end.seconds < PROMPT_SECONDS


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_interrupt_kills_exec_plugin(tmp_path: Path) -> None:
    command = script(tmp_path / "plugin", f"echo $$ > {tmp_path}/id", "exec sleep 600")
    settings = {"apiVersion": V1, "command": str(command), "interactiveMode": "Never"}
    config = kubeconfig(tmp_path / "config", {"exec": settings})
    arguments = ("--kubeconfig", str(config), "--timeout", "1h")
    async with start("-c", COMMAND, "doctor", *arguments) as process:
        await process.line("configuration")
        while not (text := _read(tmp_path / "id")):
            await asyncio.sleep(0.02)

        process.interrupt(signal.SIGINT)
        end = await process.end()

    assert (end.status, end.err) == (130, "")
    assert end.seconds < PROMPT_SECONDS
    with pytest.raises(ProcessLookupError):
        os.kill(int(text), 0)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)


def config(server: str = "https://api.example:6443", **more: Any) -> ClientConfig:
    return ClientConfig(server=server, **more)


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("marks", "words", "failed"),
    [
        ([], "Informers will work: .", False),
        (["ok", "skipped"], "Informers will work: 1 ok, 1 skipped.", False),
        (
            ["ok", "warning", "warning"],
            "Informers will work, with warnings: 2 warnings, 1 ok.",
            False,
        ),
        (
            ["failed", "warning", "ok"],
            "Informers will not work: 1 failed, 1 warning, 1 ok.",
            True,
        ),
    ],
)
def test_summary_counts_statuses(
    marks: Sequence[StepStatus], words: str, failed: bool
) -> None:
    found = [Finding(step="a", mark=it, text="b") for it in marks]

    assert (summary(found), has_failed(found)) == (words, failed)


def test_finding_line_has_status_step_and_text() -> None:
    finding = Finding(step="list", mark="ok", text="3 objects", resource="pods")

    assert finding.line(12) == "ok       pods: list    3 objects"
    assert finding.document() == {
        "step": "list",
        "resource": "pods",
        "namespace": None,
        "mark": "ok",
        "text": "3 objects",
        "seconds": 0.0,
    }


# ---------------------------------------------------------------- the way there


@pytest.mark.parametrize(
    ("more", "address"),
    [
        ({"server": "https://a.example"}, ("a.example", 443)),
        ({"server": "HTTP://a.example"}, ("a.example", 80)),
        ({"server": "https://[::1]:6443/k8s"}, ("::1", 6443)),
        ({"proxy": "http://p.example:3128"}, ("p.example", 3128)),
        ({"proxy": "http://me:pw@p.example"}, ("p.example", 80)),
    ],
)
def test_address_is_that_of_proxy_or_server(
    more: dict[str, str], address: tuple[str, int]
) -> None:
    assert results.address_of(config(**more)) == address


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (["api.example"], "api.example accepts connections on port 6443, after 12 ms"),
        (
            ["10.0.0.1"],
            "api.example (10.0.0.1) accepts connections on port 6443, after 12 ms",
        ),
        (
            ["10.0.0.2", "10.0.0.1"],
            "api.example (10.0.0.2), one of 2 addresses, accepts connections on port 6443, after 12 ms",
        ),
    ],
)
def test_reached_address_is_reported(addresses: list[str], words: str) -> None:
    assert results.reached(config(), addresses, 0.012) == ("ok", words)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            socket.gaierror(-2, "Name or service not known"),
            "resolve api.example: Name or service",
        ),
        (UnicodeError("label too long"), "cannot resolve api.example: label too long"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "refused the connection"),
        (
            OSError(errno.EHOSTUNREACH, "No route to host"),
            "connect to api.example, port 6443: No route",
        ),
        (OSError("Multiple exceptions: a, b"), "6443: Multiple exceptions: a, b"),
    ],
)
def test_connection_error_is_explained(
    error: OSError | UnicodeError, words: str
) -> None:
    mark, text = results.unreachable(config(), error)

    assert mark == "failed"
    assert words in text


@pytest.mark.parametrize(
    ("server", "mark"),
    [
        ("http://127.0.0.1:8001", "skipped"),
        ("http://localhost", "skipped"),
        ("http://[::1]:8001", "skipped"),
        ("http://localhost.example", "warning"),
        ("http://10.0.0.1", "warning"),
    ],
)
def test_plain_http_to_other_machines_is_warning(server: str, mark: str) -> None:
    assert results.plain(config(server)).mark == mark


@pytest.mark.parametrize(
    ("days", "mark", "words"),
    [
        (14.5, "ok", "valid until 2030-06-16 00:00 UTC"),
        (13.5, "warning", "13 days left: renew it"),
        (0.1, "warning", "0 days left: renew it"),
        (-0.1, "warning", "EXPIRED on 2030-06-01 09:36 UTC"),
        (None, "ok", "expiry unknown"),
    ],
)
def test_certificate_near_expiry_is_warning(
    days: float | None, mark: str, words: str
) -> None:
    ends = None if days is None else NOW + timedelta(days=days)
    answer = results.certificate("it", ends, NOW, names=["a", "b", "c", "d", "e"])

    assert (answer.mark, words in answer.text) == (mark, True)
    assert answer.text.startswith("it, for a, b, c, d, ..., ")


def test_unverified_certificate_is_warning() -> None:
    later = NOW + timedelta(days=100)
    answers = [
        results.certificate("it", it, NOW, verified=False) for it in (later, None)
    ]

    assert [it.mark for it in answers] == ["warning", "warning"]


def test_proxy_password_is_hidden() -> None:
    proxy = "http://me:s3cr3t@p.example:3128"
    answer = results.configuration(config(proxy=proxy), "--server")

    assert answer.text.endswith("through the proxy http://p.example:3128")


async def test_credentials_are_described_without_secrets() -> None:
    described = [
        str(it)
        for it in (
            Credentials(),
            Credentials(token="s3cr3t"),
            Credentials(token_file="/run/token", token="s3cr3t"),
            Credentials(username="me", password="s3cr3t"),
        )
    ]

    assert described == [
        "none",
        "a token",
        "the token in /run/token",
        "a user name and password",
    ]


# ---------------------------------------------------------------- the server


@pytest.mark.parametrize(
    "document", [None, [], {}, {"gitVersion": None}, {"gitVersion": "main"}, "v1.36.0"]
)
def test_invalid_version_document_is_failure(document: object) -> None:
    assert results.version(document, "http://a").mark == "failed"


@pytest.mark.parametrize(
    ("name", "mark"), [("v1.9.6", "warning"), ("v2.0.0", "ok"), ("1.30", "ok")]
)
def test_versions_are_compared_as_numbers(name: str, mark: str) -> None:
    assert results.version({"gitVersion": name}, "http://a").mark == mark


def test_refusal_without_user_has_no_name() -> None:
    assert results.name_in("forbidden by a policy") == ""


# ---------------------------------------------------------------- a resource


@pytest.mark.parametrize(
    ("verbs", "mark"),
    [
        ((), "ok"),
        (("get", "list", "watch"), "ok"),
        (("get", "list"), "failed"),
        (("create",), "failed"),
    ],
)
def test_resource_without_list_or_watch_is_failure(
    verbs: tuple[str, ...], mark: str
) -> None:
    found = ServedResource(PODS, "pod", verbs=verbs)

    assert results.served(found, "here").mark == mark


@pytest.mark.parametrize(
    ("denied", "mark", "words"),
    [
        (set(), "ok", "list, watch and get permitted"),
        ({"get"}, "ok", "list and watch permitted (get is not"),
        ({"watch"}, "failed", "watch not permitted"),
        ({"list", "watch", "get"}, "failed", "list and watch not permitted"),
    ],
)
def test_missing_list_or_watch_permission_is_failure(
    denied: set[str], mark: str, words: str
) -> None:
    answer = results.permissions(denied)

    assert (answer.mark, words in answer.text) == (mark, True)


@pytest.mark.parametrize(
    ("count", "remaining", "more", "words"),
    [
        (0, None, False, "0 objects"),
        (1, None, False, "1 object,"),
        (1, 41, True, "42 objects"),
        (1, None, True, "more than 1 objects"),
    ],
)
def test_list_result_counts_objects(
    count: int, remaining: int | None, more: bool, words: str
) -> None:
    answer = results.listed(count, remaining, 0.001, more=more)

    assert answer.text.startswith(words)
