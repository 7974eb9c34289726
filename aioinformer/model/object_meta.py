"""Fast decoding of the few metadata fields that informers need.

A pod of 7 KB is mostly spec, status and managedFields. Servers write the fields needed
here (name, namespace, uid, version, labels) before those, so only the front of the body
is
decoded: 1.3 microseconds instead of 4.5. The cut is exact. If it does not apply, the
whole body is decoded.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import truncate_nesting

__all__ = [
    "LabelTable",
    "ObjectMeta",
    "read_identity",
    "read_object_meta",
    "version_number",
]


class ObjectMeta(msgspec.Struct, gc=False, rename="camel"):
    """Identity, version and undecoded labels of one object; empty where absent."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: msgspec.Raw = msgspec.Raw()


class _Complete(ObjectMeta, kw_only=True):
    """Metadata with all fields except the namespace."""

    name: str
    uid: str
    resource_version: str
    labels: msgspec.Raw


class _Namespaced(_Complete, kw_only=True):
    namespace: str


class _Object(msgspec.Struct, gc=False):
    metadata: ObjectMeta | None = None


class _AnyObject(msgspec.Struct, gc=False):
    metadata: dict[str, Any] | None = None


class _Front(msgspec.Struct, gc=False):
    metadata: _Complete


class _NamespacedFront(msgspec.Struct, gc=False):
    metadata: _Namespaced


_decode: Final = msgspec.json.Decoder(_Object).decode


_decode_any: Final = msgspec.json.Decoder(_AnyObject).decode


_decode_front: Final = msgspec.json.Decoder(_Front).decode


_decode_namespaced: Final = msgspec.json.Decoder(_NamespacedFront).decode


_decode_labels: Final = msgspec.json.Decoder(dict[str, str | None] | None).decode


_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# Marks where bodies are cut, to be closed again. Why a cut is exact: inside a JSON
# string a quote is written \", so a quote after a comma and before a letter can only
# open a key. And the front decodes with exactly these closing braces only if the cut
# was made at that depth: within an object's metadata, or before the brace that ends
# them.
_WITHIN: Final = b',"managedFields":['


_BEHIND: Final = (b'},"spec":', b'},"data":')


_CLOSING: Final = b"}}"


# Metadata may have 256 KiB of annotations. A mark further back does not belong to the
# metadata, and copying what precedes it gains nothing.
_FRONT_LIMIT: Final = 1024 * 1024


def read_object_meta(body: bytes, *, namespaced: bool = True) -> ObjectMeta:
    """Decode the metadata of a JSON object.

    The rest of the body is not validated: a broken body is only detected when it is
    decoded. It also works for objects that nest too deeply for a decoder.

    Args:
        body: Whole object.
        namespaced: False if its kind is cluster-scoped, so that no namespace is
            expected.

    Raises:
        DecodeError: If it is not JSON, or its metadata has the wrong shape.
    """
    cut = body.find(_WITHIN, 0, _FRONT_LIMIT)
    if cut > 0:
        decode = _decode_namespaced if namespaced else _decode_front
        try:
            return decode(body[:cut] + _CLOSING).metadata
        except _UNREADABLE:
            pass  # a missing field may come after the managed fields

    for mark in _BEHIND:
        cut = body.find(mark, 0, _FRONT_LIMIT)
        if cut > 0:
            try:
                head = _decode(body[:cut] + _CLOSING).metadata
            except _UNREADABLE:
                continue

            if head is not None:
                return head  # fields missing there are absent

    try:
        try:
            return _decode(body).metadata or ObjectMeta()
        except RecursionError:
            return _decode(truncate_nesting(body)).metadata or ObjectMeta()

    except (*_UNREADABLE, DecodeError) as exc:
        raise DecodeError(f"cannot read an object: {exc}") from exc


def read_identity(body: bytes) -> ObjectMeta:
    """Read name, namespace, uid and version of an object with malformed metadata.

    Other metadata may have any shape. A uid or version of the wrong type is absent.

    Raises:
        DecodeError: If it is not JSON, or has no readable name and namespace.
    """
    try:
        try:
            metadata = _decode_any(body).metadata or {}
        except RecursionError:
            metadata = _decode_any(truncate_nesting(body)).metadata or {}

    except (*_UNREADABLE, DecodeError) as exc:
        raise DecodeError(f"cannot read an object: {exc}") from exc

    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not (name and isinstance(name, str) and isinstance(namespace, str | None)):
        raise DecodeError("object has no readable name")

    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    return ObjectMeta(
        name,
        namespace,
        uid if isinstance(uid, str) else None,
        version if isinstance(version, str) else None,
    )


class LabelTable:
    """Interned label sets: objects with equal labels share one dict.

    This saves 0.8 KB and most of the decoding for each object. The table is bounded:
    when it has `limit` sets, it starts over (objects keep their dicts).
    """

    __slots__ = ("_limit", "_sets", "_strings")

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._sets: dict[bytes, dict[str, str]] = {}
        self._strings: dict[str, str] = {}

    def get(self, raw: msgspec.Raw | bytes) -> dict[str, str]:
        """Return the decoded labels, a shared dict that must not be changed.

        Null values are left out.

        Raises:
            DecodeError: If they are not an object of strings.
        """
        text = bytes(raw)
        found = self._sets.get(text)
        if found is None:
            found = self._decode(text)
            if len(self._sets) >= self._limit:
                self._sets.clear()
                self._strings.clear()

            self._sets[text] = found

        return found

    def _decode(self, text: bytes) -> dict[str, str]:
        if not text:
            return {}

        try:
            labels = _decode_labels(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise DecodeError(f"cannot read labels: {exc}") from exc

        share = self._strings.setdefault
        return {
            share(name, name): share(value, value)
            for name, value in (labels or {}).items()
            if value is not None
        }


# Versions are unsigned 64-bit numbers, with at most 20 digits. Longer ones are not
# converted: `int()` refuses to read more than some thousand digits.
LONGEST_VERSION = 20


def version_number(version: str) -> int:
    """Return a decimal resource version as a number; -1 for others, which have no order."""
    if len(version) <= LONGEST_VERSION and version.isdecimal():
        return int(version)

    return -1
