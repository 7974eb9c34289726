"""`Conversion`: custom resources in another version, by the webhook of their CRD."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.webhooks.calls import (
    CallsNeeded,
    WebhookCall,
    endpoint_of,
    key_of,
)
from aioinformer_apiserver.webhooks.reviews import type_mistake

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.webhooks.calls import Answer, Ledger

__all__ = ["Conversion"]

_VERSION = "apiextensions.k8s.io/v1"
_KIND = "ConversionReview"
_SECONDS = 30.0
# Metadata that a webhook must not change. All else but labels and annotations is restored.
_IDENTITY = (
    ("name", "name"),
    ("namespace", "namespace"),
    ("uid", "UID"),
)
_CHANGEABLE = ("labels", "annotations")

Object = dict[str, Any]


class Conversion:
    """Conversion of objects to one version.

    Args:
        kind: Kind of the converted objects; it has a conversion webhook.
        services: Base URLs of services, by `"namespace/name"`.
        ledger: Answers of the webhook so far.
    """

    def __init__(self, kind: Kind, services: Mapping[str, str], ledger: Ledger) -> None:
        self._kind = kind
        self._services = services
        self._ledger = ledger

    def convert(self, bodies: Sequence[Object]) -> list[Object]:
        """Return objects in the version of the kind; those in it already, unchanged.

        Raises:
            ApiError: 500 if the webhook fails, or its answer is invalid.
            CallsNeeded: If the webhook must be called first.
        """
        desired = self._kind.resource.api_version
        others = [it for it in bodies if it["apiVersion"] != desired]
        if not others:
            return list(bodies)

        converted = iter(self._ask(others, desired))
        return [it if it["apiVersion"] == desired else next(converted) for it in bodies]

    def _ask(self, bodies: list[Object], desired: str) -> list[Object]:
        request = {"desiredAPIVersion": desired, "objects": bodies}
        key = key_of("conversion", request)
        uid = str(uuid.uuid5(uuid.NAMESPACE_URL, key.hex()))
        config = (self._kind.conversion or {}).get("clientConfig") or {}
        endpoint = endpoint_of(config, self._services)
        if endpoint.problem:
            raise self._failure(bodies[0], f"failed: {endpoint.problem}")

        answer = self._ledger.answer(key)
        if answer is None:
            review = {
                "kind": _KIND,
                "apiVersion": _VERSION,
                "request": {"uid": uid, **request},
            }
            call = WebhookCall(
                key=key,
                url=endpoint.url,
                body=json_codec.dumps(review),
                seconds=_SECONDS,
                ca=endpoint.ca,
                server_name=endpoint.server_name,
            )
            raise CallsNeeded([call])

        found, why = _objects_in(answer, uid)
        if why:
            raise self._failure(bodies[0], f"failed: {why}")

        if len(found) != len(bodies):
            why = f"returned {len(found)} objects, expected {len(bodies)}"
            raise self._failure(bodies[0], why)

        return [self._checked(old, new) for old, new in zip(bodies, found, strict=True)]

    def _checked(self, old: Object, new: Any) -> Object:
        """Return a converted object with the metadata of the original.

        Raises:
            ApiError: 500 if it is another object, or in another version.
        """
        new = new if isinstance(new, dict) else {}
        resource = self._kind.resource
        expected, got = resource.api_version, new.get("apiVersion") or ""
        invalid = "returned invalid object at index 0: "
        if got != expected:
            why = f"{invalid}invalid groupVersion (expected {expected}, received {got})"
            raise self._failure(old, why)

        if new.get("kind") != old["kind"]:
            why = f"{invalid}invalid kind (expected {old['kind']}, "
            raise self._failure(old, f"{why}received {new.get('kind') or ''})")

        metadata = new.get("metadata")
        if not isinstance(metadata, dict):
            why = "returned invalid metadata: missing metadata in converted object"
            raise self._failure(old, why)

        for field, name in _IDENTITY:
            before, after = old["metadata"].get(field) or "", metadata.get(field) or ""
            if before != after:
                why = f"returned invalid object: must have the same {name}: "
                raise self._failure(old, f"{why}{before} != {after}")

        for field in _CHANGEABLE:
            mistake = type_mistake(
                metadata.get(field),
                "map[string]string",
                f"metadata.{field}",
                "ObjectMeta",
            )
            if mistake:
                raise self._failure(old, f"returned invalid metadata: {mistake}")

        kept = {k: v for k, v in old["metadata"].items() if k not in _CHANGEABLE}
        given = {it: metadata[it] for it in _CHANGEABLE if metadata.get(it)}
        return {**new, "metadata": {**kept, **given}}

    def _failure(self, old: Object, why: str) -> ApiError:
        version, kind = old["apiVersion"], old["kind"]
        message = f"conversion webhook for {version}, Kind={kind} {why}"
        return statuses.failure(500, "", message)


def _objects_in(answer: Answer, uid: str) -> tuple[list[Any], str]:
    """Return the objects in an answer, or the reason why there are none."""
    if answer.problem:
        return [], answer.problem

    review = answer.review if isinstance(answer.review, dict) else {}
    found = f"{review.get('apiVersion') or ''}, Kind={review.get('kind') or ''}"
    if found != f"{_VERSION}, Kind={_KIND}":
        why = f"expected webhook response of {_VERSION}, Kind={_KIND}, got {found}"
        return [], why

    response = review.get("response")
    if not isinstance(response, dict):
        return [], "no response provided"

    mistake = type_mistake(response, "ConversionResponse")
    if mistake:
        return [], mistake

    given = response.get("uid") or ""
    if given != uid:
        return [], f'expected response.uid="{uid}", got "{given}"'

    result = response.get("result") or {}
    if result.get("status") != "Success":
        status = result.get("status") or ""
        why = f"response.result.status was '{status}', not 'Success'"
        return [], result.get("message") or why

    return list(response.get("convertedObjects") or ()), ""
