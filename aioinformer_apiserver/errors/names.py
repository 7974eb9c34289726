"""Validation of the names of objects, labels and finalizers. Pure.

The rules are those of RFC 1123 and of Kubernetes' qualified names. The messages are
those of an API server.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from aioinformer.model import resources

if TYPE_CHECKING:
    from aioinformer.model import Resource

__all__ = [
    "STANDARD_FINALIZERS",
    "generate_name",
    "validate_dns_label",
    "validate_label_value",
    "validate_name",
    "validate_qualified_name",
    "validate_subdomain",
]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

# Finalizers without a domain.
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")

# Alphabet for generated names: no vowels, and no similar characters.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
# Leaves room for names that extend a generated one, such as those of a ReplicaSet's
# pods.
_LONGEST_START = 58

_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253
# A CronJob adds eleven characters for its jobs, whose names are labels of their pods.
_CRON_JOB_LENGTH = 52


def generate_name(start: str) -> str:
    """Return a random name that begins with `start`, which may be truncated."""
    suffix = random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH)
    return start[:_LONGEST_START] + "".join(suffix)


def validate_name(resource: Resource, name: str, *, prefix: bool = False) -> list[str]:
    """Return the errors of an object's name.

    Args:
        resource: Resource of the object.
        name: Name, not empty.
        prefix: True for a `generateName`, which may end with a dash.
    """
    if prefix and name.endswith("-"):
        name = f"{name[:-2]}a"

    if resource.group == "rbac.authorization.k8s.io" or resource in _LAX:
        return _validate_segment(name)

    if resource in _LABEL_NAMED:
        return validate_dns_label(name)

    limit = _CRON_JOB_LENGTH if resource == resources.CRON_JOBS else 0
    long = [_too_long(limit)] if 0 < limit < len(name) else []
    return validate_subdomain(name) + long


@lru_cache(maxsize=4096)
def validate_qualified_name(name: str) -> tuple[str, ...]:
    """Return the errors of the key of a label or annotation, or of a finalizer."""
    prefix, slash, last = name.rpartition("/")
    if "/" in prefix:
        example = _examples("MyName", "my.name", "123-abc", pattern=_QUALIFIED)
        whole = f"a valid label key must {_CHARACTERS} {example} with an optional DNS "
        return (f"{whole}subdomain prefix and '/' (e.g. 'example.com/MyName')",)

    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        errors = validate_subdomain(prefix, unit="bytes")
        found += [f"prefix part {it}" for it in errors]

    if not last:
        found.append("name part must be non-empty")
    elif len(last.encode()) > _LABEL_LENGTH:
        found.append(f"name part {_too_long(_LABEL_LENGTH, unit='bytes')}")

    if not re.fullmatch(_QUALIFIED, last):
        example = _examples("MyName", "my.name", "123-abc", pattern=_QUALIFIED)
        found.append(f"name part must {_CHARACTERS} {example}")

    return tuple(found)


@lru_cache(maxsize=4096)
def validate_label_value(value: str) -> tuple[str, ...]:
    """Return the errors of a label's value."""
    found: list[str] = []
    if len(value.encode()) > _LABEL_LENGTH:
        found.append(_too_long(_LABEL_LENGTH, unit="bytes"))

    if not re.fullmatch(_VALUE, value):
        example = _examples("MyValue", "my_value", "12345", pattern=_VALUE)
        start = "a valid label must be an empty string or"
        found.append(f"{start} {_CHARACTERS} {example}")

    return tuple(found)


_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character"
)


def validate_subdomain(name: str, *, unit: str = "characters") -> list[str]:
    """Return the errors of a DNS subdomain.

    Args:
        name: Name, not empty.
        unit: Unit of the length in messages.
    """
    found = []
    if len(name) > _SUBDOMAIN_LENGTH:
        found.append(_too_long(_SUBDOMAIN_LENGTH, unit=unit))

    if not re.fullmatch(_SUBDOMAIN, name):
        found.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
            "characters, '-' or '.', and must start and end with an alphanumeric "
            f"character {_examples('example.com', pattern=_SUBDOMAIN)}"
        )

    return found


def validate_dns_label(name: str) -> list[str]:
    """Return the errors of a DNS label."""
    found = []
    if len(name) > _LABEL_LENGTH:
        found.append(_too_long(_LABEL_LENGTH))

    if not re.fullmatch(_LABEL, name):
        found.append(
            "must not contain dots"
            if re.fullmatch(_SUBDOMAIN, name)
            else "a lowercase RFC 1123 label must consist of lower case alphanumeric "
            "characters or '-', and must start and end with an alphanumeric character "
            f"{_examples('my-name', '123-abc', pattern=_LABEL)}"
        )

    return found


def _validate_segment(name: str) -> list[str]:
    """Return the errors of a path segment."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]

    return [f"may not contain '{it}'" for it in "/%" if it in name]


def _too_long(limit: int, *, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


def _examples(*examples: str, pattern: str) -> str:
    quoted = ",  or ".join(f"'{it}'" for it in examples)
    return f"(e.g. {quoted}, regex used for validation is '{pattern}')"


# Their names are used as host names.
_LABEL_NAMED = frozenset(
    {resources.NAMESPACES, resources.SERVICES, resources.STATEFUL_SETS}
)
# Any path segment.
_LAX = frozenset({resources.EVENTS, resources.POD_DISRUPTION_BUDGETS})
