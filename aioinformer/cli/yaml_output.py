"""Changed objects as YAML documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from aioinformer.cli.line_output import event_of
from aioinformer.model.deep_json import LEVELS, decode_encodable
from aioinformer.model.yaml_values import YAMLDumper
from aioinformer.tables.columns import harmless

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioinformer.informer.notifications import Notification
    from aioinformer.model import KubeObject

__all__ = ["YAMLDocuments", "document", "object_document"]

_NEVER_WRAP = 1_000_000


class _Dumper(YAMLDumper):
    """Encoder that writes texts of several lines as kubectl does."""


def _block(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block)


class YAMLDocuments:
    """States of objects as YAML documents, each after its event type as a comment."""

    def of(self, events: Sequence[Notification], now: datetime) -> str:
        """Return the documents for these changes."""
        del now
        pairs = map(event_of, events)
        return "".join(f"---\n# {kind}\n{object_document(obj)}" for kind, obj in pairs)


def object_document(obj: KubeObject) -> str:
    """Return an object as YAML.

    Raises:
        DecodeError: If it cannot be decoded.
    """
    body, truncated = decode_encodable(obj.raw)
    return document(body, truncated=truncated)


def document(body: dict[str, Any], *, truncated: bool = False) -> str:
    """Return a body as YAML, with a comment if it is that of `decode_encodable`."""
    text = _encoded(body, allow_unicode=True)
    if harmless(text) != text:
        # Only escaped, characters that control a terminal keep their value.
        text = _encoded(body, allow_unicode=False)

    note = f"# Values nested deeper than {LEVELS} levels are left out.\n"
    return text + note if truncated else text


def _encoded(body: dict[str, Any], *, allow_unicode: bool) -> str:
    text: str = yaml.dump(
        body,
        Dumper=_Dumper,
        allow_unicode=allow_unicode,
        sort_keys=False,
        width=_NEVER_WRAP,
    )
    return text
