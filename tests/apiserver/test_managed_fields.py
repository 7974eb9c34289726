"""Managed fields after creates, updates, patches and scale writes."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case
from managed_fields_helpers import (
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
    SCALE_VERSION,
    from_scale,
    keep_unchanged_times,
    manager_of,
    reset_fields,
    to_scale,
    update_managed_fields,
)
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.openapi_schema import definition
from aioinformer_apiserver.storage.kinds import Kind, built_in_kinds

KINDS = {kind.resource: kind for kind in built_in_kinds()}


# -------------------------------------------------------------------- ownership


def test_create_owns_fields_it_sets() -> None:
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


def test_create_of_deployment_owns_fields_like_real_server() -> None:
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


def test_create_of_custom_object_owns_containers() -> None:
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


def test_schemaless_custom_object_has_atomic_lists() -> None:
    body = {"metadata": {"name": "a"}, "spec": {"a": {"b": 1}, "l": [{"name": "x"}]}}

    found = update_managed_fields(
        None, None, body, manager="me", api_version="g/v1", now=NOW
    )

    assert found[0]["fieldsV1"] == {
        "f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:l": {}}
    }


def test_server_owned_fields_have_no_owner() -> None:
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


def test_update_takes_changed_fields() -> None:
    old = written(None, config_map(x="1", y="1"), "one")

    new = written(old, config_map(x="1", y="2", z="1"), "two", now=LATER)

    assert owned_by(new) == {
        "one": {"f:data": {".": {}, "f:x": {}}},
        "two": {"f:data": {"f:y": {}, "f:z": {}}},
    }
    times = {it["manager"]: it["time"] for it in new["metadata"]["managedFields"]}
    assert times == {"one": NOW, "two": LATER}


def test_update_adds_to_fields_of_its_manager() -> None:
    old = written(None, config_map(x="1"))

    new = written(old, config_map(x="1", y="1"), now=LATER)

    assert owned_by(new) == {"me": {"f:data": {".": {}, "f:x": {}, "f:y": {}}}}
    assert new["metadata"]["managedFields"][0]["time"] == LATER


def test_update_takes_fields_from_appliers() -> None:
    old = config_map(x="1", y="1")
    applier = entry("a", {"f:data": {"f:x": {}, "f:y": {}}}, operation="Apply")
    old["metadata"]["managedFields"] = [applier]

    new = written(old, config_map(x="2", y="1"))

    assert owned_by(new) == {
        "a!": {"f:data": {"f:y": {}}},
        "me": {"f:data": {"f:x": {}}},
    }


def test_removed_fields_have_no_owner() -> None:
    old = written(None, config_map(x="1", y="1"), "one")
    old = written(old, config_map(x="2", y="1"), "two")

    new = written(old, config_map(y="1"), "three")

    assert owned_by(new) == {"one": {"f:data": {".": {}, "f:y": {}}}}


def test_unchanged_write_keeps_entries() -> None:
    old = written(None, config_map(x="1"), "one")

    new = written(old, config_map(x="1"), "two", now=LATER)

    assert new == old


def test_reset_fields_are_not_owned_after_update() -> None:
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


def test_reset_fields_stay_with_other_owners() -> None:
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


def test_each_subresource_has_own_entry() -> None:
    old = written(None, deployment({"name": "web"}))

    new = written(
        old, {**old, "status": {"observedGeneration": 1}}, subresource="status"
    )

    entries = new["metadata"]["managedFields"]
    assert [it.get("subresource") for it in entries] == [None, "status"]


def test_list_items_without_identity_drop_all_entries() -> None:
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


@each_case(
    "agent, requested, expected",
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
def test_manager_name_comes_from_field_manager_or_user_agent(
    agent: str, requested: str, expected: str
) -> None:
    assert manager_of(agent, requested) == expected


def test_reset_fields_depend_on_kind_and_subresource() -> None:
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


def test_times_are_kept_if_nothing_else_changed() -> None:
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
def test_times_change_with_other_changes(new: dict[str, Any]) -> None:
    old = written(None, config_map(x="1"))

    assert keep_unchanged_times(old, new) is new


# ------------------------------------------------------------ managed fields in requests


@pytest.mark.parametrize("sent", [[], [{}]], ids=["no entry", "an empty entry"])
def test_empty_managed_fields_reset_entries(sent: list[Any]) -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="2")
    new["metadata"]["managedFields"] = sent

    assert written(old, new)["metadata"]["managedFields"] == []


def test_existing_object_without_managed_fields_gets_none() -> None:
    assert (
        written(config_map(x="1"), config_map(x="2"))["metadata"]["managedFields"] == []
    )


def test_managed_fields_of_client_replace_stored_ones() -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="1", y="1")
    hour = "2020-01-01T00:00:00+01:00"
    new["metadata"]["managedFields"] = [
        entry("q", {"f:data": {"f:z": {}}}, operation="Apply", time=hour)
    ]

    found = written(old, new)

    assert owned_by(found) == {
        "q!": {"f:data": {"f:z": {}}},
        "me": {"f:data": {"f:y": {}}},
    }
    assert found["metadata"]["managedFields"][0]["time"] == "2019-12-31T23:00:00Z"


@each_case(
    "sent",
    [
        pytest.param(None, id="null"),
        pytest.param("x", id="text"),
        pytest.param(["x"], id="no entry"),
        pytest.param([entry("q", {"data": {}})], id="a malformed path"),
        pytest.param([entry("q", {}, operation="Foo")], id="an unknown operation"),
        pytest.param([entry("q", {}, version="")], id="no version"),
        pytest.param([{**entry("q", {}), "fieldsType": "X"}], id="an unknown type"),
        pytest.param([entry("q", {}, time="now")], id="a malformed time"),
    ],
)
def test_malformed_managed_fields_of_client_are_ignored(sent: object) -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="1")
    new["metadata"]["managedFields"] = sent

    assert written(old, new) == old


def test_managed_fields_sent_to_subresource_are_ignored() -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="1")
    new["metadata"]["managedFields"] = []

    assert written(old, new, subresource="status") == old


def test_entries_without_fields_are_dropped() -> None:
    old = written(None, config_map(x="1"))
    new = config_map(x="1")
    new["metadata"]["managedFields"] = [{**entry("q", {}), "fieldsV1": None}]

    assert written(old, new)["metadata"]["managedFields"] == []


def test_entries_of_unknown_versions_are_dropped() -> None:
    old = config_map(x="1")
    owned: dict[str, Any] = {"f:data": {"f:x": {}}}
    old["metadata"]["managedFields"] = [
        entry("new", owned),
        entry("other", owned, version="v2"),
        entry("gone", owned, version="v0"),
    ]

    found = written(old, old, versions=["v1", "v2"])

    assert owned_by(found) == {"new": owned, "other": owned}


# -------------------------------------------------------------------- list of entries


def test_entries_are_sorted_by_operation_time_and_name() -> None:
    old = config_map(x="1")
    owned: dict[str, Any] = {"f:data": {"f:x": {}}}
    ordered = [
        entry("z", owned, operation="Apply", time=""),
        entry("b", owned, operation="Apply"),
        entry("a", owned, operation="Apply", time=LATER),
        entry("a", owned),
        entry("a", owned, subresource="status"),
        entry("b", owned),
        entry("a", owned, time=LATER, version="v2"),
    ]
    old["metadata"]["managedFields"] = ordered[::-1]

    found = written(old, old, versions=["v2"])

    assert found["metadata"]["managedFields"] == ordered


def test_oldest_updates_beyond_ten_are_combined() -> None:
    body = written(None, config_map(a="1"), "first", now="2025-01-01T00:00:00Z")
    data = {"a": "1"}
    for day in range(1, 13):
        data[f"k{day}"] = "1"
        now = f"2026-01-{day:02}T00:00:00Z"
        body = written(body, config_map(**data), f"m{day}", now=now)

    entries = body["metadata"]["managedFields"]
    assert [it["manager"] for it in entries] == [
        "ancient-changes",
        *[f"m{day}" for day in range(4, 13)],
    ]
    assert entries[0]["fieldsV1"] == {
        "f:data": {".": {}, "f:a": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}}
    }
    assert entries[0]["time"] == "2026-01-03T00:00:00Z"


def test_updates_of_different_versions_are_not_combined() -> None:
    old = config_map(**{f"k{place}": "1" for place in range(11)})
    old["metadata"]["managedFields"] = [
        entry(f"m{place:02}", {"f:data": {f"f:k{place}": {}}}, version=f"v{place}")
        for place in range(11)
    ]
    versions = [f"v{place}" for place in range(11)]

    found = written(old, old, versions=versions)

    assert found["metadata"]["managedFields"] == old["metadata"]["managedFields"]


def test_appliers_do_not_count_towards_update_limit() -> None:
    old = config_map(x="1")
    owned: dict[str, Any] = {"f:data": {"f:x": {}}}
    old["metadata"]["managedFields"] = [
        entry(f"m{place:02}", owned, operation="Apply") for place in range(12)
    ]

    assert len(written(old, old)["metadata"]["managedFields"]) == 12


SCALE = definition("io.k8s.api.autoscaling.v1.Scale")


REPLICAS = ("spec", "replicas")


OWNED: dict[str, Any] = {"f:spec": {"f:paused": {}, "f:replicas": {}}}


ONLY: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


def owner(name: str, owned: dict[str, Any], **options: Any) -> dict[str, Any]:
    return entry(name, owned, version="apps/v1", **options)


def scaled(
    managed: list[dict[str, Any]], manager: str, *, old: int = 1, new: int = 2
) -> list[dict[str, Any]]:
    """Write replicas through the scale, and return the managed fields of the owner."""
    shown = to_scale(managed, REPLICAS, {"apps/v1"})
    before = {"metadata": {"managedFields": shown}, "spec": {"replicas": old}}
    after = update_managed_fields(
        SCALE,
        before,
        {"metadata": {}, "spec": {"replicas": new}},
        manager=manager,
        api_version=SCALE_VERSION,
        now=NOW,
        subresource="scale",
    )
    return from_scale(managed, after, REPLICAS, api_version="apps/v1")


def test_scale_has_entries_of_replicas_owners() -> None:
    managed = [owner("a", OWNED), owner("b", {"f:spec": {"f:paused": {}}})]

    assert to_scale(managed, REPLICAS, {"apps/v1"}) == [
        entry("a", ONLY, version=SCALE_VERSION)
    ]
    assert to_scale(managed, REPLICAS, {"apps/v2"}) == []


def test_scale_shows_replicas_at_path_of_kind() -> None:
    managed = [owner("a", {"f:spec": {"f:size": {}}})]

    found = to_scale(managed, ("spec", "size"), {"apps/v1"})

    assert found == [entry("a", ONLY, version=SCALE_VERSION)]
    assert from_scale(managed, [], ("spec", "size"), api_version="apps/v1") == []


def test_scale_write_owns_replicas_without_time() -> None:
    found = scaled([owner("a", OWNED)], "sc")

    assert found == [
        owner("sc", ONLY, time="", subresource="scale"),
        owner("a", {"f:spec": {"f:paused": {}}}),
    ]


def test_scale_write_of_unowned_replicas_has_no_owner() -> None:
    managed = [owner("a", {"f:spec": {"f:paused": {}}})]

    assert scaled(managed, "sc") == managed


def test_applier_keeps_entry_if_replicas_are_unchanged() -> None:
    managed = [owner("a", OWNED, operation="Apply")]

    assert scaled(managed, "sc", new=1) == managed


def test_update_entry_is_split_even_if_replicas_are_unchanged() -> None:
    found = scaled([owner("a", OWNED)], "sc", new=1)

    assert found == [
        owner("a", ONLY, time=""),
        owner("a", {"f:spec": {"f:paused": {}}}),
    ]


def test_owner_of_replicas_only_loses_entry() -> None:
    found = scaled([owner("a", ONLY, operation="Apply")], "sc")

    assert [it["manager"] for it in found] == ["sc"]


def test_scale_fields_drop_entries_of_unknown_versions() -> None:
    managed = [owner("a", OWNED), entry("b", OWNED, version="apps/v0")]
    kept = [owner("a", OWNED, operation="Apply"), entry("b", OWNED, version="apps/v2")]
    options: dict[str, Any] = {"api_version": "apps/v1", "versions": ["apps/v2"]}

    found = from_scale(managed, to_scale(managed, REPLICAS, {"x"}), REPLICAS, **options)

    assert found == [owner("a", {"f:spec": {"f:paused": {}}})]
    assert len(from_scale(kept, [], REPLICAS, **options)) == 2


def test_scale_entry_without_replicas_is_ignored() -> None:
    shown = [entry("a", {"f:metadata": {"f:labels": {}}}, version=SCALE_VERSION)]

    assert from_scale([], shown, REPLICAS, api_version="apps/v1") == []


def test_malformed_scale_entries_are_rejected() -> None:
    with pytest.raises(ValueError, match="expected an entry"):
        to_scale(["x"], REPLICAS, {"apps/v1"})
