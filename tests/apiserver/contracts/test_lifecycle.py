"""Life cycle of objects: status, generation, finalizers, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    WIDGETS_GROUP,
    a_pod,
    ask,
    change,
    make,
    named,
    names,
    next_events,
    patch,
    types_and_names,
    version_of,
    versions,
    watching,
    widget,
)
from each_case import each_case
from kind_samples import SAMPLES

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

EVERYTHING = {
    "labels": {"l": "m"},
    "annotations": {"a": "b"},
    "finalizers": ["example.com/x"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "n", "uid": "u"}],
}


# -------------------------------------------------------------------- status


@each_case(
    "plural, status, first",
    [
        (
            "pods",
            {"phase": "Running"},
            {"phase": "Pending", "qosClass": "BestEffort"},
        ),
        ("replicasets", {"replicas": 3}, {"replicas": 0}),
        ("deployments", {"replicas": 3}, {}),
        ("services", {"loadBalancer": {"ingress": []}}, {"loadBalancer": {}}),
        ("resourcequotas", {"hard": {"pods": "1"}}, {}),
    ],
)
async def test_create_ignores_status(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    plural: str,
    status: object,
    first: object,
) -> None:
    sample = SAMPLES[plural]

    made = await make(
        http, sample.path(target), {**sample.body(target), "status": status}
    )

    assert made["status"] == first


async def test_create_of_custom_resource_drops_status(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)

    made = await make(http, path, widget("a", status={"x": 1}))

    assert "status" not in made


async def test_create_of_node_keeps_status(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = named(target.namespace, status={"capacity": {"cpu": "4"}})

    made = await make(http, "/api/v1/nodes", body)
    await ask(http, "DELETE", f"/api/v1/nodes/{target.namespace}")

    assert made["status"]["capacity"] == {"cpu": "4"}


async def test_update_ignores_status(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    made = await make(http, path, a_pod("web"))
    other = {**made, "status": {"phase": "Failed"}}

    _, updated = await ask(http, "PUT", f"{path}/web", other)
    _, patched = await patch(http, f"{path}/web", {"status": {"phase": "Failed"}})

    assert updated == patched == made


async def test_status_update_ignores_spec(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    made = await make(http, path, a_pod("web"))
    body = a_pod("web", spec={"nodeName": "b"}, status={"phase": "Running"})

    code, updated = await ask(http, "PUT", f"{path}/web/status", body)
    change_of_both = {"status": {"podIP": "10.0.0.1"}, "spec": {"nodeName": "c"}}
    patched = await change(http, f"{path}/web/status", change_of_both)
    _, found = await ask(http, "GET", f"{path}/web/status")

    assert code == 200
    # Only the server sets the quality of service class.
    assert updated["status"] == {"phase": "Running", "qosClass": "BestEffort"}
    assert patched["status"]["podIP"] == "10.0.0.1"
    assert found == patched
    assert patched["spec"] == made["spec"]
    assert patched["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("plural", "spared"),
    [
        ("replicasets", ()),
        ("deployments", ("labels",)),
        ("pods", ("ownerReferences",)),
    ],
)
async def test_status_update_of_builtin_kind_changes_metadata(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    plural: str,
    spared: tuple[str, ...],
) -> None:
    sample = SAMPLES[plural]
    one = f"{sample.path(target)}/{sample.name(target)}"
    made = await make(http, sample.path(target), sample.body(target))

    new = await change(http, f"{one}/status", {"metadata": EVERYTHING})
    await change(http, one, {"metadata": {"finalizers": None}})

    found = {key: it for key, it in new["metadata"].items() if key in EVERYTHING}
    assert found == {k: it for k, it in EVERYTHING.items() if k not in spared}
    assert new["metadata"]["generation"] == made["metadata"]["generation"]


async def test_status_update_of_custom_resource_ignores_metadata(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    made = await make(http, path, widget("a", spec={"x": 1}))
    body = {"metadata": EVERYTHING, "spec": {"x": 2}, "status": {"y": 1}}

    new = await change(http, f"{path}/a/status", body)
    _, again = await patch(http, f"{path}/a/status", {"status": {"y": 1}})

    assert new["status"] == {"y": 1}
    assert new["spec"] == {"x": 1}
    assert not EVERYTHING.keys() & new["metadata"].keys()
    assert new["metadata"]["generation"] == made["metadata"]["generation"]
    assert again == new


async def test_status_update_with_stale_version_is_409(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    stale = await make(http, path, a_pod("web"))
    await change(http, f"{path}/web", {"metadata": {"labels": {"a": "b"}}})

    code, _ = await ask(http, "PUT", f"{path}/web/status", stale)

    assert code == 409


async def test_kind_without_status_subresource_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    made = await make(http, path, named("a", status={"x": 1}))
    code, _ = await ask(http, "GET", f"{path}/a/status")

    assert "status" not in made
    assert code == 404


# -------------------------------------------------------------------- generation


@each_case(
    "plural, content, counts",
    [
        ("deployments", {"spec": {"replicas": 3}}, True),
        ("deployments", {"metadata": {"labels": {"a": "b"}}}, False),
        ("deployments", {"metadata": {"annotations": {"a": "b"}}}, True),
        ("deployments", {"metadata": {"generation": 77}}, False),
        ("deployments", {"spec": {"replicas": 1}}, False),
        ("daemonsets", {"spec": {"minReadySeconds": 3}}, True),
        ("podtemplates", {"template": {"spec": {"hostname": "x"}}}, True),
        ("priorityclasses", {"description": "x"}, False),
        ("endpointslices", {"ports": [{"port": 80}]}, True),
        ("networkpolicies", {"spec": {"ingress": [{}]}}, True),
    ],
)
async def test_generation_counts_spec_changes(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    plural: str,
    content: object,
    counts: bool,
) -> None:
    sample = SAMPLES[plural]
    one = f"{sample.path(target)}/{sample.name(target)}"
    await make(http, sample.path(target), sample.body(target))

    new = await change(http, one, content)
    await ask(http, "DELETE", one)

    assert new["metadata"]["generation"] == 1 + counts


async def test_generation_of_custom_resource_counts_all_but_metadata(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    await make(http, path, widget("a", data=1))

    labelled = await change(http, f"{path}/a", {"metadata": {"labels": {"a": "b"}}})
    status = await change(http, f"{path}/a/status", {"status": {"x": 1}})
    changed = await change(http, f"{path}/a", {"data": 2})

    found = [it["metadata"]["generation"] for it in (labelled, status, changed)]
    assert found == [1, 1, 2]


# -------------------------------------------------------------------- finalizers


async def test_deleted_object_waits_for_finalizers(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    body = named("a", metadata={"finalizers": ["example.com/x", "example.com/y"]})
    made = await make(http, path, body)

    _, marked = await ask(http, "DELETE", f"{path}/a", {"gracePeriodSeconds": 9})
    _, again = await ask(http, "DELETE", f"{path}/a")
    one_less = {"metadata": {"finalizers": ["example.com/y"]}}
    released = await change(http, f"{path}/a", one_less)
    changed = await change(http, f"{path}/a", {"data": {"x": "y"}})
    last = {"metadata": {"finalizers": []}, "data": {"x": "z"}}
    final = await change(http, f"{path}/a", last)

    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert version_of(marked) > version_of(made)
    assert again == marked
    assert released["metadata"]["finalizers"] == ["example.com/y"]
    assert changed["data"] == {"x": "y"}
    # The last state is answered, but never stored.
    assert "finalizers" not in final["metadata"]
    assert final["data"] == {"x": "z"}
    assert version_of(final) == version_of(changed)
    assert (await ask(http, "GET", f"{path}/a"))[0] == 404


async def test_deleted_event_shows_last_finalizer(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    made = await make(
        http, path, named("a", metadata={"finalizers": ["example.com/x"]})
    )

    version = str(version_of(made))
    async with watching(http, path, resourceVersion=version) as watch:
        _, marked = await ask(http, "DELETE", f"{path}/a")
        marked["metadata"]["finalizers"] = []
        await ask(http, "PUT", f"{path}/a", {**marked, "data": {"x": "y"}})
        events = await next_events(watch, 2)

    assert types_and_names(events) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert events[1]["object"]["metadata"]["finalizers"] == ["example.com/x"]
    assert "data" not in events[1]["object"]
    assert versions(events)[1] > versions(events)[0]


async def test_finalizer_cannot_be_added_to_deleted_object(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a", metadata={"finalizers": ["example.com/x"]}))
    await ask(http, "DELETE", f"{path}/a")

    more = {"metadata": {"finalizers": ["example.com/x", "example.com/y"]}}
    code, status = await patch(http, f"{path}/a", more)
    await change(http, f"{path}/a", {"metadata": {"finalizers": None}})

    assert code == 422
    assert status["message"] == (
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can '
        "be added if the object is being deleted, found new finalizers "
        '[]string{"example.com/y"}'
    )
    assert status["details"]["causes"][0]["reason"] == "FieldValueForbidden"


# -------------------------------------------------------------------- propagation


def finalizers(body: dict[str, Any]) -> list[str]:
    found: list[str] = body["metadata"].get("finalizers") or []
    return found


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ({"propagationPolicy": "Orphan"}, ["orphan"]),
        ({"orphanDependents": True}, ["orphan"]),
    ],
)
async def test_propagation_policy_sets_finalizer(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    options: dict[str, Any],
    held: list[str],
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    _, tried = await ask(http, "DELETE", f"{path}/a", {**options, "dryRun": ["All"]})
    code, marked = await ask(http, "DELETE", f"{path}/a", options)
    _, gone = await ask(http, "DELETE", f"{path}/a", propagationPolicy="Background")

    assert code == 200
    assert finalizers(tried) == finalizers(marked) == held
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    # A later deletion may choose another policy, and the object is removed.
    assert gone["status"] == "Success"


async def test_later_propagation_policy_replaces_earlier_one(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    body = named("a", metadata={"finalizers": ["foregroundDeletion", "example.com/x"]})
    await make(http, path, body)

    found = [
        finalizers((await ask(http, "DELETE", f"{path}/a", **params))[1])
        for params in ({}, {"propagationPolicy": "Orphan"}, {})
    ]
    await change(http, f"{path}/a", {"metadata": {"finalizers": None}})

    assert found == [
        ["foregroundDeletion", "example.com/x"],
        ["example.com/x", "orphan"],
        ["example.com/x", "orphan"],
    ]


async def test_delete_of_event_ignores_propagation_policy(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    sample = SAMPLES["events"]
    await make(http, sample.path(target), sample.body(target))

    one = f"{sample.path(target)}/{sample.name(target)}"
    _, status = await ask(http, "DELETE", one, propagationPolicy="Orphan")

    assert status["status"] == "Success"


# -------------------------------------------------------------------- collections


async def test_deletecollection_uses_selector(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    for name in ("a", "b", "c"):
        await make(http, path, named(name, labels={"keep": str(name == "b")}))

    code, found = await ask(http, "DELETE", path, labelSelector="keep=False")

    assert (code, found["kind"]) == (200, "ConfigMapList")
    assert names(found) == ["a", "c"]
    assert names((await ask(http, "GET", path))[1]) == ["b"]


async def test_deletecollection_with_limit_deletes_one_page(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    for name in ("a", "b", "c"):
        await make(http, path, named(name, labels={"mine": "yes"}))

    mine = {"labelSelector": "mine=yes"}
    _, first = await ask(http, "DELETE", path, limit="2", **mine)
    left = names((await ask(http, "GET", path, **mine))[1])
    token = first["metadata"]["continue"]
    _, second = await ask(http, "DELETE", path, **{"continue": token}, **mine)

    assert (names(first), left, names(second)) == (["a", "b"], ["c"], ["c"])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"continue": "garbage"}, 400),
        ({"limit": "many"}, 400),
        ({"timeoutSeconds": "soon"}, 400),
        ({"resourceVersion": "garbage"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"sendInitialEvents": "true"}, 422),
    ],
    ids=lambda it: next(iter(it)) if isinstance(it, dict) else "",
)
async def test_deletecollection_with_invalid_list_options_deletes_nothing(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    options: dict[str, str],
    code: int,
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a", labels={"mine": "yes"}))

    mine = {"labelSelector": "mine=yes"}
    refused, status = await ask(http, "DELETE", path, **options, **mine)

    assert (refused, status["code"]) == (code, code)
    assert names((await ask(http, "GET", path, **mine))[1]) == ["a"]


async def test_deletecollection_keeps_objects_with_finalizers(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a", metadata={"finalizers": ["example.com/x"]}))
    await make(http, path, named("b"))

    _, found = await ask(http, "DELETE", path)
    _, left = await ask(http, "GET", path)
    await change(http, f"{path}/a", {"metadata": {"finalizers": None}})

    assert names(found) == ["a", "b"]
    assert "deletionTimestamp" not in found["items"][0]["metadata"]
    assert names(left) == ["a"]
    assert "deletionTimestamp" in left["items"][0]["metadata"]
