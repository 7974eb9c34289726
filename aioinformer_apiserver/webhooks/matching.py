"""Matching: which webhooks a configuration calls for an operation. Pure.

The order of the checks, and what an empty selector or rule means, are those of a real
server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError, SelectorSyntaxError
from aioinformer.model import LabelSelector
from aioinformer.model.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer.model import Resource
    from aioinformer_apiserver.requests.admission import Operation
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Collection, Storage

__all__ = ["Attributes", "Invocation", "Webhook", "invocation_of", "webhooks_in"]

_ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One webhook of a configuration.

    Attributes:
        uid: Identity among all webhooks.
        name: Name, such as `"pods.example.com"`.
        mutating: Whether it may change objects.
        spec: The webhook with its defaults.
    """

    uid: str
    name: str
    mutating: bool
    spec: Mapping[str, Any]

    @property
    def ignores_failures(self) -> bool:
        """Whether a write goes on if the call fails."""
        return self.spec.get("failurePolicy") == "Ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """Properties of one operation, for matching and reviews.

    Attributes:
        operation: Operation.
        collection: Collection of the resource in the URL.
        kind: Kind of the object; another one for some subresources.
        subresource: Subresource; empty for none.
        namespace: Namespace of the object. A namespace is in itself.
        name: Name; empty if the request has none.
        new: New object; None for a deletion.
        old: Stored object; None for a creation.
    """

    operation: Operation
    collection: Collection
    kind: Kind
    subresource: str
    namespace: str
    name: str
    new: dict[str, Any] | None
    old: dict[str, Any] | None

    @property
    def resource(self) -> Resource:
        """Resource in the URL."""
        return self.collection.kind.resource

    @property
    def is_namespace(self) -> bool:
        """True if the object is a namespace."""
        return self.resource == NAMESPACES


@dataclass(frozen=True, slots=True)
class Invocation:
    """Call of a webhook, in the version that its rule names.

    Attributes:
        webhook: Webhook to call.
        collection: Collection of the resource in that version.
        kind: Kind of the object in that version.
    """

    webhook: Webhook
    collection: Collection
    kind: Kind


def webhooks_in(storage: Storage, *, mutating: bool) -> Iterator[Webhook]:
    """Yield all webhooks in the order of their calls, by name of the configuration."""
    resource = (
        MUTATING_WEBHOOK_CONFIGURATIONS
        if mutating
        else VALIDATING_WEBHOOK_CONFIGURATIONS
    )
    for stored in storage.collection(resource).snapshot():
        for index, spec in enumerate(stored.body().get("webhooks") or ()):
            name = spec.get("name") or ""
            uid = f"{stored.name}/{name}/{index}"
            yield Webhook(uid=uid, name=name, mutating=mutating, spec=spec)


def invocation_of(
    webhook: Webhook, attributes: Attributes, storage: Storage
) -> Invocation | None:
    """Return how to call a webhook for an operation; None if it does not match.

    Raises:
        ApiError: 404 if the namespace does not exist; 500 if a selector is invalid, or
            the webhook has match conditions.
    """
    namespace_matches = _matches_namespace(webhook, attributes, storage)
    if namespace_matches is False or not _matches_object(webhook, attributes):
        return None

    rules = webhook.spec.get("rules") or ()
    found = (
        attributes.collection if _any(rules, attributes, attributes.resource) else None
    )
    if found is None and webhook.spec.get("matchPolicy") != "Exact":
        others = [it for it in attributes.collection.siblings if it.kind.served]
        pairs = ((rule, it) for rule in rules for it in others)
        found = next(
            (it for rule, it in pairs if _matches(rule, attributes, it.kind.resource)),
            None,
        )

    if found is None:
        return None

    if namespace_matches is None:
        raise statuses.not_found(NAMESPACES, attributes.namespace)

    if webhook.spec.get("matchConditions"):
        raise statuses.internal_error(
            f"webhook {statuses.quote(webhook.name)} has matchConditions, and this "
            "server cannot evaluate CEL: remove them, or test with a kube-apiserver"
        )

    same = attributes.kind is attributes.collection.kind
    return Invocation(webhook, found, found.kind if same else attributes.kind)


def _any(rules: Any, attributes: Attributes, resource: Resource) -> bool:
    return any(_matches(rule, attributes, resource) for rule in rules)


def _matches(
    rule: Mapping[str, Any], attributes: Attributes, resource: Resource
) -> bool:
    """Return whether a rule matches an operation on a resource, in some version."""
    return (
        _matches_scope(rule.get("scope") or _ANY, attributes)
        and _includes(rule.get("operations"), attributes.operation)
        and _includes(rule.get("apiGroups"), resource.group)
        and _includes(rule.get("apiVersions"), resource.version)
        and any(
            _matches_resource(it, resource.plural, attributes.subresource)
            for it in rule.get("resources") or ()
        )
    )


def _matches_scope(scope: str, attributes: Attributes) -> bool:
    if scope == _ANY:
        return True

    cluster_wide = attributes.is_namespace or not attributes.namespace
    return cluster_wide if scope == "Cluster" else not cluster_wide


def _includes(items: Any, given: str) -> bool:
    return any(it in (_ANY, given) for it in items or ())


def _matches_resource(pattern: str, plural: str, subresource: str) -> bool:
    name, _, part = pattern.partition("/")
    return name in (_ANY, plural) and part in (_ANY, subresource)


def _matches_namespace(
    webhook: Webhook, attributes: Attributes, storage: Storage
) -> bool | None:
    """Return whether the namespace is selected; None if it does not exist."""
    if not attributes.namespace and not attributes.is_namespace:
        return True

    selector = _selector(webhook, "namespaceSelector")
    if selector is None:
        return True

    if attributes.is_namespace and not attributes.subresource and attributes.new:
        return selector.matches(_labels(attributes.new))

    stored = storage.collection(NAMESPACES).get(attributes.namespace)
    return None if stored is None else selector.matches(stored.labels)


def _matches_object(webhook: Webhook, attributes: Attributes) -> bool:
    """Return whether the new or the old object is selected."""
    selector = _selector(webhook, "objectSelector")
    if selector is None:
        return True

    states = (attributes.new, attributes.old)
    return any(selector.matches(_labels(it)) for it in states if it is not None)


def _selector(webhook: Webhook, field: str) -> LabelSelector | None:
    """Return a selector; None if it selects everything."""
    given = webhook.spec.get(field)
    if not given:
        return None

    try:
        return LabelSelector.of(given)
    except (OptionsError, SelectorSyntaxError) as exc:
        raise statuses.internal_error(f"{field} of {webhook.uid}: {exc}") from exc


def _labels(body: Mapping[str, Any]) -> dict[str, str]:
    return dict((body.get("metadata") or {}).get("labels") or {})
