"""Mappings: which requests an object leads to."""

from __future__ import annotations

from typing import Any

import pytest
from controller_helpers import named, owned

from aioinformer import KubeObject, ReconcileRequest, Resource
from aioinformer.controller.mapping import enqueue_owner, enqueue_self, requests_for
from aioinformer.errors import OptionsError
from aioinformer.model.resources import DEPLOYMENTS, NODES, PODS


def keys(requests: Any) -> list[str]:
    return [it.key for it in requests]


def test_self_is_the_object() -> None:
    assert keys(enqueue_self(KubeObject.of(named("web")))) == ["default/web"]


def test_self_of_what_has_no_namespace() -> None:
    node = KubeObject.of({"metadata": {"name": "node-1"}})

    assert enqueue_self(node) == [ReconcileRequest("", "node-1")]


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        pytest.param({"controller": True}, ["default/app"], id="controller"),
        pytest.param({}, [], id="owner-alone"),
        pytest.param({"controller": True, "kind": "ReplicaSet"}, [], id="other-kind"),
        pytest.param(
            {"controller": True, "apiVersion": "apps/v1beta9"},
            ["default/app"],
            id="other-version",
        ),
        pytest.param({"controller": True, "apiVersion": "x/v1"}, [], id="other-group"),
    ],
)
def test_owner_is_the_controller_by_group_and_kind(
    reference: dict[str, Any], found: list[str]
) -> None:
    given = {"kind": "Deployment", "apiVersion": "apps/v1", **reference}
    obj = KubeObject.of(owned("web", "app", **given))

    assert keys(enqueue_owner(DEPLOYMENTS)(obj)) == found


def test_any_owner_is_found_if_asked_for() -> None:
    obj = KubeObject.of(owned("web", "app", kind="Pod"))

    assert keys(enqueue_owner(PODS, controller=False)(obj)) == ["default/app"]


def test_an_owner_without_namespace_is_asked_for_without() -> None:
    obj = KubeObject.of(owned("web", "node-1", kind="Node", controller=True))

    assert keys(enqueue_owner(NODES)(obj)) == ["node-1"]


def test_an_owner_of_no_kind_is_refused() -> None:
    with pytest.raises(OptionsError, match="kind"):
        enqueue_owner(Resource("example.com", "v1", "widgets"))


def test_an_object_without_owners_leads_to_nothing() -> None:
    assert enqueue_owner(PODS)(KubeObject.of(named("web"))) == []


def test_keys_may_stand_for_requests() -> None:
    found = requests_for(
        lambda _: ["a/b", ReconcileRequest("c", "d")], KubeObject.of({})
    )

    assert keys(found) == ["a/b", "c/d"]


@pytest.mark.parametrize("answer", ["a/b", None, 7, [7], [None]], ids=repr)
def test_other_answers_are_refused(answer: Any) -> None:
    with pytest.raises(TypeError, match="mapping"):
        requests_for(lambda _: answer, KubeObject.of({}))
