"""YAML decoded as in Kubernetes, by way of JSON. Pure.

Size and nesting are limited before any recursion, as deep nesting would crash the
process in PyYAML's C parser.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import yaml

from aioinformer import json_codec

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

__all__ = [
    "MOST_BYTES",
    "MOST_NESTING",
    "YAMLDumper",
    "YAMLError",
    "decoded_yaml",
    "decoded_yamls",
]

MOST_BYTES = 8 * 1024 * 1024
"""Maximum size of a document. Kubeconfigs and manifests are far smaller."""

MOST_NESTING = 100
"""Maximum nesting of mappings and lists."""

# A document has no more values than characters, unless it repeats them by aliases.
# Small ones may.
_FEW_VALUES = 10_000
_INT_BITS = 63

_TOO_MANY = "document contains excessive aliasing"
_MERGE = "tag:yaml.org,2002:merge"

# The fast parser, if PyYAML was built with it.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

if TYPE_CHECKING:
    _Encoder = yaml.SafeDumper
else:
    # The encoder in C is ten times as fast.
    _Encoder = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


_TAG_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)
"""Errors of PyYAML besides its own, for values that do not fit their tags."""


class YAMLError(ValueError):
    """Malformed YAML, or YAML that JSON cannot represent. The message may quote it.

    Attributes:
        reason: Description of the problem, which does not quote the text.
        line: Number of the line, from 1; 0 if unknown.
    """

    def __init__(
        self, message: str, *, reason: str = "not YAML", line: int = 0
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.line = line


def decoded_yaml(raw: bytes) -> object:
    """Decode YAML to JSON values: keys and dates become strings.

    Args:
        raw: YAML. Only the first of several documents is decoded.

    Raises:
        YAMLError: If it is malformed, too large or nested too deeply, has values that
            JSON cannot represent, or grows excessively by aliases and merges.

    Example:
        >>> decoded_yaml(b"{1: yes, since: 2024-01-31}")
        {'1': True, 'since': '2024-01-31'}
    """
    return next(iter(_decoded(raw, documents=1)), None)


def decoded_yamls(raw: bytes) -> list[object]:
    """Decode all documents of a text, like `decoded_yaml()`.

    Raises:
        YAMLError: Same as for `decoded_yaml()`.
    """
    return _decoded(raw, documents=None)


def _decoded(raw: bytes, documents: int | None) -> list[object]:
    if len(raw) > MOST_BYTES:
        reason = f"larger than {MOST_BYTES} bytes"
        raise YAMLError(f"document is {reason}", reason=reason)

    try:
        # Most documents are JSON, which is parsed a hundred times faster.
        value = json_codec.loads(raw)
    except json_codec.JSONDecodeError:
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
        raise YAMLError(
            str(exc), reason=f"not YAML: {_problem(exc)}", line=_line_of(exc)
        ) from exc
    except _TAG_ERRORS as exc:
        reason = "not YAML: a value does not fit its tag"
        raise YAMLError(str(exc), reason=reason) from exc


# A symbol or token in quotes, or anything else in quotes, which may contain quotes.
_QUOTED = re.compile(r"""(['"])(?P<symbol>\\?.|<[a-z ]+>)\1|['"].*""", re.DOTALL)


def _problem(error: yaml.YAMLError) -> str:
    """Return the problem without what it quotes of the text, except for symbols and tokens."""
    found = getattr(error, "problem", None) or "it has characters that are not allowed"
    return _QUOTED.sub(lambda it: it[0] if it["symbol"] else "...", str(found))


def _line_of(error: yaml.YAMLError) -> int:
    """Return the number of the line, from 1; 0 if unknown."""
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else 0


def _most_values(raw: bytes) -> int:
    return max(len(raw), _FEW_VALUES)


def _refuse_deep_text(raw: bytes, documents: int | None) -> None:
    """Reject deep nesting by counting parser events, which need no recursion."""
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

    except yaml.YAMLError as exc:
        # The parser of PyYAML 6.0.4 has a limit of its own, which it may reach first.
        if "nesting depth" in (getattr(exc, "problem", None) or ""):
            raise _too_deep(_line_of(exc)) from None

        # Loading reports anything else in more detail.


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
    """Converter of YAML values to JSON values, which copies the target of each alias.

    Args:
        most: Maximum number of values.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def value(self, given: object, depth: int = 0) -> object:
        self._left -= 1
        # An alias may refer to its own parent, or to a value that nests as deeply
        # again.
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
    """Reject half of a surrogate pair, which UTF-8 cannot encode."""
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
    """Loader that interprets plain scalars as Go does."""

    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self._left = _most_values(raw)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Apply merges to a mapping, unless it grows excessively.

        That of PyYAML 6.0.4 compares keys by their identity, and lets the last of
        several mappings take precedence, not the first.
        """
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        own = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += self._merged(node, value)
            else:
                own.append((key, value))

        node.value = merged + own

    def _merged(
        self, node: yaml.MappingNode, value: yaml.Node
    ) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the items of the mappings to merge; later ones take precedence."""
        nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
        found = []
        for it in reversed(nodes):
            if not isinstance(it, yaml.MappingNode):
                raise yaml.constructor.ConstructorError(
                    "while constructing a mapping",
                    node.start_mark,
                    f"expected a mapping for merging, but found {it.id}",
                    it.start_mark,
                )

            self.flatten_mapping(it)
            self._left -= len(it.value)
            if self._left < 0:
                raise ValueError(_TOO_MANY)

            found += it.value

        return found

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, Any]:
        """Create a dict with keys as in JSON. In Python, 1 and true are equal keys."""
        self.flatten_mapping(node)
        return {
            _key(self.construct_object(key, deep=True)): self.construct_object(it, deep)
            for key, it in node.value
        }


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    node.value = node.value.lower()  # PyYAML knows 0x1f, but not 0X1F
    return loader.construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


class YAMLDumper(_Encoder):
    """Encoder that also quotes the texts that Go reads as other values, such as `1e3`."""


_OTHER_BASES = "0_*(b_*[01][01_]*|o_*[0-7][0-7_]*|x_*[0-9a-f][0-9a-f_]*)"
_E = "e_*[-+]?_*[0-9][0-9_]*"

for _tag, _pattern, _first in (
    ("bool", "y|yes|true|on|n|no|false|off", "yYtToOnNfF"),
    ("null", "~|null|", ["~", "n", "N", ""]),
    ("int", f"[-+]?_*({_OTHER_BASES}|0[0-7_]*|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"\.[0-9]+(_[0-9]+)*(e[-+]?[0-9]+)?", "."),
    ("float", rf"[-+]_*\._*[0-9][0-9_]*({_E})?", "-+"),
    ("float", rf"[-+]?_*[0-9][0-9_]*(\.[0-9_]*)?({_E})?", "-+0123456789"),
    ("float", r"[-+]?\.inf|\.nan", "-+."),
    ("merge", "<<", "<"),
):
    for _class in (_Loader, YAMLDumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}",
            re.compile(f"^(?:{_pattern})$", re.IGNORECASE),
            list(_first),
        )
