"""Tokens: how a client asks for the next page of a list. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any

import orjson

from aioinformer_apiserver.errors import statuses

__all__ = ["Token"]

_FORMAT = "meta.k8s.io/v1"
_ALIEN = re.compile("[^A-Za-z0-9_-]")
_MESSAGE = "invalid continue token: continue key is not valid: "


@dataclass(frozen=True, slots=True)
class Token:
    """Where the next page begins, and of which version it is.

    Attributes:
        version: As of this version; a negative one means the newest, whatever the
            pages before were.
        start: The key of the first object that may be on it, without the namespace if
            that was part of the list's path. A leading slash does not matter.
    """

    version: int
    start: str

    def encode(self) -> str:
        """Write it as the opaque text that clients carry around."""
        fields = {"v": _FORMAT, "rv": self.version, "start": self.start}
        return base64.urlsafe_b64encode(orjson.dumps(fields)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Token:
        """Read it again.

        Raises:
            ApiError: 400, if no server can have made it.
        """
        fields = _fields_of(_bytes_of(text))
        version, start = fields.get("rv", 0), fields.get("start", "")
        if type(version) is not int or not isinstance(start, str):
            raise statuses.bad_request(f"{_MESSAGE}its fields are of other types")

        if fields.get("v") != _FORMAT:
            why = "server does not recognize this encoded version "
            raise statuses.bad_request(f"{_MESSAGE}{why}{fields.get('v') or ''}")

        if not version:
            why = "incorrect encoded start resourceVersion"
            raise statuses.bad_request(f"{_MESSAGE}{why} (version {_FORMAT})")

        if not start:
            why = f"encoded start key empty (version {_FORMAT})"
            raise statuses.bad_request(f"{_MESSAGE}{why}")

        if ".." in start.split("/"):
            raise statuses.bad_request(f"{_MESSAGE}{start}")

        return cls(version, start)


def _bytes_of(text: str) -> bytes:
    """Decode base64 for URLs, which has no padding here."""
    alien = _ALIEN.search(text)
    if alien or len(text) % 4 == 1:
        at = alien.start() if alien else len(text) - 1
        why = f"illegal base64 data at input byte {at}"
        raise statuses.bad_request(f"{_MESSAGE}{why}")

    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _fields_of(raw: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise statuses.bad_request(f"{_MESSAGE}{exc}") from exc

    if fields is None:
        return {}

    if not isinstance(fields, dict):
        raise statuses.bad_request(f"{_MESSAGE}it is no JSON object")

    return fields
