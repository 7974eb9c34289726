"""Managed fields: who owns what after a create, an update or a patch."""

from __future__ import annotations

from typing import Any

import pytest
from patching_helpers import (
    GADGET_SCHEMA,
    LATER,
    NOW,
    config_map,
    deployment,
    entry,
    fields,
    gadget,
    owned_by,
    written,
)

from aioinformer.model.resource import Resource
from aioinformer.model.resources import CONFIG_MAPS, DEPLOYMENTS, PODS
from aioinformer_apiserver.patches.field_sets import EMPTY
from aioinformer_apiserver.patches.managed_fields import (
    keep_unchanged_times,
    manager_of,
    reset_fields,
    update_managed_fields,
)
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.storage.kinds import Kind, built_in_kinds

KINDS = {kind.resource: kind for kind in built_in_kinds()}


# -------------------------------------------------------------------- owning


def test_a_creator_owns_what_it_sets() -> None:
    made = written(None, config_map(x="1"), "kubectl")

    assert made["metadata"]["managedFields"] == [
        {
            "manager": "kubectl",
            "operation": "Update",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:x": {}}},
        }
    ]


def test_a_creator_of_a_deployment_owns_it_as_on_a_real_server() -> None:
    web = {
        "name": "web",
        "image": "nginx",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "env": [{"name": "A", "value": "1"}],
        "resources": {"limits": {"cpu": "1"}},
    }

    made = written(None, deployment(web, replicas=1, strategy={"type": "Recreate"}))

    assert owned_by(made)["me"] == {
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:strategy": {"f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"web"}': {
                            ".": {},
                            "f:env": {
                                ".": {},
                                'k:{"name":"A"}': {
                                    ".": {},
                                    "f:name": {},
                                    "f:value": {},
                                },
                            },
                            "f:image": {},
                            "f:name": {},
                            "f:ports": {
                                ".": {},
                                'k:{"containerPort":80,"protocol":"TCP"}': {
                                    ".": {},
                                    "f:containerPort": {},
                                    "f:protocol": {},
                                },
                            },
                            "f:resources": {
                                ".": {},
                                "f:limits": {".": {}, "f:cpu": {}},
                            },
                        }
                    }
                },
            },
        }
    }


def test_the_creator_of_a_custom_object_owns_its_containers_too() -> None:
    found = update_managed_fields(
        Schema(GADGET_SCHEMA),
        None,
        gadget(labels={"l": "1"}, tags=["a"]),
        manager="me",
        api_version="example.com/v1",
        now=NOW,
    )

    assert found[0]["fieldsV1"] == {
        "f:spec": {
            ".": {},
            "f:labels": {".": {}, "f:l": {}},
            "f:tags": {".": {}, 'v:"a"': {}},
        }
    }


def test_a_custom_object_without_a_schema_has_atomic_lists() -> None:
    body = {"metadata": {"name": "a"}, "spec": {"a": {"b": 1}, "l": [{"name": "x"}]}}

    found = update_managed_fields(
        None, None, body, manager="me", api_version="g/v1", now=NOW
    )

    assert found[0]["fieldsV1"] == {
        "f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:l": {}}
    }


def test_nobody_owns_what_the_server_keeps() -> None:
    body = config_map(x="1")
    body["metadata"] |= {
        "namespace": "n",
        "uid": "1",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": NOW,
        "selfLink": "/x",
        "generateName": "a-",
        "labels": {"l": "1"},
    }

    made = written(None, body)

    assert owned_by(made)["me"]["f:metadata"] == {
        "f:generateName": {},
        "f:labels": {".": {}, "f:l": {}},
    }


def test_an_update_takes_what_it_changes() -> None:
    old = written(None, config_map(x="1", y="1"), "one")

    new = written(old, config_map(x="1", y="2", z="1"), "two", now=LATER)

    assert owned_by(new) == {
        "one": {"f:data": {".": {}, "f:x": {}}},
        "two": {"f:data": {"f:y": {}, "f:z": {}}},
    }
    times = {it["manager"]: it["time"] for it in new["metadata"]["managedFields"]}
    assert times == {"one": NOW, "two": LATER}


def test_an_update_adds_to_what_its_manager_owns() -> None:
    old = written(None, config_map(x="1"))

    new = written(old, config_map(x="1", y="1"), now=LATER)

    assert owned_by(new) == {"me": {"f:data": {".": {}, "f:x": {}, "f:y": {}}}}
    assert new["metadata"]["managedFields"][0]["time"] == LATER


def test_an_update_takes_from_appliers_too() -> None:
    old = config_map(x="1", y="1")
    applier = entry("a", {"f:data": {"f:x": {}, "f:y": {}}}, operation="Apply")
    old["metadata"]["managedFields"] = [applier]

    new = written(old, config_map(x="2", y="1"))

    assert owned_by(new) == {
        "a!": {"f:data": {"f:y": {}}},
        "me": {"f:data": {"f:x": {}}},
    }


def test_nobody_owns_what_was_removed() -> None:
    old = written(None, config_map(x="1", y="1"), "one")
    old = written(old, config_map(x="2", y="1"), "two")

    new = written(old, config_map(y="1"), "three")

    assert owned_by(new) == {"one": {"f:data": {".": {}, "f:y": {}}}}


def test_a_write_that_changes_nothing_changes_no_entry() -> None:
    old = written(None, config_map(x="1"), "one")

    new = written(old, config_map(x="1"), "two", now=LATER)

    assert new == old


def test_what_a_way_of_writing_resets_is_not_owned() -> None:
    body = {**deployment({"name": "web"}), "status": {}}
    old = written(None, body)
    new = {**body, "status": {"replicas": 1}, "spec": {**body["spec"], "paused": True}}
    kind = KINDS[DEPLOYMENTS]

    main = written(old, new, "main", reset=reset_fields(kind))
    status = written(
        old, new, "st", subresource="status", reset=reset_fields(kind, "status")
    )

    assert owned_by(main)["main"] == {"f:spec": {"f:paused": {}}}
    assert owned_by(status)["st"] == {"f:status": {"f:replicas": {}}}
    assert status["metadata"]["managedFields"][1]["subresource"] == "status"


def test_what_is_reset_is_taken_from_nobody() -> None:
    old = deployment({"name": "web"})
    old["status"] = {"replicas": 1}
    owner = entry(
        "st", {"f:status": {"f:replicas": {}}}, version="apps/v1", subresource="status"
    )
    old["metadata"]["managedFields"] = [owner]

    new = written(
        old, deployment({"name": "web"}), reset=reset_fields(KINDS[DEPLOYMENTS])
    )

    assert owned_by(new) == {"st": {"f:status": {"f:replicas": {}}}}


def test_an_entry_for_each_subresource() -> None:
    old = written(None, deployment({"name": "web"}))

    new = written(
        old, {**old, "status": {"observedGeneration": 1}}, subresource="status"
    )

    entries = new["metadata"]["managedFields"]
    assert [it.get("subresource") for it in entries] == [None, "status"]


def test_a_list_that_cannot_be_told_apart_costs_all_entries() -> None:
    old = gadget(tags=["a"])
    old["metadata"]["managedFields"] = [entry("one", {"f:spec": {"f:tags": {}}})]

    found = update_managed_fields(
        Schema(GADGET_SCHEMA),
        old,
        gadget(tags=[None]),
        manager="me",
        api_version="v1",
        now=NOW,
    )

    assert found == []


# -------------------------------------------------------------------- names, resets


@pytest.mark.parametrize(
    ("agent", "asked", "expected"),
    [
        pytest.param("kubectl/v1.36 (linux)", "", "kubectl", id="up to the slash"),
        pytest.param("kubectl/v1.36", "mine", "mine", id="asked for"),
        pytest.param("", "", "unknown", id="none"),
        pytest.param("/x", "", "unknown", id="nothing before the slash"),
        pytest.param("a b", "", "a b", id="no slash"),
        pytest.param("a\tb\x7f/1", "", "ab", id="unprintable letters"),
        pytest.param("x" * 200, "", "x" * 128, id="too long"),
        pytest.param("é" * 100, "", "é" * 64, id="too many bytes"),
    ],
)
def test_a_manager_is_named(agent: str, asked: str, expected: str) -> None:
    assert manager_of(agent, asked) == expected


def test_what_each_way_of_writing_resets() -> None:
    gadgets = Resource("example.com", "v1", "gadgets", "Gadget")
    custom = Kind(resource=gadgets, typed=False, has_status=True)
    plain = Kind(resource=gadgets, typed=False)

    assert reset_fields(KINDS[PODS]) == fields("status")
    assert reset_fields(KINDS[PODS], "status") == fields(
        "spec", "metadata/deletionTimestamp", "metadata/ownerReferences"
    )
    assert reset_fields(KINDS[DEPLOYMENTS], "status") == fields(
        "spec", "metadata/labels"
    )
    assert reset_fields(KINDS[CONFIG_MAPS]) == EMPTY
    assert reset_fields(custom, "status") == fields("spec", "metadata")
    assert reset_fields(custom) == fields("status")
    assert reset_fields(plain) == EMPTY


# -------------------------------------------------------------------- times


def test_times_are_kept_if_they_are_all_that_changed() -> None:
    old = written(None, config_map(x="1"))
    new = written(None, config_map(x="1"), now=LATER)

    assert keep_unchanged_times(old, new) == old
    assert new["metadata"]["managedFields"][0]["time"] == LATER


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(written(None, config_map(x="2"), now=LATER), id="another value"),
        pytest.param(written(None, config_map(x="1"), "you", now=LATER), id="an owner"),
        pytest.param(written(None, config_map(x="1")), id="nothing"),
        pytest.param(config_map(x="1"), id="no owner"),
    ],
)
def test_other_changes_bring_their_time(new: dict[str, Any]) -> None:
    old = written(None, config_map(x="1"))

    assert keep_unchanged_times(old, new) is new
