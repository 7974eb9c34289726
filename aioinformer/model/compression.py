"""Compression of stored bodies: what makes them smaller, and what reads them again.

Objects of one kind say much the same, and a dictionary is what they have in common: with
one of 64 KiB a pod of 7 KB takes 0.9 KB, without it 2.3. It is made of some of the
objects themselves. What a body was compressed with is needed to read it, so whoever
keeps the body keeps its `Codec`.
"""

from __future__ import annotations

from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from aioinformer.errors import InternalError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zstandard

__all__ = [
    "LEAST_BODY",
    "LEAST_SAMPLES",
    "SAMPLES",
    "Codec",
    "Compression",
    "Compressor",
    "check_compression",
    "train",
]

Compression: TypeAlias = Literal["zstd"]
"""How an informer may compress what it keeps."""

SAMPLES: Final = 500
"""Of so many objects a dictionary is made; more of them make it hardly any better."""

LEAST_SAMPLES: Final = 100
"""Of fewer than these none is made: it would take more memory than it saves."""

LEAST_BODY: Final = 200
"""Bodies of fewer bytes stay as they are."""

# What a stored body has to be smaller by, for the time that it takes to read.
_MOST_KEPT: Final = 0.9

_LEVEL: Final = 3
_DICTIONARY_BYTES: Final = 64 * 1024
# Of a larger body its beginning is the sample.
_SAMPLE_BYTES: Final = 16 * 1024
# So that training tries no others: as good as the best of those, at an eighth of the
# time and half of the memory.
_COVER: Final = {"k": 2000, "d": 8, "f": 18}
# One of so many samples is left out of the training, to see how well it went.
_HELD_OUT: Final = 5

# Stored bodies name their dictionary by a number. No two in a process have the same:
# then no body can be read with another one's, and equal stored bodies are equal ones.
# Below 2**15 numbers are reserved.
_ids: Final = count(2**15)


def check_compression(compression: object) -> None:
    """Refuse what is no compression, or cannot be done here; None is none.

    Raises:
        OptionsError: It is another, or the package for it is not installed.
    """
    if compression is None:
        return

    if compression != "zstd":
        raise OptionsError(f"compression is 'zstd' or None, not {compression!r}")

    _zstandard()


def _zstandard() -> Any:
    """The package, when it is needed: most programs do without it."""
    try:
        return import_module("zstandard")
    except ImportError as exc:
        raise OptionsError(
            "compression='zstd' needs zstandard: pip install 'aioinformer[zstd]'"
        ) from exc


class Codec:
    """Reads bodies that were compressed with one dictionary, or without any.

    May be used from any thread. What decompresses cannot be shared by two of them at
    once, so each call takes one for its time, and there are as many as there ever were
    calls at once; each takes 0.1 MB.

    Args:
        dictionary: As `train` makes it; empty for none.

    Raises:
        OptionsError: The package is not installed.
    """

    __slots__ = ("_dictionary", "_errors", "_idle", "_zstandard")

    def __init__(self, dictionary: bytes = b"") -> None:
        self._zstandard = package = _zstandard()
        self._errors = (package.ZstdError, MemoryError)
        self._dictionary = (
            package.ZstdCompressionDict(dictionary, package.DICT_TYPE_FULLDICT)
            if dictionary
            else None
        )

        # The first one prepares the dictionary, which only one thread may do.
        self._idle: list[zstandard.ZstdDecompressor] = [self._decompressor()]

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        made: zstandard.ZstdDecompressor = self._zstandard.ZstdDecompressor(
            dict_data=self._dictionary
        )
        return made

    def read(self, body: bytes, what: str) -> bytes:
        """The bytes that were compressed: about 10 microseconds for a pod of 7 KB.

        Args:
            body: As a `Compressor` of this codec made it.
            what: Names it in the error.

        Raises:
            InternalError: It is damaged, or was made with another dictionary.
        """
        try:
            decompressor = self._idle.pop()
        except IndexError:
            decompressor = self._decompressor()

        try:
            raw = decompressor.decompress(body, allow_extra_data=False)
        except self._errors as exc:
            raise InternalError(
                f"{what}: its compressed body cannot be read: {exc}"
            ) from exc

        self._idle.append(decompressor)
        return raw


class Compressor:
    """Makes bodies smaller. Of one thread at a time.

    Args:
        dictionary: As `train` makes it; empty for none.
        samples: Of how many objects the dictionary was made.

    Attributes:
        codec: What reads the bodies again.
        samples: Of how many objects the dictionary was made; 0 without one.
        share: How large bodies were behind compression when it was made, as a part of
            what they were before; 1.0 if there was nothing to measure it by.
    """

    def __init__(self, dictionary: bytes = b"", samples: int = 0) -> None:
        self.codec = Codec(dictionary)
        self.samples = samples
        self.share = 1.0
        package = _zstandard()
        data = None
        if dictionary:
            # One of its own: prepared for compressing it takes 0.4 MB, which is let go
            # with the compressor while bodies and their codec stay.
            data = package.ZstdCompressionDict(dictionary, package.DICT_TYPE_FULLDICT)
            data.precompute_compress(level=_LEVEL)

        self._compress = package.ZstdCompressor(
            level=_LEVEL, dict_data=data, write_checksum=True
        ).compress

    def pack(self, body: bytes) -> bytes | None:
        """The compressed body: some 25 microseconds for a pod of 7 KB.

        None if that is not smaller by a tenth, or the body is small anyway.
        """
        size = len(body)
        if size < LEAST_BODY:
            return None

        packed = self._compress(body)
        if len(packed) > _MOST_KEPT * size:
            return None

        # Copied: the result lies in a place that was made for the worst case, and what
        # is left of that place is of use to nobody.
        return memoryview(packed).tobytes()


def train(bodies: Sequence[bytes]) -> Compressor:
    """Make a compressor for bodies like these.

    Takes some 40 milliseconds for 500 pods, most of them without the interpreter's
    lock: call it in a thread.

    Args:
        bodies: The first `SAMPLES` of them that are not too small count. Of fewer than
            `LEAST_SAMPLES`, or if they cannot be learnt from, no dictionary is made.

    Raises:
        OptionsError: The package is not installed.
    """
    samples = [it[:_SAMPLE_BYTES] for it in bodies if len(it) >= LEAST_BODY][:SAMPLES]
    held_out = samples[::_HELD_OUT]
    dictionary = _dictionary(samples) if len(samples) >= LEAST_SAMPLES else b""
    compressor = Compressor(dictionary, len(samples) if dictionary else 0)
    if held_out:
        packed = sum(len(compressor.pack(it) or it) for it in held_out)
        compressor.share = packed / sum(map(len, held_out))

    return compressor


def _dictionary(samples: list[bytes]) -> bytes:
    """Made of all but those held out; empty if nothing can be learnt from them."""
    package = _zstandard()
    used = [it for number, it in enumerate(samples) if number % _HELD_OUT]
    try:
        made = package.train_dictionary(
            _DICTIONARY_BYTES, used, dict_id=next(_ids), **_COVER
        )
    except package.ZstdError:
        return b""

    content: bytes = made.as_bytes()
    return content
