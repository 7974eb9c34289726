"""Prepared bytes in protobuf, made of JSON by the encoders of kube-apiserver.

The program of client-go has them. It runs while the server starts, before any measurement.
"""

from __future__ import annotations

import subprocess

from bench.builds import built

__all__ = ["as_protobuf"]

SIZE = 4
"""Bytes of each number in the output of the program."""


def as_protobuf(lines: list[bytes]) -> list[list[bytes]]:
    """Encode JSON as protobuf.

    Args:
        lines: Lists of pods and events of a watch, each with a line feed at its end.

    Returns:
        What kube-apiserver writes for each line, call by call.

    Raises:
        BuildFailed: The program cannot be built.
        CalledProcessError: The program failed.
    """
    command = [str(built("client_go")), "encode"]
    done = subprocess.run(
        command, input=b"".join(lines), stdout=subprocess.PIPE, check=True
    )
    output, position = memoryview(done.stdout), 0

    def number() -> int:
        nonlocal position
        position += SIZE
        return int.from_bytes(output[position - SIZE : position], "big")

    def taken() -> bytes:
        nonlocal position
        size = number()
        position += size
        return bytes(output[position - size : position])

    return [[taken() for _ in range(number())] for _ in lines]
