"""What is made of recorded bodies is what a real server has made of them."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from recorded_writes import (
    Write,
    definition_of_things,
    load,
    merged,
    normalised,
    placed,
)

from aioinformer.errors import ApiError
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.builtin_validation import (
    create_problems,
    update_problems,
)
from aioinformer_apiserver.schema.creation_defaults import (
    preserved_on_update,
    with_creation_defaults,
)
from aioinformer_apiserver.schema.decoding import decode
from aioinformer_apiserver.schema.defaults import with_defaults
from aioinformer_apiserver.schema.openapi_schema import schema_of
from aioinformer_apiserver.schema.schema_validation import schema_problems
from aioinformer_apiserver.schema.service_allocation import with_addresses

NOW = "2026-01-02T03:04:05Z"
UID = "00000000-0000-4000-8000-000000000000"
NAMESPACE = "test-recorded"

Object = dict[str, Any]


def by_kind(file: str) -> list[Any]:
    writes = sorted(load(file), key=lambda it: it.resource.kind)
    groups = groupby(writes, key=lambda it: it.resource.kind)
    return [pytest.param(list(group), id=kind) for kind, group in groups]


def refused(problems: list[Any], warnings: tuple[str, ...]) -> Object:
    causes = [
        {"field": it.field, "reason": it.reason, "message": it.message}
        for it in problems
    ]
    return normalised(422, {"details": {"causes": causes}}, [*warnings], NAMESPACE)


def answered(status: int, body: Object, warnings: tuple[str, ...]) -> Object:
    return normalised(status, body, [*warnings], NAMESPACE)


def without_generation(answer: Object) -> Object:
    """The generation is counted elsewhere."""
    answer.get("stored", {}).get("metadata", {}).pop("generation", None)
    return answer


def newborn(write: Write, schema: Schema, body: Object) -> Object:
    metadata = {**body["metadata"], "uid": UID}
    if write.resource.namespaced:
        metadata["namespace"] = NAMESPACE

    whole = with_defaults(schema, {**body, "metadata": metadata})
    whole = with_creation_defaults(write.resource, schema, whole, now=NOW)
    return with_addresses(whole) if write.resource.kind == "Service" else whole


def created(write: Write) -> Object:
    schema = schema_of(write.resource)
    assert schema is not None
    try:
        found = decode(schema, placed(write.body, NAMESPACE))
    except ApiError as exc:
        return {"status": 400, "message": exc.message}

    body = newborn(write, schema, found.body)
    problems = create_problems(write.resource, body)
    if problems:
        return refused(problems, found.problems)

    return answered(201, body, found.problems)


def updated(write: Write) -> Object:
    schema = schema_of(write.resource)
    assert schema is not None
    old = newborn(write, schema, decode(schema, placed(write.body, NAMESPACE)).body)
    sent = merged(old, placed(write.update, NAMESPACE))
    new = with_defaults(schema, decode(schema, sent).body)
    new = preserved_on_update(write.resource, old, new)
    if write.resource.kind == "Service":
        new = with_addresses(new, old=old)

    problems = update_problems(write.resource, old, new)
    return refused(problems, ()) if problems else answered(200, new, ())


def custom(write: Write, schema: Schema) -> Object:
    try:
        found = decode(schema, write.body, custom=True)
    except ApiError as exc:
        return {"status": 400, "message": exc.message}

    body = with_defaults(schema, {k: v for k, v in found.body.items() if k != "status"})
    problems = schema_problems(schema, body)
    if problems:
        return refused(problems, found.problems)

    return answered(201, body, found.problems)


@pytest.mark.parametrize("writes", by_kind("creations"))
def test_creates_what_a_real_server_does(writes: list[Write]) -> None:
    metadata = ("ConfigMap", "PriorityClass")
    for write in writes:
        told = write.answer.get("causes")
        if told and write.resource.kind in metadata and "metadata" in told[0][0]:
            continue  # the metadata are checked elsewhere

        assert created(write) == without_generation(write.answer), write.body


@pytest.mark.parametrize("writes", by_kind("updates"))
def test_updates_as_a_real_server_does(writes: list[Write]) -> None:
    for write in writes:
        expected = without_generation(write.answer)
        assert updated(write) == expected, (write.body, write.update)


def test_treats_custom_resources_as_a_real_server_does() -> None:
    version = definition_of_things()["spec"]["versions"][0]
    schema = Schema(version["schema"]["openAPIV3Schema"])

    for write in load("things"):
        if write.body["metadata"] is not None:
            expected = without_generation(write.answer)
            assert custom(write, schema) == expected, write.body
