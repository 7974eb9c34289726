"""Built-in kinds: what a Kubernetes API server of version 1.36 knows about its own.

Read from a file beside this one, which a real server filled in, when first needed.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from aioinformer_apiserver.schema.nodes import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.model.resource import Resource

__all__ = ["definition", "definitions", "go_fields", "schema_of"]

_REFERENCE = "#/components/schemas/"


class _Tables(msgspec.Struct):
    definitions: dict[str, dict[str, Any]]
    kinds: dict[str, str]
    fields: dict[str, dict[str, str]]


def schema_of(resource: Resource) -> Schema | None:
    """Return what is known about the objects of a built-in kind; None of other kinds.

    The first call reads the file (about 250 KB); the answers are kept.

    Args:
        resource: Its group, version and kind count.
    """
    return _schema(f"{resource.api_version}/{resource.kind}")


def definitions() -> Mapping[str, dict[str, Any]]:
    """Return the OpenAPI definitions, without descriptions; not to be changed.

    They refer to each other by `{"$ref": "#/components/schemas/<name>"}`. Besides the
    kinds themselves there are their lists, and Scale, DeleteOptions, Status, Eviction.
    """
    return _tables().definitions


@cache
def definition(name: str) -> Schema:
    """Return the schema of one definition.

    Args:
        name: Such as `"io.k8s.api.core.v1.PodSpec"`.

    Raises:
        KeyError: If there is none of this name.
    """
    return Schema({"$ref": _REFERENCE + name}, definitions())


def go_fields(name: str) -> Mapping[str, str]:
    """Return the Go types of the fields of a definition; empty if it is no struct.

    A leading `*` is a pointer, which keeps an empty value; a trailing `!` says that a
    missing value is written out. Before a `/` stands the struct that the field comes
    from, where the definition includes another.

    Args:
        name: Such as `"io.k8s.api.core.v1.PodSpec"`.
    """
    return _tables().fields.get(name, {})


@cache
def _schema(kind: str) -> Schema | None:
    name = _tables().kinds.get(kind)
    return definition(name) if name else None


@cache
def _tables() -> _Tables:
    text = files(__package__).joinpath("kubernetes.json").read_bytes()
    return msgspec.json.decode(text, type=_Tables)
