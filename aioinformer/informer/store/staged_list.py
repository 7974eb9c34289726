"""`StagedList`: a list that is being read, and will replace the stored objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioinformer.budget import LoopBudget
from aioinformer.cache.memory import MemoryContents
from aioinformer.cache.split_dict import divided
from aioinformer.informer.store.stored_bytes import OBJECT_BYTES, body_bytes
from aioinformer.model.compression import SAMPLES
from aioinformer.model.object_meta import version_number
from aioinformer.model.views import DifferenceContext

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from aioinformer.cache.interface import Contents
    from aioinformer.informer.store.compressor import BodyCompressor
    from aioinformer.model.objects import KubeObject

__all__ = ["StagedList", "newest_version"]

_KEYS_TOGETHER: Final = 1024


class StagedList:
    """Staged objects of a list, and those that the transform left out."""

    __slots__ = (
        "_differing",
        "bytes",
        "contents",
        "differences",
        "left_out",
        "newest",
        "uncompressed",
    )

    def __init__(self, contents: Contents[KubeObject]) -> None:
        self.contents: Contents[KubeObject] = contents
        # Invariant: no key is in both.
        self.left_out: MutableMapping[str, KubeObject] = {}
        # The highest version of a listed object, if all are decimal numbers.
        self.newest: str = ""
        # Keys of objects whose bodies may be compressed later.
        self.uncompressed: list[str] = []
        # Keys of objects whose bodies are differences from stored ones, as many as are
        # together. The garbage collector does not track tuples of strings: looking
        # through a list of a million keys takes it 28 ms.
        self.differences: list[tuple[str, ...]] = []
        self._differing: list[str] = []
        # Bytes of the objects, except for those that are kept.
        self.bytes: int = 0

    def __contains__(self, key: str) -> bool:
        return key in self.contents.objects or key in self.left_out

    def is_ahead_of(self, obj: KubeObject) -> bool:
        """Return True if a newer state of an object is staged.

        Versions that are not decimal are not compared.
        """
        listed = self.contents.objects.get(obj.key) or self.left_out.get(obj.key)
        if listed is None:
            return False

        number = version_number(obj.resource_version)
        return 0 <= number < version_number(listed.resource_version)

    def put(self, key: str, obj: KubeObject, taken: KubeObject) -> None:
        """Add an object; index functions get `taken`, its uncompressed form."""
        self.left_out.pop(key, None)
        self.contents.put(key, obj, taken)
        self.bytes += OBJECT_BYTES + body_bytes(obj)
        if isinstance(obj.context, DifferenceContext):
            self._differing.append(key)
            if len(self._differing) >= _KEYS_TOGETHER:
                self.end_differences()

    def end_differences(self) -> None:
        """Move the latest keys to `differences`."""
        if self._differing:
            self.differences.append(tuple(self._differing))
            self._differing.clear()

    def keep(self, key: str, obj: KubeObject, source: Contents[KubeObject]) -> None:
        """Add an object of other contents, with its index values."""
        self.left_out.pop(key, None)
        self.contents.keep(key, obj, source)

    def leave_out(self, key: str, identity: KubeObject) -> None:
        """Record an object that the transform leaves out."""
        self.contents.remove(key)
        self.left_out[key] = identity

    def remove(self, key: str) -> None:
        """Remove an object. Unknown keys are no error."""
        self.contents.remove(key)
        self.left_out.pop(key, None)

    def divide(self, key: str) -> None:
        """Divide a map that has become large; `key` was staged lately.

        Call it where no code keeps a reference to a map.
        """
        self.left_out = divided(self.left_out)
        if isinstance(self.contents, MemoryContents):
            self.contents.divide(key)

    async def compress(self, compressor: BodyCompressor) -> None:
        """Compress the objects that were staged uncompressed.

        Cancellation:
            Safe: call it again for the rest.
        """
        contents, waiting = self.contents, self.uncompressed
        if compressor.waits:
            samples = map(contents.objects.get, waiting[:SAMPLES])
            await compressor.begin(it for it in samples if it is not None)

        budget = LoopBudget.current()
        await budget.start()
        while waiting:
            key = waiting.pop()
            obj = contents.objects.get(key)
            if obj is not None:  # not unstaged meanwhile
                packed = compressor(obj)
                contents.keep(key, packed, contents)
                self.bytes += len(packed.body) - len(obj.body)

            if budget.over():
                await budget.start()

        budget.end()


def newest_version(versions: list[str]) -> str:
    """Return the highest of some versions."""
    if len(set(map(len, versions))) == 1:
        return max(versions)  # the usual case, without a call of the key for each

    return max(set(versions), key=_as_a_number)


def _as_a_number(version: str) -> tuple[int, str]:
    """Return a key that sorts like the number, at a fifth of the cost of `int()`."""
    return len(version), version
