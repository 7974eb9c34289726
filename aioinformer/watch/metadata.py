"""Objects of which nothing but the metadata is asked for: `PartialObjectMetadata`.

A server that cannot leave the rest out (some aggregated ones) sends whole objects
instead; of these the metadata alone is kept here, so that it makes no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import check_json, json_field
from aioinformer.model.objects import METADATA_KIND
from aioinformer.model.resource import Resource
from aioinformer.model.views import ObjectContext
from aioinformer.watch.decoding import ObjectDecoder
from aioinformer.watch.kinds import KindCheck, type_of

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = ["LIST_OF_METADATA", "WATCH_OF_METADATA", "MetadataDecoder", "MetadataKinds"]

_KIND: Final = METADATA_KIND
_API_VERSION: Final = "meta.k8s.io/v1"
_HEAD: Final = b'{"kind":"%s","apiVersion":"%s","metadata":' % (
    _KIND.encode(),
    _API_VERSION.encode(),
)
_AS: Final = "application/json;as={};g=meta.k8s.io;v=v1,application/json"

LIST_OF_METADATA: Final = _AS.format(f"{_KIND}List")
"""What to accept in answer to a list. As in client-go, whole objects will do."""

WATCH_OF_METADATA: Final = _AS.format(_KIND)
"""What to accept in answer to a watch."""


class MetadataKinds(KindCheck):
    """Lets the metadata of objects pass, and whole objects of a resource.

    Args:
        resource: What was asked for.
    """

    __slots__ = ("_whole",)

    def __init__(self, resource: Resource) -> None:
        # Of what the metadata is, it does not say.
        super().__init__(Resource.of(_API_VERSION, resource.plural, _KIND))
        self._whole = KindCheck(resource)

    def allows(self, kind: str, api_version: str) -> bool:
        """True if this is the right type; either may be empty."""
        return super().allows(kind, api_version) or self._whole.allows(
            kind, api_version
        )


class _Object(msgspec.Struct, gc=False):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_decode: Final = msgspec.json.Decoder(_Object).decode


class MetadataDecoder(ObjectDecoder):
    """Makes objects that have nothing but metadata, whatever the server sends.

    They are of the kind `PartialObjectMetadata` of `meta.k8s.io/v1`, as a server writes
    them. `KubeObject.type_meta` names what they are the metadata of.

    Args:
        resource: What was asked for.
    """

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self.kinds: KindCheck = MetadataKinds(resource)
        self._context = ObjectContext(resource=resource)

    def decode(self, body: bytes) -> KubeObject:
        """Decode one object, as `ObjectDecoder` does; of a whole one, the metadata.

        Raises:
            DecodeError: If it is not JSON, or its metadata has the wrong shape.
        """
        if not body.startswith(self.kinds.beginnings):
            body = _metadata_of(body)

        return super().decode(body)


def _metadata_of(body: bytes) -> bytes:
    """The body of an object without all that is no metadata."""
    if type_of(body) in {(_KIND, _API_VERSION), ("Status", "v1")}:
        return body  # what a watch ends with is no object

    try:
        metadata: bytes | msgspec.Raw = _decode(body).metadata
    except RecursionError:
        check_json(body)
        metadata = json_field(body, "metadata") or b"{}"
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"an object without readable metadata: {exc}") from exc

    return b"%s%s}" % (_HEAD, metadata)
