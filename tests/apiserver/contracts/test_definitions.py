"""CustomResourceDefinitions: from their creation to their deletion."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from api_calls import all_events, ask, make, names, next_events, patch, types_and_names
from custom_definitions import (
    DEFINITIONS,
    OPEN,
    changed,
    condition,
    defined,
    definition,
    gadget,
    gone,
    group_of,
    served,
    status_of,
    undefine,
    version,
)

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


def conditions_without_times(status: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return conditions without their times."""
    found = status.get("conditions") or ()
    return [(it["type"], it["status"], it["reason"], it["message"]) for it in found]


async def test_new_definition_has_defaults_and_no_accepted_names(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = definition(group_of(target))

    _, made = await ask(http, "POST", DEFINITIONS, body)

    await undefine(http, body)
    assert made["spec"]["names"] == {
        "plural": "gadgets",
        "singular": "gadget",
        "kind": "Gadget",
        "listKind": "GadgetList",
    }
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["metadata"]["generation"] == 1
    assert made["status"] == {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1"],
    }


async def test_definition_is_established_after_names_are_accepted(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = definition(group_of(target), names={"shortNames": ["gd"]})
    _, listed = await ask(http, "GET", DEFINITIONS, limit="1")
    watch = {
        "watch": "1",
        "resourceVersion": listed["metadata"]["resourceVersion"],
        "fieldSelector": f"metadata.name={body['metadata']['name']}",
    }

    async with http.get(DEFINITIONS, params=watch) as answer, defined(http, body):
        events = await next_events(answer, 3)

    accepted = ("NamesAccepted", "True", "NoConflicts", "no conflicts found")
    why = "the initial names have been accepted"
    assert [it["type"] for it in events] == ["ADDED", "MODIFIED", "MODIFIED"]
    assert [conditions_without_times(it["object"]["status"]) for it in events] == [
        [],
        [accepted, ("Established", "False", "Installing", why)],
        [accepted, ("Established", "True", "InitialNamesAccepted", why)],
    ]
    assert events[2]["object"]["metadata"]["generation"] == 1
    assert events[2]["object"]["status"]["acceptedNames"] == {
        "plural": "gadgets",
        "singular": "gadget",
        "shortNames": ["gd"],
        "kind": "Gadget",
        "listKind": "GadgetList",
    }


async def test_definition_status_is_managed_by_server(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = definition(group_of(target))

    async with defined(http, body):
        path = f"{DEFINITIONS}/{body['metadata']['name']}"
        _, found = await ask(http, "GET", path)

    entry = found["metadata"]["managedFields"][-1]
    assert entry["manager"] == "kube-apiserver"
    assert (entry["operation"], entry["subresource"]) == ("Update", "status")
    assert set(entry["fieldsV1"]["f:status"]) == {"f:acceptedNames", "f:conditions"}


async def test_definition_waits_for_taken_name(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    first = definition(group_of(target))
    second = definition(
        group_of(target), kind="Other", names={"kind": "Gadget", "shortNames": ["x"]}
    )
    path = "/apis/{group}/v1/others".format(**second["spec"])
    async with defined(http, first):
        await ask(http, "POST", DEFINITIONS, second)
        refused = await condition(http, second, "Established", reason="NotAccepted")
        code = await status_of(http, path)

    status = await condition(http, second, "Established", reason="InitialNamesAccepted")
    await undefine(http, second)

    assert code == 404
    assert conditions_without_times(refused) == [
        (
            "NamesAccepted",
            "False",
            "ListKindConflict",
            '"GadgetList" is already in use',
        ),
        ("Established", "False", "NotAccepted", "not all names are accepted"),
    ]
    assert refused["acceptedNames"] == {
        "plural": "others",
        "shortNames": ["x"],
        "kind": "",
    }
    assert status["acceptedNames"]["kind"] == "Gadget"


async def test_protected_group_requires_approval_annotation(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = definition(f"{target.namespace}.k8s.io")
    _, refused = await ask(http, "POST", DEFINITIONS, body)
    name, address = "api-approved.kubernetes.io", "https://example.org/approval"
    body["metadata"]["annotations"] = {name: address}

    async with defined(http, body):
        kind = "KubernetesAPIApprovalPolicyConformant"
        status = await condition(http, body, kind, reason="ApprovedAnnotation")

    assert refused["details"]["causes"][0]["field"] == f"metadata.annotations[{name}]"
    approved = (kind, "True", "ApprovedAnnotation", f"approved in {address}")
    assert approved in conditions_without_times(status)


# -------------------------------------------------------------------- changes


async def test_added_version_shows_existing_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group)
    new = target.path("gadgets", f"apis/{group}/v2")
    async with defined(http, body):
        path = target.path("gadgets", f"apis/{group}/v1")
        _, made = await ask(http, "POST", path, gadget(group, "a"))

        versions = [version(), version("v2")]
        code, answer = await changed(http, body, {"versions": versions})
        async with asyncio.timeout(20):
            while await status_of(http, f"{new}/a") != 200:
                pass

        _, found = await ask(http, "GET", f"{new}/a")

    assert (code, answer["metadata"]["generation"]) == (200, 2)
    assert found == {**made, "apiVersion": f"{group}/v2"}


async def test_version_with_stored_objects_cannot_be_removed(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group)
    v2 = {**version("v2"), "storage": True}
    async with defined(http, body):
        moved = [{**version(), "storage": False}, v2]
        _, answer = await changed(http, body, {"versions": moved})
        code, refused = await changed(http, body, {"versions": [v2]})

    assert answer["status"]["storedVersions"] == ["v1", "v2"]
    assert (code, refused["details"]["causes"]) == (
        422,
        [
            {
                "reason": "FieldValueInvalid",
                "field": "status.storedVersions[0]",
                "message": 'Invalid value: "v1": missing from spec.versions; v1 was '
                "previously a storage version, and must remain in spec.versions until a "
                "storage migration ensures no data remains persisted in v1 and removes "
                "v1 from status.storedVersions",
            }
        ],
    )


async def test_removed_version_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group, versions=[version(), version("v1beta1")])
    async with defined(http, body):
        await changed(http, body, {"versions": [version()]})
        await gone(http, f"/apis/{group}/v1beta1/gadgets")
        # A real server may stop serving the group for a moment.
        await served(http, definition(group))
        code = await status_of(http, f"/apis/{group}/v1beta1/gadgets")

    assert code == 404


async def test_changed_definition_ends_watches(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group)
    path = target.path("gadgets", f"apis/{group}/v1")
    async with defined(http, body):
        await ask(http, "POST", path, gadget(group, "a"))
        async with http.get(path, params={"watch": "1"}) as answer:
            first = await next_events(answer, 1)
            await changed(http, body, {"names": {"shortNames": ["gd"]}})
            async with asyncio.timeout(20):
                rest = await all_events(answer)

        code = await status_of(http, f"{path}/a")

    assert types_and_names(first) == [("ADDED", "a")]
    assert (rest, code) == ([], 200)


async def test_version_from_before_definition_change_cannot_be_watched(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group)
    path = target.path("gadgets", f"apis/{group}/v1")
    async with defined(http, body):
        made = await make(http, path, gadget(group, "a"))
        await make(http, path, gadget(group, "b"))
        old = made["metadata"]["resourceVersion"]
        params = {"watch": "1", "resourceVersion": old, "timeoutSeconds": "1"}
        await changed(http, body, {"names": {"shortNames": ["gd"]}})
        # A real server needs a moment to see the change, and another for its
        # new cache.
        events: list[Any] = []
        async with asyncio.timeout(20):
            while types_and_names(events) == [("ADDED", "b")] or not events:
                async with http.get(path, params=params) as answer:
                    events = await all_events(answer) if answer.status == 200 else []

        exact = {"resourceVersion": old, "resourceVersionMatch": "Exact"}
        code, listed = await ask(http, "GET", path, **exact)
        async with asyncio.timeout(20):
            # A real server answers 429 until its new cache is ready.
            while code != 200:
                code, listed = await ask(http, "GET", path, **exact)

    (event,) = events
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert f"too old resource version: {old} (" in event["object"]["message"]
    assert names(listed) == ["a"]


async def test_names_and_scope_of_established_definition_are_immutable(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = definition(group_of(target))
    problems = []
    async with defined(http, body):
        for spec in (
            {"scope": "Cluster"},
            {"group": "other.example.org"},
            {"names": {"kind": "Thing"}},
            {"names": {"plural": "things"}},
        ):
            _, refused = await changed(http, body, spec)
            problems.append(refused["message"].partition("is invalid: ")[2])

    assert problems == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.group: Invalid value: "other.example.org": field is immutable',
        'spec.names.kind: Invalid value: "Thing": field is immutable',
        'spec.names.plural: Invalid value: "things": field is immutable',
    ]


# -------------------------------------------------------------------- deletion


async def test_deleted_definition_deletes_its_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group, versions=[version(), version("v1beta1")])
    path = target.path("gadgets", f"apis/{group}/v1beta1")
    async with defined(http, body):
        await ask(http, "POST", path, gadget(group, "a", "v1beta1"))
        async with http.get(path, params={"watch": "1"}) as answer:
            where = f"{DEFINITIONS}/{body['metadata']['name']}"
            code, deleted = await ask(http, "DELETE", where)
            await gone(http, where)
            await gone(http, path)
            async with asyncio.timeout(20):
                events = await all_events(answer)

    marks = deleted["metadata"]
    assert code == 200
    assert marks["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert "deletionTimestamp" in marks
    assert (marks["generation"], "deletionGracePeriodSeconds" in marks) == (1, False)
    why = "CustomResourceDefinition marked for deletion; CustomResource deletion will "
    why += "begin soon"
    end = ("Terminating", "True", "InstanceDeletionPending", why)
    assert conditions_without_times(deleted["status"])[-1] == end
    assert types_and_names(events) == [("ADDED", "a"), ("DELETED", "a")]


async def test_deleted_definition_waits_for_finalizers_of_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group)
    path = target.path("gadgets", f"apis/{group}/v1")
    where = f"{DEFINITIONS}/{body['metadata']['name']}"
    async with defined(http, body):
        held = gadget(group, "a", metadata={"finalizers": ["example.org/x"]})
        await ask(http, "POST", path, held)
        await ask(http, "DELETE", where)
        status = await condition(
            http, body, "Terminating", reason="InstanceDeletionInProgress"
        )
        async with asyncio.timeout(20):
            while True:
                _, found = await ask(http, "GET", f"{path}/a")
                if "deletionTimestamp" in found["metadata"]:
                    break

        code, refused = await ask(http, "POST", path, gadget(group, "b"))
        _, resources = await ask(http, "GET", f"/apis/{group}/v1")
        await patch(http, f"{path}/a", {"metadata": {"finalizers": None}})
        await gone(http, where)

    assert (
        conditions_without_times(status)[-1][3]
        == "CustomResource deletion is in progress"
    )
    assert code == 403
    assert refused["message"] == (
        f'gadgets.{group} "b" is forbidden: create not allowed while custom resource '
        "definition is terminating"
    )
    assert resources["resources"][0]["verbs"] == [
        "delete",
        "deletecollection",
        "get",
        "list",
        "watch",
    ]


async def test_deleted_event_of_definition_shows_its_finalizer(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = definition(group_of(target), versions=[version(schema=OPEN)])
    name = body["metadata"]["name"]
    async with defined(http, body):
        params = {"watch": "1", "fieldSelector": f"metadata.name={name}"}
        async with http.get(DEFINITIONS, params=params) as answer:
            await ask(http, "DELETE", f"{DEFINITIONS}/{name}")
            events = await next_events(answer, 4)

    reasons = [conditions_without_times(it["object"]["status"])[-1][2] for it in events]
    assert [it["type"] for it in events] == [
        "ADDED",
        "MODIFIED",
        "MODIFIED",
        "DELETED",
    ]
    assert reasons[1:] == [
        "InstanceDeletionPending",
        "InstanceDeletionInProgress",
        "InstanceDeletionInProgress",
    ]
    assert events[3]["object"]["metadata"]["finalizers"] == [
        "customresourcecleanup.apiextensions.k8s.io"
    ]


async def test_definition_with_other_finalizer_stays_without_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    body = definition(group)
    body["metadata"]["finalizers"] = ["example.org/x"]
    path = target.path("gadgets", f"apis/{group}/v1")
    where = f"{DEFINITIONS}/{body['metadata']['name']}"
    async with defined(http, body):
        await ask(http, "POST", path, gadget(group, "a"))
        await ask(http, "DELETE", where)
        status = await condition(
            http, body, "Terminating", reason="InstanceDeletionCompleted"
        )
        _, listed = await ask(http, "GET", path)
        await patch(http, where, {"metadata": {"finalizers": None}})

    end = ("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
    assert conditions_without_times(status)[-1] == end
    assert listed["items"] == []
