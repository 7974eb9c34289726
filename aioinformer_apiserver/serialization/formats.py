"""Formats of objects in responses: whole objects, metadata or tables.

Each request has a format of its own, because that of a watch may have state.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from aioinformer import json_codec
from aioinformer.model import KubeObject, strip_managed_fields
from aioinformer.tables import layout_of
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.schema.field_order import order_of
from aioinformer_apiserver.serialization.encoders import encoder_of, indent_json
from aioinformer_apiserver.serialization.negotiation import (
    Choice,
    check_route,
    negotiate,
    negotiate_plain,
)
from aioinformer_apiserver.serialization.printer_columns import custom_layout
from aioinformer_apiserver.storage.encoding import (
    bookmark,
    event_line,
    list_frame,
    list_item,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aioinformer.errors import ApiError
    from aioinformer.tables import Layout
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Change, StoredObject

__all__ = ["Format", "MetadataOnly", "Table", "Whole", "encode_document", "format_of"]

# Verbs of paths that also support watches.
_STREAMING = frozenset({"list", "watch"})
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_INCLUDED = frozenset({"", "None", "Metadata", "Object"})


class Format(Protocol):
    """Format for objects of one kind."""

    @property
    def content_type(self) -> str:
        """Media type of the response."""

    def object(self, stored: StoredObject) -> bytes:
        """Encode one object.

        Raises:
            ApiError: If the format does not support single objects.
        """

    def list(
        self, metadata: dict[str, Any], objects: Iterable[StoredObject]
    ) -> Iterator[bytes]:
        """Encode a list in pieces.

        Args:
            metadata: Metadata of the list: `resourceVersion`, `continue` on a page, and
                `shardInfo` of shards.
            objects: Objects in order.

        Raises:
            ApiError: If the format does not support lists.
        """

    def initial(self, stored: StoredObject) -> bytes:
        """Encode an initial object of a watch, as a line."""

    def change(self, event: str, change: Change) -> bytes:
        """Encode a change, as a line of a watch."""

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Encode a bookmark, as a line of a watch."""


class Whole:
    """Format of whole objects, the default."""

    def __init__(self, kind: Kind, choice: Choice | None = None) -> None:
        choice = choice or Choice()
        self._kind = kind
        self._encoder = encoder_of(choice)
        self._raw = _raw_of(choice)
        self._form = f"whole {choice.drops_managed_fields}"
        self.content_type: str = self._encoder.media

    def object(self, stored: StoredObject) -> bytes:
        """Encode one object."""
        return self._encoder.document(self._raw(stored))

    def list(
        self, metadata: dict[str, Any], objects: Iterable[StoredObject]
    ) -> Iterator[bytes]:
        """Encode a list in pieces."""
        items = (list_item(self._kind, self._raw(stored)) for stored in objects)
        return self._encoder.listing(list_frame(self._kind, metadata), "items", items)

    def initial(self, stored: StoredObject) -> bytes:
        """Encode an initial object of a watch."""
        return event_line("ADDED", self._raw(stored))

    def change(self, event: str, change: Change) -> bytes:
        """Encode a change, once for all watches of this format."""
        return change.encode(
            event, self._form, lambda it: event_line(event, self._raw(it))
        )

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Encode a bookmark."""
        raw = bookmark(self._kind, version, initial_events_end=initial_events_end)
        return event_line("BOOKMARK", raw)


class MetadataOnly:
    """Format of metadata only: PartialObjectMetadata, or a list of them."""

    def __init__(self, kind: Kind, choice: Choice) -> None:
        self._kind = kind
        self._encoder = encoder_of(choice)
        self._requested = choice.transform
        self._api_version = f"meta.k8s.io/{choice.version}"
        self._partial = _Partial(kind, choice.version)
        self._raw = _raw_of(choice)
        self._form = f"metadata {choice.version} {choice.drops_managed_fields}"
        self.content_type: str = self._encoder.media

    def object(self, stored: StoredObject) -> bytes:
        """Encode one object.

        Raises:
            ApiError: 406 if the client requests a list.
        """
        self.check()
        return self._encoder.document(self._partial(self._raw(stored)))

    def list(
        self, metadata: dict[str, Any], objects: Iterable[StoredObject]
    ) -> Iterator[bytes]:
        """Encode a list in pieces.

        Raises:
            ApiError: 406 if the client requests a single object.
        """
        if self._requested == "PartialObjectMetadata":
            raise self._mismatch(f"a list (*{_go_type(self._kind)}List)")

        frame = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": self._api_version,
            "metadata": _without_shards(metadata),
            "items": [],
        }
        items = (self._partial(self._raw(stored)) for stored in objects)
        first = next(items, None)
        if first is None:
            # Go encodes a slice that was never allocated as null.
            return iter([self._encoder.document(plain({**frame, "items": None}))])

        return self._encoder.listing(plain(frame), "items", chain([first], items))

    def initial(self, stored: StoredObject) -> bytes:
        """Encode an initial object of a watch."""
        return event_line("ADDED", self._partial(self._raw(stored)))

    def change(self, event: str, change: Change) -> bytes:
        """Encode a change, once for all watches of this format."""
        return change.encode(
            event,
            self._form,
            lambda it: event_line(event, self._partial(self._raw(it))),
        )

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Encode a bookmark."""
        raw = bookmark(self._kind, version, initial_events_end=initial_events_end)
        return event_line("BOOKMARK", self._partial(raw))

    def check(self) -> None:
        """Check that the client accepts single objects.

        Raises:
            ApiError: 406 if the client requests a list.
        """
        if self._requested == "PartialObjectMetadataList":
            raise self._mismatch(f"not a list (*{_go_type(self._kind)})")

    def _mismatch(self, problem: str) -> ApiError:
        message = (
            f"you requested {self._requested}, but the requested object is {problem}"
        )
        return statuses.failure(406, "NotAcceptable", message)


class Table:
    """Format of tables with a row for each object.

    Args:
        kind: Kind of the objects.
        choice: Negotiated version and encoding.
        include: Object in each row: `Metadata`, the whole `Object` or `None`. Empty for
            the metadata.
    """

    def __init__(self, kind: Kind, choice: Choice, include: str = "") -> None:
        self._kind = kind
        self._encoder = encoder_of(choice)
        self._include = include or "Metadata"
        self._partial = _Partial(kind, choice.version)
        self._raw = _raw_of(choice)
        self._head = {"kind": "Table", "apiVersion": f"meta.k8s.io/{choice.version}"}
        self._layout = _layout_of(kind)
        # Only the first event of a watch has the columns.
        self._columns_sent = False
        self.content_type: str = self._encoder.media

    def object(self, stored: StoredObject) -> bytes:
        """Encode one object, as a table of one row.

        Raises:
            ApiError: 400 for an invalid `include`.
        """
        return b"".join(self.list(_version_of(stored), [stored]))

    def list(
        self, metadata: dict[str, Any], objects: Iterable[StoredObject]
    ) -> Iterator[bytes]:
        """Encode a list in pieces.

        Raises:
            ApiError: 400 for an invalid `include`.
        """
        self.check()
        rows = (self._row(self._raw(stored), stored.body()) for stored in objects)
        frame = self._frame(_without_shards(metadata), is_first=True)
        return self._encoder.listing(frame, "rows", rows)

    def initial(self, stored: StoredObject) -> bytes:
        """Encode an initial object of a watch."""
        return self._line("ADDED", stored, is_first=self._begin())

    def change(self, event: str, change: Change) -> bytes:
        """Encode a change for each watch, because it shows the current age."""
        return self._line(event, change.state(event), is_first=self._begin())

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Encode a bookmark, as a row of an empty object."""
        raw = bookmark(self._kind, version, initial_events_end=initial_events_end)
        frame = self._frame({"resourceVersion": str(version)}, is_first=self._begin())
        return event_line("BOOKMARK", _with_row(frame, self._row(raw, {})))

    def check(self) -> None:
        """Check `include`.

        Raises:
            ApiError: 400 for an invalid `include`.
        """
        if self._include not in _INCLUDED:
            problem = f"includeObject: Invalid value: {json.dumps(self._include)}: "
            problem += "must be 'Metadata', 'Object', 'None', or empty"
            message = f"Unable to convert to Table as requested: {problem}"
            raise statuses.bad_request(message)

    def _begin(self) -> bool:
        """Return True for the first call only."""
        is_first, self._columns_sent = not self._columns_sent, True
        return is_first

    def _line(self, event: str, stored: StoredObject, *, is_first: bool) -> bytes:
        frame = self._frame(_version_of(stored), is_first=is_first)
        row = self._row(self._raw(stored), stored.body())
        return event_line(event, _with_row(frame, row))

    def _frame(self, metadata: dict[str, Any], *, is_first: bool) -> bytes:
        """Encode a table without rows; only the first one of a watch has columns."""
        columns = self._layout.definitions() if is_first else None
        head = {**self._head, "metadata": metadata, "columnDefinitions": columns}
        return plain({**head, "rows": []})

    def _row(self, raw: bytes, body: Mapping[str, Any]) -> bytes:
        layout = self._layout
        row: dict[str, Any] = {"cells": layout.cells(body, datetime.now(tz=UTC))}
        conditions = layout.conditions(body) if layout.conditions else []
        if conditions:
            row["conditions"] = conditions

        return plain(row)[:-1] + b',"object":' + self._included_object(raw) + b"}"

    def _included_object(self, raw: bytes) -> bytes:
        if self._include == "None":
            return b"null"

        return raw if self._include == "Object" else self._partial(raw)


def format_of(
    kind: Kind,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    *,
    verb: str = "get",
    may_drop: bool = False,
) -> Format:
    """Choose the first format that the client accepts and the server supports.

    Args:
        kind: Kind of the objects.
        headers: Headers of the request; `Accept` decides.
        query: Query of the request: `pretty` and `includeObject`.
        verb: Verb of the request; lists and watches support different formats.
        may_drop: True to leave out managed fields on request.

    Raises:
        ApiError: 406 if there is none, or if a watch requests lists; 400 if a watch has
            an invalid `includeObject`.
    """
    if kind.typed:
        check_route(headers.get("Accept") or "", streams=verb in _STREAMING)

    choice = negotiate(headers, query, watch=verb == "watch", may_drop=may_drop)
    if not choice.transform:
        return Whole(kind, choice)

    if choice.transform != "Table":
        metadata = MetadataOnly(kind, choice)
        if verb == "watch":
            metadata.check()

        return metadata

    table = Table(kind, choice, query.get("includeObject", ""))
    if verb == "watch":
        table.check()

    return table


def encode_document(
    document: Mapping[str, Any], headers: Mapping[str, str], query: Mapping[str, str]
) -> tuple[str, bytes]:
    """Encode an object that is not stored, such as a Status, in the requested format.

    Returns:
        Media type and body. If the client accepts no supported format, the body is
        indented JSON.
    """
    raw = plain(document)
    choice = negotiate_plain(headers, query)
    if choice is None:
        return "application/json", indent_json(raw)

    encoder = encoder_of(choice)
    return encoder.media, encoder.document(raw)


class _Object(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_read_object = msgspec.json.Decoder(_Object).decode


class _Partial:
    """Converter of encoded objects to PartialObjectMetadata."""

    def __init__(self, kind: Kind, version: str) -> None:
        api_version = f"meta.k8s.io/{version}"
        head = {"kind": "PartialObjectMetadata", "apiVersion": api_version}
        self._head = plain(head)[:-1] + b',"metadata":'
        self._typed = kind.typed

    def __call__(self, raw: bytes) -> bytes:
        metadata = bytes(_read_object(raw).metadata)
        if not self._typed:
            # Custom objects have sorted keys, their metadata alone has not.
            metadata = plain(order_of(_METADATA)(json_codec.loads(metadata)))

        return self._head + metadata + b"}"


def _raw_of(choice: Choice) -> Callable[[StoredObject], bytes]:
    """Return the function that returns the JSON of an object to show."""
    return _raw_without_managed_fields if choice.drops_managed_fields else _raw


def _raw_without_managed_fields(stored: StoredObject) -> bytes:
    return strip_managed_fields(KubeObject.of(stored.raw)).raw


_raw: Callable[[StoredObject], bytes] = attrgetter("raw")


def _layout_of(kind: Kind) -> Layout:
    """Return the table layout of a kind. Other versions are converted to be printed."""
    if not kind.typed:
        return custom_layout(kind.columns)

    layout = layout_of(kind.stored)
    if kind.stored_as is None:
        return layout

    to_storage, cells = kind.to_storage, layout.cells
    return replace(layout, cells=lambda body, now: cells(to_storage(dict(body)), now))


def _with_row(frame: bytes, row: bytes) -> bytes:
    return frame.removesuffix(b"]}") + row + b"]}"


def _version_of(stored: StoredObject) -> dict[str, Any]:
    """Return the metadata of a table with one object, which may have no version."""
    return {"resourceVersion": str(stored.version)} if stored.version else {}


def _without_shards(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a list for formats in which a real server omits shards."""
    return {key: value for key, value in metadata.items() if key != "shardInfo"}


def _go_type(kind: Kind) -> str:
    """Return the Go type of such objects in a real server."""
    if not kind.typed:
        return "unstructured.Unstructured"

    resource = kind.resource
    package = resource.group.partition(".")[0] or "core"
    return f"{package}.{resource.kind}"
