"""Prepared lists are split into chunks as kube-apiserver splits them."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from bench import protobuf
from bench.wire import chunk, chunks_of, pieces_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LAST = b"0\r\n\r\n"


def sizes(*writes: bytes) -> list[int]:
    """Return the sizes of the chunks for some writes, without the last, empty one."""
    *chunks, last = chunks_of(writes)
    assert last == LAST
    return [int(it.partition(b"\r\n")[0], 16) for it in chunks]


def unchunked(response: bytes) -> bytes:
    """Return the content of a chunked response."""
    content = b""
    while response != LAST:
        size, _, rest = response.partition(b"\r\n")
        content += rest[: int(size, 16)]
        response = rest[int(size, 16) :].removeprefix(b"\r\n")

    return content


def test_pods_become_two_chunks_each() -> None:
    # As a kube-apiserver 1.36.3 has sent pods of 4,642 bytes over HTTP/1.1.
    pod, comma = b"p" * 4642, b","
    start = b"{", b'"metadata":', b"m" * 60, b'"items":['

    found = sizes(*start, pod, comma, pod, comma, pod, b"]", b"}\n")

    assert found == [2048, 2675, 2048, 2595, 2048, 2595, 3]


def test_small_writes_share_a_chunk() -> None:
    assert sizes(b"a" * 1000, b"b" * 1000, b"c" * 48) == [2048]
    assert sizes(b"a" * 1000, b"b" * 1000, b"c" * 49) == [2048, 1]
    assert sizes(b"a" * 2048) == [2048]
    assert sizes(b"a" * 5000) == [5000]
    assert sizes() == []


def test_chunks_keep_the_content() -> None:
    drawn = random.Random(1)
    writes = [
        drawn.randbytes(drawn.choice((1, 700, 2047, 2049, 9000))) for _ in range(99)
    ]

    assert unchunked(b"".join(chunks_of(writes))) == b"".join(writes)


def test_pieces_are_large_and_keep_the_content() -> None:
    parts = [chunk(b"x" * 300_000)] * 10

    pieces = list(pieces_of(parts))

    assert b"".join(pieces) == b"".join(parts)
    assert [len(it) // 2**20 for it in pieces] == [1, 1, 0]


ECHO = """\
#!{python}
import struct, sys
for line in sys.stdin.buffer:
    writes = [b"k8s", line]
    sys.stdout.buffer.write(struct.pack(">I", len(writes)))
    for it in writes:
        sys.stdout.buffer.write(struct.pack(">I", len(it)) + it)
"""


def test_encoder_returns_what_the_program_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "client_go"
    program.write_text(ECHO.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(protobuf, "built", lambda _: program)

    found = protobuf.as_protobuf([b"{}\n", b"\xc3\xa9" * 5000 + b"\n"])

    assert found == [[b"k8s", b"{}\n"], [b"k8s", b"\xc3\xa9" * 5000 + b"\n"]]
