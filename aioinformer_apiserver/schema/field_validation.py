"""Validation of single values of built-in kinds, in the words of a real server.

All functions yield errors, to be combined by `yield from`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import field_errors, names
from aioinformer_apiserver.errors.field_errors import FieldError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

__all__ = [
    "address",
    "as_list",
    "at_least",
    "data_key",
    "dns_label",
    "immutable_fields",
    "is_changed",
    "labels",
    "matches_selector",
    "network",
    "not_found",
    "one_of",
    "percent_or_count",
    "port",
    "port_name",
    "port_number",
    "qualified",
    "selector",
    "subdomain",
    "validate_relative_path",
]

Object = dict[str, Any]

_LARGEST_PORT = 65535
_DATA_KEY = r"[-._a-zA-Z0-9]+"
_PERCENT = "[0-9]+%"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def as_list(value: Any) -> list[Any]:
    """Return a list to iterate over; empty if the value is not a list."""
    return value if isinstance(value, list) else []


def not_found(path: str, value: object) -> FieldError:
    """Return the error for a reference to a missing object."""
    message = f"Not found: {field_errors.format_value(value)}"
    return FieldError(path, message, "FieldValueNotFound")


def _all_invalid(path: str, value: object, whys: Iterable[str]) -> Iterator[FieldError]:
    for why in whys:
        yield field_errors.invalid(path, value, why)


def dns_label(path: str, value: str) -> Iterator[FieldError]:
    """Validate a DNS label."""
    yield from _all_invalid(path, value, names.validate_dns_label(value))


def subdomain(path: str, value: str) -> Iterator[FieldError]:
    """Validate a DNS subdomain."""
    yield from _all_invalid(path, value, names.validate_subdomain(value))


def qualified(path: str, value: str) -> Iterator[FieldError]:
    """Validate a qualified name such as `example.com/name`."""
    yield from _all_invalid(path, value, names.validate_qualified_name(value))


def one_of(path: str, value: Any, choices: Collection[str]) -> Iterator[FieldError]:
    """Validate a choice; the message lists the choices in their order."""
    if value not in choices:
        yield field_errors.not_supported(path, value, choices)


def at_least(path: str, value: Any, least: int = 0) -> Iterator[FieldError]:
    """Validate a minimum; missing numbers are valid."""
    if value is not None and value < least:
        why = f"must be greater than or equal to {least}"
        yield field_errors.invalid(path, value, why)


def port_number(path: str, value: Any) -> Iterator[FieldError]:
    """Validate a port number."""
    if not 1 <= value <= _LARGEST_PORT:
        why = f"must be between 1 and {_LARGEST_PORT}, inclusive"
        yield field_errors.invalid(path, value, why)


def port_name(path: str, value: str) -> Iterator[FieldError]:
    """Validate a port name by the rules of IANA."""
    yield from _all_invalid(path, value, _validate_port_name(value))


def port(path: str, value: Any) -> Iterator[FieldError]:
    """Validate a port number or name; missing ports count as 0."""
    if isinstance(value, str):
        yield from port_name(path, value)
    else:
        yield from port_number(path, value or 0)


def _validate_port_name(name: str) -> Iterator[str]:
    if len(name) > 15:
        yield "must be no more than 15 characters"

    if not re.fullmatch("[-a-z0-9]+", name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"

    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"

    if "--" in name:
        yield "must not contain consecutive hyphens"

    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"


def address(path: str, value: str) -> Iterator[FieldError]:
    """Validate an IP address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        yield field_errors.invalid(path, value, why)


def network(path: str, value: str) -> Iterator[FieldError]:
    """Validate a CIDR."""
    try:
        if "/" not in value:
            raise ValueError(value)

        interface = ipaddress.ip_interface(value)
    except ValueError:
        why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        yield field_errors.invalid(path, value, why)
    else:
        if interface.ip != interface.network.network_address:
            why = "must not have bits set beyond the prefix length"
            yield field_errors.invalid(path, value, why)


def percent_or_count(path: str, value: Any) -> Iterator[FieldError]:
    """Validate a non-negative number or a percentage."""
    if not isinstance(value, str):
        yield from at_least(path, value)
    elif not re.fullmatch(_PERCENT, value, re.ASCII):
        yield field_errors.invalid(
            path,
            value,
            "a valid percent string must be a numeric string followed by an ending "
            f"'%' (e.g. '1%',  or '93%', regex used for validation is '{_PERCENT}')",
        )


def data_key(path: str, key: str) -> Iterator[FieldError]:
    """Validate a key that may become a file name."""
    if len(key) > 253:
        yield field_errors.invalid(path, key, "must be no more than 253 characters")

    if not re.fullmatch(_DATA_KEY, key):
        examples = "'key.name',  or 'KEY_NAME',  or 'key-name'"
        yield field_errors.invalid(
            path,
            key,
            "a valid config key must consist of alphanumeric characters, '-', '_' or "
            f"'.' (e.g. {examples}, regex used for validation is '{_DATA_KEY}')",
        )
    elif key in {".", ".."}:
        yield field_errors.invalid(path, key, f"must not be '{key}'")
    elif key.startswith(".."):
        yield field_errors.invalid(path, key, "must not start with '..'")


# ---------------------------------------------------------------- labels


def labels(path: str, value: Mapping[str, str] | None) -> Iterator[FieldError]:
    """Validate labels."""
    for name, text in (value or {}).items():
        yield from qualified(path, name)
        yield from _all_invalid(path, text, names.validate_label_value(text))


def selector(path: str, value: Mapping[str, Any] | None) -> Iterator[FieldError]:
    """Validate a label selector."""
    value = value or {}
    yield from labels(f"{path}.matchLabels", value.get("matchLabels"))
    for index, it in enumerate(as_list(value.get("matchExpressions"))):
        yield from _requirement(f"{path}.matchExpressions[{index}]", it)


def _requirement(path: str, value: Mapping[str, Any]) -> Iterator[FieldError]:
    operator, values = value.get("operator", ""), value.get("values")
    if operator not in _OPERATORS:
        yield field_errors.invalid(
            f"{path}.operator", operator, "not a valid selector operator"
        )
    elif operator in {"In", "NotIn"} and not values:
        why = "must be specified when `operator` is 'In' or 'NotIn'"
        yield field_errors.required(f"{path}.values", why)
    elif operator in {"Exists", "DoesNotExist"} and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield field_errors.forbidden(f"{path}.values", why)

    yield from qualified(f"{path}.key", value.get("key", ""))
    for index, text in enumerate(as_list(values)):
        whys = names.validate_label_value(text)
        yield from _all_invalid(f"{path}.values[{index}]", text, whys)


def matches_selector(value: Mapping[str, Any] | None, found: Mapping[str, str]) -> bool:
    """Return whether a selector matches labels; a missing selector matches none."""
    return value is not None and all(_conditions(value, found))


def _conditions(value: Mapping[str, Any], found: Mapping[str, str]) -> Iterator[bool]:
    for name, text in (value.get("matchLabels") or {}).items():
        yield found.get(name) == text

    for it in as_list(value.get("matchExpressions")):
        name, values = it.get("key"), as_list(it.get("values"))
        match it.get("operator"):
            case "In":
                yield found.get(name) in values
            case "NotIn":
                yield found.get(name) not in values
            case "Exists":
                yield name in found
            case _:
                yield name not in found


def validate_relative_path(path: str, value: str) -> Iterator[FieldError]:
    """Validate a relative path that does not lead upwards."""
    if value.startswith("/"):
        yield field_errors.invalid(path, value, "must be a relative path")

    if ".." in value.split("/"):
        yield field_errors.invalid(path, value, "must not contain '..'")


def immutable_fields(old: Object, new: Object, *fields: str) -> Iterator[FieldError]:
    """Reject changes of fields, given as dotted paths."""
    for path in fields:
        before, after = _at(old, path), _at(new, path)
        if is_changed(before, after):
            yield field_errors.immutable(path, after)


def is_changed(old: object, new: object) -> bool:
    """Return whether two JSON values differ, ignoring the order of keys."""
    return field_errors.format_value(old) != field_errors.format_value(new)


def _at(body: Object, path: str) -> Any:
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None

    return value
