"""`BodyCompressor`: compression of the stored bodies of one informer."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.errors import DecodeError, InternalError
from aioinformer.model.compression import (
    LEAST_BODY,
    LEAST_SAMPLES,
    SAMPLES,
    Codec,
    Compressor,
    DifferenceCodec,
    check_compression,
    train,
)
from aioinformer.model.objects import KubeObject
from aioinformer.model.transforms import strip_managed_fields
from aioinformer.model.views import DifferenceContext, ObjectContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioinformer.model.compression import Compression

__all__ = ["WINDOW", "WORSE", "BodyCompressor", "CompressionFit", "uncompressed"]

T = TypeVar("T")


logger: Final = guarded_logger(__name__)


class BodyCompressor:
    """Compressor of the objects of one informer.

    A thread trains the dictionary from the first objects. Meanwhile, new objects wait
    for about 40 ms, and the event loop is not blocked. If later bodies compress badly,
    another dictionary is trained from the latest ones. Stored objects keep the
    dictionary that they were compressed with.

    Args:
        compression: Algorithm; None for no compression.
        name: Name of the informer in the log.
        on_demand: True to compress nothing before `on` is set, and to note reads, unless
            there is an algorithm.

    Raises:
        OptionsError: If the algorithm is unknown, or its package is not installed.
    """

    def __init__(
        self,
        compression: Compression | None = None,
        name: str = "informer",
        *,
        on_demand: bool = False,
    ) -> None:
        check_compression(compression)
        self.always: bool = compression is not None
        """True if all bodies are compressed."""
        on_demand = on_demand and not self.always
        self.compression = "zstd" if on_demand else compression
        self.on: bool = self.always
        """True while new bodies are compressed."""
        self.strips: bool = False
        """True to drop managed fields of bodies that are compressed."""
        self.differs: bool = False
        """True to store listed bodies as their differences from the stored ones."""
        self.reads: deque[str] | None = (
            deque(maxlen=_NOTED_READS) if on_demand else None
        )
        """Keys of objects whose compressed bodies were read, with `on_demand`."""
        self.waits: bool = self.compression is not None
        """True until `begin()` has trained the first dictionary."""
        self.due: bool = False
        """True if `renew()` has to train another dictionary."""
        self._name = name
        # None before the first objects.
        self._compressor: Compressor | None = None
        # Context of the compressed objects; None before the first one.
        self._context: ObjectContext | None = None
        self._fit = CompressionFit()
        # Keys of the latest objects, for the next samples.
        self._recent: deque[str] = deque(maxlen=SAMPLES)
        # Held during a training, as several pipelines share the compressor.
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<BodyCompressor {self.compression or 'nothing'}>"

    def __call__(self, obj: KubeObject, known: KubeObject | None = None) -> KubeObject:
        """Return the object to store: as `pack` does, while that is `on`."""
        return self.pack(obj, known) if self.on else obj

    def pack(self, obj: KubeObject, known: KubeObject | None = None) -> KubeObject:
        """Return an object with a compressed body, if that is smaller.

        Returns `obj` itself before the first dictionary is trained, and if `obj` is
        already compressed.

        Args:
            obj: Object to compress.
            known: State of the same key that is stored now, or None. The result has its
                key and uid, so that equal strings are in memory once: 0.2 KB.
        """
        compressor = self._compressor
        if compressor is None or obj.context.codec is not None:
            return obj

        if self.strips:
            obj = _stripped(obj)

        body = obj.body
        before = len(body)
        if before < LEAST_BODY:
            return obj

        packed = compressor.pack(body)
        self._note(obj.key, before, before if packed is None else len(packed))
        if packed is None:
            return obj

        if self._context is None:
            self._context = ObjectContext(
                compressor.codec, obj.context.plain, reads=self.reads
            )

        return _stored(obj, packed, self._context, obj if known is None else known)

    def pack_listed(self, obj: KubeObject, known: KubeObject | None) -> KubeObject:
        """Return an object of a list to store: as a call does, or as a difference.

        It is stored as its difference from the stored state while this `differs`, as
        memory is short until the list has replaced that state. `pack` it again then:
        until that, the body of the old state stays in memory.

        Args:
            obj: Object to compress.
            known: State of the same key that is stored now, or None.
        """
        if self.differs and self.on and known is not None and obj.context.codec is None:
            codec = known.context.codec
            if isinstance(codec, Codec):
                if self.strips:
                    obj = _stripped(obj)

                made = self._difference(obj, known, codec)
                if made is not None:
                    return made

        return self(obj, known)

    def _difference(
        self, obj: KubeObject, known: KubeObject, codec: Codec
    ) -> KubeObject | None:
        """Return an object whose body is its difference from a compressed one."""
        try:
            body = DifferenceCodec(known.body, codec).pack(obj.body)
        except InternalError:  # who reads the damaged state gets it
            return None

        if body is None:
            return None

        shared = known.context
        assert isinstance(shared, ObjectContext), "its body is no difference"
        return _stored(obj, body, DifferenceContext(known.body, shared), known)

    def _note(self, key: str, before: int, after: int) -> None:
        fit, recent = self._fit, self._recent
        recent.append(key)
        if fit.note(before, after) and fit.needs_training(len(set(recent))):
            self.due = True

    def resume(self, dictionary: bytes, objects: Iterable[KubeObject]) -> None:
        """Continue with a dictionary of an earlier process.

        Args:
            dictionary: Dictionary, as of `Codec.dictionary`.
            objects: Some objects that were compressed with it.
        """
        known = [obj for obj in objects if obj.context.codec is not None]
        before = sum(len(obj.raw) for obj in known)
        share = sum(len(obj.body) for obj in known) / before if before else 1.0
        self._compressor, self._context = Compressor(dictionary, SAMPLES), None
        self.waits = False
        self._fit.trained(SAMPLES, share)

    async def begin(self, objects: Iterable[KubeObject]) -> None:
        """Train the first dictionary, unless there is one.

        Args:
            objects: Samples of the objects to compress; may be empty.

        Cancellation:
            Safe: call it again.
        """
        async with self._turn:
            if self.waits:
                await self._train(list(objects))

    async def renew(self, known: Callable[[str], KubeObject | None]) -> None:
        """Train another dictionary, if one is due.

        Args:
            known: Function that returns the newest state for a key.

        Raises:
            InternalError: If a stored body is damaged.

        Cancellation:
            Safe: call it again.
        """
        async with self._turn:
            if self.due:
                states = map(known, dict.fromkeys(self._recent))
                await self._train([obj for obj in states if obj is not None])

    async def train_again(self, objects: list[KubeObject]) -> bool:
        """Train another dictionary, and return True if it is used from now on.

        That is the case if it compresses these objects by a tenth better than now.

        Raises:
            InternalError: If a stored body is damaged.

        Cancellation:
            Safe: call it again.
        """
        if len(objects) < LEAST_SAMPLES:
            return False

        async with self._turn:
            trained = await self._in_thread(_train_on, objects)
            if not await self._in_thread(_is_better, trained, objects[::_COMPARED]):
                return False

            self._use(trained)
            return True

    async def _train(self, objects: list[KubeObject]) -> None:
        self._use(await self._in_thread(_train_on, objects))

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return await in_thread(functools.partial(function, *arguments))
        except OSError as exc:  # blocking for about 40 ms is better than failing
            logger.warning(
                "%s: cannot start a thread, training the dictionary in the event loop: %s",
                self._name,
                exc,
            )
            return function(*arguments)

    def _use(self, trained: Compressor) -> None:
        self._compressor, self._context = trained, None
        self.waits = self.due = False
        self._fit.trained(trained.samples, trained.share)
        logger.info(
            "%s: compressing bodies to about %.0f %%, samples of the dictionary: %d",
            self._name,
            100 * trained.share,
            trained.samples,
        )


def _stored(
    obj: KubeObject,
    body: bytes,
    context: ObjectContext | DifferenceContext,
    known: KubeObject,
) -> KubeObject:
    """Return an object with another body, which shares strings with a known state."""
    return KubeObject(
        body,
        known.key,
        known.uid if known.uid == obj.uid else obj.uid,
        obj.resource_version,
        obj.label_set,
        context,
    )


def _train_on(objects: list[KubeObject]) -> Compressor:
    """Read the samples and train; called in a thread."""
    return train(uncompressed(obj).body for obj in objects)


def _is_better(compressor: Compressor, objects: list[KubeObject]) -> bool:
    """Return True if a compressor leaves much less of some objects; called in a thread."""
    now = sum(len(obj.body) for obj in objects)
    bodies = (uncompressed(obj).body for obj in objects)
    return sum(len(compressor.pack(it) or it) for it in bodies) < _BETTER * now


def uncompressed(obj: KubeObject) -> KubeObject:
    """Return an object with its JSON as its body. That does not count as a read.

    Raises:
        InternalError: If the compressed body is damaged.
    """
    codec = obj.context.codec
    if codec is None:
        return obj

    return KubeObject(
        codec.read(obj.body, f"object {obj.key!r}"),
        obj.key,
        obj.uid,
        obj.resource_version,
        obj.label_set,
        obj.context.plain,
    )


def _stripped(obj: KubeObject) -> KubeObject:
    """Drop the managed fields, if the body can be read."""
    try:
        return strip_managed_fields(obj)
    except DecodeError:
        return obj


_BETTER: Final = 0.9
"""Part of the size that a new dictionary may leave, to be used for all objects."""


_COMPARED: Final = 10
"""One of so many samples is compressed to see whether a new dictionary is better."""


_NOTED_READS: Final = 4096
"""Latest reads that are noted."""


WINDOW: Final = 250
"""Number of bodies whose compression is evaluated together."""


WORSE: Final = 1.5
"""Multiple of the expected size above which bodies do not fit the dictionary."""


class CompressionFit:
    """Measure of how well a dictionary fits new bodies.

    A dictionary does not fit if a window of bodies is compressed to a share of their
    size more than `WORSE` times that of its samples. It is outgrown if it has fewer
    than `SAMPLES` samples, and there are twice as many objects now.

    The number of trainings is bounded: the second needs at least one window of bodies,
    and from then on each one doubles the number before the next. So n bodies lead to
    at most log2(n / WINDOW) + 1 trainings.
    """

    def __init__(self) -> None:
        self.bodies: int = 0
        """Number of bodies since the last training."""
        self.interval: int = WINDOW
        """Number of bodies before the next training."""
        self._samples = 0
        self._share = 1.0
        self._trained = False
        # Current window: bodies, and their bytes before and after compression.
        self._count = self._before = self._after = 0
        self._worse = False

    def trained(self, samples: int, share: float) -> None:
        """Record a new dictionary.

        Args:
            samples: Number of samples; 0 for no dictionary.
            share: Compressed size of the samples as a share of their size.
        """
        if self._trained:
            self.interval *= 2

        self._trained = True
        self._samples, self._share = samples, share
        self.bodies = self._count = self._before = self._after = 0
        self._worse = False

    def note(self, before: int, after: int) -> bool:
        """Count a body; return True if it was the last one of a window.

        Args:
            before: Size of the body in bytes.
            after: Size of the stored body in bytes.
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

    def needs_training(self, available: int) -> bool:
        """Return True if another dictionary is needed; call it after each window.

        Args:
            available: Number of objects that could be samples.
        """
        if self.bodies < self.interval:
            return False

        return self._worse or self._outgrown(available)

    def _outgrown(self, available: int) -> bool:
        if self._samples >= SAMPLES:
            return False

        return min(available, SAMPLES) >= max(2 * self._samples, LEAST_SAMPLES)
