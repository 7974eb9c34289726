"""`APIRequest`: a request over HTTP or in memory. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aioinformer import json_codec
from aioinformer.model.yaml_values import decoded_yaml
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.protobuf.decoding import UnknownKindError, decode_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer_apiserver.requests.admission import Admission

__all__ = ["APIRequest", "query_of"]

_JSON = "application/json"
# Percent sign that does not begin an escape sequence.
_MALFORMED = re.compile("%(?![0-9A-Fa-f]{2})")
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})


@dataclass(frozen=True, slots=True, kw_only=True)
class APIRequest:
    """A request.

    Attributes:
        method: HTTP method.
        path: Path as it was sent, percent-encoded, without the query.
        query: Query parameters; the first value of each.
        headers: Headers, case-insensitive.
        body: Body as it was sent, decompressed.
        warnings: Warnings for the user, to be sent with any response.
        admission: Admission of its write by webhooks; None without any.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)
    admission: Admission | None = None

    @property
    def content_type(self) -> str:
        """Media type of the body without parameters; JSON by default."""
        given = self.headers.get("Content-Type", "").partition(";")[0].strip()
        return given or _JSON

    @property
    def _format(self) -> str:
        """Media type in lower case; only those of patches are case-sensitive."""
        return self.content_type.lower()

    def document(self) -> object:
        """Decode the body by its media type: JSON, YAML or Protocol Buffers.

        Raises:
            ApiError: 400 for a malformed body, 415 for another media type or for a kind
                that has no Protocol Buffers encoding.
        """
        if self._format == _JSON:
            return _decode_json(self.body)

        if self._format == _PROTOBUF:
            return _decode_protobuf(self.body)

        if self._format in _YAML:
            return _decode_yaml(self.body)

        raise statuses.unsupported_media_type(_JSON, "application/yaml")

    def content(self) -> object:
        """Return the body for the registry: JSON as it was sent, other types decoded.

        The registry decodes JSON, because its error messages name the expected kind.

        Raises:
            ApiError: 400 for malformed YAML, 415 for another media type.
        """
        return self.body if self._format == _JSON else self.document()

    def patch(self) -> object:
        """Return a patch: JSON as it was sent, YAML decoded.

        Raises:
            ApiError: 400 for malformed YAML.
        """
        return _decode_yaml(self.body) if self.content_type in _YAML else self.body


def _decode_json(raw: bytes) -> object:
    try:
        return json_codec.loads(raw)
    except json_codec.JSONDecodeError as exc:
        message = f"couldn't get version/kind; json parse error: {exc}"
        raise statuses.bad_request(message) from exc


def query_of(text: str) -> dict[str, str]:
    """Parse the query of a URL as Go does.

    The first of several values of a name counts. Malformed parameters are ignored.
    """
    found: dict[str, str] = {}
    for pair in text.split("&"):
        if pair and ";" not in pair and _MALFORMED.search(pair) is None:
            name, _, value = pair.replace("+", " ").partition("=")
            found.setdefault(unquote(name), unquote(value))

    return found


def _decode_protobuf(raw: bytes) -> object:
    try:
        return decode_object(raw)
    except ValueError as exc:
        message = f"the object provided is unrecognized: {exc}"
        raise statuses.bad_request(message) from exc
    except UnknownKindError as exc:
        raise statuses.unsupported_media_type(_JSON, "application/yaml") from exc


def _decode_yaml(raw: bytes) -> object:
    try:
        return decoded_yaml(raw)
    except ValueError as exc:
        message = f"error decoding YAML: {exc}"
        raise statuses.bad_request(message) from exc
