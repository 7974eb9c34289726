"""`Admission`: what a write asks of the admission webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["Admission", "Operation"]

Operation = Literal["CREATE", "UPDATE", "DELETE"]


class Admission(Protocol):
    """Admission of one request by webhooks.

    A write may run several times, until all webhooks have answered. What it makes up
    must be equal in each run, so the webhooks see the object that will be stored.
    """

    now: str
    """Time of the write."""

    uid: str
    """Uid of a new object."""

    generated_name: str
    """Name of a new object with a `generateName`; empty until it is known."""

    def mutate(
        self,
        kind: Kind,
        operation: Operation,
        new: dict[str, Any],
        old: dict[str, Any] | None,
        decode: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> dict[str, Any]:
        """Return an object as the mutating webhooks leave it.

        Args:
            kind: Kind of the object.
            operation: Operation of the write.
            new: Object of the client.
            old: Stored object; None if there is none.
            decode: Function that decodes a patched object and sets its defaults.

        Raises:
            ApiError: Rejection by a webhook, or 500 if a call fails.
            CallsNeeded: If webhooks must be called first.
        """

    def validate(
        self,
        kind: Kind,
        operation: Operation,
        new: dict[str, Any],
        old: dict[str, Any] | None,
    ) -> None:
        """Check the object to be stored with the validating webhooks.

        Raises:
            ApiError: Rejection by a webhook, or 500 if a call fails.
            CallsNeeded: If webhooks must be called first.
        """

    def to_storage(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        """Return a custom resource in the storage version, by its conversion webhook.

        Raises:
            ApiError: 500 if the conversion fails.
            CallsNeeded: If the webhook must be called first.
        """

    def check_deletion(self, kind: Kind, old: dict[str, Any]) -> None:
        """Check a deletion with all webhooks.

        Raises:
            ApiError: Rejection by a webhook, or 500 if a call fails.
            CallsNeeded: If webhooks must be called first.
        """
