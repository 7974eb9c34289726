"""`StoredBytes`: bytes of the objects that a pipeline has stored."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from aioinformer.budget import LoopBudget
from aioinformer.model.compression import LEAST_BODY
from aioinformer.model.views import DifferenceContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.objects import KubeObject

__all__ = ["OBJECT_BYTES", "StoredBytes", "body_bytes"]

OBJECT_BYTES: Final = 400
"""Bytes of a stored object without its body: object, key, uid, version, its place in the
store and in the index by namespace; as measured by tracemalloc, with 16 for the body's
allocation."""


_CONTEXT_BYTES: Final = 32
"""Bytes of the context of a body that is a difference."""


def body_bytes(obj: KubeObject) -> int:
    """Return the bytes of a stored body; of a difference, without what it differs from."""
    if isinstance(obj.context, DifferenceContext):
        return len(obj.body) + _CONTEXT_BYTES

    return len(obj.body)


class StoredBytes:
    """Bytes of the stored objects of one pipeline, counted as they change.

    A list is counted anew, in slices, after it is applied. Those of a store on disk are
    never counted.

    Attributes:
        counted: True once all stored objects are counted.
        counting: True while a list is counted.
        held: Bytes of the stored bodies, perhaps compressed.
        json: Bytes of their JSON.
        objects: Number of stored objects.
        compressed: Number of those whose bodies are compressed.
        differences: Number of those whose bodies are differences.
        plain: Keys of objects whose bodies could be compressed, those changed last at
            the end, with the times of their changes. None unless they are wanted.

    Args:
        ordered: True to keep the order of the changes, in `plain`.
    """

    def __init__(self, *, ordered: bool = False) -> None:
        self.counted: bool = False
        self.counting: bool = False
        self.held: int = 0
        self.json: int = 0
        self.objects: int = 0
        self.compressed: int = 0
        self.differences: int = 0
        self.plain: OrderedDict[str, float] | None = OrderedDict() if ordered else None

    def changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Count a change of one stored object.

        Args:
            old: State that was stored; None if there was none.
            new: State that is stored now; None if it was removed.
        """
        if not self.counted:
            return

        if new is not None:
            self._add(new, 1)

        if old is not None:
            self._add(old, -1)

        if self.plain is not None:
            self._order(old, new, self.plain)

    async def listed(
        self, now: Mapping[str, KubeObject], before: Mapping[str, KubeObject]
    ) -> None:
        """Count all stored objects, in slices.

        No change may be applied meanwhile.

        Args:
            now: Stored objects.
            before: Objects that a list has replaced.

        Cancellation:
            Leaves the bytes as they were before.
        """
        count, plain = StoredBytes(), self.plain
        budget = LoopBudget.current()
        self.counting = True
        try:
            await budget.start()
            if plain is not None:
                for key in before:
                    if key not in now:
                        plain.pop(key, None)

                    if budget.over():
                        await budget.start()

            for obj in now.values():
                count._add(obj, 1)
                if plain is not None and before.get(obj.key) is not obj:
                    self._order(obj, obj, plain)

                if budget.over():
                    await budget.start()
        finally:
            self.counting = False

        budget.end()
        self.held, self.json = count.held, count.json
        self.objects, self.compressed = count.objects, count.compressed
        self.differences = count.differences
        self.counted = True

    def _add(self, obj: KubeObject, times: int) -> None:
        held = body_bytes(obj)
        codec = obj.context.codec
        self.objects += times
        if isinstance(obj.context, DifferenceContext):
            held += len(obj.context.base)
            self.differences += times

        self.held += times * held
        if codec is None:
            self.json += times * held
        else:
            self.json += times * codec.size_of(obj.body)
            self.compressed += times

    @staticmethod
    def _order(
        old: KubeObject | None, new: KubeObject | None, plain: OrderedDict[str, float]
    ) -> None:
        if new is not None and new.context.codec is None and len(new.body) > LEAST_BODY:
            plain[new.key] = asyncio.get_running_loop().time()
            plain.move_to_end(new.key)
        elif old is not None:
            plain.pop(old.key, None)
