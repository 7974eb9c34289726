"""Compression of stored bodies, with dictionaries.

Objects of one kind are similar, and a dictionary contains what they have in common.
With one of 64 KiB a pod of 7 KB takes 0.9 KB, without it 2.3 KB. It is trained on some
of the objects themselves. A body can be read only with the dictionary that compressed
it, so owners of a body also keep its `Codec`.
"""

from __future__ import annotations

from itertools import count, islice
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from aioinformer._extras import import_extra
from aioinformer.errors import InternalError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import zstandard

__all__ = [
    "LEAST_BODY",
    "LEAST_SAMPLES",
    "SAMPLES",
    "Codec",
    "Compression",
    "Compressor",
    "DifferenceCodec",
    "check_compression",
    "train",
]

Compression: TypeAlias = Literal["zstd"]
"""Compression methods for stored objects."""

SAMPLES: Final = 500
"""Objects used to train a dictionary. More hardly improve it."""

LEAST_SAMPLES: Final = 100
"""Minimum for a dictionary: with fewer objects it would take more than it saves."""

LEAST_BODY: Final = 200
"""Size in bytes below which bodies are not compressed."""

# Largest part of the size that compression may leave, as reading it takes time.
_MOST_KEPT: Final = 0.9

_LEVEL: Final = 3
# Of a difference: higher levels take longer and find no more.
_DIFFERENCE_LEVEL: Final = 1
# Larger bodies are not stored as differences: one of this size takes 6 ms.
_LARGEST_DIFFERENCE: Final = 1024 * 1024
_LEAST_WINDOW_LOG: Final = 10
_DICTIONARY_BYTES: Final = 64 * 1024
# Only the beginning of a larger body is used.
_SAMPLE_BYTES: Final = 16 * 1024
# Fixed, so that training does not try others: as good as the best of those, in an
# eighth of the time and half of the memory.
_COVER: Final = {"k": 2000, "d": 8, "f": 18}
# One of so many samples is left out of the training, to measure the result.
_HELD_OUT: Final = 5

# Stored bodies contain the number of their dictionary, so a body cannot be read with
# another dictionary, and equal stored bodies have equal contents. Numbers are unique in
# a process. They are random, so that processes that write one store, one after the
# other, use different ones. zstd reserves numbers below 2**15 and from 2**31 on.
_NUMBERS: Final = range(2**15, 2**31)
_used: Final[set[int]] = set()
# Stored differences begin with a number of their own, as equal ones to different bodies
# would have different contents.
_differences: Final = count()
_NUMBER_BYTES: Final = 8
_choose: Final = SystemRandom().choice  # differs in a forked process


def check_compression(compression: object, option: str = "") -> None:
    """Reject an unknown or unavailable compression. None stands for no compression.

    Args:
        compression: Compression.
        option: Option that needs it, for the error.

    Raises:
        OptionsError: If it is unknown, or its package is not installed.
    """
    if compression is None:
        return

    if compression != "zstd":
        raise OptionsError(f"compression must be 'zstd' or None, not {compression!r}")

    _zstandard(option or "compression='zstd'")


def _zstandard(option: str = "compression='zstd'") -> Any:
    """Import the package when it is needed: most programs do not use it."""
    return import_extra("zstandard", "zstd", f"{option} needs zstandard")


class Codec:
    """Decompressor for bodies that were compressed with one dictionary, or without any.

    Usable from any thread. A decompressor cannot be shared by concurrent calls, so each
    call takes one from a pool, which grows to the largest number of concurrent calls.
    Each takes 0.1 MB.

    Args:
        dictionary: Dictionary made by `train`; empty for none.

    Attributes:
        number: Number of the dictionary; 0 without one.

    Raises:
        OptionsError: If the package is not installed.
    """

    __slots__ = ("_dictionary", "_errors", "_idle", "_zstandard", "number")

    def __init__(self, dictionary: bytes = b"") -> None:
        self._zstandard = package = _zstandard()
        self._errors = (package.ZstdError, MemoryError)
        self._dictionary = (
            package.ZstdCompressionDict(dictionary, package.DICT_TYPE_FULLDICT)
            if dictionary
            else None
        )
        self.number: int = self._dictionary.dict_id() if self._dictionary else 0

        # The first one prepares the dictionary, which only one thread may do.
        self._idle: list[zstandard.ZstdDecompressor] = [self._decompressor()]

    @property
    def dictionary(self) -> bytes:
        """Dictionary, in a copy; empty without one."""
        if self._dictionary is None:
            return b""

        content: bytes = self._dictionary.as_bytes()
        return content

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        made: zstandard.ZstdDecompressor = self._zstandard.ZstdDecompressor(
            dict_data=self._dictionary
        )
        return made

    def read(self, body: bytes, what: str) -> bytes:
        """Return the decompressed bytes: about 10 microseconds for a pod of 7 KB.

        Args:
            body: Result of a `Compressor` of this codec.
            what: Name of the body in errors.

        Raises:
            InternalError: If it is damaged, or was made with another dictionary.
        """
        try:
            decompressor = self._idle.pop()
        except IndexError:
            decompressor = self._decompressor()

        try:
            raw = decompressor.decompress(body, allow_extra_data=False)
        except self._errors as exc:
            raise InternalError(f"{what}: cannot decompress its body: {exc}") from exc

        self._idle.append(decompressor)
        return raw

    def size_of(self, body: bytes) -> int:
        """Return the size of a body before its compression, which its head has."""
        size: int = self._zstandard.frame_content_size(body)
        return size


class DifferenceCodec:
    """Codec of a body that is stored as its difference from another body.

    A body of 8 KB of which little has changed takes 50 bytes. Storing it as a difference
    takes 40 microseconds, reading it 30. Usable from any thread.

    Args:
        base: The other body, as it is stored.
        codec: Codec of the other body.
    """

    __slots__ = ("_base", "_codec")

    def __init__(self, base: bytes, codec: Codec) -> None:
        self._base = base
        self._codec = codec

    def pack(self, body: bytes) -> bytes | None:
        """Return the difference, unless it takes more than half of the other body.

        Args:
            body: JSON.

        Returns:
            Stored body; None if it would be too large, or cannot be made, and for bodies
            above 1 MiB.

        Raises:
            InternalError: If the other body is damaged.
        """
        size = len(body) + self._codec.size_of(self._base)
        if size > 2 * _LARGEST_DIFFERENCE:
            return None

        package = _zstandard()
        # The usual window and table would not reach back over large bodies.
        reach = max(_LEAST_WINDOW_LOG, size.bit_length())
        try:
            found = package.ZstdCompressor(
                compression_params=package.ZstdCompressionParameters.from_level(
                    _DIFFERENCE_LEVEL,
                    window_log=reach,
                    hash_log=reach,
                    write_checksum=True,
                ),
                dict_data=self._dictionary("the stored state"),
            ).compress(body)
        except (package.ZstdError, MemoryError):
            return None

        if len(found) > len(self._base) // 2:
            return None

        return next(_differences).to_bytes(_NUMBER_BYTES) + bytes(found)

    def read(self, body: bytes, what: str) -> bytes:
        """Return the JSON of a result of `pack`.

        Args:
            body: Stored body.
            what: Name of the body in errors.

        Raises:
            InternalError: If it or the other body is damaged.
        """
        package = _zstandard()
        try:
            dictionary = self._dictionary(what)
            raw: bytes = package.ZstdDecompressor(dict_data=dictionary).decompress(
                memoryview(body)[_NUMBER_BYTES:], allow_extra_data=False
            )
        except (package.ZstdError, MemoryError) as exc:
            raise InternalError(f"{what}: cannot decompress its body: {exc}") from exc

        return raw

    def size_of(self, body: bytes) -> int:
        """Return the size of its JSON."""
        return self._codec.size_of(body[_NUMBER_BYTES:])

    def _dictionary(self, what: str) -> zstandard.ZstdCompressionDict:
        package = _zstandard()
        made: zstandard.ZstdCompressionDict = package.ZstdCompressionDict(
            self._codec.read(self._base, what), package.DICT_TYPE_RAWCONTENT
        )
        return made


class Compressor:
    """Compressor of bodies, for one thread at a time.

    Args:
        dictionary: Dictionary made by `train`; empty for none.
        samples: Number of objects that the dictionary was trained on.

    Attributes:
        codec: Codec that reads the bodies again.
        samples: Number of objects that the dictionary was trained on; 0 without one.
        share: Size of bodies after compression, as measured after training, as a part
            of the size before; 1.0 if there was nothing to measure.
    """

    def __init__(self, dictionary: bytes = b"", samples: int = 0) -> None:
        self.codec: Codec = Codec(dictionary)
        self.samples = samples
        self.share: float = 1.0
        package = _zstandard()
        data = None
        if dictionary:
            # A separate instance: prepared for compressing it takes 0.4 MB, which is
            # freed with the compressor while bodies and their codec stay.
            data = package.ZstdCompressionDict(dictionary, package.DICT_TYPE_FULLDICT)
            data.precompute_compress(level=_LEVEL)

        self._compress = package.ZstdCompressor(
            level=_LEVEL, dict_data=data, write_checksum=True
        ).compress

    def pack(self, body: bytes) -> bytes | None:
        """Compress a body: about 25 microseconds for a pod of 7 KB.

        Returns:
            Compressed body; None if that is not smaller by a tenth, or the body is
            small.
        """
        size = len(body)
        if size < LEAST_BODY:
            return None

        packed = self._compress(body)
        if len(packed) > _MOST_KEPT * size:
            return None

        # Copied: the result is in a buffer for the worst case, whose rest would be
        # wasted.
        return memoryview(packed).tobytes()


def train(bodies: Iterable[bytes]) -> Compressor:
    """Create a compressor for bodies like these.

    Takes about 40 milliseconds for 500 pods, most of them without holding the GIL: call
    it in a thread.

    Args:
        bodies: Bodies to train on: the first `SAMPLES` that are not too small. No
            dictionary is made of fewer than `LEAST_SAMPLES`, or if training fails.

    Raises:
        OptionsError: If the package is not installed.
    """
    large = (it[:_SAMPLE_BYTES] for it in bodies if len(it) >= LEAST_BODY)
    samples = list(islice(large, SAMPLES))
    held_out = samples[::_HELD_OUT]
    dictionary = _dictionary(samples) if len(samples) >= LEAST_SAMPLES else b""
    compressor = Compressor(dictionary, len(samples) if dictionary else 0)
    if held_out:
        packed = sum(len(compressor.pack(it) or it) for it in held_out)
        compressor.share = packed / sum(map(len, held_out))

    return compressor


def _dictionary(samples: list[bytes]) -> bytes:
    """Train a dictionary on all samples not held out; empty if that fails."""
    package = _zstandard()
    used = [it for number, it in enumerate(samples) if number % _HELD_OUT]
    try:
        made = package.train_dictionary(
            _DICTIONARY_BYTES, used, dict_id=_new_number(), **_COVER
        )
    except package.ZstdError:
        return b""

    content: bytes = made.as_bytes()
    return content


def _new_number() -> int:
    """Return a number that no dictionary of this process has."""
    while (number := _choose(_NUMBERS)) in _used:
        pass

    _used.add(number)
    return number
