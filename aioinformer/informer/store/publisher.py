"""`Publisher`: receives the changes of a store; the processor, or a cache's journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.informer.handlers.inbox import Batch
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject

__all__ = ["Publisher"]


class Publisher(Protocol):
    """Receiver of the notifications of a pipeline."""

    @property
    def wants_changes(self) -> bool:
        """True if lists must be compared with the store, as somebody is told of changes."""

    @property
    def busy(self) -> bool:
        """True if notifications in this process refer to objects no longer stored."""

    def publish(self, batch: Batch, arrived: float | None = None) -> None:
        """Publish a batch, in the step that changes the store; it must not be changed.

        Args:
            batch: Notifications of the changes.
            arrived: Time at which the first of them arrived, on the loop's clock, if
                that is measured.
        """

    async def prepare_list(
        self, objects: Mapping[str, KubeObject], *, initial: bool
    ) -> list[Batch]:
        """Return the batches for `publish_list`, made in slices of the loop's budget.

        Args:
            objects: All objects of a list that fills an empty store.
            initial: True if it is the first list of the informer.

        Cancellation:
            Safe.
        """

    def publish_list(
        self, objects: Mapping[str, KubeObject], batches: list[Batch], *, initial: bool
    ) -> None:
        """Publish that an empty store has these objects now, in the step that swaps.

        Args:
            objects: All stored objects; the mapping changes after the step.
            batches: Result of `prepare_list`.
            initial: True if it is the first list of the informer.
        """

    def prepare(self, batch: list[Notification]) -> Batch:
        """Return the batch that `publish` gets when a list replaces the store.

        The changes of a list are prepared one batch after another, outside of a step.
        All of them are then published in one step, in the same order.
        """

    def mark_synced(self) -> None:
        """Record that the first complete list is in the store and was published."""
