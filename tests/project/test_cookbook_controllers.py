"""The recipes about controllers do what they say."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest
from cookbook import COOKBOOK, running, send_signal

from aioinformer import Forbidden, Resource
from aioinformer.model.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS_V1,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from aioinformer.webhooks import webhook_manifests

if TYPE_CHECKING:
    from cookbook import Program

SITES = Resource("example.com", "v1", "sites", "Site")
SITE_CRD = COOKBOOK / "site-crd.yaml"
SHOP: Any = {"namespace": "shop"}
TEMPLATE: Any = {
    "selector": {"matchLabels": {"app": "blog"}},
    "template": {
        "metadata": {"labels": {"app": "blog"}},
        "spec": {"containers": [{"name": "web", "image": "blog:1"}]},
    },
}


def settings(program: Program, name: str = "settings", **data: str) -> None:
    labels = {"app": "web"}
    body = {"metadata": {"name": name, "labels": labels}, "data": data}
    program.server.create(CONFIG_MAPS, body, **SHOP)


def writes(program: Program) -> list[str]:
    verbs = [it.verb for it in program.server.requests]
    return [it for it in verbs if it not in {"get", "list", "watch"}]


async def test_requeue_an_object_in_ten_minutes() -> None:
    async with running("Requeue an object in ten minutes") as program:
        settings(program)
        await asyncio.sleep(601)


async def test_reconcile_each_object_every_five_minutes() -> None:
    async with running("Reconcile each object every five minutes") as program:
        settings(program)
        while program.output.getvalue().count("timer") < 2:
            await asyncio.sleep(1)


async def test_reconcile_typed_objects() -> None:
    async with running("Reconcile typed objects") as program:
        program.server.load(SITE_CRD)
        site = {"metadata": {"name": "blog"}, "spec": {"image": "blog:1"}}
        program.server.create(SITES, site, **SHOP)
        bad = {"metadata": {"name": "bad"}, "spec": {"replicas": "many"}}
        program.server.create(SITES, bad, **SHOP)
        await asyncio.sleep(60)


async def test_write_an_operator_as_a_class() -> None:
    async with running("Write an operator as a class") as program:
        settings(program)
        await asyncio.sleep(1)


async def test_restart_deployments_when_a_secret_changes() -> None:
    def version() -> Any:
        found = server.get(DEPLOYMENTS, "api", **SHOP)
        annotations = found["spec"]["template"]["metadata"]["annotations"]
        return annotations["example.com/secrets"]

    async with running("Restart Deployments when a Secret changes") as program:
        server = program.server
        web = server.get(DEPLOYMENTS, "web", **SHOP)
        secret = server.create(SECRETS, {"metadata": {"name": "key"}}, **SHOP)
        volume = {"name": "key", "secret": {"secretName": "key"}}
        template = {"spec": web["spec"]["template"]["spec"] | {"volumes": [volume]}}
        spec = web["spec"] | {"template": web["spec"]["template"] | template}
        server.create(DEPLOYMENTS, {"metadata": {"name": "api"}, "spec": spec}, **SHOP)
        first = secret["metadata"]["resourceVersion"]
        await server.until(lambda: version() == first)
        changed = server.patch(SECRETS, "key", {"data": {"key": "bmV3"}}, **SHOP)
        second = changed["metadata"]["resourceVersion"]
        await server.until(lambda: version() == second)
        await asyncio.sleep(60)

    assert writes(program).count("patch") <= 6, "it does not trigger itself for ever"
    assert second != first


async def test_apply_objects_server_side() -> None:
    async with running("Apply objects server-side") as program:
        labels = {"metadata": {"labels": {"team": "a"}}}
        program.server.patch(NAMESPACES, "shop", labels)
        (policy,) = await program.server.until(
            lambda: program.server.objects(NETWORK_POLICIES)
        )
        assert policy["metadata"]["namespace"] == "shop"
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        (fields,) = policy["metadata"]["managedFields"]
        assert (fields["manager"], fields["operation"]) == ("deny-ingress", "Apply")


async def test_create_an_object_that_is_deleted_with_its_owner() -> None:
    async with running("Create an object that is deleted with its owner") as program:
        server = program.server
        server.patch(
            DEPLOYMENTS, "web", {"metadata": {"labels": {"expose": "yes"}}}, **SHOP
        )
        service = await server.until(lambda: server.get(SERVICES, "web", **SHOP))
        (owner,) = service["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"]) == ("apps/v1", "Deployment")
        await asyncio.sleep(60)
        server.delete(SERVICES, "web", **SHOP)
        await server.until(lambda: server.get(SERVICES, "web", **SHOP))
        await asyncio.sleep(60)

    assert writes(program) == ["patch", "patch"]


async def test_delete_objects_that_are_no_longer_wanted() -> None:
    def names() -> list[str]:
        return sorted(it["metadata"]["name"] for it in program.server.objects(SERVICES))

    async with running("Delete objects that are no longer wanted") as program:
        body = {"metadata": {"name": "p", "labels": {"app": "ports"}}}
        data = {"data": {"api": "80", "web": "81"}}
        program.server.create(CONFIG_MAPS, body | data, **SHOP)
        await program.server.until(lambda: names() == ["api", "web"])
        await asyncio.sleep(60)
        fewer = {"data": {"api": None, "db": "5432"}}
        program.server.patch(CONFIG_MAPS, "p", fewer, **SHOP)
        await program.server.until(lambda: names() == ["db", "web"])

    assert writes(program) == ["create", "create", "delete", "create"]


async def test_clean_up_outside_the_cluster_before_a_deletion() -> None:
    async with running("Clean up outside the cluster before a deletion") as program:
        server = program.server
        body: Any = {"metadata": {"name": "web", "labels": {"dns": "yes"}}}
        server.create(SERVICES, body | {"spec": {"ports": [{"port": 80}]}}, **SHOP)
        await asyncio.sleep(10)
        held = server.get(SERVICES, "web", **SHOP)["metadata"]["finalizers"]
        assert held == ["example.com/dns"]
        server.delete(SERVICES, "web", **SHOP)
        await asyncio.sleep(10)
        assert server.objects(SERVICES) == []


async def test_report_status_and_conditions() -> None:
    def condition() -> Any:
        (found,) = server.get(SITES, "blog", **SHOP)["status"]["conditions"]
        return found

    async with running("Report status and conditions") as program:
        program.server.load(SITE_CRD)
        server = program.server
        site = {"metadata": {"name": "blog"}, "spec": {"image": "blog:1"}}
        server.create(SITES, site, **SHOP)
        await server.until(lambda: condition()["reason"] == "UntrustedImage")
        image = "registry.example.com/blog:1"
        server.patch(SITES, "blog", {"spec": {"image": image}}, **SHOP)
        await server.until(lambda: condition()["status"] == "True")
        assert condition()["observedGeneration"] == 2
        assert server.get(SITES, "blog", **SHOP)["status"]["url"]
        await asyncio.sleep(600)

    assert writes(program) == ["patch", "patch"]


async def test_record_kubernetes_events_about_an_object() -> None:
    async with running("Record Kubernetes events about an object") as program:
        server = program.server
        container = {"name": "web", "image": "web:latest"}
        spec = {"template": {"spec": {"containers": [container]}}}
        server.patch(DEPLOYMENTS, "web", {"spec": spec}, **SHOP)
        (event,) = await server.until(lambda: server.objects(EVENTS_V1))

    assert (event["type"], event["reason"]) == ("Warning", "UnpinnedImage")
    assert event["regarding"]["kind"] == "Deployment"
    assert event["note"] == "container web uses the tag latest"


async def test_give_up_on_permanent_errors() -> None:
    async with running("Give up on permanent errors") as program:
        settings(program, limits="many")
        await asyncio.sleep(3600)
        limits = {"data": {"limits": '{"pods": 20}'}}
        program.server.patch(CONFIG_MAPS, "settings", limits, **SHOP)
        await asyncio.sleep(3600)


async def test_change_how_failures_are_retried() -> None:
    async with running("Change how failures are retried") as program:
        settings(program)
        await asyncio.sleep(3600)


async def test_limit_the_number_of_concurrent_reconciles() -> None:
    async with running("Limit the number of concurrent reconciles") as program:
        labels = {"app": "backup"}
        for number in (1, 2, 3):
            body = {"metadata": {"name": f"backup-{number}", "labels": labels}}
            program.server.create(CONFIG_MAPS, body, **SHOP)

        await asyncio.sleep(60)


async def test_ignore_changes_of_status_and_metadata() -> None:
    async with running("Ignore changes of status and metadata") as program:
        await asyncio.sleep(10)
        ready = {"status": {"observedGeneration": 1, "replicas": 2}}
        seen = {"metadata": {"labels": {"seen": "yes"}}}
        async with program.server.client() as client:
            await client.patch_status(DEPLOYMENTS, "web", ready, **SHOP)
            await client.patch(DEPLOYMENTS, "web", seen, **SHOP)
            await asyncio.sleep(10)
            three = {"spec": {"replicas": 3}}
            await client.patch(DEPLOYMENTS, "web", three, **SHOP)

        await asyncio.sleep(10)


async def test_react_to_a_change_of_one_field() -> None:
    async with running("React to a change of one field") as program:
        await asyncio.sleep(10)
        three = {"spec": {"replicas": 3}}
        program.server.patch(DEPLOYMENTS, "web", three, **SHOP)
        await asyncio.sleep(10)
        container = {"name": "web", "image": "registry.example/web:2"}
        newer = {"spec": {"template": {"spec": {"containers": [container]}}}}
        program.server.patch(DEPLOYMENTS, "web", newer, **SHOP)
        await asyncio.sleep(10)


async def test_run_a_job_every_minute() -> None:
    async with running("Run a job every minute") as program:
        await asyncio.sleep(30)
        failed = {"status": {"phase": "Failed"}}
        program.server.patch(PODS, "db-0", failed, **SHOP)
        await asyncio.sleep(60)


async def test_run_a_background_task_for_each_object() -> None:
    async with running("Run a background task for each object") as program:
        for name in ("a", "b"):
            body = {"metadata": {"name": name, "labels": {"app": "target"}}}
            program.server.create(CONFIG_MAPS, body, **SHOP)

        await asyncio.sleep(30)
        program.server.delete(CONFIG_MAPS, "b", **SHOP)
        await asyncio.sleep(60)
        send_signal(signal.SIGTERM)
        await program.main


async def test_reconcile_when_something_outside_the_cluster_changes() -> None:
    async with running(
        "Reconcile when something outside the cluster changes"
    ) as program:
        settings(program)
        await asyncio.sleep(60)
        program.module.changes.put_nowait("shop/settings")
        await asyncio.sleep(60)


async def test_reconcile_urgent_objects_first() -> None:
    async with running("Reconcile urgent objects first") as program:
        for number in (1, 2, 3):
            labels = {"app": "job", "urgent": "yes" if number == 3 else "no"}
            body = {"metadata": {"name": f"job-{number}", "labels": labels}}
            program.server.create(CONFIG_MAPS, body, **SHOP)

        await asyncio.sleep(60)


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_call_blocking_code_in_a_reconcile() -> None:
    def checksum() -> Any:
        found = program.server.get(CONFIG_MAPS, "settings", **SHOP)
        return found["metadata"]["annotations"]["example.com/checksum"]

    async with running("Call blocking code in a reconcile") as program:
        settings(program, text="hello")
        assert await program.server.until(checksum, timeout=20) == "3287646509"


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_write_a_reconcile_without_async() -> None:
    def checksum() -> Any:
        found = program.server.get(CONFIG_MAPS, "settings", **SHOP)
        return found["metadata"]["annotations"]["example.com/checksum"]

    async with running("Write a reconcile without async") as program:
        settings(program, text="hello")
        assert await program.server.until(checksum, timeout=20) == "3287646509"


async def test_refuse_objects_by_a_webhook() -> None:
    edits = {"port=9443": 'port=0, host="127.0.0.1"'}
    async with running("Refuse objects by a webhook", edits=edits) as program:
        server, hook = program.module.server, program.module.check_team
        async with asyncio.timeout(10):
            while server.why_not_serving():
                await asyncio.sleep(0.1)

        url = f"http://127.0.0.1:{server.port}"
        for body in webhook_manifests([hook], name="teams", url=url):
            program.server.create(VALIDATING_WEBHOOK_CONFIGURATIONS, body)

        labels = {"protected": "yes"}
        body = {"metadata": {"name": "blog", "namespace": "shop", "labels": labels}}
        async with program.server.client() as client:
            await client.create(DEPLOYMENTS, {**body, "spec": TEMPLATE})
            with pytest.raises(Forbidden, match="remove the label protected first"):
                await client.delete(DEPLOYMENTS, "blog", **SHOP)
