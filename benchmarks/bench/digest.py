"""Digests: one number that shows whether client and server hold the same state."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["digest", "digest_of_lines", "digest_of_server", "line"]


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    resource_version: str = msgspec.field(name="resourceVersion")


class _Spec(msgspec.Struct, frozen=True):
    node: str = msgspec.field(default="", name="nodeName")


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


def digest(pods: Iterable[bytes]) -> str:
    """Return the digest of pods in JSON."""
    decode = msgspec.json.Decoder(_Pod).decode
    return digest_of_lines(
        line(
            pod.metadata.namespace,
            pod.metadata.name,
            pod.metadata.uid,
            pod.metadata.resource_version,
            pod.spec.node,
            pod.status.phase,
        )
        for pod in map(decode, pods)
    )


def line(*values: str) -> str:
    """Return the compared fields: namespace, name, uid, version, nodeName, phase."""
    return " ".join(values)


def digest_of_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of the lines, sorted by their bytes, each with a line feed."""
    ordered = sorted(it.encode() for it in lines)
    return hashlib.sha256(b"".join(it + b"\n" for it in ordered)).hexdigest()


def digest_of_server(url: str) -> str:
    """Return the digest of the current contents of a canned server."""
    with urllib.request.urlopen(f"{url}/bench/state") as response:
        state: dict[str, str] = json.load(response)
        return state["digest"]
