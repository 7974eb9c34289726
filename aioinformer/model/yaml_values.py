"""YAML, read as Kubernetes reads it, which is by way of JSON. Pure.

Size and nesting are bounded before anything recurses: the C parser of PyYAML would end
the process.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson
import yaml

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

__all__ = ["MOST_BYTES", "MOST_NESTING", "YAMLError", "decoded_yaml", "decoded_yamls"]

MOST_BYTES = 8 * 1024 * 1024
"""More is refused. Kubeconfigs and manifests are far smaller."""

MOST_NESTING = 100
"""Mappings and lists inside of each other; deeper ones are refused."""

# A text has no more values than characters, unless it says the same ones again and
# again. Small ones may.
_FEW_VALUES = 10_000
_INT_BITS = 63

_TOO_MANY = "document contains excessive aliasing"
_MERGE = "tag:yaml.org,2002:merge"

# The fast one where PyYAML was built with it.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_MISTAKES = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)
"""What PyYAML fails with, besides its own errors, where a tag and its value disagree."""


class YAMLError(ValueError):
    """A text that is no YAML, or none that JSON can say. The message may quote it.

    Attributes:
        reason: Description of the mistake, which does not quote the text.
        line: Number of the line, from 1; 0 if unknown.
    """

    def __init__(
        self, message: str, *, reason: str = "not YAML", line: int = 0
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.line = line


def decoded_yaml(raw: bytes) -> object:
    """Decode YAML into what JSON can say: keys are texts, and so are dates.

    Args:
        raw: The text. Of several documents the first one counts.

    Raises:
        YAMLError: If it is malformed, too large or nested too deeply, holds what JSON
            cannot say, or grows without measure by its aliases and merges.

    Example:
        >>> decoded_yaml(b"{1: yes, since: 2024-01-31}")
        {'1': True, 'since': '2024-01-31'}
    """
    return next(iter(_decoded(raw, documents=1)), None)


def decoded_yamls(raw: bytes) -> list[object]:
    """Decode all documents of a text, as `decoded_yaml()` does.

    Raises:
        YAMLError: Same as there.
    """
    return _decoded(raw, documents=None)


def _decoded(raw: bytes, documents: int | None) -> list[object]:
    if len(raw) > MOST_BYTES:
        reason = f"larger than {MOST_BYTES} bytes"
        raise YAMLError(f"document is {reason}", reason=reason)

    try:
        # Most of what is called YAML is JSON, which is read a hundred times faster.
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    else:
        _refuse_deep_value(value)
        return [value]

    try:
        _refuse_deep_text(raw, documents)
        plain = _Plain(_most_values(raw))
        loaded = islice(yaml.load_all(raw, Loader=_Loader), documents)
        return [plain.value(it) for it in loaded]
    except YAMLError:
        raise
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        raise YAMLError(str(exc), line=mark.line + 1 if mark else 0) from exc
    except _MISTAKES as exc:
        raise YAMLError(str(exc)) from exc


def _most_values(raw: bytes) -> int:
    return max(len(raw), _FEW_VALUES)


def _refuse_deep_text(raw: bytes, documents: int | None) -> None:
    """Count what opens and closes, by events, which need no recursion."""
    depth = ended = 0
    try:
        for event in yaml.parse(raw, Loader=_PARSER):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MOST_NESTING:
                    mark = event.start_mark
                    raise _too_deep(mark.line + 1 if mark else 0)

            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.DocumentEndEvent):
                ended += 1
                if ended == documents:
                    return

    except yaml.YAMLError:
        pass  # of which whoever loads it says more


def _refuse_deep_value(value: object) -> None:
    level: Iterable[object] = [value]
    for _ in range(MOST_NESTING + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return

    raise _too_deep()


def _inside(value: object) -> Iterable[object]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
        case _:
            return ()


def _too_deep(line: int = 0) -> YAMLError:
    reason = f"nested deeper than {MOST_NESTING} levels"
    return YAMLError(f"document is {reason}", reason=reason, line=line)


class _Plain:
    """Makes JSON's values of YAML's; those of an alias become as many as it stands for.

    Args:
        most: Maximum number of values.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def value(self, given: object, depth: int = 0) -> object:
        self._left -= 1
        # An alias may stand for what it is part of, or for what is as deep again.
        if self._left < 0 or depth > MOST_NESTING:
            raise ValueError(_TOO_MANY)

        match given:
            case dict():
                return {key: self.value(it, depth + 1) for key, it in given.items()}
            case list():
                return [self.value(it, depth + 1) for it in given]
            case float() if not math.isfinite(given):
                raise ValueError(f"json: unsupported value: {given}")
            case int() if given.bit_length() > _INT_BITS:
                return float(given)
            case str():
                return _text(given)
            case int() | float() | None:
                return given
            case _:
                raise ValueError(f"json: unsupported type: {type(given).__name__}")


def _text(given: str) -> str:
    """Refuse half of a surrogate pair, which no UTF-8 can say."""
    if not given.isascii() and any("\ud800" <= it <= "\udfff" for it in given):
        raise ValueError("invalid Unicode character escape code")

    return given


def _key(given: object) -> str:
    match given:
        case str():
            return _text(given)
        case bool():
            return "true" if given else "false"
        case int() | float():
            return str(given)
        case _:
            raise ValueError(f"unsupported map key: {given!r}")


class _Loader(yaml.SafeLoader):
    """Takes the same words and numbers for what they are as Go does."""

    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self._left = _most_values(raw)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what it merges into a mapping, unless that grows without measure."""
        for key, value in node.value:
            if key.tag == _MERGE:
                merged = (
                    value.value if isinstance(value, yaml.SequenceNode) else [value]
                )
                for it in merged:
                    self._count(it)

        super().flatten_mapping(node)

    def _count(self, merged: yaml.Node) -> None:
        if isinstance(merged, yaml.MappingNode):
            self.flatten_mapping(merged)
            self._left -= len(merged.value)
            if self._left < 0:
                raise ValueError(_TOO_MANY)

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, Any]:
        """Make a dictionary with keys as in JSON; to Python, 1 and true are the same."""
        self.flatten_mapping(node)
        return {
            _key(self.construct_object(key, deep=True)): self.construct_object(it, deep)
            for key, it in node.value
        }


for _tag, _pattern, _first in (
    ("bool", "y|yes|true|on|n|no|false|off", "yYtToOnNfF"),
    ("null", "~|null|", ["~", "n", "N", ""]),
    ("int", "[-+]?(0b[01_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-f_]+)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)(e[-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.inf|\.nan", "-+."),
    ("merge", "<<", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(f"^(?:{_pattern})$", re.IGNORECASE),
        list(_first),
    )
