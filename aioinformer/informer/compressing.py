"""The compression of what one informer keeps."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from typing import TYPE_CHECKING

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.informer.compression_fit import CompressionFit
from aioinformer.model.compression import (
    LEAST_BODY,
    SAMPLES,
    Compressor,
    check_compression,
    train,
)
from aioinformer.model.objects import KubeObject
from aioinformer.model.views import ObjectContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.model.compression import Compression

__all__ = ["Compressing"]

logger = guarded_logger(__name__)


class Compressing:
    """Compresses the objects of one informer, if it was told to.

    The dictionary is made of the first objects that come, in a thread. What comes
    meanwhile waits, for some 40 ms; the loop does not. If later bodies turn out to be
    of another kind, one is made of those that came last, and used from then on: objects
    that are stored keep what they were compressed with, as long as they are there.

    Args:
        compression: How; None for not at all.
        name: Of the informer, for the log.

    Raises:
        OptionsError: It is no compression, or the package for it is not installed.
    """

    def __init__(
        self, compression: Compression | None = None, name: str = "informer"
    ) -> None:
        check_compression(compression)
        self.compression = compression
        self.waits = compression is not None
        """It has to be given the first objects by `begin()` before it can compress."""
        self.due = False
        """Another dictionary is needed: `renew()`."""
        self._name = name
        # None before the first objects.
        self._compressor: Compressor | None = None
        # That of the objects it compresses; None before the first one of them.
        self._context: ObjectContext | None = None
        self._fit = CompressionFit()
        # The keys of the objects that came last: where the next samples are.
        self._recent: deque[str] = deque(maxlen=SAMPLES)
        # Held by who trains: several pipelines may want to.
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Compressing {self.compression or 'nothing'}>"

    def __call__(self, obj: KubeObject) -> KubeObject:
        """What to store of an object: itself with a compressed body, if that is smaller.

        The same object as long as it `waits`, and one that is compressed already.
        """
        compressor = self._compressor
        if compressor is None or obj.context.codec is not None:
            return obj

        body = obj.body
        before = len(body)
        if before < LEAST_BODY:
            return obj

        packed = compressor.pack(body)
        self._note(obj.key, before, before if packed is None else len(packed))
        if packed is None:
            return obj

        if self._context is None:
            self._context = ObjectContext(compressor.codec, obj.context)

        return KubeObject(
            packed,
            obj.key,
            obj.uid,
            obj.resource_version,
            obj.label_set,
            self._context,
        )

    def _note(self, key: str, before: int, after: int) -> None:
        fit, recent = self._fit, self._recent
        recent.append(key)
        if fit.note(before, after) and fit.asks_for_training(len(set(recent))):
            self.due = True

    async def begin(self, objects: Iterable[KubeObject]) -> None:
        """Get ready to compress, by the first objects; without effect if it is.

        Args:
            objects: Some of those that are to be compressed; there may be none.

        Cancellation:
            Safe: call it again.
        """
        async with self._turn:
            if self.waits:
                await self._train(list(objects))

    async def renew(self, known: Callable[[str], KubeObject | None]) -> None:
        """Make another dictionary, if one is due.

        Args:
            known: The newest state of an object, by its key.

        Raises:
            InternalError: A stored body is damaged.

        Cancellation:
            Safe: call it again.
        """
        async with self._turn:
            if self.due:
                states = map(known, dict.fromkeys(self._recent))
                await self._train([obj for obj in states if obj is not None])

    async def _train(self, objects: list[KubeObject]) -> None:
        try:
            made = await in_thread(functools.partial(_trained, objects))
        except OSError as exc:  # to stop for some 40 ms is better than to fail
            logger.warning("%s: trains its dictionary in the loop: %s", self._name, exc)
            made = _trained(objects)

        self._compressor, self._context = made, None
        self.waits = self.due = False
        self._fit.trained(made.samples, made.share)
        logger.info(
            "%s: bodies are compressed to about %.0f %%, by a dictionary made of %d",
            self._name,
            100 * made.share,
            made.samples,
        )


def _trained(objects: list[KubeObject]) -> Compressor:
    """In a thread, which takes the reading of the samples, too."""
    return train([obj.raw for obj in objects])
