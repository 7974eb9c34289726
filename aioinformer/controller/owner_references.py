"""Owner references: marks in an object that name its owners. Pure.

The garbage collector deletes an object after its last owner. The rules are those of
controller-runtime (`pkg/controller/controllerutil`), except that the functions return a
new object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.client import verbs
from aioinformer.errors import AlreadyOwned, OptionsError
from aioinformer.model.objects import KubeObject
from aioinformer.model.resources import find_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aioinformer.client.verbs import Body

__all__ = [
    "check_controller",
    "owner_reference",
    "set_controller_reference",
    "set_owner_reference",
]


def set_controller_reference(
    owner: KubeObject | Mapping[str, Any], child: Body
) -> dict[str, Any]:
    """Return a copy of an object that is owned and controlled by another one.

    ::

        body = set_controller_reference(site, deployment_of(site))
        await client.create(DEPLOYMENTS, body, namespace=site.namespace)

    `Controller(owns=[...])` maps objects to the owner that is their controller. The
    server deletes them after it. Until then, a deletion with
    `propagation="Foreground"` waits for them. (On servers that check this, such as
    OpenShift, the program needs the verb `update` of `<resource>/finalizers`.)

    Args:
        owner: Owner, as read from the server.
        child: Owned object: any body that `Client.create` takes. It is not changed.

    Returns:
        New dict. Other owner references are kept. One of the same owner, in any version
        of its API, is replaced.

    Raises:
        AlreadyOwned: If another object controls the child.
        OptionsError: If the owner lacks its type, name or uid, or is in another
            namespace than the child. A cluster-scoped owner may be in none.
    """
    return _with_reference(owner, child, controller=True)


def set_owner_reference(
    owner: KubeObject | Mapping[str, Any], child: Body
) -> dict[str, Any]:
    """Return a copy of an object that is owned, but not controlled, by another one.

    An object may have several owners: the server deletes it after the last one.
    Arguments, result and errors are those of `set_controller_reference`.

    Raises:
        OptionsError: If the owner lacks its type, name or uid, or is in another
            namespace than the child.
    """
    return _with_reference(owner, child, controller=False)


def owner_reference(
    owner: KubeObject | Mapping[str, Any], *, controller: bool
) -> dict[str, Any]:
    """Return the reference to an owner.

    Raises:
        OptionsError: If the owner lacks its type, name or uid.
    """
    if isinstance(owner, KubeObject):
        types: Mapping[str, Any] = owner.type_meta
        metadata: Mapping[str, Any] = {"name": owner.name, "uid": owner.uid}
    else:
        types, metadata = owner, owner.get("metadata") or {}

    reference = {
        "apiVersion": types.get("apiVersion"),
        "kind": types.get("kind"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
    }
    missing = [name for name, text in reference.items() if not text]
    if missing:
        raise OptionsError(
            f"an owner needs {', '.join(missing)}: pass an object that the server "
            "returned"
        )

    marks = {"controller": True, "blockOwnerDeletion": True} if controller else {}
    return reference | marks


def check_controller(
    reference: Mapping[str, Any], references: Iterable[Mapping[str, Any]], child: str
) -> None:
    """Check that no other object controls a child.

    Args:
        reference: Reference to the owner.
        references: Owner references of the child.
        child: Description of the child, for the error.

    Raises:
        AlreadyOwned: If one of them is that of another controller.
    """
    for other in references:
        if other.get("controller") and not _same_owner(other, reference):
            raise AlreadyOwned(
                f"{child} is controlled by {other.get('kind')} {other.get('name')}, not "
                f"by {reference['kind']} {reference['name']}: delete it, or choose "
                "another name",
                owner=dict(other),
            )


def _with_reference(
    owner: KubeObject | Mapping[str, Any], child: Body, *, controller: bool
) -> dict[str, Any]:
    reference = owner_reference(owner, controller=controller)
    body = verbs.plain(child)
    metadata: dict[str, Any] = body.get("metadata") or {}
    _check_namespaces(owner, reference, body, metadata)
    kept = metadata.get("ownerReferences") or []
    if not isinstance(kept, list) or not all(isinstance(it, dict) for it in kept):
        raise OptionsError(
            f"{_described(body, metadata)}: metadata.ownerReferences must be a list of "
            "dicts"
        )

    if controller:
        check_controller(reference, kept, _described(body, metadata))

    kept = [it for it in kept if not _same_owner(it, reference)]
    body["metadata"] = {**metadata, "ownerReferences": [*kept, reference]}
    return body


def _check_namespaces(
    owner: KubeObject | Mapping[str, Any],
    reference: Mapping[str, Any],
    body: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> None:
    if isinstance(owner, KubeObject):
        place = owner.namespace
    else:
        place = str((owner.get("metadata") or {}).get("namespace") or "")

    if not place:
        return

    child, its = _described(body, metadata), metadata.get("namespace")
    owned_by = f"cannot be owned by {reference['kind']} {place}/{reference['name']}"
    known = find_kind(str(body.get("apiVersion")), str(body.get("kind")))
    if known is not None and not known.namespaced:
        raise OptionsError(
            f"{child} {owned_by}: it is cluster-scoped, and its owner is namespaced"
        )

    if its and its != place:
        raise OptionsError(
            f"{child} {owned_by}: owners must be in the same namespace, or cluster-scoped"
        )


def _described(body: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    name = metadata.get("name") or metadata.get("generateName") or ""
    namespace = metadata.get("namespace")
    key = f"{namespace}/{name}" if namespace else name
    return f"{body.get('kind') or 'object'} {key}"


def _same_owner(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True for references to one owner, in any version of its API."""
    return _identity(one) == _identity(other)


def _identity(reference: Mapping[str, Any]) -> tuple[str, Any, Any]:
    group = str(reference.get("apiVersion") or "").rpartition("/")[0]
    return group, reference.get("kind"), reference.get("name")
