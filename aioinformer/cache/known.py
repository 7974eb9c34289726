"""`Known`: what the consumer of a queue will know before it takes the last segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from aioinformer._user_code import guarded_logger, user_errors

if TYPE_CHECKING:
    from aioinformer.cache.queue import KnownObjects
    from aioinformer.cache.store import Contents

__all__ = ["Known"]

T = TypeVar("T")

logger = guarded_logger(__name__)


class Known(Generic[T]):
    """What is known apart from what is queued: for deletions and resyncs.

    These are the known objects, or, while a whole list waits in the queue, those of the
    newest list: by the time of what comes behind it, it will have taken their place.

    A store of somebody else's may fail. That is logged, and spoils no list: an object
    is known whose state is not.

    Args:
        objects: What the consumer has; None if it does not say.
    """

    def __init__(self, objects: KnownObjects[T] | None = None) -> None:
        self.objects = objects
        self.listed: Contents[T] | None = None

    def list_keys(self) -> list[str]:
        """The keys of all that is known."""
        if self.listed is not None:
            return list(self.listed.objects)

        return [] if self.objects is None else self.objects.list_keys()

    def get(self, key: str) -> T | None:
        """The state known of an object; None if there is none, or it cannot be read."""
        try:
            return self._get(key)
        except user_errors():  # somebody else's store: logged and dropped
            logger.exception("cannot look up %s among the known objects", key)
            return None

    def has(self, key: str) -> bool:
        """True for an object that is known, or may be: it could not be looked up."""
        try:
            return self._get(key) is not None
        except user_errors():  # somebody else's store: logged and dropped
            logger.exception("cannot look up %s among the known objects", key)
            return True

    def _get(self, key: str) -> T | None:
        if self.listed is not None:
            return self.listed.objects.get(key)

        return None if self.objects is None else self.objects.get_by_key(key)
