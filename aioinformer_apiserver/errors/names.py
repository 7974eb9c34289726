"""Names: what objects, labels and finalizers may be called, and what is said otherwise.

Pure. The rules are those of RFC 1123 and of Kubernetes' qualified names; the sentences
are those that an API server answers with.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from aioinformer.model import resources

if TYPE_CHECKING:
    from aioinformer.model.resource import Resource

__all__ = [
    "STANDARD_FINALIZERS",
    "dns_label_problems",
    "generated_name",
    "label_value_problems",
    "name_problems",
    "qualified_name_problems",
    "subdomain_problems",
]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

# Finalizers that need no domain.
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")

# The server's alphabet for generated names: no vowels, and nothing that looks alike.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
# Room for names that are made of a generated one, such as those of a ReplicaSet's pods.
_LONGEST_START = 58

_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253
# A CronJob adds eleven characters for its jobs, whose pods bear their names as labels.
_CRON_JOB_LENGTH = 52


def generated_name(start: str) -> str:
    """Make a name that begins with `start`, which may be cut; not the same twice."""
    suffix = random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH)
    return start[:_LONGEST_START] + "".join(suffix)


def name_problems(resource: Resource, name: str, *, prefix: bool = False) -> list[str]:
    """Say what is wrong with the name of an object.

    Args:
        resource: Of which it is one.
        name: Not empty.
        prefix: Something is to be added yet, so it may end with a dash.
    """
    if prefix and name.endswith("-"):
        name = f"{name[:-2]}a"

    if resource.group == "rbac.authorization.k8s.io" or resource in _LAX:
        return _segment_problems(name)

    if resource in _LABEL_NAMED:
        return dns_label_problems(name)

    limit = _CRON_JOB_LENGTH if resource == resources.CRON_JOBS else 0
    long = [_too_long(limit)] if 0 < limit < len(name) else []
    return subdomain_problems(name) + long


@lru_cache(maxsize=4096)
def qualified_name_problems(name: str) -> tuple[str, ...]:
    """Say what is wrong with the key of a label or annotation, or with a finalizer."""
    prefix, slash, last = name.rpartition("/")
    if "/" in prefix:
        example = _examples("MyName", "my.name", "123-abc", pattern=_QUALIFIED)
        whole = f"a valid label key must {_CHARACTERS} {example} with an optional DNS "
        return (f"{whole}subdomain prefix and '/' (e.g. 'example.com/MyName')",)

    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        problems = subdomain_problems(prefix, unit="bytes")
        found += [f"prefix part {it}" for it in problems]

    if not last:
        found.append("name part must be non-empty")
    elif len(last.encode()) > _LABEL_LENGTH:
        found.append(f"name part {_too_long(_LABEL_LENGTH, unit='bytes')}")

    if not re.fullmatch(_QUALIFIED, last):
        example = _examples("MyName", "my.name", "123-abc", pattern=_QUALIFIED)
        found.append(f"name part must {_CHARACTERS} {example}")

    return tuple(found)


@lru_cache(maxsize=4096)
def label_value_problems(value: str) -> tuple[str, ...]:
    """Say what is wrong with the value of a label."""
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


def subdomain_problems(name: str, *, unit: str = "characters") -> list[str]:
    """Say what is wrong with a name that must be one of DNS, with or without dots.

    Args:
        name: Not empty.
        unit: In which its length is told.
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


def dns_label_problems(name: str) -> list[str]:
    """Say what is wrong with a name that must be one part of a name of DNS."""
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


def _segment_problems(name: str) -> list[str]:
    """Say why a name cannot be a segment of a path."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]

    return [f"may not contain '{it}'" for it in "/%" if it in name]


def _too_long(limit: int, *, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


def _examples(*examples: str, pattern: str) -> str:
    quoted = ",  or ".join(f"'{it}'" for it in examples)
    return f"(e.g. {quoted}, regex used for validation is '{pattern}')"


# Their names become those of hosts.
_LABEL_NAMED = frozenset(
    {resources.NAMESPACES, resources.SERVICES, resources.STATEFUL_SETS}
)
# Any name that can stand in a path.
_LAX = frozenset({resources.EVENTS, resources.POD_DISRUPTION_BUDGETS})
