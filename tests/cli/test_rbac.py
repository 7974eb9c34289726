"""`aioinformer doctor --rbac`."""

from __future__ import annotations

import asyncio
import logging
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import prometheus_client  # noqa: F401 - it reads files when it is imported
import pytest
import yaml
from click.testing import CliRunner
from processes import ROOT
from shards_helpers import ShardListener

from aioinformer import Client, EventRecorder, Shards
from aioinformer.cli.commands import aioinformer
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.rbac import ProgramOptions, print_rbac
from aioinformer.client import ClientConfig, Credentials
from aioinformer.errors import AioInformerError
from aioinformer.model import Resource
from aioinformer.model.resources import DEPLOYMENTS, ROLES
from aioinformer.testing import APIServer, User
from aioinformer.testing.faults import Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

SITES = Resource("example.com", "v1", "sites", "Site")
ACCOUNT = "system:serviceaccount:shop:site-operator"
EXAMPLE = ROOT / "examples" / "site_operator.py"

# Everything that examples/site_operator.py does.
OPERATOR = ProgramOptions(
    account="shop/site-operator",
    all_namespaces=True,
    informers=("sites", "deployments.apps", "services"),
    finalizers=("sites.example.com",),
    statuses=("Site",),
    allowed=("deployments.apps=create,patch", "services=create,patch"),
    lease="site-operator",
    events=True,
)


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    users = {"operator": User(ACCOUNT)}
    async with APIServer(token="admin", users=users, auto_namespaces=True) as server:
        server.load(
            ROOT / "examples" / "site-crd.yaml", ROOT / "examples" / "site.yaml"
        )
        yield server


async def printed(
    server: APIServer, options: ProgramOptions, capfd: Captured
) -> list[dict[str, Any]]:
    """Return the documents that the command prints."""
    capfd.readouterr()
    target = ConnectionOptions(server=server.url, token="admin")
    assert await print_rbac(options, target) == 0
    return list(yaml.safe_load_all(capfd.readouterr().out))


def apply(server: APIServer, documents: list[dict[str, Any]], tmp_path: Path) -> None:
    """Apply the output, which the server validates as for `kubectl apply`."""
    path = tmp_path / "rbac.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    server.load(path)


async def operate(client: Client, server: APIServer) -> None:
    """Run the operator, while a site is created, deployed, and deleted."""
    names: dict[str, Any] = {"__name__": "operator"}
    exec(EXAMPLE.read_text(encoding="utf-8"), names)
    # After a conflict, the finalizer is written again.
    server.faults.add(Refuse(verb="patch", resource="sites", status=409))
    recorder = EventRecorder(client, "site-operator")
    async with asyncio.TaskGroup() as group:
        operator = group.create_task(names["make_manager"](client).run())
        recording = group.create_task(recorder.run())
        site = server.get(SITES, "blog")
        for seconds in (1, 10):  # created, then changed to a series
            recorder.event(site, "Normal", "Noticed", "noticed")
            await asyncio.sleep(seconds)

        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {"observedGeneration": 1, **dict.fromkeys(counts, 2)}
        server.patch(DEPLOYMENTS, "blog", {"status": status})
        await server.until(
            lambda: server.get(SITES, "blog")["status"]["ready"] == 2, timeout=60
        )
        server.delete(SITES, "blog")
        await server.until(lambda: not server.objects(SITES), timeout=60)
        operator.cancel()
        recording.cancel()


async def refusals(server: APIServer, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Run the operator with the permissions of its account; return refused requests."""
    caplog.clear()
    caplog.set_level(logging.INFO, "aioinformer_apiserver")
    config = ClientConfig(
        server=server.url, credentials=Credentials(token="operator"), namespace="shop"
    )
    async with Client(config) as client:
        try:
            await operate(client, server)
        except* (AioInformerError, TimeoutError):
            pass  # It lacks a permission, and did not finish its work.

    return [it for it in caplog.messages if "status=403" in it]


# ---------------------------------------------------------------- whole operators


async def test_operator_needs_exactly_the_printed_rules(
    server: APIServer,
    capfd: Captured,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    apply(server, await printed(server, OPERATOR, capfd), tmp_path)

    assert await refusals(server, caplog) == []
    assert server.objects(SITES) == []


def without_one(documents: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return all documents without one verb of one resource, in every possible way."""
    found = []
    for index, document in enumerate(documents):
        for number, rule in enumerate(document.get("rules", ())):
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    fewer = deepcopy(documents)
                    rules = fewer[index]["rules"]
                    del rules[number]
                    for key, kept in (("verbs", verb), ("resources", resource)):
                        others = [it for it in rule[key] if it != kept]
                        if others:
                            rules.append({**rule, key: others})

                    found.append((f"{resource} {verb}", fewer))

    return found


async def test_operator_with_one_permission_less_is_refused(
    server: APIServer,
    capfd: Captured,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    documents = await printed(server, OPERATOR, capfd)
    start = server.snapshot()
    found = {}
    for name, fewer in without_one(documents):
        await server.restart(snapshot=start)
        server.faults.clear()
        apply(server, fewer, tmp_path)
        found[name] = bool(await refusals(server, caplog))

    assert [name for name, refused in found.items() if not refused] == []
    assert len(found) == 18


async def refusals_of_shards(
    server: APIServer, caplog: pytest.LogCaptureFixture
) -> set[str]:
    """Take part in a group with the permissions of the account; return refused verbs."""
    caplog.clear()
    caplog.set_level(logging.INFO, "aioinformer_apiserver")
    config = ClientConfig(
        server=server.url, credentials=Credentials(token="operator"), namespace="shop"
    )
    shards = Shards("sites", Client(config), ranges=2)
    shards.join(ShardListener())
    async with shards:
        await asyncio.sleep(15)  # the first start of a group takes 11 s

    refused = [it.split(":")[0] for it in caplog.messages if "status=403" in it]
    return {f"{it.split()[0]} {it.partition('/shop/')[2][:6]}" for it in refused}


async def test_shards_need_exactly_the_printed_rules(
    server: APIServer,
    capfd: Captured,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    options = ProgramOptions(account="shop/site-operator", shards=True)
    documents = await printed(server, options, capfd)
    start = server.snapshot()
    found = {}
    for name, fewer in [("all", documents), *without_one(documents)]:
        await server.restart(snapshot=start)
        apply(server, fewer, tmp_path)
        found[name] = await refusals_of_shards(server, caplog)

    # An Event of a move is only changed if the range moves again within minutes.
    assert found == {
        "all": set(),
        "leases list": {"GET leases"},
        "leases watch": {"GET leases"},
        "leases create": {"POST leases"},
        "leases update": {"PUT leases"},
        "leases delete": {"DELETE leases"},
        "events create": {"POST events"},
        "events patch": set(),
    }


# ---------------------------------------------------------------- scopes


def granted(documents: list[dict[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """Return resources and verbs by kind and namespace of their role."""
    return {
        (it["kind"], it["metadata"].get("namespace", "")): [
            f"{','.join(rule['resources'])}: {' '.join(rule['verbs'])}"
            for rule in it["rules"]
        ]
        for it in documents
        if "rules" in it
    }


async def test_shards_need_leases_and_events_beside_the_account(
    server: APIServer, capfd: Captured
) -> None:
    options = ProgramOptions(account="ops/app", namespaces=("shop",), shards=True)
    documents = await printed(server, options, capfd)
    assert granted(documents) == {
        ("Role", "ops"): [
            "leases: list watch create update delete",
            "events: create patch",
        ]
    }


async def test_rules_of_one_namespace_are_roles(
    server: APIServer, capfd: Captured, tmp_path: Path
) -> None:
    options = ProgramOptions(
        account="app",
        namespaces=("shop",),
        informers=("pods", "cm", "nodes"),
        allowed=("pods/eviction=create", "pods=delete,patch", "ns=get"),
        events=True,
    )
    documents = await printed(server, options, capfd)

    assert granted(documents) == {
        ("ClusterRole", ""): ["namespaces: get", "nodes: list watch"],
        ("Role", "default"): ["events: create patch"],  # about nodes
        ("Role", "shop"): [
            "configmaps: list watch",
            "pods: list watch patch delete",
            "pods/eviction: create",
            "events: create patch",
        ],
    }
    account = {"kind": "ServiceAccount", "name": "app", "namespace": "shop"}
    subjects = [it["subjects"] for it in documents if "subjects" in it]
    assert subjects == [[account]] * 3
    apply(server, documents, tmp_path)


async def test_roles_in_other_namespaces_are_named_after_the_accounts_namespace(
    server: APIServer, capfd: Captured
) -> None:
    options = ProgramOptions(
        account="ops/app", namespaces=("shop",), informers=("pods",), lease="app"
    )
    documents = await printed(server, options, capfd)
    named = {
        (it["metadata"]["namespace"], it["metadata"]["name"]) for it in documents[1:]
    }

    assert named == {("ops", "app-leader-election"), ("shop", "ops:app")}
    assert granted(documents) == {
        ("Role", "ops"): ["leases: create", "leases: get update"],
        ("Role", "shop"): ["pods: list watch"],
    }


async def test_rules_of_two_namespaces_do_not_replace_each_other(
    server: APIServer, capfd: Captured, tmp_path: Path
) -> None:
    common: dict[str, Any] = {"account": "shop/app", "lease": "app", "events": True}
    for namespace in ("shop", "media"):
        options = ProgramOptions(
            namespaces=(namespace,), informers=("pods", "nodes"), **common
        )
        apply(server, await printed(server, options, capfd), tmp_path)

    roles = {
        (it["metadata"]["namespace"], it["metadata"]["name"]): len(it["rules"])
        for it in server.objects(ROLES)
    }
    assert roles == {
        ("shop", "app"): 2,
        ("media", "shop:app"): 2,
        ("shop", "app-leader-election"): 2,
        ("default", "shop:app-events"): 1,
    }


async def test_rules_of_several_namespaces_are_printed_at_once(
    server: APIServer, capfd: Captured, tmp_path: Path
) -> None:
    options = ProgramOptions(
        account="shop/app",
        namespaces=("shop", "media"),
        informers=("pods", "nodes"),
        statuses=("sites",),
        events=True,
    )
    documents = await printed(server, options, capfd)

    rules = ["sites/status: patch", "pods: list watch", "events: create patch"]
    found = granted(documents)
    assert set(found.pop(("Role", "shop"))) == set(rules)
    assert set(found.pop(("Role", "media"))) == set(rules)
    assert found == {
        ("ClusterRole", ""): ["nodes: list watch"],
        ("Role", "default"): ["events: create patch"],
    }
    apply(server, documents, tmp_path)


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"account": "shop/app"}, "--rbac needs to know what the program does"),
        ({"informers": ("pods",)}, "pass --service-account NAMESPACE/NAME"),
        ({"informers": ("pods",), "account": "app"}, "--service-account NAMESPACE/app"),
        (
            {"informers": ("pods",), "account": "app", "namespaces": ("a", "b")},
            "--service-account NAMESPACE/app",
        ),
        (
            {"informers": ("pods",), "namespaces": ("shop",)},
            "--service-account shop/NAME",
        ),
        ({"informers": ("things",), "account": "shop/app"}, "no resource 'things'"),
        ({"allowed": ("pods",), "account": "shop/app"}, "--allow pods: expected"),
        ({"allowed": ("pods=eat",), "account": "shop/app"}, "Verbs are get, list"),
        ({"allowed": ("=get",), "account": "shop/app"}, "--allow =get: expected"),
        ({"allowed": ("pods/=get",), "account": "shop/app"}, "--allow pods/=get: exp"),
        ({"lease": "", "account": "shop/app"}, "--leader-election: '' is no name"),
        (
            {"lease": "shop/x", "account": "shop/app"},
            "Its namespace is that of --service-account.",
        ),
        ({"events": True, "account": "shop/a b"}, "--service-account: 'a b' is no n"),
        ({"events": True, "account": "a:b/app"}, "--service-account: 'a:b' is no na"),
        (
            {"events": True, "account": "shop/app", "namespaces": ("*",)},
            "-n: '*' is no name",
        ),
        (
            {"events": True, "namespaces": ("shop",), "all_namespaces": True},
            "-n and -A cannot be combined",
        ),
    ],
)
async def test_incomplete_options_are_refused(
    options: dict[str, Any], message: str, server: APIServer
) -> None:
    target = ConnectionOptions(server=server.url, token="admin")
    with pytest.raises(CommandError) as caught:
        await print_rbac(ProgramOptions(**options), target)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--events"], "--events requires --rbac."),
        (["pods", "--allow", "pods=get"], "--allow requires --rbac."),
        (["--rbac", "-o", "json"], "--rbac cannot be combined with -o or --group."),
        (["--rbac", "--service-account", ""], "pass the account of the program"),
    ],
)
def test_options_without_meaning_are_usage_errors(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(aioinformer, ["doctor", *arguments])

    assert result.exit_code == 2
    assert message in result.output
