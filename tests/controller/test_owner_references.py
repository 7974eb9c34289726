"""Owner references: copies, checks and errors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aioinformer import KubeObject, set_controller_reference
from aioinformer.controller import set_owner_reference
from aioinformer.errors import AlreadyOwned, OptionsError

SITE: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Site",
    "metadata": {"name": "blog", "namespace": "shop", "uid": "u1"},
}
REFERENCE = {
    "apiVersion": "example.com/v1",
    "kind": "Site",
    "name": "blog",
    "uid": "u1",
    "controller": True,
    "blockOwnerDeletion": True,
}


def child(*references: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    metadata |= {"ownerReferences": list(references)} if references else {}
    return {"kind": "ConfigMap", "metadata": {"name": "web", **metadata}}


def references(body: dict[str, Any]) -> list[dict[str, Any]]:
    return list(body["metadata"]["ownerReferences"])


@pytest.mark.parametrize("owner", [SITE, KubeObject.of(SITE)], ids=["dict", "object"])
def test_controller_reference_is_added_to_a_copy(owner: Any) -> None:
    body = child()
    owned = set_controller_reference(owner, body)
    assert references(owned) == [REFERENCE]
    assert body == child()
    assert owned["metadata"]["name"] == "web"


def test_owner_reference_has_no_controller() -> None:
    other = REFERENCE | {"name": "other", "uid": "u2"}
    owned = set_owner_reference(SITE, child(other))
    first, second = references(owned)
    assert first == other
    assert second == {key: REFERENCE[key] for key in list(REFERENCE)[:4]}


def test_reference_of_another_version_or_uid_is_replaced() -> None:
    old = REFERENCE | {"apiVersion": "example.com/v1beta1", "uid": "u0"}
    assert references(set_controller_reference(SITE, child(old))) == [REFERENCE]


def test_child_of_another_controller_is_refused() -> None:
    other = REFERENCE | {"name": "other", "uid": "u2"}
    with pytest.raises(AlreadyOwned) as caught:
        set_controller_reference(SITE, child(other, namespace="shop"))

    assert str(caught.value) == (
        "ConfigMap shop/web is controlled by Site other, not by Site blog: delete it, or "
        "choose another name"
    )
    assert caught.value.owner == other


def test_child_in_another_namespace_is_refused() -> None:
    with pytest.raises(OptionsError) as caught:
        set_controller_reference(SITE, child(namespace="office"))

    assert str(caught.value) == (
        "ConfigMap office/web cannot be owned by Site shop/blog: owners must be in the "
        "same namespace, or cluster-scoped"
    )


def test_cluster_scoped_child_of_namespaced_owner_is_refused() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    with pytest.raises(OptionsError, match="it is cluster-scoped"):
        set_owner_reference(SITE, node)


def test_cluster_scoped_owner_may_own_namespaced_child() -> None:
    owner = SITE | {"metadata": {"name": "blog", "uid": "u1"}}
    owned = set_controller_reference(owner, child(namespace="office"))
    assert references(owned) == [REFERENCE]


def test_owner_without_uid_is_refused() -> None:
    owner = SITE | {"metadata": {"name": "blog"}}
    with pytest.raises(OptionsError, match="an owner needs uid: pass an object that"):
        set_controller_reference(owner, child())


class Meta(msgspec.Struct):
    name: str


class Settings(msgspec.Struct):
    metadata: Meta


@pytest.mark.parametrize("wrong", ["Site", {"kind": "Site"}, ["Site"]])
def test_owner_references_of_another_type_are_refused(wrong: Any) -> None:
    body = {"kind": "ConfigMap", "metadata": {"name": "web", "ownerReferences": wrong}}
    with pytest.raises(
        OptionsError, match=r"ConfigMap web: .* must be a list of dicts"
    ):
        set_controller_reference(SITE, body)


def test_child_may_be_a_model() -> None:
    owned = set_controller_reference(SITE, Settings(Meta("web")))
    assert references(owned) == [REFERENCE]


def test_child_must_be_an_object() -> None:
    with pytest.raises(OptionsError, match="not a Kubernetes object: list"):
        set_controller_reference(SITE, [1])
