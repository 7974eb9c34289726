"""Calls: a request as the server sees it, wherever it came from. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

import orjson

from aioinformer.model.yaml_values import decoded_yaml
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.protobuf.decoding import UnknownKindError, decoded

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Request", "query_of"]

_JSON = "application/json"
# A percent sign that begins no escape.
_MALFORMED = re.compile("%(?![0-9A-Fa-f]{2})")
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        method: Of HTTP.
        path: As it was sent, percent-encoded, without the query.
        query: Its parameters; the first value of each.
        headers: Case-insensitive.
        body: As it was sent, decompressed.
        warnings: Takes what the user should read, whatever the answer will be.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    @property
    def content_type(self) -> str:
        """The media type of the body, without parameters; JSON where none is given."""
        given = self.headers.get("Content-Type", "").partition(";")[0].strip()
        return given or _JSON

    @property
    def _format(self) -> str:
        """The media type in lower case: only the types of patches are case-sensitive."""
        return self.content_type.lower()

    def document(self) -> object:
        """Decode the body: JSON, YAML, or the binary encoding, as its type says.

        Raises:
            ApiError: 400 if it is malformed; 415 if it is of another type, or if its
                kind is never sent in the binary encoding.
        """
        if self._format == _JSON:
            return _decoded_json(self.body)

        if self._format == _PROTOBUF:
            return _decoded_protobuf(self.body)

        if self._format in _YAML:
            return _decoded_yaml(self.body)

        raise statuses.unsupported_media_type(_JSON, "application/yaml")

    def content(self) -> object:
        """Return a body as the registry takes it: JSON as it was sent, YAML decoded.

        JSON is decoded where it is known of which kind it should be, which is told to
        whoever sends something else.

        Raises:
            ApiError: 400 if it is malformed YAML, 415 if it is of another type.
        """
        return self.body if self._format == _JSON else self.document()

    def patch(self) -> object:
        """Return a body that is a patch: JSON as it was sent, YAML decoded.

        Raises:
            ApiError: 400, if it is malformed YAML.
        """
        return _decoded_yaml(self.body) if self.content_type in _YAML else self.body


def _decoded_json(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        message = f"couldn't get version/kind; json parse error: {exc}"
        raise statuses.bad_request(message) from exc


def query_of(text: str) -> dict[str, str]:
    """Read the parameters of a URL, as Go does.

    Args:
        text: What stands behind the question mark. Of several values of one name the
            first one counts; what is malformed does not exist.
    """
    found: dict[str, str] = {}
    for pair in text.split("&"):
        if pair and ";" not in pair and _MALFORMED.search(pair) is None:
            name, _, value = pair.replace("+", " ").partition("=")
            found.setdefault(unquote(name), unquote(value))

    return found


def _decoded_protobuf(raw: bytes) -> object:
    try:
        return decoded(raw)
    except ValueError as exc:
        message = f"the object provided is unrecognized: {exc}"
        raise statuses.bad_request(message) from exc
    except UnknownKindError as exc:
        raise statuses.unsupported_media_type(_JSON, "application/yaml") from exc


def _decoded_yaml(raw: bytes) -> object:
    try:
        return decoded_yaml(raw)
    except ValueError as exc:
        message = f"error decoding YAML: {exc}"
        raise statuses.bad_request(message) from exc
