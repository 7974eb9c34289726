"""Server-side apply: merging, ownership, conflicts, validation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_case import each_case
from managed_fields_helpers import (
    LATER,
    MAPS,
    NOW,
    applied,
    config_map,
    deployment,
    entry,
    gadget,
    owned_by,
)

from aioinformer.errors import ApiError, Conflict
from aioinformer_apiserver.patches.field_sets import FieldSet
from aioinformer_apiserver.patches.server_side_apply import LAST_APPLIED, apply


def spec_of(*steps: dict[str, Any]) -> Any:
    """Apply these specs of a gadget in turn, and return the final spec."""
    live = None
    for spec in steps:
        live = applied(live, gadget(**spec))

    assert live is not None
    return live["spec"]


# -------------------------------------------------------------------- merging


def test_applied_values_win_and_other_values_stay() -> None:
    live = config_map(x="1", y="1")

    found = applied(live, config_map(x="2"), force=True)

    assert found["data"] == {"x": "2", "y": "1"}


def test_new_object_equals_applied_object() -> None:
    found = applied(None, config_map(x="1"))

    assert found["metadata"].pop("managedFields") == [
        entry("one", {"f:data": {"f:x": {}}}, operation="Apply")
    ]
    assert found == config_map(x="1")


@each_case("live, body, expected", [
        pytest.param({"tags": ["a"]}, {"tags": ["b"]}, {"tags": ["a", "b"]}, id="set"),
        pytest.param({"list": ["a"]}, {"list": ["b"]}, {"list": ["b"]}, id="atomic"),
        pytest.param(
            {"whole": {"a": "1"}}, {"whole": {"b": "1"}}, {"whole": {"b": "1"}},
            id="atomic map",
        ),
        pytest.param(
            {"labels": {"a": "1"}}, {"labels": {"b": "1"}},
            {"labels": {"a": "1", "b": "1"}},
            id="map",
        ),
        pytest.param(
            {"ports": [{"port": 1, "name": "x"}, {"port": 2}]},
            {"ports": [{"port": 3}, {"port": 1, "protocol": "TCP"}]},
            {
                "ports": [
                    {"port": 3},
                    {"port": 1, "name": "x", "protocol": "TCP"},
                    {"port": 2},
                ]
            },
            id="items by their keys and defaults",
        ),
        pytest.param({"labels": {"a": "1"}}, {"labels": None}, {"labels": {"a": "1"}},
                     id="null says nothing of a map"),
        pytest.param({"labels": {}}, {"labels": None}, {"labels": None}, id="null"),
        pytest.param({"tags": ["a"]}, {"tags": []}, {"tags": ["a"]}, id="an empty set"),
        pytest.param({"any": 1}, {"any": {"a": 1}}, {"any": {"a": 1}}, id="type"),
        pytest.param({"tags": ["a", "b", "a"]}, {"tags": ["b", "c"]},
                     {"tags": ["a", "b", "a", "c"]}, id="values that are there twice"),
        pytest.param({"ports": [{"port": 1, "name": "x"}, {"port": 1, "name": "y"}]},
                     {"ports": [{"port": 1}]}, {"ports": [{"port": 1}]},
                     id="items that are there twice"),
    ])  # fmt: skip
def test_apply_merges_by_schema(
    live: dict[str, Any], body: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert applied(gadget(**live), gadget(**body), force=True)["spec"] == expected


@each_case(
    "live, body, expected",
    [
        pytest.param("ab", "ba", "ba", id="the order of the applied"),
        pytest.param("axb", "ab", "axb", id="a live one stays between"),
        pytest.param("abx", "ban", "bxan", id="and behind its neighbour"),
        pytest.param("xab", "nab", "xnab", id="and in front"),
        pytest.param("db", "zbad", "zbad", id="new ones"),
        pytest.param("abc", "", "abc", id="nothing applied"),
        pytest.param("", "abc", "abc", id="nothing live"),
    ],
)
def test_merged_list_keeps_order(live: str, body: str, expected: str) -> None:
    found = applied(gadget(tags=list(live)), gadget(tags=list(body)), force=True)

    assert "".join(found["spec"]["tags"]) == expected


# -------------------------------------------------------------------- dropped fields


def test_field_no_longer_applied_is_removed() -> None:
    assert spec_of({"size": 1, "on": True}, {"on": True}) == {"on": True}
    assert spec_of({"tags": ["a", "b"]}, {"tags": ["b"]}) == {"tags": ["b"]}
    assert spec_of({"ports": [{"port": 1}, {"port": 2}]}, {"ports": [{"port": 2}]}) == {
        "ports": [{"port": 2}]
    }
    assert spec_of({"labels": {"a": "1"}}, {"size": 1}) == {"size": 1}


def test_field_with_other_owner_stays() -> None:
    live = applied(None, config_map(x="1", y="1"))
    live = applied(live, config_map(x="1"), "two")

    found = applied(live, config_map())

    assert found["data"] == {"x": "1"}
    assert owned_by(found) == {"one!": {"f:data": {}}, "two!": {"f:data": {"f:x": {}}}}


def test_unowned_fields_are_removed_with_parent() -> None:
    live = applied(None, gadget(size=1))
    live["spec"]["on"] = True

    body = gadget()
    del body["spec"]

    assert "spec" not in applied(live, body)


def test_list_item_stays_for_fields_of_other_owners() -> None:
    live = applied(None, gadget(ports=[{"port": 1, "name": "x"}, {"port": 2}]))
    live = applied(live, gadget(ports=[{"port": 1}]), "two")

    found = applied(live, gadget())

    assert found["spec"] == {"ports": [{"port": 1}]}


def test_container_with_other_owner_becomes_null() -> None:
    live = gadget(labels={"l": "1"})
    live["metadata"]["managedFields"] = [
        entry(
            "one",
            {"f:spec": {"f:labels": {"f:l": {}}}},
            operation="Apply",
            version="v1",
        ),
        entry("two", {"f:spec": {"f:labels": {}}}, version="v1"),
    ]

    found = applied(live, gadget(size=1), version="v1")

    assert found["spec"] == {"labels": None, "size": 1}


def test_apply_of_nothing_owns_nothing() -> None:
    live = applied(None, config_map(x="1"))
    body = config_map()
    del body["data"]

    found = applied(live, body)

    assert "data" not in found
    assert "managedFields" not in found["metadata"]


# -------------------------------------------------------------------- ownership


def test_equal_values_are_owned_by_both_appliers() -> None:
    live = applied(None, config_map(x="1"))

    found = applied(live, config_map(x="1"), "two", now=LATER)

    assert owned_by(found) == {
        "one!": {"f:data": {"f:x": {}}},
        "two!": {"f:data": {"f:x": {}}},
    }


def test_apply_without_changes_has_no_time() -> None:
    live = applied(None, config_map(x="1"))

    found = applied(live, config_map(x="1"), "two", now=LATER)

    times = {it["manager"]: it.get("time") for it in found["metadata"]["managedFields"]}
    assert times == {"one": NOW, "two": None}


def test_repeated_apply_changes_nothing() -> None:
    live = applied(None, deployment({"name": "web", "image": "a"}, replicas=2))

    found = applied(
        live, deployment({"name": "web", "image": "a"}, replicas=2), now=LATER
    )

    assert found == live


def test_applier_has_one_entry_for_all_versions() -> None:
    live = applied(None, gadget(size=1))
    later = {**gadget(on=True), "apiVersion": "example.com/v2"}

    found = applied(live, later, versions=["example.com/v1"])

    (only,) = found["metadata"]["managedFields"]
    assert only["apiVersion"] == "example.com/v2"
    assert found["spec"] == {"on": True}
    assert found["apiVersion"] == "example.com/v2"


def test_apply_owns_values_and_items_like_real_server() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]

    found = applied(None, deployment({"name": "web", "ports": ports}))

    spec = owned_by(found)["one!"]["f:spec"]["f:template"]["f:spec"]
    assert spec["f:containers"]['k:{"name":"web"}'] == {
        ".": {},
        "f:name": {},
        "f:ports": {
            'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}},
            'k:{"containerPort":80,"protocol":"UDP"}': {
                ".": {},
                "f:containerPort": {},
                "f:protocol": {},
            },
        },
    }


def test_first_apply_assigns_existing_fields_to_a_manager() -> None:
    live = config_map(x="1", y="1")

    found = applied(live, config_map(x="1"))

    assert owned_by(found) == {
        "one!": {"f:data": {"f:x": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:x": {}, "f:y": {}}},
    }


def test_reset_fields_are_not_owned_after_apply() -> None:
    body = {**gadget(size=1), "status": {"phase": "x"}}
    reset = FieldSet.of(("f:status",))

    found = applied(None, body, reset=reset)

    assert owned_by(found) == {"one!": {"f:spec": {"f:size": {}}}}


# -------------------------------------------------------------------- conflicts


def test_apply_of_other_value_is_conflict() -> None:
    live = config_map(x="1", y="1")
    live["metadata"]["managedFields"] = [entry("kubectl", {"f:data": {"f:x": {}}})]

    with pytest.raises(Conflict) as refused:
        applied(live, config_map(x="2", y="2"))

    error = refused.value
    message = 'conflict with "kubectl" using v1'
    assert (error.status, error.reason) == (409, "Conflict")
    assert error.message == f"Apply failed with 1 conflict: {message}: .data.x"
    assert error.details == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": message, "field": ".data.x"}
        ]
    }


def test_conflicts_are_grouped_by_owner() -> None:
    live = gadget(size=1, list=["a"], labels={"l": "1"})
    live["status"] = {"phase": "x"}
    live["metadata"]["managedFields"] = [
        entry(
            "b", {"f:spec": {"f:labels": {"f:l": {}}, "f:list": {}}}, operation="Apply"
        ),
        entry("a", {"f:spec": {"f:size": {}}}),
        entry("a", {"f:status": {"f:phase": {}}}, subresource="status"),
    ]
    body = gadget(size=2, list=["b"], labels={"l": "2"})

    with pytest.raises(Conflict) as refused:
        applied(live, {**body, "status": {"phase": "y"}}, version="v1")

    status = '"a" with subresource "status"'
    assert refused.value.message.splitlines() == [
        f"Apply failed with 4 conflicts: conflicts with {status} using v1:",
        "- .status.phase",
        'conflicts with "a" using v1:',
        "- .spec.size",
        'conflicts with "b":',
        "- .spec.list",
        "- .spec.labels.l",
    ]
    causes = refused.value.details["causes"]
    assert [it["field"] for it in causes][-1] == ".spec.labels.l"


def test_conflict_names_list_items_by_keys() -> None:
    live = applied(None, deployment({"name": "web", "image": "a"}))

    with pytest.raises(Conflict, match=r"image$") as refused:
        applied(live, deployment({"name": "web", "image": "b"}), "two")

    path = '.spec.template.spec.containers[name="web"].image'
    assert refused.value.details["causes"][0]["field"] == path


def test_forced_apply_takes_fields_from_others() -> None:
    live = applied(None, config_map(x="1", y="1"))

    found = applied(live, config_map(x="2"), "two", force=True, now=LATER)

    assert found["data"] == {"x": "2", "y": "1"}
    assert owned_by(found) == {
        "one!": {"f:data": {"f:y": {}}},
        "two!": {"f:data": {"f:x": {}}},
    }


def test_manager_without_remaining_fields_loses_entry() -> None:
    live = applied(None, config_map(x="1"))

    found = applied(live, config_map(x="2"), "two", force=True)

    assert list(owned_by(found)) == ["two!"]


# -------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            {**config_map(), "kind": "Secret"},
            "invalid object type: /v1, Kind=Secret",
            id="another kind",
        ),
        pytest.param(
            {**config_map(), "apiVersion": "apps/v2"},
            "invalid object type: apps/v2, Kind=ConfigMap",
            id="another version",
        ),
        pytest.param(
            {"metadata": {"name": "a"}}, "invalid object type: /, Kind=", id="no kind"
        ),
        pytest.param(
            {**config_map(), "metadata": {"name": "a", "managedFields": []}},
            "metadata.managedFields must be nil",
            id="managed fields",
        ),
    ],
)
def test_unappliable_objects_are_rejected(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        apply(
            MAPS,
            None,
            body,
            manager="one",
            force=False,
            api_version="v1",
            now=NOW,
            kind="ConfigMap",
        )

    assert (refused.value.status, refused.value.message) == (400, message)


def test_unknown_fields_are_rejected() -> None:
    body = gadget(colour="red")
    body["metadata"]["namespace"] = "n"

    with pytest.raises(ApiError) as refused:
        applied(None, body)

    assert refused.value.status == 500
    assert refused.value.message == (
        "failed to create typed patch object (n/a; example.com/v1, Kind=Gadget): "
        ".spec.colour: field not declared in schema"
    )


def test_all_apply_errors_are_in_one_message() -> None:
    with pytest.raises(ApiError) as refused:
        applied(None, {**gadget(size="x", on=1), "metadata": 5})

    assert refused.value.message.splitlines() == [
        "failed to create typed patch object (/; example.com/v1, Kind=Gadget): errors:",
        "  .metadata: expected map, got &{5}",
        "  .spec.on: expected boolean, got &{1}",
        "  .spec.size: expected numeric (int or float), got string",
    ]


def test_live_list_that_cannot_be_merged_is_rejected() -> None:
    with pytest.raises(ApiError, match="explicit null"):
        applied(gadget(tags=[None]), gadget(tags=["a"]))


def client_side(text: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap as client-side apply leaves it."""
    body = config_map(**data)
    body["metadata"]["annotations"] = {LAST_APPLIED: text}
    owned: dict[str, Any] = {"f:data": {f"f:{key}": {} for key in data}}
    body["metadata"]["managedFields"] = [entry("kubectl-client-side-apply", owned)]
    return body


def test_kubectl_takes_over_from_client_side_apply() -> None:
    live = client_side(json.dumps(config_map(a="1")), a="1")

    found = applied(live, config_map(a="2"), "kubectl")

    assert found["data"] == {"a": "2"}
    assert owned_by(found) == {"kubectl!": {"f:data": {"f:a": {}}}}
    assert found["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"2"},"kind":"ConfigMap",'
        '"metadata":{"name":"a"}}\n'
    )


def test_other_managers_do_not_take_over_from_client_side_apply() -> None:
    live = client_side(json.dumps(config_map(a="1")), a="1")

    with pytest.raises(Conflict):
        applied(live, config_map(a="2"), "helm")


@each_case(
    "text",
    [
        pytest.param(json.dumps(config_map(a="0")), id="another value"),
        pytest.param(
            json.dumps({**config_map(a="1"), "apiVersion": "v2"}), id="version"
        ),
        pytest.param(json.dumps({**config_map(a="1"), "x": 1}), id="unknown field"),
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param("", id="empty"),
    ],
)
def test_kubectl_takes_over_only_unchanged_fields(text: str) -> None:
    with pytest.raises(Conflict):
        applied(client_side(text, a="1"), config_map(a="2"), "kubectl")


def test_conflicts_taken_over_by_kubectl_are_not_reported() -> None:
    live = client_side(json.dumps(config_map(a="1")), a="1", b="1")

    with pytest.raises(Conflict, match=r"with 1 conflict: .*\.data\.b"):
        applied(live, config_map(a="2", b="2"), "kubectl")


def test_too_long_annotation_is_dropped() -> None:
    body = config_map(a="x" * 262_144)
    body["metadata"]["annotations"] = {"mine": "1"}
    live = client_side(json.dumps(config_map(a="1")), a="1")

    found = applied(live, body, "kubectl")

    assert found["metadata"]["annotations"] == {"mine": "1"}


def test_annotation_does_not_contain_itself() -> None:
    body = config_map(a="1")
    body["metadata"]["annotations"] = {LAST_APPLIED: "old", "mine": "<"}

    found = applied(None, body, "kubectl")

    written = json.loads(found["metadata"]["annotations"][LAST_APPLIED])
    assert written["metadata"]["annotations"] == {"mine": "<"}
    assert r"\u003c" in found["metadata"]["annotations"][LAST_APPLIED]


def test_object_without_annotation_gets_none() -> None:
    found = applied(None, config_map(a="1"), "kubectl")

    assert "annotations" not in found["metadata"]
