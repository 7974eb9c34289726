"""Decoding of watch streams and list bodies into objects.

Only the head of each object is parsed. Its body stays JSON, copied out of the network's
buffer: otherwise every object would keep its buffer alive.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import check_json, json_field, truncate_nesting
from aioinformer.model.object_meta import LabelTable, read_identity, read_object_meta
from aioinformer.model.objects import METADATA_KIND, KubeObject
from aioinformer.model.resource import Resource
from aioinformer.model.resources import lookup
from aioinformer.model.views import ObjectContext
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.framing import ItemFramer, LineFramer, prove, split_deep
from aioinformer.watch.kinds import KindCheck, has_sure_borders, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LIST_OF_METADATA",
    "WATCH_OF_METADATA",
    "Decoder",
    "ListSplitter",
    "MetadataDecoder",
    "MetadataKinds",
    "ObjectDecoder",
    "StreamDecoder",
    "without_managed_fields",
]


class Decoder(Protocol):
    """Decoder of the complete JSON of one object."""

    kinds: KindCheck
    """Check of the requested kind. Other objects are not decoded."""

    def decode(self, body: bytes) -> KubeObject:
        """Decode one object; `body` is kept, so it must not refer to a larger buffer.

        Raises:
            DecodeError: If it cannot be read.
        """

    def identify(self, body: bytes) -> KubeObject:
        """Read the key, uid and version of an object that `decode` cannot read.

        Raises:
            DecodeError: If its key cannot be read.
        """


class ObjectDecoder:
    """Decoder of the objects of one informer, which share labels and decoded bodies."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.kinds: KindCheck = KindCheck(resource)
        self._namespaced = resource.namespaced
        self._labels = LabelTable()
        self._context = ObjectContext()

    def decode(self, body: bytes) -> KubeObject:
        """Decode one object; `body` is kept, so it must not refer to a larger buffer.

        An object without a name has an empty key.

        Raises:
            DecodeError: If it is not JSON, or its metadata has the wrong shape.
        """
        head = read_object_meta(body, namespaced=self._namespaced)
        name, namespace = head.name or "", head.namespace
        return KubeObject(
            body,
            f"{namespace}/{name}" if namespace and name else name,
            head.uid or "",
            head.resource_version or "",
            self._labels.get(head.labels),
            self._context,
        )

    def identify(self, body: bytes) -> KubeObject:
        """Read the key, uid and version of an object that `decode` cannot read.

        Raises:
            DecodeError: If it is not JSON, or its key cannot be read.
        """
        head = read_identity(body)
        name, namespace = head.name or "", head.namespace
        return KubeObject(
            body,
            f"{namespace}/{name}" if namespace else name,
            head.uid or "",
            head.resource_version or "",
            {},
            self._context,
        )


# ---------------------------------------------------------------- watch streams


class _Line(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


_decode_line: Final = msgspec.json.Decoder(_Line).decode

_is_blank: Final = re.compile(rb"\s*\Z").match


def _decode_any_line(text: bytes | memoryview) -> _Line:
    """Decode a line, however deep it nests."""
    try:
        return _decode_line(text)
    except RecursionError:
        text = bytes(text)
        line = _decode_line(truncate_nesting(text))
        line.object = msgspec.Raw(json_field(text, "object"))
        return line


class _Front(NamedTuple):
    """First bytes of lines of one type, as servers write them today."""

    kind: EventType
    text: bytes
    checked: tuple[bytes, ...]
    """`text` with the first bytes of objects that need no other check."""


# Fronts are found by the first letter of the type.
_LETTER: Final = len(b'{"type":"')

_NO_FRONT: Final = _Front(EventType.ERROR, b"\n", ())  # matches no line


def _fronts(kinds: KindCheck) -> dict[int, _Front]:
    fronts = {}
    for kind in EventType:
        text = b'{"type":"%s","object":' % kind.value.encode()
        checked = tuple(text + beginning for beginning in kinds.beginnings)
        if kind is EventType.ERROR:
            checked = (text,)  # a Status, of whatever resource

        fronts[ord(kind.value[0])] = _Front(kind, text, checked)

    return fronts


class StreamDecoder:
    """Decoder of a watch stream, in chunks of any size, into events.

    In a line as servers write it today, only the needed fields are checked to be JSON.
    A malformed body is only detected when it is read. The last line of a stream that
    ends without a newline is checked, as it may be cut off.

    An object that nests too deeply for a decoder is like any other; reading its body
    raises a `DecodeError`. A DELETED event needs only a readable key. Without one it
    ends the watch, so that a relist finds the deletion.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._fronts = _fronts(decoder.kinds)
        self._lines = LineFramer()
        self.skipped: int = 0
        """Events left out so far: of an unknown type, of another kind or API version
        than requested, or with an unreadable object."""
        self.failure: DecodeError | None = None
        """Error that the next call raises: a line is not an event. The events before it
        were returned. Nothing after it is decoded."""

    def feed(self, chunk: bytes) -> list[WatchEvent]:
        """Take the next bytes; return the events that are complete, in order.

        Raises:
            DecodeError: If a line is not the JSON of an event. Events before it in the
                same bytes are returned first: see `failure`.
        """
        if self.failure is not None:
            raise self.failure

        lines = self._lines
        data = chunk
        if lines.parts or not chunk.endswith(b"\n"):
            data = lines.feed(chunk)

        events: list[WatchEvent] = []
        start = 0
        try:
            while start < len(data):
                end = data.find(b"\n", start)
                if end > start:
                    self._decode(data, start, end, events)

                start = end + 1

        except DecodeError as exc:
            self.failure = exc
            if not events:
                raise

        return events

    def finish(self) -> list[WatchEvent]:
        """Return the last events of a stream that has ended.

        Raises:
            DecodeError: If the last line was cut off, or an earlier one was not an
                event.
        """
        if self.failure is not None:
            raise self.failure

        events: list[WatchEvent] = []
        self._decode_general(self._lines.rest(), events)
        return events

    def _decode(
        self, data: bytes, start: int, end: int, events: list[WatchEvent]
    ) -> None:
        """Decode the line from `start` to `end`, and append its event."""
        letter = data[start + _LETTER] if end - start > _LETTER else 0
        kind, front, checked = self._fronts.get(letter, _NO_FRONT)
        sure = data.startswith(checked, start)
        if (sure or data.startswith(front, start)) and data.endswith(b"}}", start, end):
            body = data[start + len(front) : end - 1]
            try:
                if not sure and not self._decoder.kinds.passes(body):
                    self.skipped += 1
                    return

                item = self._decoder.decode(body)
                if item.key:
                    events.append(WatchEvent(kind, item))
                else:
                    self._append_nameless(kind, item, events)
            except DecodeError:
                pass  # not written as expected: decode it in the general way
            else:
                return

        self._decode_general(memoryview(data)[start:end], events)

    def _decode_general(
        self, text: bytes | memoryview, events: list[WatchEvent]
    ) -> None:
        """Decode a line whose fields may have any order."""
        if _is_blank(text):
            return  # an empty line keeps a connection alive

        try:
            line = _decode_any_line(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise DecodeError(f"cannot read a watch event: {exc}") from exc

        if line.type not in EventType.__members__:
            self.skipped += 1
            return

        kind, body = EventType(line.type), bytes(line.object)
        decoder = self._decoder
        try:
            if kind is EventType.ERROR or decoder.kinds.passes(body):
                item = decoder.decode(body)
                if item.key:
                    events.append(WatchEvent(kind, item))
                else:
                    self._append_nameless(kind, item, events)
            else:
                self.skipped += 1
        except DecodeError:
            if kind is EventType.ERROR:
                raise  # if it were left out, the watch would seem to end cleanly

            # If a deletion were left out, the object would stay in every cache.
            if kind is EventType.DELETED and decoder.kinds.passes(body):
                events.append(WatchEvent(kind, decoder.identify(body)))
            else:
                self.skipped += 1

    def _append_nameless(
        self, kind: EventType, item: KubeObject, events: list[WatchEvent]
    ) -> None:
        if kind is EventType.ERROR or kind is EventType.BOOKMARK:
            events.append(WatchEvent(kind, item))
        elif kind is EventType.DELETED:
            raise DecodeError("DELETED event has an object without a name")
        else:
            self.skipped += 1


# ---------------------------------------------------------------- list bodies


class _ShardInfo(msgspec.Struct, gc=False):
    selector: str | None = None


class _ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str | None = None
    continue_token: str | None = msgspec.field(default=None, name="continue")
    shard_info: _ShardInfo | None = None


class _Envelope(msgspec.Struct, gc=False, rename="camel"):
    kind: str | None = None
    api_version: str | None = None
    metadata: _ListMeta | None = None
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


_decode_envelope: Final = msgspec.json.Decoder(_Envelope).decode

_ITEMS: Final = re.compile(rb'"items"\s*:\s*\[')

_TYPED: Final = re.compile(rb'\{\s*"(?:apiVersion|kind)"\s*:')


# Longest start of the items that may be split between two chunks.
_ITEMS_REACH: Final = 64


# The head of a list (kind, version, token) is below 1 KiB. If no items begin in this
# much, the body is something else, or has its fields in an unusual order. Then it is
# decoded as a whole once it is complete.
_HEAD_LIMIT: Final = 64 * 1024


class ListSplitter:
    """Decoder of a list body, in chunks of any size, into objects as they arrive.

    Items of built-in kinds have no `apiVersion` and `kind` in lists. They are added, so
    that a listed object has the same fields as a watched one.

    A body without the kind of a list, or without metadata, is refused: it could be any
    response, and an empty one would mean that no object exists. Lists of built-in kinds
    need a resource version, too; those of aggregated APIs (`metrics.k8s.io`) have none.

    A list without an object means that it was deleted. So the key of an unreadable item
    is in `unreadable`, and an item without a readable key fails the list.
    """

    def __init__(self, decoder: ObjectDecoder) -> None:
        self._decoder = decoder
        self._head: bytearray | None = bytearray()
        self._items = ItemFramer()
        self._prefix = b""
        self._kind = decoder.resource.kind
        self._api_version = decoder.resource.api_version
        # Fields of the list itself, as far as they were read.
        self._has_kind = False
        self._has_metadata = False
        self.resource_version: str = ""
        """Version of the list. Servers write it before or after the items."""
        self.continue_token: str = ""
        """Token of the next page; empty on the last one."""
        self.shard_selector: str = ""
        """Selector by which the server has filtered the list; empty if it did not."""
        self.skipped: int = 0
        """Items left out so far: unreadable, or of another kind or API version."""
        self.unreadable: list[str] = []
        """Keys of the unreadable items of this kind."""

    def feed(self, chunk: bytes | memoryview) -> list[KubeObject]:
        """Take the next bytes; return the objects that are complete, in order.

        Raises:
            DecodeError: If it is not the JSON of a list of this kind.
        """
        if self._head is not None:
            chunk = self._read_head(self._head, chunk)

        return self._objects(self._items.feed(chunk))

    def finish(self) -> list[KubeObject]:
        """Return the last objects of a body that has ended.

        Raises:
            DecodeError: If it was cut off, or is not a list of this kind.
        """
        if self._head is not None:
            envelope = _decode_body(bytes(self._head))
            if envelope.items is msgspec.UNSET:
                raise DecodeError(f"not a list: {envelope.kind or 'no kind'}")
        else:
            envelope = _decode_rest(self._items.rest())

        self._note(envelope)
        self._check_head()
        return self._objects(map(memoryview, envelope.items or ()))

    def _read_head(self, head: bytearray, chunk: bytes | memoryview) -> bytes:
        """Look for the start of the items; return the bytes after it."""
        looked_at = len(head)
        head += chunk
        if looked_at > _HEAD_LIMIT:
            return b""

        start = max(looked_at - _ITEMS_REACH, 0)
        for mark in _ITEMS.finditer(head, start, _HEAD_LIMIT):
            cut = mark.end()
            if cut > looked_at and (envelope := _closed_at(head, cut)) is not None:
                self._note(envelope)
                self._head = None
                sure = has_sure_borders(self._api_version, self._kind)
                self._items = ItemFramer(sure=sure)
                return bytes(memoryview(head)[cut:])

        return b""

    def _note(self, envelope: _Envelope) -> None:
        """Take kind, version and token from the fields before or after the items."""
        kind, version = envelope.kind or "", envelope.api_version or ""
        listed = kind.removesuffix("List")
        # A "List" has no kind of its own. Its items have one.
        if listed:
            if not self._decoder.kinds.allows(listed, version):
                requested = self._decoder.resource
                raise DecodeError(
                    f"expected a list of {requested.api_version} {requested.kind or requested}, "
                    f"got {version} {kind}"
                )

            if listed == kind:
                raise DecodeError(f"not a list: {kind}")

            self._kind = self._kind or listed
            self._api_version = version or self._api_version

        self._has_kind |= bool(kind)
        self._prefix = b'{"apiVersion":%s,"kind":%s,' % (
            msgspec.json.encode(self._api_version),
            msgspec.json.encode(self._kind),
        )
        if envelope.metadata is not None:
            self._has_metadata = True
            self.resource_version = envelope.metadata.resource_version or ""
            self.continue_token = envelope.metadata.continue_token or ""
            if (info := envelope.metadata.shard_info) is not None:
                self.shard_selector = info.selector or ""

    def _check_head(self) -> None:
        """Check that the body was a list of this kind.

        Raises:
            DecodeError: If it could be something else.
        """
        if not self._has_kind:
            raise DecodeError("not a list: no kind")

        if not self._has_metadata:
            raise DecodeError("not a list: no metadata")

        resource = self._decoder.resource
        if not self.resource_version and lookup(resource.api_version, resource.plural):
            raise DecodeError(f"list of {resource} has no resource version")

    def _objects(self, items: Iterable[memoryview]) -> list[KubeObject]:
        """Return objects from copies of the items; add a type to those without one."""
        objects: list[KubeObject] = []
        decode, prefix, is_typed = self._decoder.decode, self._prefix, _TYPED.match
        for item in items:
            try:
                if not is_typed(item):
                    found = decode(b"".join((prefix, item[1:])))
                elif self._decoder.kinds.passes(body := bytes(item)):
                    found = decode(body)
                else:
                    self._note_foreign(body)
                    continue

            except DecodeError:
                prove(item)
                self._note_unreadable(bytes(item))
                continue

            if not found.key:
                raise DecodeError("list has an item without a name")

            objects.append(found)

        return objects

    def _note_unreadable(self, body: bytes) -> None:
        """Record the key of an unreadable object.

        Raises:
            DecodeError: If its key cannot be read either.
        """
        self.unreadable.append(self._decoder.identify(body).key)
        self.skipped += 1

    def _note_foreign(self, body: bytes) -> None:
        """Record an object of another type: one of another version exists."""
        if type_of(body)[0] == self._kind:
            self._note_unreadable(body)
        else:
            self.skipped += 1


def _closed_at(head: bytearray, cut: int) -> _Envelope | None:
    """Return the head of a list if its items start at `cut`, else None.

    The text up to `cut` is completed with closing brackets. It decodes to a list
    without items only if the bracket before `cut` is that of the items.
    """
    try:
        envelope = _decode_envelope(b"%s]}" % memoryview(head)[:cut])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

    return envelope if envelope.items == [] else None


def _decode_rest(rest: bytes) -> _Envelope:
    """Decode the last items of a list and the fields after them."""
    try:
        return _decode_envelope(b'{"items":[' + rest)
    except RecursionError:
        items, after = split_deep(rest)
        envelope = _decode_body(b'{"items":[]' + after)
        envelope.items = [msgspec.Raw(it) for it in items]
        return envelope
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"cannot read a list: {exc}") from exc


def _decode_body(body: bytes) -> _Envelope:
    try:
        return _decode_envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise DecodeError(f"cannot read a list: {exc}") from exc


_KIND: Final = METADATA_KIND

_API_VERSION: Final = "meta.k8s.io/v1"

_HEAD: Final = b'{"kind":"%s","apiVersion":"%s","metadata":' % (
    _KIND.encode(),
    _API_VERSION.encode(),
)


_AS: Final = "application/json;as={};g=meta.k8s.io;v=v1,application/json"

LIST_OF_METADATA: Final = _AS.format(f"{_KIND}List")
"""`Accept` header of a list request. As in client-go, it allows whole objects."""


WATCH_OF_METADATA: Final = _AS.format(_KIND)
"""`Accept` header of a watch request."""


def without_managed_fields(accept: str) -> str:
    """Return an `Accept` header that prefers its first type without managed fields.

    Whole JSON objects if `accept` is empty. The other types remain, for servers that
    reject the parameter.
    """
    accept = accept or "application/json"
    return f"{accept.partition(',')[0]};drop=metadata.managedFields,{accept}"


class MetadataKinds(KindCheck):
    """Check that accepts the metadata of objects, and whole objects of a resource.

    Args:
        resource: Requested resource.
    """

    __slots__ = ("_whole",)

    def __init__(self, resource: Resource) -> None:
        # The metadata does not name the type of its object.
        super().__init__(Resource.of(_API_VERSION, resource.plural, _KIND))
        self._whole = KindCheck(resource)

    def allows(self, kind: str, api_version: str) -> bool:
        """Return True if this is the right type; either may be empty."""
        return super().allows(kind, api_version) or self._whole.allows(
            kind, api_version
        )


class _Object(msgspec.Struct, gc=False):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_decode: Final = msgspec.json.Decoder(_Object).decode


class MetadataDecoder(ObjectDecoder):
    """Decoder of objects that have nothing but metadata: `PartialObjectMetadata`.

    A server that cannot omit the rest (some aggregated ones) sends whole objects. Of
    these only the metadata is kept, so the objects are the same. They are of the kind
    `PartialObjectMetadata` of `meta.k8s.io/v1`. `KubeObject.type_meta` names the type
    whose metadata they are.

    Args:
        resource: Requested resource.
    """

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self.kinds: KindCheck = MetadataKinds(resource)
        self._context = ObjectContext(resource=resource)

    def decode(self, body: bytes) -> KubeObject:
        """Decode one object as `ObjectDecoder` does; keep only its metadata.

        Raises:
            DecodeError: If it is not JSON, or its metadata has the wrong shape.
        """
        if not body.startswith(self.kinds.beginnings):
            body = _metadata_of(body)

        return super().decode(body)


def _metadata_of(body: bytes) -> bytes:
    """Return the body of an object, reduced to its metadata."""
    if type_of(body) in {(_KIND, _API_VERSION), ("Status", "v1")}:
        return body  # already metadata, or the Status at the end of a watch

    try:
        metadata: bytes | msgspec.Raw = _decode(body).metadata
    except RecursionError:
        check_json(body)
        metadata = json_field(body, "metadata") or b"{}"
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DecodeError(f"cannot read the metadata of an object: {exc}") from exc

    return b"%s%s}" % (_HEAD, metadata)
