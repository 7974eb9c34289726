"""docs/shards.md: its program, commands, rules, manifests and alerts work."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from doc_blocks import blocks_of, broken_links, said
from doc_fragments import place, run_fragment
from doc_sessions import answers
from processes import ROOT

from aioinformer import Client, Controller, Shards
from aioinformer.cli.connection import ConnectionOptions
from aioinformer.cli.rbac import ProgramOptions, print_rbac
from aioinformer.cli.shards import ShardsOptions, status
from aioinformer.client import ClientConfig, Credentials
from aioinformer.controller.metrics import ShardsMetrics
from aioinformer.controller.shards.timing import ShardTiming
from aioinformer.errors import OptionsError
from aioinformer.model.resources import CONFIG_MAPS, LEASES
from aioinformer.testing import APIServer, User

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

PAGE = ROOT / "docs" / "shards.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROGRAM, ENTERED, TENANTS, EXPORTER, STATUS, DURATIONS = blocks_of(TEXT, "python")
RULES, DEPLOYED, ALERTS = blocks_of(TEXT, "yaml")
RBAC, COMMAND = (it for block in blocks_of(TEXT, "console") for it in said(block))
RANGES = 64


def test_links_resolve() -> None:
    assert broken_links(PAGE) == []
    known = {"console", "python", "text", "yaml"}
    assert {it.language for it in blocks_of(TEXT)} == known


# ------------------------------------------------------------ the program


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    account = User("system:serviceaccount:sites:sites", ("system:serviceaccounts",))
    async with APIServer(
        token="admin", users={"sites": account}, auto_namespaces=True
    ) as server:
        server.load(ROOT / "examples" / "site-crd.yaml")
        yield server


@pytest.fixture
def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(PROGRAM.text, found)
    return found


def client_of(server: APIServer) -> Client:
    """Return a client of the service account, as in a pod."""
    config = ClientConfig(
        server=server.url, credentials=Credentials(token="sites"), namespace="sites"
    )
    return Client(config)


async def apply_printed_rules(
    server: APIServer, capfd: Captured, tmp_path: Path
) -> None:
    command, shown = RBAC
    assert command.replace("\\\n", "").split() == [
        *("aioinformer", "doctor", "sites", "configmaps", "--rbac", "--shards", "-A"),
        *("--service-account", "sites/sites", "--allow", "sites=get"),
        *("--allow", "configmaps=create,patch"),
    ]
    options = ProgramOptions(
        informers=("sites", "configmaps"),
        all_namespaces=True,
        account="sites/sites",
        allowed=("sites=get", "configmaps=create,patch"),
        shards=True,
    )
    target = ConnectionOptions(server=server.url, token="admin")
    capfd.readouterr()
    assert await print_rbac(options, target) == 0
    printed = capfd.readouterr().out
    assert answers(printed, shown), printed
    path = tmp_path / "rbac.yaml"
    path.write_text(printed)
    server.load(path)
    (rules,) = yaml.safe_load_all(RULES.text)
    roles = [it for it in yaml.safe_load_all(printed) if it["kind"] == "Role"]
    assert [normal(it["rules"]) for it in roles] == [normal(rules["rules"])]


def normal(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for it in rules
        for group in it["apiGroups"]
        for resource in it["resources"]
        for verb in it["verbs"]
    }


async def test_two_replicas_of_the_program_share_the_objects(
    server: APIServer,
    names: dict[str, Any],
    capfd: Captured,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.INFO, "aioinformer_apiserver")
    await apply_printed_rules(server, capfd, tmp_path)
    sites = [f"site-{number}" for number in range(20)]
    for name in sites:
        body = {"metadata": {"name": name}, "spec": {"image": "web:1"}}
        server.create(names["SITES"], body, namespace="shop")

    managers = [names["make_manager"](client_of(server)) for _ in range(2)]
    groups = [manager.shards[0] for manager in managers]
    async with AsyncExitStack() as stack:
        for manager in managers:
            await stack.enter_async_context(manager)

        await until(lambda: [len(it.held) for it in groups] == [32, 32])
        await server.until(lambda: len(server.objects(CONFIG_MAPS)) == 20)
        assert await shards_command(server, capfd) == 0
        server.delete(names["SITES"], "site-1", namespace="shop")
        await asyncio.sleep(5)
        assert [it.why_not_ready() for it in groups] == ["", ""]

    assert [it for it in caplog.messages if "status=403" in it] == []
    assert any(it.verb == "get" and it.resource == "sites" for it in server.requests)
    stated = {it["metadata"]["name"] for it in server.objects(LEASES)}
    assert {"sites", "sites-range-07"} <= stated


async def shards_command(server: APIServer, capfd: Captured) -> int:
    command, shown = COMMAND
    assert command == "aioinformer shards status sites -n sites"
    capfd.readouterr()
    options = ShardsOptions(group="sites", namespace="sites")
    target = ConnectionOptions(server=server.url, token="admin")
    result = await status(options, target)
    printed = capfd.readouterr().out
    assert answers(printed, shown), printed
    return result


# ------------------------------------------------------------ the other blocks


async def test_fragments_run(names: dict[str, Any]) -> None:
    async with place() as given:
        given |= names
        printed, _ = await run_fragment(STATUS, given)
        assert printed == "\n\nidle 0 owned, 64 unowned\n"
        await run_fragment(DURATIONS, given)
        assert given["quick"].timing.lease_duration == 15


async def test_controller_runs_without_a_manager(names: dict[str, Any]) -> None:
    async with place() as given:
        given |= names
        await run_fragment(ENTERED, given)
        shards = given["Shards"]("pods", given["client"])
        done: list[str] = []

        async def reconcile(request: Any, ctx: Any) -> None:
            done.append(request.key)

        factory = given["factory"] = given["SharedInformerFactory"](given["client"])
        controller = Controller(
            "pods", reconcile, for_=factory.informer(given["PODS"]), shards=shards
        )
        async with cancelling(given["main"](controller, shards)):
            await until(lambda: len(done) >= 3)

    assert sorted(done) == ["shop/db-0", "shop/web-0", "shop/web-1"]


async def test_exporter_reads_the_objects_of_its_replica(
    names: dict[str, Any], capfd: Captured
) -> None:
    async with place() as given:
        given |= names
        given["factory"] = given["SharedInformerFactory"](given["client"])
        await run_fragment(TENANTS, given)
        await run_fragment(EXPORTER, given)
        capfd.readouterr()
        async with cancelling(given["export"]()):
            await asyncio.sleep(20)

    assert capfd.readouterr().out.splitlines()[-1] == "3 pods of this replica"


async def test_children_by_namespace_follow_their_owners(
    server: APIServer, names: dict[str, Any]
) -> None:
    exec(TENANTS.text, names)
    namespaces = [f"tenant-{number}" for number in range(10)]
    for namespace in namespaces:
        body = {"metadata": {"name": "blog"}, "spec": {"image": "web:1"}}
        server.create(names["SITES"], body, namespace=namespace)

    clients = [server.client(token="admin") for _ in range(2)]
    managers = [names["make_tenants"](it) for it in clients]
    async with AsyncExitStack() as stack:
        for manager in managers:
            await stack.enter_async_context(manager)

        await until(lambda: [len(it.shards[0].held) for it in managers] == [32, 32])
        await until(lambda: len(server.objects(CONFIG_MAPS)) == 10)
        await asyncio.sleep(5)
        for manager in managers:
            sites, maps = (
                {obj.namespace for obj in it.store.list()} for it in manager.informers
            )
            group = manager.shards[0]
            mine = {it for it in namespaces if group.owns(group.range_of(it))}
            assert sites == maps == mine

        for namespace in namespaces:  # each replica notices changes of its children
            server.delete(CONFIG_MAPS, "blog", namespace=namespace)

        await until(lambda: len(server.objects(CONFIG_MAPS)) == 10)


@asynccontextmanager
async def cancelling(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine for the time of a block."""
    running = asyncio.create_task(work)
    try:
        yield
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():
            await asyncio.sleep(0.1)


async def test_manifests_are_valid(server: APIServer, tmp_path: Path) -> None:
    for number, block in enumerate((RULES, DEPLOYED)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block.text)
        server.load(path)

    deployment, scaler = yaml.safe_load_all(DEPLOYED.text)
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    timing = Shards("sites", Client.from_url(server.url)).timing
    ending = timing.drain + timing.stop + timing.flight
    words = " ".join(TEXT.split())
    assert f"within {ending:g} s, hands them over" in words
    assert f"After {timing.drain:g} s, they are cancelled" in words
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 2 * ending


def test_alerts_name_metrics_of_shards() -> None:
    rules = [
        it for group in yaml.safe_load(ALERTS.text)["groups"] for it in group["rules"]
    ]
    named = {
        name for it in rules for name in re.findall(r"aioinformer_\w+", it["expr"])
    }
    documented = set(re.findall(r"`(aioinformer_\w+)`", ShardsMetrics.__doc__ or ""))
    assert named <= documented
    assert len(rules) == len(named) == 3


def test_stated_rule_is_that_of_the_timing() -> None:
    (rule,) = [it.text for it in blocks_of(TEXT, "text") if "<=" in it.text]
    left, right = rule.split("<=")
    for lease, renew, shown in (
        (20, 11, ("16.0", "16.67")),
        (15, 10, ("14.75", "12.5")),
    ):
        given = {"renew_deadline": renew, "lease_duration": lease}
        sums = [evaluated(it, given) for it in (left, right)]
        assert [f"{it:.2f}" for it in sums] == [f"{float(it):.2f}" for it in shown]
        assert all(it in TEXT for it in shown)

    timing = ShardTiming()
    values: dict[str, float] = {
        "renew_deadline": timing.renew_deadline,
        "lease_duration": timing.lease_duration,
    }
    assert evaluated(left, values) == pytest.approx(timing.longest_work)
    assert evaluated(right, values) == pytest.approx(timing.shortest_wait)
    with pytest.raises(OptionsError, match=r"14\.75 s is longer than .* 12\.50 s"):
        ShardTiming(lease_duration=15, renew_deadline=10)


def evaluated(formula: str, values: Mapping[str, float]) -> float:
    code = compile(ast.parse(formula.strip(), mode="eval"), "rule", "eval")
    return float(eval(code, {"__builtins__": {}}, values))
