"""Behaviour that differs between built-in kinds."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import ask, make, patch
from each_case import each_case
from kind_samples import SAMPLES, Sample

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest

ALL = [pytest.param(sample, id=plural) for plural, sample in SAMPLES.items()]
# The server itself changes definitions, and adds a finalizer.
QUIET = [it for it in ALL if it.id != "customresourcedefinitions"]

CREATED_BY_UPDATE = {
    "clusterrolebindings",
    "clusterroles",
    "endpoints",
    "events",
    "leases",
    "limitranges",
    "rolebindings",
    "roles",
    "services",
}
CONDITIONAL = {"customresourcedefinitions", "leases", "poddisruptionbudgets"}
# Kinds whose deletion is answered with the object.
SHOWN = {
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses",
}
# Generations after a new label, a new annotation, and the deletion mark.
GENERATIONS: dict[str, list[int | None]] = {
    "customresourcedefinitions": [1, 1, 1, 1],
    "deployments": [1, 1, 2, 3],
    "endpointslices": [1, 2, 2, 3],
    **{
        plural: [1, 1, 1, 2]
        for plural in (
            "cronjobs",
            "daemonsets",
            "ingressclasses",
            "ingresses",
            "jobs",
            "networkpolicies",
            "poddisruptionbudgets",
            "pods",
            "podtemplates",
            "priorityclasses",
            "replicasets",
            "replicationcontrollers",
            "statefulsets",
        )
    },
}


@asynccontextmanager
async def kept(
    http: aiohttp.ClientSession, sample: Sample, target: ServerUnderTest
) -> AsyncIterator[str]:
    """Yield the path of an object, and remove it with its finalizers afterwards."""
    one = f"{sample.path(target)}/{sample.name(target)}"
    yield one
    await ask(http, "DELETE", one, propagationPolicy="Background")
    await patch(http, one, {"metadata": {"finalizers": None}})


@each_case("sample", ALL)
async def test_put_creates_only_some_kinds(
    target: ServerUnderTest, http: aiohttp.ClientSession, sample: Sample
) -> None:
    plural = sample.resource.plural
    async with kept(http, sample, target) as one:
        code, answer = await ask(http, "PUT", one, sample.body(target))

        assert code == (201 if plural in CREATED_BY_UPDATE else 404), answer
        if code == 404:
            wanted = f'{sample.resource} "{sample.name(target)}" not found'
            assert answer["message"] == wanted


@each_case("sample", ALL)
async def test_put_without_version_is_rejected_by_some_kinds(
    target: ServerUnderTest, http: aiohttp.ClientSession, sample: Sample
) -> None:
    async with kept(http, sample, target) as one:
        made = await make(http, sample.path(target), sample.body(target))
        del made["metadata"]["resourceVersion"]

        code, answer = await ask(http, "PUT", one, made)

        plural, resource = sample.resource.plural, sample.resource
        assert code == (422 if plural in CONDITIONAL else 200), answer
        if code == 422:
            problem = "Invalid value: 0: must be specified for an update"
            field = "metadata.resourceVersion"
            title = f'{resource} "{sample.name(target)}" is invalid'
            assert answer["message"] == f"{title}: {field}: {problem}"
            assert answer["details"]["kind"] == plural


@each_case("sample", QUIET)
async def test_put_of_unchanged_object_keeps_version(
    target: ServerUnderTest, http: aiohttp.ClientSession, sample: Sample
) -> None:
    async with kept(http, sample, target) as one:
        made = await make(http, sample.path(target), sample.body(target))
        # A real server stores a few kinds in other bytes at first.
        _, found = await ask(http, "PUT", one, made)

        code, answer = await ask(http, "PUT", one, found)
        _, patched = await patch(http, one, {})

        assert (code, answer) == (200, found)
        assert patched == found


@each_case("sample", ALL)
async def test_generation_counts_changes_by_kind(
    target: ServerUnderTest, http: aiohttp.ClientSession, sample: Sample
) -> None:
    async with kept(http, sample, target) as one:
        body = sample.body(target)
        body["metadata"]["finalizers"] = ["example.com/wait"]
        made = await make(http, sample.path(target), body)

        _, labelled = await patch(http, one, {"metadata": {"labels": {"a": "b"}}})
        _, noted = await patch(http, one, {"metadata": {"annotations": {"a": "b"}}})
        _, marked = await ask(http, "DELETE", one)

        found = (made, labelled, noted, marked)
        counted = [it["metadata"].get("generation") for it in found]
        wanted = GENERATIONS.get(sample.resource.plural, [None] * 4)
        assert counted == wanted


@each_case("sample", QUIET)
async def test_delete_returns_status_or_object_by_kind(
    target: ServerUnderTest, http: aiohttp.ClientSession, sample: Sample
) -> None:
    resource = sample.resource
    async with kept(http, sample, target) as one:
        made = await make(http, sample.path(target), sample.body(target))
        await patch(http, one, {"metadata": {"finalizers": None}})

        code, answer = await ask(http, "DELETE", one, propagationPolicy="Background")

        assert code == 200
        if resource.plural in SHOWN:
            assert answer["kind"] == resource.kind
            assert answer["metadata"]["uid"] == made["metadata"]["uid"]
        else:
            assert answer == success(sample, target, made)

        assert (await ask(http, "GET", one))[0] == 404


@each_case("sample", ALL)
async def test_delete_orphans_dependents_of_jobs_and_controllers_by_default(
    target: ServerUnderTest, http: aiohttp.ClientSession, sample: Sample
) -> None:
    plural = sample.resource.plural
    async with kept(http, sample, target) as one:
        await make(http, sample.path(target), sample.body(target))

        async with http.delete(one) as answer:
            body, warnings = await answer.json(), answer.headers.getall("Warning", [])

        held = body["metadata"].get("finalizers") or []
        assert ("orphan" in held) == (plural in {"jobs", "replicationcontrollers"})
        assert ("child pods are preserved by default" in str(warnings)) == (
            plural == "jobs"
        )


@each_case("sample", ALL)
async def test_put_with_other_uid_is_409(
    target: ServerUnderTest, http: aiohttp.ClientSession, sample: Sample
) -> None:
    async with kept(http, sample, target) as one:
        made = await make(http, sample.path(target), sample.body(target))
        uid = made["metadata"]["uid"]
        made["metadata"]["uid"] = "another"

        code, status = await ask(http, "PUT", one, made)

        ending = f"UID in precondition: another, UID in object meta: {uid}"
        assert (code, status["reason"]) == (409, "Conflict")
        assert status["message"].endswith(ending)
        assert (
            f"Key: /registry/{PLACES.get(sample.resource.plural, '')}"
            in (status["message"])
        )


# Storage keys in the message, where they differ from the resource.
PLACES = {
    "endpoints": "services/endpoints/",
    "ingresses": "ingress/",
    "nodes": "minions/",
    "pods": "pods/",
    "replicationcontrollers": "controllers/",
    "services": "services/specs/",
}


def success(
    sample: Sample, target: ServerUnderTest, made: dict[str, Any]
) -> dict[str, Any]:
    """Return the Status of a finished deletion."""
    resource = sample.resource
    details = {
        "name": sample.name(target),
        "group": resource.group,
        "kind": resource.plural,
        "uid": made["metadata"]["uid"],
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


@each_case("sample", QUIET)
async def test_put_of_created_body_changes_nothing(
    target: ServerUnderTest, http: aiohttp.ClientSession, sample: Sample
) -> None:
    async with kept(http, sample, target) as one:
        made = await make(http, sample.path(target), sample.body(target))
        body = sample.body(target)
        body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]

        code, answer = await ask(http, "PUT", one, body)

        if sample.resource.plural == "jobs":
            # The body lacks the selector that the server has added.
            assert code == 422
            return

        assert code == 200, answer
        if sample.resource.plural == "nodes":
            # A new node gets a taint, which a controller may remove.
            del made["spec"], answer["spec"]

        for part in (made, answer):
            for field in ("resourceVersion", "managedFields", "finalizers"):
                part["metadata"].pop(field, None)

        assert answer == made
