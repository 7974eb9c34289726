"""Webhooks of the library, called by each API server over HTTPS."""

from __future__ import annotations

import asyncio
import base64
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from contract_servers import REAL
from credential_helpers import Authority
from webhook_helpers import registered

from aioinformer import KubeObject, Resource
from aioinformer.model.resources import CONFIG_MAPS
from aioinformer.webhooks import (
    AdmissionRequest,
    Denied,
    conversion,
    mutating,
    validating,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import aiohttp
    from contract_servers import ServerUnderTest


class ConfigMap(msgspec.Struct):
    """Fields of a config map that the webhooks read."""

    data: dict[str, str] = {}
    binary: bool = False  # a default that no patch may write


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def within(target: ServerUnderTest) -> dict[str, Any]:
    """Return the options of webhooks for this test's namespace only."""
    labels = {"kubernetes.io/metadata.name": target.namespace}
    return {"namespace_selector": {"matchLabels": labels}}


async def create(
    http: aiohttp.ClientSession, path: str, name: str, **fields: Any
) -> tuple[int, Any, list[str]]:
    """Create an object; return status, body and warnings."""
    body = {"metadata": {"name": name}, **fields}
    async with http.post(path, json=body) as answer:
        warnings = answer.headers.getall("Warning", [])
        return answer.status, await answer.json(), warnings


async def test_validating_webhook_refuses_and_warns(
    target: ServerUnderTest, http: aiohttp.ClientSession, authority: Authority
) -> None:
    seen: list[tuple[str, str, str, bool]] = []

    @validating(
        CONFIG_MAPS,
        into=ConfigMap,
        operations=("CREATE", "UPDATE", "DELETE"),
        **within(target),
    )
    async def check_size(config: ConfigMap, request: AdmissionRequest) -> str | None:
        seen.append((request.operation, request.name, request.user, request.dry_run))
        size = int(config.data.get("size", "1"))
        if request.operation == "DELETE":
            if size > 5:
                raise Denied("too large to be deleted")

            return None

        if size > 9:
            raise Denied("the size is above 9", field="data.size")

        if request.old_object and request.old_object.at("data.size") > str(size):
            raise Denied("it must not shrink", code=409)

        return "the size is large" if size > 5 else None

    path = target.path("configmaps")
    async with registered(http, [check_size], authority, target.namespace, path):
        seen.clear()
        status, body, warnings = await create(http, path, "small", data={"size": "2"})
        assert (status, warnings) == (201, [])
        status, body, warnings = await create(http, path, "large", data={"size": "7"})
        assert (status, warnings) == (201, ['299 - "the size is large"'])
        assert [it[:2] for it in seen] == [("CREATE", "small"), ("CREATE", "large")]
        assert all(user and not dry for *_, user, dry in seen)

        status, body, _ = await create(http, path, "huge", data={"size": "10"})
        assert (status, body["reason"]) == (422, "Invalid")
        name = "check-size.configmaps.core"
        refused = f'admission webhook "{name}" denied the request: the size is above 9'
        assert body["message"] == refused
        assert body["details"]["causes"] == [
            {
                "reason": "FieldValueInvalid",
                "field": "data.size",
                "message": "the size is above 9",
            }
        ]

        kind = {"Content-Type": "application/merge-patch+json"}
        smaller = {"data": {"size": "6"}}
        async with http.patch(f"{path}/large", json=smaller, headers=kind) as answer:
            assert answer.status == 409
            assert "it must not shrink" in await answer.text()

        async with http.delete(f"{path}/large") as answer:
            assert answer.status == 403
            assert "too large to be deleted" in await answer.text()

        status, body, _ = await create(http, path, "other", data={"size": "many"})
        assert status == 500
        assert f"webhook {name} failed: ValueError, see its log" in body["message"]
        assert "many" not in body["message"]


async def test_mutating_webhooks_change_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession, authority: Authority
) -> None:
    @mutating(CONFIG_MAPS, **within(target))
    async def label(config: dict[str, Any], request: AdmissionRequest) -> None:
        labels = config["metadata"].setdefault("labels", {})
        labels["example.com/by"] = request.operation.lower()
        request.warnings.append("labelled")

    @mutating(CONFIG_MAPS, into=ConfigMap, **within(target))
    async def fill(config: ConfigMap) -> ConfigMap:
        return msgspec.structs.replace(config, data={"size": "1", **config.data})

    path = target.path("configmaps")
    hooks = [label, fill]
    async with registered(http, hooks, authority, target.namespace, path):
        status, body, warnings = await create(
            http, path, "web", data={"color": "red"}, immutable=False
        )

    assert (status, warnings) == (201, ['299 - "labelled"'])
    assert body["metadata"]["labels"] == {"example.com/by": "create"}
    assert body["data"] == {"size": "1", "color": "red"}
    assert body["immutable"] is False
    assert "binary" not in body


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_G12_failing_webhook_is_decided_by_its_failure_policy(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    authority: Authority,
    policy: Any,
) -> None:
    options = {"failure_policy": policy, "timeout": 1, **within(target)}

    @validating(CONFIG_MAPS, **options)
    async def check(config: KubeObject) -> None:
        do, secret = config.at("data.do"), config.at("data.secret")
        if do == "raise":
            raise ValueError(f"a secret: {secret}")

        if do == "wait":
            await asyncio.sleep(20)

    path = target.path("configmaps")
    name, texts = "check.configmaps.core", []
    async with registered(http, [check], authority, target.namespace, path) as it:
        _, counts, task = it
        for number, do in enumerate(("raise", "wait")):
            data = {"do": do, "secret": "tulip"}
            status, body, _ = await create(http, path, f"web-{number}", data=data)
            assert status == (201 if policy == "Ignore" else 500), body
            texts.append(body.get("message", ""))

        assert counts.results[name, "failed"] == counts.results[name, "timeout"] == 1
        assert counts.errors == 2
        task.cancel()
        await asyncio.wait({task})
        status, body, _ = await create(http, path, "web-2")
        assert status == (201 if policy == "Ignore" else 500), body
        texts.append(body.get("message", ""))

    if policy == "Fail":
        assert all(f'failed calling webhook "{name}"' in text for text in texts)
        assert f"webhook {name} failed: ValueError, see its log" in texts[0]
        assert f"webhook {name} did not answer within 0.9 s" in texts[1]
        assert "tulip" not in texts[0]


async def test_certificate_is_replaced_without_a_restart(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    authority: Authority,
    tmp_path: Path,
) -> None:
    @validating(CONFIG_MAPS, **within(target))
    async def check(config: KubeObject) -> str:
        return "checked"

    path = target.path("configmaps")
    (tmp_path / "new").mkdir()
    another = Authority(tmp_path / "new")
    async with registered(http, [check], authority, target.namespace, path) as it:
        server, _, _ = it
        certificate = server._certificate
        assert certificate is not None
        for file in another.sign("webhook"):
            shutil.copy(file, tmp_path)

        await certificate.check()
        status, body, _ = await create(http, path, "old-ca")
        # Connections of before the change stay open.
        assert status in {201, 500}
        if status == 500:
            assert "certificate" in body["message"]

        hook = await _configuration(http, target.namespace)
        trusted = another.file.read_bytes()
        await _trust(http, target.namespace, hook, trusted)
        for number in range(100):
            _, _, warnings = await create(http, path, f"new-ca-{number}")
            if warnings:
                assert warnings == ['299 - "checked"']
                return

            await asyncio.sleep(0.1)

        pytest.fail("the API server does not trust the new certificate")


async def _configuration(http: aiohttp.ClientSession, name: str) -> Mapping[str, Any]:
    async with http.get(_path(name)) as answer:
        found: Mapping[str, Any] = await answer.json()
        return found


async def _trust(
    http: aiohttp.ClientSession, name: str, body: Mapping[str, Any], ca: bytes
) -> None:
    for hook in body["webhooks"]:
        hook["clientConfig"]["caBundle"] = base64.b64encode(ca).decode()

    async with http.put(_path(name), json=body) as answer:
        assert answer.status == 200, await answer.text()


def _path(name: str) -> str:
    group = "/apis/admissionregistration.k8s.io/v1"
    return f"{group}/validatingwebhookconfigurations/{name}"


# ------------------------------------------------------------ conversion


def definition(group: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"sites.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "sites", "kind": "Site"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == "v1",
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in ("v1alpha1", "v1beta1", "v1")
            ],
        },
    }


# The API server for tests changes only `apiVersion`: see docs/real.md.
@pytest.mark.parametrize("target", [REAL], indirect=True)
async def test_conversion_webhook_converts_by_way_of_the_hub(
    target: ServerUnderTest, http: aiohttp.ClientSession, authority: Authority
) -> None:
    group = f"{target.namespace}.example.com"
    sites = Resource(group, "v1", "sites", "Site")

    @conversion(sites, "v1alpha1", "v1")
    async def from_alpha(site: dict[str, Any]) -> None:
        site["spec"]["image"] = site["spec"].pop("container")
        site["metadata"]["annotations"] = {"from": "v1alpha1"}
        site["metadata"]["uid"] = "another"  # ignored

    @conversion(sites, "v1", "v1beta1")
    async def to_beta(site: dict[str, Any]) -> dict[str, Any]:
        if site["spec"]["image"] == "broken":
            raise ValueError("tulip")

        return {"spec": {"images": [site["spec"]["image"]]}}

    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    kind = {"Content-Type": "application/apply-patch+yaml"}
    crd = f"{crds}/sites.{group}?fieldManager=kubectl"
    async with http.patch(crd, json=definition(group), headers=kind) as answer:
        assert answer.status == 201, await answer.text()

    def path(version: str) -> str:
        return target.path("sites", f"apis/{group}/{version}")

    hooks = [from_alpha, to_beta]
    try:
        async with registered(http, hooks, authority, target.namespace, ""):
            alpha = {"apiVersion": f"{group}/v1alpha1", "kind": "Site"}
            for _ in range(100):
                status, *_ = await create(
                    http, path("v1alpha1"), "web", **alpha, spec={"container": "web:1"}
                )
                if status in {201, 409}:
                    break

                await asyncio.sleep(0.1)

            async with http.get(f"{path('v1')}/web") as answer:
                stored = await answer.json()

            assert stored["spec"] == {"image": "web:1"}
            assert stored["metadata"]["annotations"] == {"from": "v1alpha1"}
            async with http.get(path("v1beta1")) as answer:
                (listed,) = (await answer.json())["items"]

            assert listed["spec"] == {"images": ["web:1"]}
            assert listed["metadata"]["uid"] == stored["metadata"]["uid"]
            assert listed["metadata"]["annotations"] == {"from": "v1alpha1"}

            # A later apply of the CRD keeps its conversion.
            async with http.patch(crd, json=definition(group), headers=kind) as answer:
                conversion_of = (await answer.json())["spec"]["conversion"]
                assert conversion_of["strategy"] == "Webhook"

            hub = {"apiVersion": f"{group}/v1", "kind": "Site"}
            await create(http, path("v1"), "bad", **hub, spec={"image": "broken"})
            async with http.get(f"{path('v1beta1')}/bad") as answer:
                assert answer.status == 500
                text = (await answer.json())["message"]

            key = f"{target.namespace}/bad"
            assert f"cannot convert sites.{group} {key} from v1 to v1beta1" in text
            assert "ValueError" in text
            assert "tulip" not in text
            async with http.get(f"{path('v1alpha1')}/web") as answer:
                text = (await answer.json())["message"]

            assert "from v1 to v1alpha1 is declared" in text
    finally:
        async with http.delete(f"{crds}/sites.{group}") as answer:
            assert answer.status == 200, await answer.text()
