"""Compression of bodies: what becomes smaller, what stays, and what cannot be read."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import pytest
from compression_helpers import bodies, compressor_of, digest
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
    """How many times smaller all of them become."""
    return sum(map(len, samples)) / sum(len(packed(it, compressor)) for it in samples)


# ---------------------------------------------------------------- which there is


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_may_be_zstd_or_none(compression: str | None) -> None:
    check_compression(compression)


@pytest.mark.parametrize(
    "compression", ["gzip", "", "ZSTD", True, b"zstd", 3, ["zstd"]]
)
def test_refuses_any_other(compression: object) -> None:
    with pytest.raises(
        OptionsError, match="compression must be 'zstd' or None, not "
    ) as info:
        check_compression(compression)

    assert repr(compression) in str(info.value)


def test_says_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)

    check_compression(None)
    with pytest.raises(OptionsError, match=r"pip install 'aioinformer\[zstd\]'"):
        check_compression("zstd")


def test_is_loaded_only_by_those_who_want_it() -> None:
    code = "import sys, aioinformer, aioinformer.model.compression; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())

    assert "aioinformer.model.compression" in loaded
    assert "zstandard" not in loaded


# ---------------------------------------------------------------- smaller


@EITHER
def test_what_is_packed_is_read_again(compressor: Compressor) -> None:
    for body in bodies():
        assert compressor.codec.read(packed(body, compressor), "it") == body


def test_a_dictionary_makes_bodies_of_its_kind_much_smaller() -> None:
    fresh = [it for it in bodies(count=400) if it not in bodies()]
    without = saved_by(Compressor(), fresh)

    assert len(fresh) == 200
    assert 2 < without < 5
    assert saved_by(compressor_of("web"), fresh) > 2.5 * without
    assert saved_by(compressor_of("other"), fresh) < 1.5 * without


def test_small_bodies_stay() -> None:
    body = b"x" * (LEAST_BODY - 1)

    assert compressor_of().pack(body) is None
    assert compressor_of().pack(b"") is None
    assert packed(body + b"x", compressor_of())


def test_bodies_that_become_hardly_smaller_stay() -> None:
    text = digest("some", 64) * 20
    for zeros, stays in ((b"", True), (b"0" * 50, True), (b"0" * 500, False)):
        body = os.urandom(1000) + zeros
        assert (Compressor().pack(body) is None) is stays

    assert Compressor().pack(text.encode()) is not None


def test_what_is_kept_is_no_larger_than_it_has_to_be() -> None:
    """The package's own result lies in a place for the worst case, the rest unused."""
    compressor = Compressor()
    result = b"compressed"
    compressor._compress = lambda _: result

    kept = packed(b"x" * 1000, compressor)

    assert kept == result
    assert kept is not result


# ---------------------------------------------------------------- training


def test_few_samples_make_no_dictionary() -> None:
    compressor = train(bodies()[: LEAST_SAMPLES - 1])

    assert compressor.samples == 0
    assert saved_by(compressor, bodies()) < 5
    assert train(bodies()[:LEAST_SAMPLES]).samples == LEAST_SAMPLES


def test_samples_that_are_too_small_do_not_count() -> None:
    small = [b"x" * (LEAST_BODY - 1)] * 300

    assert train([*small, *bodies()[: LEAST_SAMPLES - 1]]).samples == 0
    assert train([*small, *bodies()[:LEAST_SAMPLES]]).samples == LEAST_SAMPLES


def test_no_more_samples_are_taken_than_needed() -> None:
    assert train(bodies(count=SAMPLES + 50)).samples == SAMPLES


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([b"\x00" * LEAST_BODY] * LEAST_SAMPLES, id="equal"),
        pytest.param([bytes([n]) * 300 for n in range(LEAST_SAMPLES)], id="unlike"),
        pytest.param([os.urandom(300) for _ in range(LEAST_SAMPLES)], id="random"),
    ],
)
def test_strange_samples_do_no_harm(samples: list[bytes]) -> None:
    compressor = train(samples)

    for body in (*samples, *bodies()[:3]):
        frame = compressor.pack(body)
        assert frame is None or compressor.codec.read(frame, "it") == body


def test_what_cannot_be_learnt_from_makes_no_dictionary() -> None:
    assert _dictionary(bodies()[:5]) == b""


def test_a_large_body_is_a_sample_and_is_compressed_as_a_whole() -> None:
    large = [it + b"y" * 100_000 for it in bodies()]

    compressor = train(large)

    assert compressor.samples == len(large)
    assert compressor.codec.read(packed(large[0], compressor), "it") == large[0]


def test_share_tells_what_became_of_samples_that_were_not_learnt_from() -> None:
    compressor = compressor_of()
    fresh = [it for it in bodies(count=400) if it not in bodies()]
    share = 1 / saved_by(compressor, fresh)

    assert share / 1.3 < compressor.share < share * 1.3
    assert 0.2 < train(bodies()[:10]).share < 0.7
    assert train([os.urandom(1000)]).share == 1.0
    assert train([]).share == 1.0


# ---------------------------------------------------------------- what cannot be read


def test_no_dictionary_is_ever_taken_for_another() -> None:
    """Neither of another kind, nor made of the same samples, nor none."""
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
def test_damage_is_one_clear_error(compressor: Compressor, damage: object) -> None:
    assert callable(damage)
    body = packed(bodies()[0], compressor)

    with pytest.raises(
        InternalError, match=r"^object 'a/b': cannot decompress its body"
    ) as e:
        compressor.codec.read(damage(body), "object 'a/b'")

    assert e.value.__cause__ is not None
    assert compressor.codec.read(body, "it") == bodies()[0]


@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_no_flipped_bit_leads_to_another_body(place: int, bit: int) -> None:
    compressor = compressor_of()
    damaged = bytearray(packed(bodies()[0], compressor))
    # Not in the head, which says how much memory the body will take.
    damaged[12 + place % (len(damaged) - 12)] ^= 1 << bit

    with pytest.raises(InternalError):
        compressor.codec.read(bytes(damaged), "it")


# ---------------------------------------------------------------- threads


@pytest.mark.realtime
def test_bodies_are_read_in_many_threads_at_once() -> None:
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


def test_one_thread_needs_one_decompressor() -> None:
    compressor = train(bodies())
    for body in bodies():
        compressor.codec.read(packed(body, compressor), "it")

    assert len(compressor.codec._idle) == 1


def test_what_failed_is_not_used_again() -> None:
    codec = Codec()
    (first,) = codec._idle

    with pytest.raises(InternalError):
        codec.read(b"nonsense", "it")

    assert first not in codec._idle
    assert codec.read(packed(bodies()[0], Compressor()), "it") == bodies()[0]
