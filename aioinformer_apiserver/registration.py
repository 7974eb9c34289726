"""Registration: a custom resource is served by making a definition for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.errors import ApiError, OptionsError
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.crds.custom_resources import (
    definition_name_of,
    definition_of,
    with_version,
)
from aioinformer_apiserver.requests.options import WriteOptions

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.registry.registry import Registry

__all__ = ["register"]

_ARRANGED = WriteOptions(part="all")


def register(registry: Registry, resource: Resource) -> None:
    """Serve a resource whose objects may hold anything, with a status subresource.

    Does nothing if it is served already. A definition of the same resource in other
    versions gets one more.

    Args:
        registry: Where the definition is created.
        resource: With its kind.

    Raises:
        OptionsError: If no definition can be made of it, as it names no kind, or its
            group is no domain.
    """
    definitions = registry.storage.collection(CUSTOM_RESOURCE_DEFINITIONS)
    found = registry.storage.find(resource.group, resource.version, resource.plural)
    if found is not None:
        return

    _check(resource)

    stored = definitions.get(definition_name_of(resource))
    try:
        if stored is None:
            body = definition_of(resource)
            registry.create(definitions, "", body, _ARRANGED)
        else:
            body = with_version(stored.body(), resource)
            registry.update(definitions, "", stored.name, body, _ARRANGED)
    except ApiError as exc:
        raise OptionsError(f"{resource!r} cannot be served: {exc}") from exc


def _check(resource: Resource) -> None:
    """Say in a few words what a definition would be refused for at length."""
    if not resource.kind:
        raise OptionsError(
            f"{resource} names no kind, so it cannot be served: give one, such as "
            "kind='Widget', where the Resource is made"
        )

    if "." not in resource.group:
        raise OptionsError(
            f"{resource} cannot be served: the group of a custom resource is a domain "
            f"such as 'example.com', not {resource.group!r}"
        )
