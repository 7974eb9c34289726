"""Mappings: which requests a changed object leads to.

A mapping is a plain function of an object that returns requests, or their keys:

    def users_of(secret: KubeObject) -> list[str]:
        return [pod.key for pod in pods.indexer.by_index("secret", secret.key)]

    Controller("rotate", reconcile, for_=pods, watches=[(secrets, users_of)])

Of an update the old and the new state are mapped, so that what an object belonged to
before hears of it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from aioinformer.controller.request import ReconcileRequest
from aioinformer.errors import OptionsError
from aioinformer.model.objects import KubeObject

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

__all__ = ["Mapping", "enqueue_owner", "enqueue_self", "requests_for"]

Mapping: TypeAlias = Callable[[KubeObject], Iterable[ReconcileRequest | str]]
"""Says which requests an object leads to: none, one or many."""


def enqueue_self(obj: KubeObject) -> list[ReconcileRequest]:
    """Map an object to a request of its own name."""
    return [ReconcileRequest(obj.namespace, obj.name)]


def enqueue_owner(owner: Resource, *, controller: bool = True) -> Mapping:
    """Make the mapping of an object to those who own it, by its owner references.

    They are compared by group and kind, so that another version of the owner's API
    does not matter.

    Args:
        owner: What the owners are.
        controller: Only the owner that is the object's controller; False for all.

    Raises:
        OptionsError: If the kind of the resource is not known.
    """
    if not owner.kind:
        raise OptionsError(f"of what kind are {owner}? Owner references name the kind")

    def owners(obj: KubeObject) -> list[ReconcileRequest]:
        namespace = obj.namespace if owner.namespaced else ""
        return [
            ReconcileRequest(namespace, str(reference["name"]))
            for reference in obj.owner_references
            if reference.get("kind") == owner.kind
            and _group_of(reference.get("apiVersion")) == owner.group
            and (reference.get("controller") or not controller)
        ]

    return owners


def requests_for(mapping: Mapping, obj: KubeObject) -> list[ReconcileRequest]:
    """Ask a mapping.

    Raises:
        TypeError: If it answers something else than requests and keys.
        OptionsError: If one of these cannot be a key.
        Exception: Its own.
    """
    answer = mapping(obj)
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise TypeError(f"a mapping returns a list, not a {type(answer).__name__}")

    return [_request(it) for it in answer]


def _request(given: object) -> ReconcileRequest:
    if isinstance(given, ReconcileRequest):
        return given

    if isinstance(given, str):
        return ReconcileRequest.of(given)

    raise TypeError(f"a mapping gives requests or keys, not a {type(given).__name__}")


def _group_of(api_version: object) -> str:
    return str(api_version or "").rpartition("/")[0]
