"""`WebhookAdmission`: admission of one request by the configured webhooks."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.errors import ApiError
from aioinformer.model import kube_time
from aioinformer.model.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import json_type
from aioinformer_apiserver.patches.patch_types import apply_patch
from aioinformer_apiserver.webhooks.calls import (
    Answer,
    CallsNeeded,
    Ledger,
    WebhookCall,
    endpoint_of,
    key_of,
)
from aioinformer_apiserver.webhooks.conversion import Conversion
from aioinformer_apiserver.webhooks.matching import (
    Attributes,
    Invocation,
    Webhook,
    invocation_of,
    webhooks_in,
)
from aioinformer_apiserver.webhooks.reviews import (
    InvalidReview,
    Verdict,
    body_of,
    rejection,
    review_of,
    verdict_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer_apiserver.requests.admission import Operation
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Collection, Storage

__all__ = ["AdmittedRequest", "WebhookAdmission", "has_webhooks"]

_USUAL_SECONDS = 10
_WITHOUT_SIDE_EFFECTS = frozenset({"None", "NoneOnDryRun"})
# Their own writes call no webhook, so that a broken one can be removed.
_EXEMPT = frozenset(
    {MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS}
)


def has_webhooks(storage: Storage, collection: Collection) -> bool:
    """Return whether writes to a collection may call webhooks."""
    if collection.kind.resource in _EXEMPT:
        return False

    if collection.kind.conversion is not None:
        return True

    return any(len(storage.collection(it)) for it in _EXEMPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRequest:
    """Properties of a request that webhooks see.

    Attributes:
        collection: Collection of the resource in the URL.
        subresource: Subresource; empty for none.
        namespace: Namespace in the URL; empty for none.
        name: Name in the URL; empty for none.
        user: `userInfo` of the review.
        options: Options of the request, without kind.
        dry_run: Whether it is a dry run.
        warn: Receiver of warnings for the client.
    """

    collection: Collection
    subresource: str
    namespace: str
    name: str
    user: Mapping[str, Any]
    options: Mapping[str, Any]
    dry_run: bool
    warn: Callable[[str], object]


class WebhookAdmission:
    """Admission of one request. Implements `requests.admission.Admission`.

    Args:
        storage: Storage with the configurations.
        request: The request.
        services: Base URLs of services, by `"namespace/name"`.
        ledger: Answers of the webhooks so far.
    """

    def __init__(
        self,
        storage: Storage,
        request: AdmittedRequest,
        services: Mapping[str, str],
        ledger: Ledger,
    ) -> None:
        self.now: str = kube_time(datetime.now(tz=UTC))
        self.uid: str = str(uuid.uuid4())
        self.generated_name: str = ""
        self._storage = storage
        self._request = request
        self._services = services
        self._ledger = ledger

    def mutate(
        self,
        kind: Kind,
        operation: Operation,
        new: dict[str, Any],
        old: dict[str, Any] | None,
        decode: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> dict[str, Any]:
        """Return an object as the mutating webhooks leave it."""
        attributes = self._attributes(kind, operation, new, old)
        return self._mutate(attributes, decode) or new

    def validate(
        self,
        kind: Kind,
        operation: Operation,
        new: dict[str, Any],
        old: dict[str, Any] | None,
    ) -> None:
        """Check the object to be stored with the validating webhooks."""
        self._validate(self._attributes(kind, operation, new, old))

    def check_deletion(self, kind: Kind, old: dict[str, Any]) -> None:
        """Check a deletion with all webhooks."""
        attributes = self._attributes(kind, "DELETE", None, old)
        self._mutate(attributes, _keep)
        self._validate(attributes)

    def to_storage(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        """Return a custom resource in the storage version, by its conversion webhook."""
        storage = next(
            it.kind
            for it in self._request.collection.siblings
            if it.kind.resource.version == kind.storage_version
        )
        given = _with_type(body, kind)
        return Conversion(storage, self._services, self._ledger).convert([given])[0]

    # ---------------------------------------------------------------- rounds

    def _mutate(
        self, attributes: Attributes, decode: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Call the mutating webhooks one by one.

        If one of them changes the object, those before it that ask for it are called a
        second time, once.
        """
        webhooks = list(webhooks_in(self._storage, mutating=True))
        called: set[str] = set()
        again: set[str] = set()
        changed = False
        for number in range(2):
            for webhook in webhooks:
                invocation = invocation_of(webhook, attributes, self._storage)
                if invocation is None or (number and webhook.uid not in again):
                    continue

                self._check_dry_run(webhook)
                patched = self._patched(invocation, attributes, number, decode)
                if patched is not None and patched != attributes.new:
                    attributes, changed = replace(attributes, new=patched), True
                    again |= called
                    called.clear()

                if webhook.spec.get("reinvocationPolicy") == "IfNeeded":
                    called.add(webhook.uid)

            if not changed:
                break

        return attributes.new

    def _patched(
        self,
        invocation: Invocation,
        attributes: Attributes,
        number: int,
        decode: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> dict[str, Any] | None:
        """Return the object as one webhook patches it; None without a patch."""
        shown = self._converted(attributes, invocation.kind)
        call, request = self._call(invocation, shown, number)
        answer = self._answers([call])[0]
        verdict = self._verdict(invocation.webhook, request, answer)
        if verdict is None or not verdict.patch:
            return None

        if shown.new is None:
            name = statuses.quote(invocation.webhook.name)
            why = f"admission webhook {name} attempted to modify the object, which is "
            raise statuses.internal_error(f"{why}not supported for this operation")

        try:
            patched: Any = apply_patch(None, shown.new, verdict.patch, "json")
            if not isinstance(patched, dict):
                raise statuses.bad_request(
                    f"json: cannot unmarshal {json_type(patched)} into Go value of type "
                    "map[string]interface {}"
                )

            return decode(self._convert(patched, invocation.kind, attributes.kind))
        except ApiError as exc:
            raise statuses.internal_error(exc.message) from exc

    def _validate(self, attributes: Attributes) -> None:
        """Call the validating webhooks, all at once."""
        found = []
        for webhook in webhooks_in(self._storage, mutating=False):
            invocation = invocation_of(webhook, attributes, self._storage)
            if invocation is not None:
                self._check_dry_run(webhook)
                shown = self._converted(attributes, invocation.kind)
                found.append((webhook, *self._call(invocation, shown, 0)))

        answers = self._answers([call for _, call, _ in found])
        for (webhook, _, request), answer in zip(found, answers, strict=True):
            self._verdict(webhook, request, answer)

    # ---------------------------------------------------------------- one call

    def _attributes(
        self,
        kind: Kind,
        operation: Operation,
        new: dict[str, Any] | None,
        old: dict[str, Any] | None,
    ) -> Attributes:
        request = self._request
        name = request.name or str(((new or {}).get("metadata") or {}).get("name", ""))
        attributes = Attributes(
            operation=operation,
            collection=request.collection,
            kind=kind,
            subresource=request.subresource,
            namespace=request.namespace,
            name=name,
            new=new and _with_type(new, kind),
            old=old and _with_type(old, kind),
        )
        # A namespace is in itself.
        return (
            replace(attributes, namespace=name)
            if attributes.is_namespace
            else attributes
        )

    def _converted(self, attributes: Attributes, kind: Kind) -> Attributes:
        """Return attributes with the objects in the version of a kind."""
        if kind is attributes.kind:
            return attributes

        new, old = attributes.new, attributes.old
        return replace(
            attributes,
            new=new and self._convert(new, attributes.kind, kind),
            old=old and self._convert(old, attributes.kind, kind),
        )

    def _convert(self, body: dict[str, Any], kind: Kind, other: Kind) -> dict[str, Any]:
        if kind is other:
            return body

        if other.conversion is not None:
            conversion = Conversion(other, self._services, self._ledger)
            return conversion.convert([_with_type(body, kind)])[0]

        return _with_type(other.from_storage(kind.to_storage(body)), other)

    def _check_dry_run(self, webhook: Webhook) -> None:
        """Reject a dry run if the webhook has side effects."""
        allowed = webhook.spec.get("sideEffects") in _WITHOUT_SIDE_EFFECTS
        if self._request.dry_run and not allowed:
            why = f'admission webhook "{webhook.name}" does not support dry run'
            raise statuses.bad_request(why)

    def _call(
        self, invocation: Invocation, attributes: Attributes, number: int
    ) -> tuple[WebhookCall | Answer, str]:
        """Return the call of a webhook and the uid of its review.

        Returns:
            The call, or an answer if the webhook cannot be called.
        """
        webhook, request = invocation.webhook, self._request
        review = review_of(
            invocation,
            attributes,
            user=request.user,
            options=request.options,
            dry_run=request.dry_run,
        )
        key = key_of(webhook.uid, webhook.mutating, number, review)
        uid = str(uuid.uuid5(uuid.UUID(self.uid), key.hex()))
        endpoint = endpoint_of(webhook.spec.get("clientConfig") or {}, self._services)
        if endpoint.problem:
            return Answer(problem=endpoint.problem), uid

        seconds = webhook.spec.get("timeoutSeconds") or _USUAL_SECONDS
        call = WebhookCall(
            key=key,
            url=endpoint.url,
            body=body_of(uid, review),
            seconds=seconds,
            ca=endpoint.ca,
            server_name=endpoint.server_name,
        )
        return call, uid

    def _answers(self, calls: list[WebhookCall | Answer]) -> list[Answer]:
        """Return the answers of calls.

        Raises:
            CallsNeeded: If some are missing.
        """
        found = [
            it if isinstance(it, Answer) else self._ledger.answer(it.key)
            for it in calls
        ]
        missing = [
            call
            for call, answer in zip(calls, found, strict=True)
            if answer is None and isinstance(call, WebhookCall)
        ]
        if missing:
            raise CallsNeeded(missing)

        return [it for it in found if it is not None]

    def _verdict(self, webhook: Webhook, uid: str, answer: Answer) -> Verdict | None:
        """Return the verdict of a webhook; None for an ignored failure.

        Raises:
            ApiError: Rejection by the webhook, or 500 for a failed call.
        """
        problem = f"failed to call webhook: {answer.problem}" if answer.problem else ""
        verdict = None
        if not problem:
            try:
                verdict = verdict_of(answer.review, uid, mutating=webhook.mutating)
            except InvalidReview as exc:
                problem = str(exc)

        if verdict is None:
            if webhook.ignores_failures:
                return None

            name = statuses.quote(webhook.name)
            raise statuses.internal_error(f"failed calling webhook {name}: {problem}")

        for warning in verdict.warnings:
            self._request.warn(warning)

        if not verdict.allowed:
            raise rejection(webhook.name, verdict.status)

        return verdict


def _keep(body: dict[str, Any]) -> dict[str, Any]:
    return body


def _with_type(body: dict[str, Any], kind: Kind) -> dict[str, Any]:
    resource = kind.resource
    return {**body, "kind": resource.kind, "apiVersion": resource.api_version}
