"""Custom resources: parts that contract tests do not cover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioinformer.errors import NotFound, OptionsError
from aioinformer.model.resource import Resource
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer.testing import APIServer
from aioinformer_apiserver.crds.custom_resources import definition_of, kinds_of
from aioinformer_apiserver.crds.status import (
    is_terminating,
    mark_for_deletion,
    next_statuses,
    with_definition_defaults,
    with_status,
)
from aioinformer_apiserver.crds.validation import validate_definition
from aioinformer_apiserver.reads.watches import Watcher
from aioinformer_apiserver.requests.options import DeleteOptions, WriteOptions
from aioinformer_apiserver.requests.queries import Scope
from aioinformer_apiserver.serialization.formats import format_of

if TYPE_CHECKING:
    from aioinformer_apiserver.storage.storage import Collection, Storage

THINGS = Resource("x.org", "v1", "things", "Thing")
NEWER = Resource("x.org", "v2", "things", "Thing")
OTHERS = Resource("x.org", "v1", "others", "Other")
NAME = "things.x.org"
NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"


def settled(body: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """Return a new definition in its final state."""
    fresh = with_status(with_definition_defaults(body), new=True)
    return [fresh, *next_statuses(fresh, others, NOW)][-1]


def conditions(body: dict[str, Any]) -> dict[str, str]:
    return {it["type"]: it["status"] for it in body["status"]["conditions"]}


def definition(server: APIServer) -> dict[str, Any]:
    return server.get(CUSTOM_RESOURCE_DEFINITIONS, NAME)


def collection_of(server: APIServer, resource: Resource) -> Collection:
    storage: Storage = server._storage
    return storage.collection(resource)


# -------------------------------------------------------------------- registering


def test_registered_resource_has_definition() -> None:
    server = APIServer(resources=[THINGS])

    found = definition(server)

    assert conditions(found) == {"NamesAccepted": "True", "Established": "True"}
    assert found["spec"]["versions"][0]["name"] == "v1"
    assert server.create(THINGS, {"metadata": {"name": "a"}, "x": 1})["x"] == 1


def test_definition_with_rules_in_cel_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = APIServer(resources=[OTHERS])
    body = definition_of(THINGS)
    (version,) = body["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [
        {"rule": "self.x > 0"}
    ]

    server.create(CUSTOM_RESOURCE_DEFINITIONS, body)
    labels = {"metadata": {"labels": {"a": "b"}}}
    server.patch(CUSTOM_RESOURCE_DEFINITIONS, NAME, labels)

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "CustomResourceDefinition things.x.org: its rules in CEL "
        "(x-kubernetes-validations) are ignored, as this server has no CEL"
    )


def test_repeated_registration_changes_nothing() -> None:
    server = APIServer(resources=[THINGS])
    before = definition(server)

    server.register(THINGS)

    assert definition(server) == before


def test_registered_version_shows_objects_of_other_versions() -> None:
    server = APIServer(resources=[THINGS])
    server.create(THINGS, {"metadata": {"name": "a"}})

    server.register(NEWER)
    server.patch(NEWER, "a", {"spec": {"n": 1}}, namespace="default")

    old = server.get(THINGS, "a", namespace="default")
    new = server.get(NEWER, "a", namespace="default")
    assert (old["apiVersion"], new["apiVersion"]) == ("x.org/v1", "x.org/v2")
    assert {**old, "apiVersion": ""} == {**new, "apiVersion": ""}
    assert definition(server)["status"]["storedVersions"] == ["v1"]


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(Resource("x.org", "v1", "things"), id="no-kind"),
        pytest.param(Resource("", "v1", "things", "Thing"), id="core"),
        pytest.param(Resource("x", "v1", "things", "Thing"), id="no-domain"),
    ],
)
def test_invalid_resource_cannot_be_registered(resource: Resource) -> None:
    server = APIServer()

    with pytest.raises(OptionsError, match="cannot be served"):
        server.register(resource)

    assert server.objects(CUSTOM_RESOURCE_DEFINITIONS) == []


def test_unregistering_ignores_finalizers() -> None:
    server = APIServer(resources=[THINGS])
    server.create(THINGS, {"metadata": {"name": "a", "finalizers": ["x.org/f"]}})

    server.unregister(THINGS)

    with pytest.raises(NotFound):
        definition(server)

    with pytest.raises(OptionsError, match="not served"):
        server.objects(THINGS)


def test_reregistered_resource_is_empty() -> None:
    server = APIServer(resources=[THINGS])
    server.create(THINGS, {"metadata": {"name": "a"}})

    server.unregister(THINGS)
    server.register(THINGS)

    assert server.objects(THINGS) == []


def test_deleted_definition_deletes_objects() -> None:
    server = APIServer(resources=[THINGS, NEWER])
    server.create(THINGS, {"metadata": {"name": "a"}})
    held = [collection_of(server, it) for it in (THINGS, NEWER)]

    server.delete(CUSTOM_RESOURCE_DEFINITIONS, NAME)

    assert [(len(it), it.closed) for it in held] == [(0, True), (0, True)]
    assert server.objects(CUSTOM_RESOURCE_DEFINITIONS) == []


def test_removing_definition_finalizer_stops_serving() -> None:
    server = APIServer(resources=[THINGS])
    body = {"metadata": {"name": "a", "finalizers": ["x.org/f"]}}
    server.create(THINGS, body)
    server.delete(CUSTOM_RESOURCE_DEFINITIONS, NAME)
    assert definition(server)["metadata"]["finalizers"]

    server.patch(CUSTOM_RESOURCE_DEFINITIONS, NAME, {"metadata": {"finalizers": []}})

    with pytest.raises(OptionsError, match="not served"):
        server.objects(THINGS)


# -------------------------------------------------------------------- collections


def test_every_version_is_listed_and_watched() -> None:
    server = APIServer(resources=[THINGS, NEWER])
    new = collection_of(server, NEWER)
    watcher = Watcher(new, Scope(), format_of(new.kind, {}, {}), new.tail)

    made = server.create(THINGS, {"metadata": {"name": "a"}})
    server.delete(NEWER, "a", namespace="default")

    added, deleted = watcher.take()
    version = made["metadata"]["resourceVersion"].encode()
    assert added.startswith(b'{"type":"ADDED","object":{"apiVersion":"x.org/v2"')
    assert b'"resourceVersion":"%s"' % version in added
    assert deleted.startswith(b'{"type":"DELETED"')
    assert collection_of(server, THINGS).tail.version == new.tail.version


def test_definition_change_ends_feed_after_pending_events() -> None:
    server = APIServer(resources=[THINGS])
    things = collection_of(server, THINGS)
    watcher = Watcher(things, Scope(), format_of(things.kind, {}, {}), things.tail)
    server.create(THINGS, {"metadata": {"name": "a"}})

    patch = {"spec": {"names": {"shortNames": ["th"]}}}
    server.patch(CUSTOM_RESOURCE_DEFINITIONS, NAME, patch)
    server.create(THINGS, {"metadata": {"name": "b"}})

    ended = [watcher.ended]
    lines = watcher.take()
    ended.append(watcher.ended)
    assert (len(lines), ended) == (2, [False, True])
    assert collection_of(server, THINGS).kind.short_names == ("th",)


def test_definition_metadata_change_keeps_feed() -> None:
    server = APIServer(resources=[THINGS])
    things = collection_of(server, THINGS)
    watcher = Watcher(things, Scope(), format_of(things.kind, {}, {}), things.tail)

    patch = {"metadata": {"labels": {"a": "b"}}}
    server.patch(CUSTOM_RESOURCE_DEFINITIONS, NAME, patch)

    assert not watcher.ended


def test_restored_snapshot_has_objects_in_all_versions() -> None:
    server = APIServer(resources=[THINGS, NEWER])
    server.create(THINGS, {"metadata": {"name": "a"}})
    storage = server._storage
    state = storage.save()
    server.delete(THINGS, "a", namespace="default")

    storage.restore(state)

    assert len(server.objects(THINGS)) == len(server.objects(NEWER)) == 1


def test_restored_snapshot_serves_versions_of_its_time() -> None:
    server = APIServer(resources=[THINGS, NEWER])
    server.create(THINGS, {"metadata": {"name": "a"}})
    storage = server._storage
    state = storage.save()
    server.unregister(THINGS)
    server.register(OTHERS)

    storage.restore(state)

    assert storage.find("x.org", "v1", "others") is None
    server.create(NEWER, {"metadata": {"name": "b"}})
    assert len(server.objects(THINGS)) == len(server.objects(NEWER)) == 2
    server.register(OTHERS)
    assert server.objects(OTHERS) == []


def test_definition_can_change_after_restore() -> None:
    server = APIServer(resources=[THINGS])
    patch = {"spec": {"names": {"shortNames": ["th"]}}}
    state = server._storage.save()
    server.patch(CUSTOM_RESOURCE_DEFINITIONS, NAME, patch)

    server._storage.restore(state)
    restored = collection_of(server, THINGS).kind.short_names
    server.patch(CUSTOM_RESOURCE_DEFINITIONS, NAME, patch)

    assert restored == ()
    assert collection_of(server, THINGS).kind.short_names == ("th",)


def test_new_history_counts_object_once_for_all_versions() -> None:
    server = APIServer(resources=[THINGS, NEWER])
    server.create(THINGS, {"metadata": {"name": "a"}})

    server._storage.start_new_history(lambda: "another")

    old, new = server.objects(THINGS)[0], server.objects(NEWER)[0]
    assert old["metadata"] == new["metadata"]
    assert old["metadata"]["uid"] == "another"


def test_new_selectable_field_selects_existing_objects() -> None:
    server = APIServer(resources=[THINGS])
    server.create(THINGS, {"metadata": {"name": "a"}, "spec": {"color": "red"}})
    spec = definition(server)["spec"]
    color = {"type": "object", "properties": {"color": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": color}}
    spec["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    spec["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.color"}]

    server.patch(CUSTOM_RESOURCE_DEFINITIONS, NAME, {"spec": spec})

    (stored,) = collection_of(server, THINGS)
    assert stored.fields == {"spec.color": "red"}


def test_dry_run_of_definition_changes_nothing() -> None:
    server = APIServer()
    registry = server._registry
    definitions = collection_of(server, CUSTOM_RESOURCE_DEFINITIONS)

    registry.create(definitions, "", definition_of(THINGS), WriteOptions(dry_run=True))
    assert server._storage.find("x.org", "v1", "things") is None

    server.register(THINGS)
    registry.delete(definitions, "", NAME, DeleteOptions(dry_run=True))
    assert server.objects(THINGS) == []
    assert "deletionTimestamp" not in definition(server)["metadata"]


# -------------------------------------------------------------------- states


def test_stable_definition_has_no_next_status() -> None:
    body = settled(definition_of(THINGS))

    assert list(next_statuses(body, (), LATER)) == []


def test_unestablished_definition_has_no_kinds() -> None:
    body = with_status(with_definition_defaults(definition_of(THINGS)), new=True)

    assert kinds_of(body) == []
    assert [it.resource for it in kinds_of(settled(body))] == [THINGS]


def test_condition_keeps_transition_time_while_status_is_same() -> None:
    first = settled(definition_of(THINGS))
    other = definition_of(Resource("x.org", "v1", "others", "Other"))
    other["spec"]["names"]["shortNames"] = ["th"]
    first["spec"]["names"]["shortNames"] = ["th"]

    (conflict,) = next_statuses(first, [settled(other)], LATER)

    found = {it["type"]: it for it in conflict["status"]["conditions"]}
    assert found["NamesAccepted"]["message"] == '"th" is already in use'
    assert found["NamesAccepted"]["lastTransitionTime"] == LATER
    assert found["Established"]["lastTransitionTime"] == NOW
    assert found["Established"]["status"] == "True"


def test_conflicting_short_names_are_reported_together() -> None:
    other = definition_of(Resource("x.org", "v1", "others", "Other"))
    other["spec"]["names"]["shortNames"] = ["a", "b"]
    body = definition_of(THINGS)
    body["spec"]["names"]["shortNames"] = ["a", "b", "c"]

    found = settled(body, settled(other))

    (names, _) = found["status"]["conditions"]
    assert names["message"] == '["a" is already in use, "b" is already in use]'
    assert "shortNames" not in found["status"]["acceptedNames"]


def test_definition_is_marked_for_deletion_once() -> None:
    body = settled(definition_of(THINGS))

    marked = mark_for_deletion(body, NOW)

    assert not is_terminating(body)
    assert is_terminating(marked)
    assert mark_for_deletion(marked, LATER) == marked


def test_restriction_fields_must_be_declared() -> None:
    body = definition_of(THINGS)
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object"}},
        "allOf": [{"properties": {"z": {"minimum": 1}}}],
    }
    body["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    body = with_status(with_definition_defaults(body), new=True)

    path = "spec.validation.openAPIV3Schema"
    assert [(it.field, it.message) for it in validate_definition(body)] == [
        (
            f"{path}.properties[z]",
            f"Required value: because it is defined in {path}.allOf[0].properties[z]",
        )
    ]
