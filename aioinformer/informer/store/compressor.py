"""The compression of what one informer keeps."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from typing import TYPE_CHECKING, Final

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.model.compression import (
    LEAST_BODY,
    LEAST_SAMPLES,
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

__all__ = ["WINDOW", "WORSE", "BodyCompressor", "CompressionFit"]


logger = guarded_logger(__name__)


class BodyCompressor:
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
        return f"<BodyCompressor {self.compression or 'nothing'}>"

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


WINDOW: Final = 250
"""So many bodies are judged together."""


WORSE: Final = 1.5
"""Bodies that take so many times the room they should are what it was not made for."""


class CompressionFit:
    """Says whether a dictionary still fits the bodies that come.

    It does not if a window of them is compressed to `WORSE` times of what those were
    that it was tried on when it was made. And it is outgrown if it was made of fewer
    than `SAMPLES`, or of none, and twice as many are there by now.

    However they come, there is no end of trainings to fear: the first one is asked for
    behind one window at the earliest, and each asks for twice as many bodies before the
    next one. So n bodies lead to no more than log2(n / WINDOW) + 1.
    """

    def __init__(self) -> None:
        self.bodies = 0
        """That came since the last training."""
        self.patience = WINDOW
        """So many have to come before the next one."""
        self._samples = 0
        self._share = 1.0
        self._trained = False
        # Of the window that is under way: how many, and their bytes before and after.
        self._count = self._before = self._after = 0
        self._worse = False

    def trained(self, samples: int, share: float) -> None:
        """There is another dictionary.

        Args:
            samples: Of how many objects it was made; 0 for none at all.
            share: How large bodies became, as a part of what they were.
        """
        if self._trained:
            self.patience *= 2

        self._trained = True
        self._samples, self._share = samples, share
        self.bodies = self._count = self._before = self._after = 0
        self._worse = False

    def note(self, before: int, after: int) -> bool:
        """Take note of one body; True if it was the last one of a window.

        Args:
            before: Its bytes.
            after: Its bytes as it is stored.
        """
        self.bodies += 1
        self._count += 1
        self._before += before
        self._after += after
        if self._count < WINDOW:
            return False

        self._worse = self._after > WORSE * self._share * self._before
        self._count = self._before = self._after = 0
        return True

    def asks_for_training(self, available: int) -> bool:
        """True if it is time for another dictionary; to be asked behind each window.

        Args:
            available: Of how many objects one could be made by now.
        """
        if self.bodies < self.patience:
            return False

        return self._worse or self._outgrown(available)

    def _outgrown(self, available: int) -> bool:
        if self._samples >= SAMPLES:
            return False

        return min(available, SAMPLES) >= max(2 * self._samples, LEAST_SAMPLES)
