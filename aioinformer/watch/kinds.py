"""`KindCheck`: whether an object is of the kind and API version that was asked for.

A server that is asked for pods sends pods; what stands between may not: an answer meant
for `kubectl get` (a Table), another version out of a cache, a proxy that mixes answers
up. Its versions and names are not those of the objects that are followed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from aioinformer.errors import DecodeError

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

__all__ = ["KindCheck", "type_of"]


class _TypeMeta(msgspec.Struct, gc=False, rename="camel"):
    kind: str | None = None
    api_version: str | None = None


_decode: Final = msgspec.json.Decoder(_TypeMeta).decode
_decode_text: Final = msgspec.json.Decoder(str).decode

# Both in front, in either order, and behind them a field or the end of the object.
_TEXT: Final = rb'("[^"\\]*")'
_FRONT: Final = re.compile(
    rb'\s*\{\s*(?:"kind"\s*:\s*%(text)s\s*,\s*"apiVersion"\s*:\s*%(text)s'
    rb'|"apiVersion"\s*:\s*%(text)s\s*,\s*"kind"\s*:\s*%(text)s)\s*[,}]'
    % {b"text": _TEXT}
)


def type_of(body: bytes) -> tuple[str, str]:
    """Read kind and `apiVersion` of an object; what is absent or null is empty.

    Args:
        body: The JSON of a whole object. If the two stand in front, as they nearly
            always do, nothing else is looked at.

    Raises:
        DecodeError: If they stand elsewhere in what cannot be read, or are no texts.
    """
    try:
        front = _FRONT.match(body)
        if front is None:
            found = _decode(body)
            return found.kind or "", found.api_version or ""

        kind, api_version = front[1] or front[4], front[2] or front[3]
        return _decode_text(kind), _decode_text(api_version)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DecodeError(f"an object whose kind cannot be read: {exc}") from exc


class KindCheck:
    """Compares objects with the kind and API version of a resource.

    What an object does not say is taken to be right: in lists of built-in kinds no
    object says it, and of servers made for tests some say it nowhere. A Table is never
    right, also where the resource does not know its kind.

    Args:
        resource: What was asked for; without a kind every kind will do.
    """

    __slots__ = ("_api_version", "_kind", "beginnings")

    def __init__(self, resource: Resource) -> None:
        self._kind = resource.kind
        self._api_version = resource.api_version
        names = msgspec.json.encode(self._kind), msgspec.json.encode(self._api_version)
        self.beginnings: tuple[bytes, ...] = ()
        """How servers begin the objects that pass: those of built-in kinds, and custom
        ones. Empty if the kind is not known."""
        if self._kind:
            self.beginnings = (
                b'{"kind":%s,"apiVersion":%s,' % names,
                b'{"apiVersion":%s,"kind":%s,' % names[::-1],
            )

    def passes(self, body: bytes) -> bool:
        """True if an object is of the right type, as far as it says so.

        Raises:
            DecodeError: If that cannot be read.
        """
        return body.startswith(self.beginnings) or self.allows(*type_of(body))

    def allows(self, kind: str, api_version: str) -> bool:
        """True if this is the right type; either may be empty."""
        if not self._kind:
            return not (kind == "Table" and api_version.startswith("meta.k8s.io/"))

        return kind in {"", self._kind} and api_version in {"", self._api_version}
