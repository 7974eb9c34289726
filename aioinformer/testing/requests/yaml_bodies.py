"""YAML bodies: read as Kubernetes reads them, which is by way of JSON. Pure."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import orjson
import yaml

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["decoded_yaml"]

# A text has no more values than characters, unless it says the same ones again and
# again. Small ones may.
_FEW_VALUES = 10_000
_INT_BITS = 63


def decoded_yaml(raw: bytes) -> object:
    """Decode YAML into what JSON can say: keys are texts, and so are dates.

    Raises:
        ValueError: If it is malformed, holds what JSON cannot say, or grows without
            measure by its aliases.

    Example:
        >>> decoded_yaml(b"{1: yes, since: 2024-01-31}")
        {'1': True, 'since': '2024-01-31'}
    """
    try:
        # Most of what is called YAML is JSON, which is read a hundred times faster.
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass

    try:
        # Of several documents the first one counts.
        value = next(yaml.load_all(raw, Loader=_Loader), None)
    except yaml.YAMLError as exc:
        raise ValueError(str(exc)) from exc

    return _Plain(max(len(raw), _FEW_VALUES)).value(value)


class _Plain:
    """Makes JSON's values of YAML's; those of an alias become as many as it stands for.

    Args:
        most: How many values there may be.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def value(self, given: object) -> object:
        self._left -= 1
        if self._left < 0:
            raise ValueError("document contains excessive aliasing")

        match given:
            case dict():
                return {key: self.value(it) for key, it in given.items()}
            case list():
                return [self.value(it) for it in given]
            case float() if not math.isfinite(given):
                raise ValueError(f"json: unsupported value: {given}")
            case int() if given.bit_length() > _INT_BITS:
                return float(given)
            case str() | int() | float() | None:
                return given
            case _:
                raise ValueError(f"json: unsupported type: {type(given).__name__}")


def _key(given: object) -> str:
    match given:
        case str():
            return given
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
