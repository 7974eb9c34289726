"""Admission webhooks: when they are called, with what, and what their answers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from api_calls import (
    WIDGETS_GROUP,
    a_pod,
    ask,
    change,
    make,
    named,
    patch,
    remove,
    widget,
)
from canned import make_certificates
from test_warnings import warned
from webhook_hosts import (
    REGISTRATION,
    a_hook_server,
    a_rule,
    allow,
    configured,
    deny,
    patching,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from canned import Certificates
    from contract_servers import ServerUnderTest
    from webhook_hosts import HookServer

DENIED = 'admission webhook "hook-0.example.com" denied the request'
INVALID = "received invalid webhook response: "
CALL = "failed to call webhook: "
SUCCESS = "the request from succeeding"
REVIEW = "AdmissionReview"
UNKNOWN = (
    'no kind "Other" is registered for version "admission.k8s.io/v1" in scheme '
    '"pkg/runtime/scheme.go:111"'
)
FAILED = 'Internal error occurred: failed calling webhook "hook-0.example.com": '


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def hooks(certificates: Certificates) -> AsyncIterator[HookServer]:
    async with a_hook_server(certificates) as server:
        yield server


@pytest.fixture
def maps(target: ServerUnderTest) -> str:
    return target.path("configmaps")


def label(name: str, value: str) -> dict[str, Any]:
    return {"op": "add", "path": "/metadata/labels", "value": {name: value}}


def data(**values: str) -> dict[str, Any]:
    return {"op": "add", "path": "/data", "value": values}


# -------------------------------------------------------------------- reviews


async def test_webhook_receives_the_review_of_a_create(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    async with configured(target, http, hooks, {}):
        code, made = await ask(
            http, "POST", maps, named("a", data={"k": "v"}), fieldManager="me"
        )

    assert code == 201, made
    (request,) = hooks.requests
    uid, user, sent = request.pop("uid"), request.pop("userInfo"), request.pop("object")
    assert len(uid) == 36
    assert user["username"] == "admin" or not target.real
    assert {"system:masters", "system:authenticated"} <= set(user["groups"])
    assert request == {
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "a",
        "namespace": target.namespace,
        "operation": "CREATE",
        "oldObject": None,
        "dryRun": False,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "me",
        },
    }
    assert (sent["kind"], sent["apiVersion"], sent["data"]) == (
        "ConfigMap",
        "v1",
        {"k": "v"},
    )
    # A validating webhook sees the object as it is stored, except for its version.
    made["metadata"].pop("resourceVersion")
    assert sent["metadata"] == made["metadata"]


async def test_mutating_webhook_sees_an_object_without_uid_and_creation_time(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    async with configured(target, http, hooks, {}, kind="Mutating"):
        body = {"metadata": {"generateName": "a-"}}
        made = await make(http, maps, body)

    (request,) = hooks.requests
    metadata = request["object"]["metadata"]
    assert "name" not in request
    assert made["metadata"]["name"].startswith("a-")
    assert metadata.keys() == {"generateName", "namespace", "managedFields"}


async def test_validating_webhook_sees_the_generated_name(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    async with configured(target, http, hooks, {}):
        made = await make(http, maps, {"metadata": {"generateName": "a-"}})

    (request,) = hooks.requests
    assert request["name"] == made["metadata"]["name"]
    assert request["object"]["metadata"]["uid"] == made["metadata"]["uid"]


async def test_webhook_receives_old_and_new_object_of_updates_and_patches(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    made = await make(http, maps, named("a", data={"k": "1"}))
    async with configured(target, http, hooks, {}):
        code, second = await ask(http, "PUT", f"{maps}/a", {**made, "data": {"k": "2"}})
        assert code == 200
        third = await change(http, f"{maps}/a", {"data": {"k": "3"}})

    first, other = hooks.requests
    assert [it["operation"] for it in hooks.requests] == ["UPDATE", "UPDATE"]
    assert first["oldObject"] == made
    assert first["object"]["data"] == {"k": "2"}
    assert (first["name"], other["name"]) == ("a", "a")
    assert other["oldObject"] == second
    assert other["object"]["data"] == third["data"] == {"k": "3"}
    kinds = [it["options"]["kind"] for it in hooks.requests]
    assert kinds == ["UpdateOptions", "UpdateOptions"]


async def test_webhook_receives_the_old_object_of_a_deletion(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    made = await make(http, maps, named("a"))
    async with configured(target, http, hooks, {}):
        code, _ = await ask(
            http, "DELETE", f"{maps}/a", {"propagationPolicy": "Background"}
        )

    assert code == 200
    (request,) = hooks.requests
    assert (request["operation"], request["name"]) == ("DELETE", "a")
    assert (request["object"], request["oldObject"]) == (None, made)
    assert request["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "propagationPolicy": "Background",
    }


async def test_webhook_is_called_for_each_object_of_a_deleted_collection(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    for name in ("a", "b"):
        await make(http, maps, named(name, labels={"app": "x"}))

    async with configured(target, http, hooks, {}):
        code, _ = await ask(http, "DELETE", maps, labelSelector="app=x")

    assert code == 200
    names = [it["oldObject"]["metadata"]["name"] for it in hooks.requests]
    assert sorted(names) == ["a", "b"]
    assert [it.get("name", "") for it in hooks.requests] == ["", ""]


async def test_webhook_receives_scale_and_status_of_subresources(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    sets = target.path("replicasets", "apis/apps/v1")
    await make(http, sets, _a_replica_set("a"))
    rule = {"rules": [a_rule("replicasets/*", group="apps")]}
    async with configured(target, http, hooks, rule):
        await change(http, f"{sets}/a/scale", {"spec": {"replicas": 3}})
        await change(http, f"{sets}/a/status", {"status": {"replicas": 1}})

    scale, status = hooks.requests
    assert scale["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (scale["subResource"], scale["requestSubResource"]) == ("scale", "scale")
    assert scale["object"]["spec"] == {"replicas": 3}
    assert scale["oldObject"]["spec"] == {"replicas": 1}
    assert (status["kind"]["kind"], status["subResource"]) == ("ReplicaSet", "status")
    assert status["object"]["status"]["replicas"] == 1


def _a_replica_set(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": a_pod("x")["spec"]}
    return named(
        name,
        spec={
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    )


async def test_webhook_receives_evictions_and_bindings(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    pods = target.path("pods")
    await make(http, pods, a_pod("a"))
    rule = {"rules": [a_rule("pods/*")]}
    binding = named("a", target={"kind": "Node", "name": "n"})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", **named("a")}
    async with configured(target, http, hooks, rule):
        assert (await ask(http, "POST", f"{pods}/a/binding", binding))[0] == 201
        assert (await ask(http, "POST", f"{pods}/a/eviction", eviction))[0] == 201

    found = [
        (it["operation"], it["kind"]["kind"], it["subResource"], it["name"])
        for it in hooks.requests
    ]
    assert found == [
        ("CREATE", "Binding", "binding", "a"),
        ("CREATE", "Eviction", "eviction", "a"),
    ]


async def test_custom_object_is_reviewed_in_the_version_of_the_request(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    widgets = target.path("widgets", WIDGETS_GROUP)
    async with configured(
        target, http, hooks, {}, plural="widgets", group="example.com"
    ):
        await make(http, widgets, widget("a", spec={"size": 1}))

    (request,) = hooks.requests
    expected = {"group": "example.com", "version": "v1", "kind": "Widget"}
    assert request["kind"] == expected
    assert request["object"]["spec"] == {"size": 1}


# -------------------------------------------------------------------- verdicts


async def test_denial_is_reported_with_the_message_of_the_webhook(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    hooks.handlers["/hook"] = lambda it: deny(it, message="no luck")
    async with configured(target, http, hooks, {}):
        code, answer = await ask(http, "POST", maps, named("a"))

    assert (code, answer["status"]) == (400, "Failure")
    assert answer["message"] == f"{DENIED}: no luck"
    assert answer["code"] == 400
    assert (await ask(http, "GET", f"{maps}/a"))[0] == 404


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({}, 400, f"{DENIED} without explanation"),
        ({"reason": "Because"}, 400, f"{DENIED}: Because"),
        ({"code": 200, "message": "x"}, 400, f"{DENIED}: x"),
        ({"code": 403, "message": "x", "reason": "Forbidden"}, 403, f"{DENIED}: x"),
        ({"code": 409, "message": "x", "reason": "Conflict"}, 409, f"{DENIED}: x"),
        ({"code": 418, "message": "x"}, 418, f"{DENIED}: x"),
    ],
)
async def test_denial_has_the_code_and_reason_of_the_webhook(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
    status: dict[str, Any],
    code: int,
    message: str,
) -> None:
    hooks.handlers["/hook"] = lambda it: deny(it, **status)
    async with configured(target, http, hooks, {}):
        found, answer = await ask(http, "POST", maps, named("a"))

    assert (found, answer["message"]) == (code, message)
    assert answer.get("reason") == status.get("reason")


async def test_deletion_may_be_denied(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    await make(http, maps, named("a"))
    hooks.handlers["/hook"] = lambda it: deny(it, message="keep it")
    async with configured(target, http, hooks, {"rules": [a_rule("*", "DELETE")]}):
        code, answer = await ask(http, "DELETE", f"{maps}/a")

    assert (code, answer["message"]) == (400, f"{DENIED}: keep it")
    hooks.handlers.clear()  # A server may call it for some time.
    await remove(http, f"{maps}/a")


async def test_warnings_of_webhooks_reach_the_client_once(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    hooks.handlers["/hook"] = lambda it: allow(it, warnings=["be careful", 'a "b"'])
    async with configured(target, http, hooks, {}, {}):
        code, found = await warned(http, "POST", maps, named("a"))

    assert (code, sorted(found)) == (201, ['a "b"', "be careful"])


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (
            lambda _: web.json_response({}),
            "received invalid webhook response: webhook response was absent",
        ),
        (
            lambda it: {**allow(it), "apiVersion": "admission.k8s.io/v1beta1"},
            f"{CALL}converting (v1beta1.{REVIEW}) to (v1.{REVIEW}): unknown conversion",
        ),
        (
            lambda it: {**allow(it), "kind": "Other"},
            f"{CALL}{UNKNOWN}",
        ),
        (
            lambda it: {**allow(it), "response": {"uid": "x", "allowed": True}},
            'received invalid webhook response: expected response.uid="{uid}", got "x"',
        ),
        (
            lambda it: allow(it, patchType="JSONPatch"),
            f"{INVALID}validating webhook may not return response.patchType",
        ),
        (
            lambda _: web.Response(status=500, text="oops"),
            f'{CALL}an error on the server ("oops") has prevented {SUCCESS}',
        ),
        (
            lambda _: web.Response(status=404),
            "failed to call webhook: the server could not find the requested resource",
        ),
    ],
)
async def test_invalid_answer_fails_the_write(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
    reply: Any,
    problem: str,
) -> None:
    hooks.handlers["/hook"] = reply
    async with configured(target, http, hooks, {}):
        code, answer = await ask(http, "POST", maps, named("a"))

    assert (code, answer["reason"]) == (500, "InternalError")
    uid = hooks.requests[0]["uid"]
    assert answer["message"] == FAILED + problem.format(uid=uid)


async def test_ignored_failure_lets_the_write_pass(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    hooks.handlers["/hook"] = lambda _: web.Response(status=500)
    async with configured(target, http, hooks, {"failurePolicy": "Ignore"}):
        await make(http, maps, named("a"))

    assert len(hooks.calls) == 1


async def test_unreachable_webhook_fails_the_write(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    config = {**hooks.config(), "url": "https://127.0.0.1:1/x"}
    async with configured(target, http, hooks, {"clientConfig": config}):
        code, answer = await ask(http, "POST", maps, named("a"))

    assert code == 500
    start = (
        f'{FAILED}failed to call webhook: Post "https://127.0.0.1:1/x?timeout=10s": '
    )
    assert answer["message"].startswith(start)


async def test_webhook_with_an_untrusted_certificate_fails_the_write(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    config = {"url": hooks.config()["url"]}
    async with configured(target, http, hooks, {"clientConfig": config}):
        code, answer = await ask(http, "POST", maps, named("a"))

    assert code == 500
    assert answer["message"].startswith(f"{FAILED}failed to call webhook: Post ")
    assert "certificate" in answer["message"]
    assert hooks.calls == []


async def test_slow_webhook_fails_the_write_after_its_timeout(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    hooks.delays["/hook"] = 3
    async with configured(target, http, hooks, {"timeoutSeconds": 1}):
        code, answer = await ask(http, "POST", maps, named("a"))

    assert code == 500
    url = f"{hooks.url}/hook?timeout=1s"
    why = f'failed to call webhook: Post "{url}": context deadline exceeded'
    assert answer["message"] == FAILED + why


# -------------------------------------------------------------------- mutations


async def test_patch_of_a_webhook_is_stored(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    hooks.handlers["/hook"] = patching(label("a", "b"), data(k="v"))
    async with configured(target, http, hooks, {}, kind="Mutating"):
        made = await make(http, maps, named("a"))
        await ask(http, "PUT", f"{maps}/a", {**made, "data": {"other": "x"}})

    _, stored = await ask(http, "GET", f"{maps}/a")
    assert made["metadata"]["labels"] == {"a": "b"}
    assert (made["data"], stored["data"]) == ({"k": "v"}, {"k": "v"})


async def test_patched_object_gets_defaults_and_is_validated(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    pods = target.path("pods")
    more = {"name": "sidecar", "image": "registry.example/sidecar:1"}
    hooks.handlers["/hook"] = patching(
        {"op": "add", "path": "/spec/containers/-", "value": more}
    )
    async with configured(target, http, hooks, {}, kind="Mutating", plural="pods"):
        made = await make(http, pods, a_pod("a"))
        hooks.handlers["/hook"] = patching(
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "Bad"}}
        )
        code, answer = await ask(http, "POST", pods, a_pod("b"))

    sidecar = made["spec"]["containers"][1]
    assert sidecar["imagePullPolicy"] == "IfNotPresent"
    assert sidecar["terminationMessagePath"] == "/dev/termination-log"
    assert (code, answer["reason"]) == (422, "Invalid")
    assert "spec.containers[1].name" in answer["message"]


async def test_mutating_webhooks_see_the_changes_of_those_before(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    hooks.handlers["/first"] = patching(data(first="1"))
    hooks.handlers["/second"] = patching(
        {"op": "add", "path": "/data/second", "value": "2"}
    )
    async with configured(
        target,
        http,
        hooks,
        {"clientConfig": hooks.config("/first")},
        {"clientConfig": hooks.config("/second")},
        kind="Mutating",
    ):
        made = await make(http, maps, named("a"))

    assert hooks.paths == ["/first", "/second"]
    assert made["data"] == {"first": "1", "second": "2"}


async def test_configurations_are_called_by_name_and_validating_ones_last(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    def at(path: str) -> dict[str, Any]:
        return {"clientConfig": hooks.config(path)}

    mark, hooks.handlers["/a"] = target.namespace, patching(data(k="v"))
    async with (
        configured(target, http, hooks, at("/v"), name=f"{mark}-a"),
        configured(target, http, hooks, at("/b"), kind="Mutating", name=f"{mark}-b"),
        configured(target, http, hooks, at("/a"), kind="Mutating", name=f"{mark}-a"),
    ):
        await make(http, maps, named("a"))

    assert hooks.paths == ["/a", "/b", "/v"]
    assert hooks.requests[-1]["object"]["data"] == {"k": "v"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Never", ["/first", "/second"]), ("IfNeeded", ["/first", "/second", "/first"])],
)
async def test_webhook_is_called_again_after_a_later_change_if_it_asks_for_it(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
    policy: str,
    expected: list[str],
) -> None:
    hooks.handlers["/second"] = patching(data(k="v"))
    first = {"clientConfig": hooks.config("/first"), "reinvocationPolicy": policy}
    second = {"clientConfig": hooks.config("/second")}
    async with configured(target, http, hooks, first, second, kind="Mutating"):
        await make(http, maps, named("a"))

    assert hooks.paths == expected


async def test_mutating_webhook_may_not_patch_a_deletion(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    await make(http, maps, named("a"))
    hooks.handlers["/hook"] = patching(data(k="v"))
    async with configured(target, http, hooks, {}, kind="Mutating"):
        code, answer = await ask(http, "DELETE", f"{maps}/a")

    assert code == 500
    assert answer["message"] == (
        'Internal error occurred: admission webhook "hook-0.example.com" attempted to '
        "modify the object, which is not supported for this operation"
    )


async def test_apply_calls_webhooks_for_create_and_update(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    hooks.handlers["/hook"] = patching(label("a", "b"))
    async with configured(target, http, hooks, {}, kind="Mutating"):
        found = []
        for value in ("1", "2"):
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                **named("a", data={"k": value}),
            }
            _, applied = await ask(
                http,
                "PATCH",
                f"{maps}/a",
                body,
                content_type="application/apply-patch+yaml",
                fieldManager="me",
            )
            found.append((applied["data"]["k"], applied["metadata"]["labels"]))

    assert found == [("1", {"a": "b"}), ("2", {"a": "b"})]
    assert [it["operation"] for it in hooks.requests] == ["CREATE", "UPDATE"]
    kinds = [it["options"]["kind"] for it in hooks.requests]
    assert kinds == ["CreateOptions", "UpdateOptions"]


# -------------------------------------------------------------------- matching


@pytest.mark.parametrize(
    ("rule", "calls"),
    [
        (a_rule("*", "CREATE"), 1),
        (a_rule("configmaps", "CREATE", scope="Namespaced"), 1),
        (a_rule("configmaps", "CREATE", scope="Cluster"), 0),
        (a_rule("configmaps/*", "CREATE"), 1),
        (a_rule("configmaps/status", "CREATE"), 0),
        (a_rule("configmaps", "UPDATE", "DELETE"), 0),
        (a_rule("configmaps", "CREATE", group="apps"), 0),
        (a_rule("secrets", "CREATE"), 0),
        (a_rule("configmaps", "CREATE", apiVersions=["v2"]), 0),
    ],
)
async def test_webhook_is_called_if_a_rule_matches(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
    rule: dict[str, Any],
    calls: int,
) -> None:
    async with configured(target, http, hooks, {"rules": [rule]}):
        await make(http, maps, named("a"))

    assert len(hooks.calls) == calls


async def test_object_selector_matches_the_old_or_the_new_labels(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    selector = {"objectSelector": {"matchLabels": {"on": "1"}}}
    async with configured(target, http, hooks, selector):
        await make(http, maps, named("a"))
        await change(http, f"{maps}/a", {"metadata": {"labels": {"on": "1"}}})
        await change(http, f"{maps}/a", {"metadata": {"labels": None}})
        await change(http, f"{maps}/a", {"data": {"k": "v"}})

    labels = [it["object"]["metadata"].get("labels") for it in hooks.requests]
    assert labels == [{"on": "1"}, None]


async def test_namespace_selector_excludes_other_namespaces(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    other = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
    async with configured(target, http, hooks, {"namespaceSelector": other}):
        await make(http, maps, named("a"))

    assert hooks.calls == []


@pytest.mark.parametrize(("policy", "calls"), [("Equivalent", 1), ("Exact", 0)])
async def test_equivalent_version_of_a_rule_matches(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    policy: str,
    calls: int,
) -> None:
    rule = a_rule("horizontalpodautoscalers", group="autoscaling", apiVersions=["v2"])
    scalers = target.path("horizontalpodautoscalers", "apis/autoscaling/v1")
    body = named(
        "a",
        spec={
            "maxReplicas": 3,
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "a",
            },
            "targetCPUUtilizationPercentage": 50,
        },
    )
    async with configured(
        target, http, hooks, {"rules": [rule], "matchPolicy": policy}
    ):
        await make(http, scalers, body)

    assert len(hooks.calls) == calls
    for request in hooks.requests:
        assert (request["kind"]["version"], request["requestKind"]["version"]) == (
            "v2",
            "v1",
        )
        assert request["object"]["apiVersion"] == "autoscaling/v2"
        metric = request["object"]["spec"]["metrics"][0]["resource"]
        assert metric["target"]["averageUtilization"] == 50


async def test_dry_run_reaches_webhooks_without_side_effects(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    hooks: HookServer,
    maps: str,
) -> None:
    async with configured(target, http, hooks, {"sideEffects": "NoneOnDryRun"}):
        code, _ = await ask(http, "POST", maps, named("a"), dryRun="All")

    assert code == 201
    (request,) = hooks.requests
    assert (request["dryRun"], request["options"]["dryRun"]) == (True, ["All"])


async def test_patch_of_a_status_calls_only_webhooks_for_the_subresource(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    widgets = target.path("widgets", WIDGETS_GROUP)
    await make(http, widgets, widget("a"))
    async with configured(
        target, http, hooks, {}, plural="widgets", group="example.com"
    ):
        code, _ = await patch(http, f"{widgets}/a/status", {"status": {"x": 1}})

    assert (code, hooks.calls) == (200, [])


async def test_webhooks_are_not_called_for_webhook_configurations(
    target: ServerUnderTest, http: aiohttp.ClientSession, hooks: HookServer
) -> None:
    rule = a_rule("*", group="admissionregistration.k8s.io")
    hooks.handlers["/hook"] = deny
    async with configured(
        target, http, hooks, {"rules": [rule], "namespaceSelector": {}}
    ) as name:
        path = f"{REGISTRATION}/validatingwebhookconfigurations/{name}"
        await change(http, path, {"metadata": {"labels": {"a": "b"}}})

    assert hooks.calls == []
