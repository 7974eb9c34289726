"""Formats: how what is stored is shown to who asked, object by object.

One format serves one request: a watch's may remember what it has shown.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import orjson

from aioinformer.tables import layout_of
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.schema.field_order import order_of
from aioinformer_apiserver.serialization.encoders import encoder_of, indented
from aioinformer_apiserver.serialization.negotiation import (
    Choice,
    check_route,
    chosen,
    chosen_plainly,
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
    from collections.abc import Iterable, Iterator, Mapping

    from aioinformer.errors import ApiError
    from aioinformer.tables import Layout
    from aioinformer_apiserver.storage.kinds import Kind
    from aioinformer_apiserver.storage.storage import Change, Stored

__all__ = ["Format", "MetadataOnly", "Table", "Whole", "format_of", "shown_plainly"]

# The verbs of paths that are also watched.
_STREAMING = frozenset({"list", "watch"})
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_INCLUDED = frozenset({"", "None", "Metadata", "Object"})


class Format(Protocol):
    """Shows objects of one kind in one way."""

    @property
    def content_type(self) -> str:
        """The media type of the answers."""

    def object(self, stored: Stored) -> bytes:
        """Show one object.

        Raises:
            ApiError: If one object cannot be shown in this way.
        """

    def list(
        self, metadata: dict[str, Any], objects: Iterable[Stored]
    ) -> Iterator[bytes]:
        """Show a list in pieces, without ever holding the whole.

        Args:
            metadata: Of the list: `resourceVersion` and, on a page, `continue`.
            objects: In its order.

        Raises:
            ApiError: If a list cannot be shown in this way.
        """

    def initial(self, stored: Stored) -> bytes:
        """Show an object that a watch begins with, as its line."""

    def change(self, event: str, change: Change) -> bytes:
        """Show a change, as a line of a watch."""

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Show how far a watch has come, as its line."""


class Whole:
    """Shows objects as they are stored: the format that every client understands."""

    def __init__(self, kind: Kind, choice: Choice | None = None) -> None:
        self._kind = kind
        self._encoder = encoder_of(choice or Choice())
        self.content_type = self._encoder.media

    def object(self, stored: Stored) -> bytes:
        """Show one object."""
        return self._encoder.document(stored.raw)

    def list(
        self, metadata: dict[str, Any], objects: Iterable[Stored]
    ) -> Iterator[bytes]:
        """Show a list, in pieces."""
        items = (list_item(self._kind, stored.raw) for stored in objects)
        return self._encoder.listing(list_frame(self._kind, metadata), "items", items)

    def initial(self, stored: Stored) -> bytes:
        """Show an object that a watch begins with."""
        return event_line("ADDED", stored.raw)

    def change(self, event: str, change: Change) -> bytes:
        """Show a change; encoded once for all watches."""
        return change.line(event)

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Show how far a watch has come."""
        raw = bookmark(self._kind, version, initial_events_end=initial_events_end)
        return event_line("BOOKMARK", raw)


class MetadataOnly:
    """Shows the metadata of objects, as PartialObjectMetadata or a list of these."""

    def __init__(self, kind: Kind, choice: Choice) -> None:
        self._kind = kind
        self._encoder = encoder_of(choice)
        self._asked = choice.transform
        self._api_version = f"meta.k8s.io/{choice.version}"
        self._partial = _Partial(kind, choice.version)
        self._form = f"metadata {choice.version}"
        self.content_type = self._encoder.media

    def object(self, stored: Stored) -> bytes:
        """Show one object.

        Raises:
            ApiError: 406, if a list was asked for.
        """
        self.check()
        return self._encoder.document(self._partial(stored.raw))

    def list(
        self, metadata: dict[str, Any], objects: Iterable[Stored]
    ) -> Iterator[bytes]:
        """Show a list, in pieces.

        Raises:
            ApiError: 406, if a single object was asked for.
        """
        if self._asked == "PartialObjectMetadata":
            raise self._mismatch(f"a list (*{_go_type(self._kind)}List)")

        frame = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": self._api_version,
            "metadata": metadata,
            "items": [],
        }
        items = (self._partial(stored.raw) for stored in objects)
        first = next(items, None)
        if first is None:
            # A list made from nothing is no list at all, in Go.
            return iter([self._encoder.document(plain({**frame, "items": None}))])

        return self._encoder.listing(plain(frame), "items", chain([first], items))

    def initial(self, stored: Stored) -> bytes:
        """Show an object that a watch begins with."""
        return event_line("ADDED", self._partial(stored.raw))

    def change(self, event: str, change: Change) -> bytes:
        """Show a change; encoded once for all watches of this format."""
        return change.shown(
            event, self._form, lambda it: event_line(event, self._partial(it.raw))
        )

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Show how far a watch has come."""
        raw = bookmark(self._kind, version, initial_events_end=initial_events_end)
        return event_line("BOOKMARK", self._partial(raw))

    def check(self) -> None:
        """Refuse to show objects one by one to who asked for a list of them.

        Raises:
            ApiError: 406, if a list was asked for.
        """
        if self._asked == "PartialObjectMetadataList":
            raise self._mismatch(f"not a list (*{_go_type(self._kind)})")

    def _mismatch(self, problem: str) -> ApiError:
        message = f"you requested {self._asked}, but the requested object is {problem}"
        return statuses.failure(406, "NotAcceptable", message)


class Table:
    """Shows objects as rows of a table that is made for people.

    Args:
        kind: Of the objects.
        choice: The version of the table, and how it is written.
        include: What stands beside the cells of a row: `Metadata`, the whole `Object`
            or `None`. Empty for the metadata.
    """

    def __init__(self, kind: Kind, choice: Choice, include: str = "") -> None:
        self._kind = kind
        self._encoder = encoder_of(choice)
        self._include = include or "Metadata"
        self._partial = _Partial(kind, choice.version)
        self._head = {"kind": "Table", "apiVersion": f"meta.k8s.io/{choice.version}"}
        self._layout = _layout_of(kind)
        # A watch tells the columns once, with its first event.
        self._told = False
        self.content_type = self._encoder.media

    def object(self, stored: Stored) -> bytes:
        """Show one object, as a table of one row.

        Raises:
            ApiError: 400, if `include` is nothing that can be included.
        """
        return b"".join(self.list(_version_of(stored), [stored]))

    def list(
        self, metadata: dict[str, Any], objects: Iterable[Stored]
    ) -> Iterator[bytes]:
        """Show a list, in pieces.

        Raises:
            ApiError: 400, if `include` is nothing that can be included.
        """
        self.check()
        rows = (self._row(stored.raw, stored.body()) for stored in objects)
        frame = self._frame(metadata, is_first=True)
        return self._encoder.listing(frame, "rows", rows)

    def initial(self, stored: Stored) -> bytes:
        """Show an object that a watch begins with."""
        return self._line("ADDED", stored, is_first=self._begin())

    def change(self, event: str, change: Change) -> bytes:
        """Show a change; each time anew, as it says how old the object is now."""
        return self._line(event, change.state(event), is_first=self._begin())

    def bookmark(self, version: int, *, initial_events_end: bool) -> bytes:
        """Show how far a watch has come: by a row about an object that is empty."""
        raw = bookmark(self._kind, version, initial_events_end=initial_events_end)
        frame = self._frame({"resourceVersion": str(version)}, is_first=self._begin())
        return event_line("BOOKMARK", _with_row(frame, self._row(raw, {})))

    def check(self) -> None:
        """Refuse to include what cannot be.

        Raises:
            ApiError: 400, if `include` is nothing that can be included.
        """
        if self._include not in _INCLUDED:
            problem = f"includeObject: Invalid value: {json.dumps(self._include)}: "
            problem += "must be 'Metadata', 'Object', 'None', or empty"
            message = f"Unable to convert to Table as requested: {problem}"
            raise statuses.bad_request(message)

    def _begin(self) -> bool:
        """Say whether nothing has been shown yet; from now on something has."""
        is_first, self._told = not self._told, True
        return is_first

    def _line(self, event: str, stored: Stored, *, is_first: bool) -> bytes:
        frame = self._frame(_version_of(stored), is_first=is_first)
        return event_line(event, _with_row(frame, self._row(stored.raw, stored.body())))

    def _frame(self, metadata: dict[str, Any], *, is_first: bool) -> bytes:
        """Write a table without rows; only the first one of a watch has columns."""
        columns = self._layout.definitions() if is_first else None
        head = {**self._head, "metadata": metadata, "columnDefinitions": columns}
        return plain({**head, "rows": []})

    def _row(self, raw: bytes, body: Mapping[str, Any]) -> bytes:
        layout = self._layout
        row: dict[str, Any] = {"cells": layout.cells(body, datetime.now(tz=UTC))}
        conditions = layout.conditions(body) if layout.conditions else []
        if conditions:
            row["conditions"] = conditions

        return plain(row)[:-1] + b',"object":' + self._included(raw) + b"}"

    def _included(self, raw: bytes) -> bytes:
        if self._include == "None":
            return b"null"

        return raw if self._include == "Object" else self._partial(raw)


def format_of(
    kind: Kind,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    *,
    verb: str = "get",
) -> Format:
    """Choose the first format that the request accepts and this server can write.

    Args:
        kind: What is asked for.
        headers: Of the request; `Accept` decides.
        query: Of the request: `pretty`, and what a table includes.
        verb: What is asked; a list may be answered in other formats than a watch.

    Raises:
        ApiError: 406, if there is none, or if a watch asks for lists; 400, if a watch
            asks a table to include what cannot be included.
    """
    if kind.typed:
        check_route(headers.get("Accept") or "", streams=verb in _STREAMING)

    choice = chosen(headers, query, watch=verb == "watch")
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


def shown_plainly(
    document: Mapping[str, Any], headers: Mapping[str, str], query: Mapping[str, str]
) -> tuple[str, bytes]:
    """Show what is no stored object, such as a Status, as the request would have it.

    Returns:
        The media type, and the body. Who accepts nothing that can be written is
        answered in indented JSON all the same.
    """
    raw = plain(document)
    choice = chosen_plainly(headers, query)
    if choice is None:
        return "application/json", indented(raw)

    encoder = encoder_of(choice)
    return encoder.media, encoder.document(raw)


class _Object(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_read_object = msgspec.json.Decoder(_Object).decode


class _Partial:
    """Makes a PartialObjectMetadata of an encoded object."""

    def __init__(self, kind: Kind, version: str) -> None:
        api_version = f"meta.k8s.io/{version}"
        head = {"kind": "PartialObjectMetadata", "apiVersion": api_version}
        self._head = plain(head)[:-1] + b',"metadata":'
        self._typed = kind.typed

    def __call__(self, raw: bytes) -> bytes:
        metadata = bytes(_read_object(raw).metadata)
        if not self._typed:
            # The keys of custom objects are sorted, those of metadata alone are not.
            metadata = plain(order_of(_METADATA)(orjson.loads(metadata)))

        return self._head + metadata + b"}"


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


def _version_of(stored: Stored) -> dict[str, Any]:
    """Return the metadata of a table about one object; what is not stored has no version."""
    return {"resourceVersion": str(stored.version)} if stored.version else {}


def _go_type(kind: Kind) -> str:
    """Name the type that holds such objects within a real server."""
    if not kind.typed:
        return "unstructured.Unstructured"

    resource = kind.resource
    package = resource.group.partition(".")[0] or "core"
    return f"{package}.{resource.kind}"
