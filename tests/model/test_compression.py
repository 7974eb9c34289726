"""Compression of bodies, and dictionaries."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import combinations

import pytest
from compression_helpers import bodies, compressor_of, digest
from each_case import each_case
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.errors import InternalError, OptionsError
from aioinformer.model.compression import (
    LEAST_BODY,
    LEAST_SAMPLES,
    SAMPLES,
    Codec,
    Compressor,
    _dictionary,
    check_compression,
    train,
)

EITHER = pytest.mark.parametrize(
    "compressor",
    [
        pytest.param(compressor_of(), id="dictionary"),
        pytest.param(Compressor(), id="none"),
    ],
)


def packed(body: bytes, compressor: Compressor) -> bytes:
    result = compressor.pack(body)
    assert result is not None
    return result


def saved_by(compressor: Compressor, samples: list[bytes]) -> float:
    """Return the factor by which all bodies get smaller."""
    return sum(map(len, samples)) / sum(len(packed(it, compressor)) for it in samples)


# ---------------------------------------------------------------- available


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_check_compression_accepts_zstd_and_none(compression: str | None) -> None:
    check_compression(compression)


@each_case("compression", ["gzip", "", "ZSTD", True, b"zstd", 3, ["zstd"]])
def test_check_compression_rejects_other_values(compression: object) -> None:
    with pytest.raises(
        OptionsError, match="compression must be 'zstd' or None, not "
    ) as info:
        check_compression(compression)

    assert repr(compression) in str(info.value)


def test_missing_zstandard_error_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)

    check_compression(None)
    with pytest.raises(OptionsError, match=r"pip install 'aioinformer\[zstd\]'"):
        check_compression("zstd")


def test_zstandard_is_imported_only_when_used() -> None:
    code = "import sys, aioinformer, aioinformer.model.compression; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())

    assert "aioinformer.model.compression" in loaded
    assert "zstandard" not in loaded


# ---------------------------------------------------------------- size


@EITHER
def test_codec_reads_packed_body(compressor: Compressor) -> None:
    for body in bodies():
        assert compressor.codec.read(packed(body, compressor), "it") == body


def test_dictionary_improves_compression_of_its_kind() -> None:
    fresh = [it for it in bodies(count=400) if it not in bodies()]
    without = saved_by(Compressor(), fresh)

    assert len(fresh) == 200
    assert 2 < without < 5
    assert saved_by(compressor_of("web"), fresh) > 2.5 * without
    assert saved_by(compressor_of("other"), fresh) < 1.5 * without


def test_small_body_is_not_compressed() -> None:
    body = b"x" * (LEAST_BODY - 1)

    assert compressor_of().pack(body) is None
    assert compressor_of().pack(b"") is None
    assert packed(body + b"x", compressor_of())


def test_incompressible_body_is_not_compressed() -> None:
    text = digest("some", 64) * 20
    for zeros, stays in ((b"", True), (b"0" * 50, True), (b"0" * 500, False)):
        body = os.urandom(1000) + zeros
        assert (Compressor().pack(body) is None) is stays

    assert Compressor().pack(text.encode()) is not None


def test_packed_body_has_no_spare_memory() -> None:
    """The library's own result is in a buffer for the worst case."""
    compressor = Compressor()
    result = b"compressed"
    compressor._compress = lambda _: result

    kept = packed(b"x" * 1000, compressor)

    assert kept == result
    assert kept is not result


# ---------------------------------------------------------------- training


def test_few_samples_train_no_dictionary() -> None:
    compressor = train(bodies()[: LEAST_SAMPLES - 1])

    assert compressor.samples == 0
    assert saved_by(compressor, bodies()) < 5
    assert train(bodies()[:LEAST_SAMPLES]).samples == LEAST_SAMPLES


def test_small_samples_are_not_counted() -> None:
    small = [b"x" * (LEAST_BODY - 1)] * 300

    assert train([*small, *bodies()[: LEAST_SAMPLES - 1]]).samples == 0
    assert train([*small, *bodies()[:LEAST_SAMPLES]]).samples == LEAST_SAMPLES


def test_train_uses_limited_number_of_samples() -> None:
    assert train(bodies(count=SAMPLES + 50)).samples == SAMPLES


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([b"\x00" * LEAST_BODY] * LEAST_SAMPLES, id="equal"),
        pytest.param([bytes([n]) * 300 for n in range(LEAST_SAMPLES)], id="unlike"),
        pytest.param([os.urandom(300) for _ in range(LEAST_SAMPLES)], id="random"),
    ],
)
def test_train_accepts_any_samples(samples: list[bytes]) -> None:
    compressor = train(samples)

    for body in (*samples, *bodies()[:3]):
        frame = compressor.pack(body)
        assert frame is None or compressor.codec.read(frame, "it") == body


def test_failed_training_makes_no_dictionary() -> None:
    assert _dictionary(bodies()[:5]) == b""


def test_large_body_is_sampled_in_part_and_compressed_whole() -> None:
    large = [it + b"y" * 100_000 for it in bodies()]

    compressor = train(large)

    assert compressor.samples == len(large)
    assert compressor.codec.read(packed(large[0], compressor), "it") == large[0]


def test_share_is_measured_on_held_out_samples() -> None:
    compressor = compressor_of()
    fresh = [it for it in bodies(count=400) if it not in bodies()]
    share = 1 / saved_by(compressor, fresh)

    assert share / 1.3 < compressor.share < share * 1.3
    assert 0.2 < train(bodies()[:10]).share < 0.7
    assert train([os.urandom(1000)]).share == 1.0
    assert train([]).share == 1.0


# ---------------------------------------------------------------- damage


def test_body_is_not_read_with_another_dictionary() -> None:
    """Nor with one of the same samples, nor without one."""
    made = [compressor_of("web"), compressor_of("other"), train(bodies()), Compressor()]
    body = bodies()[0]
    frames = {packed(body, compressor) for compressor in made}

    assert len(frames) == len(made)
    for one, other in combinations(made[:3], 2):
        with pytest.raises(
            InternalError, match="object 'a/b': cannot decompress its body"
        ):
            other.codec.read(packed(body, one), "object 'a/b'")

    for compressor in made[:3]:
        with pytest.raises(InternalError):
            Compressor().codec.read(packed(body, compressor), "it")


@EITHER
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda it: b"", id="empty"),
        pytest.param(lambda it: it[:-1], id="cut"),
        pytest.param(lambda it: it[:3], id="nearly-all-cut"),
        pytest.param(lambda it: it[1:], id="no-beginning"),
        pytest.param(lambda it: it + b"x", id="longer"),
        pytest.param(lambda it: it + it, id="twice"),
        pytest.param(lambda it: b"{}", id="not-compressed"),
        pytest.param(lambda it: it[:-4] + b"\0\0\0\0", id="checksum"),
    ],
)
def test_damaged_body_raises_internal_error(
    compressor: Compressor, damage: object
) -> None:
    assert callable(damage)
    body = packed(bodies()[0], compressor)

    with pytest.raises(
        InternalError, match=r"^object 'a/b': cannot decompress its body"
    ) as e:
        compressor.codec.read(damage(body), "object 'a/b'")

    assert e.value.__cause__ is not None
    assert compressor.codec.read(body, "it") == bodies()[0]


def test_codec_has_number_and_copy_of_its_dictionary() -> None:
    codecs = [train(bodies()).codec for _ in range(3)]
    assert len({it.number for it in codecs}) == 3
    for codec in codecs:
        assert 2**15 <= codec.number < 2**31
        again = Codec(codec.dictionary)
        assert (again.number, again.dictionary) == (codec.number, codec.dictionary)

    assert (Codec().number, Codec().dictionary) == (0, b"")


@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_flipped_bit_never_yields_another_body(place: int, bit: int) -> None:
    compressor = compressor_of()
    damaged = bytearray(packed(bodies()[0], compressor))
    # Not in the header, which has the size of the memory to allocate.
    damaged[12 + place % (len(damaged) - 12)] ^= 1 << bit

    # Some bits mean nothing to zstd.
    with suppress(InternalError):
        assert compressor.codec.read(bytes(damaged), "it") == bodies()[0]


# ---------------------------------------------------------------- threads


@pytest.mark.realtime
def test_codec_reads_in_several_threads() -> None:
    compressor = train(bodies())
    frames = [packed(it, compressor) for it in bodies()]

    def read(start: int) -> bool:
        order = range(start, start + len(frames))
        return all(
            compressor.codec.read(frames[at % len(frames)], "it")
            == bodies()[at % len(frames)]
            for at in order
        )

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            results = list(threads.map(read, range(0, 320, 10)))
    finally:
        sys.setswitchinterval(interval)

    assert all(results)
    assert 1 <= len(compressor.codec._idle) <= 8


def test_codec_in_one_thread_has_one_decompressor() -> None:
    compressor = train(bodies())
    for body in bodies():
        compressor.codec.read(packed(body, compressor), "it")

    assert len(compressor.codec._idle) == 1


def test_decompressor_is_dropped_after_failure() -> None:
    codec = Codec()
    (first,) = codec._idle

    with pytest.raises(InternalError):
        codec.read(b"nonsense", "it")

    assert first not in codec._idle
    assert codec.read(packed(bodies()[0], Compressor()), "it") == bodies()[0]
