"""Arguments: what tests hand over, checked before anything is done with it. Pure.

Each function gives its value back, so that no caller can forget to use what was checked.
A body is given back as plain dictionaries and lists: what a client would have sent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.model.objects import KubeObject
from aioinformer.model.resource import Resource

__all__ = [
    "body_of",
    "flag_of",
    "instance_of",
    "name_of",
    "namespace_of",
    "resource_of",
    "resources_of",
    "seconds_of",
    "text_of",
    "token_of",
    "tokens_of",
    "whole_of",
]

T = TypeVar("T")

_TOKEN = re.compile("[!-~]+")
# What fits into JSON as it is written here.
_LEAST, _MOST = -(2**63), 2**64 - 1


# ---------------------------------------------------------------- options


def whole_of(option: str, value: object, *, least: int, most: int | None = None) -> int:
    """Check a whole number.

    Raises:
        OptionsError: If it is none, or outside of these bounds.
    """
    fits = isinstance(value, int) and not isinstance(value, bool)
    if fits and least <= value <= (value if most is None else most):  # type: ignore[operator]
        return value  # type: ignore[return-value]

    bounds = f"of {least} or more" if most is None else f"from {least} to {most}"
    raise OptionsError(f"{option} is a whole number {bounds}, not {value!r}")


def seconds_of(option: str, value: object, *, zero: bool = False) -> float:
    """Check a number of seconds; zero is too few unless asked.

    Raises:
        OptionsError: If it is no number, negative, or not a number at all (NaN).
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN is neither.
    if is_number and (value > 0 or (zero and value == 0)):  # type: ignore[operator]
        return value  # type: ignore[return-value]

    least = "0 or more" if zero else "more than 0"
    raise OptionsError(f"{option} is a number of seconds, {least}, not {value!r}")


def flag_of(option: str, value: object) -> bool:
    """Check a choice.

    Raises:
        OptionsError: If it is neither True nor False.
    """
    if isinstance(value, bool):
        return value

    raise OptionsError(f"{option} is True or False, not {value!r}")


def text_of(option: str, value: object) -> str:
    """Check a text.

    Raises:
        OptionsError: If it is none, or empty.
    """
    if isinstance(value, str) and value:
        return value

    raise OptionsError(f"{option} is a text that is not empty, not {value!r}")


def instance_of(option: str, value: object, kind: type[T], meant: str) -> T:
    """Check that a value is of a class.

    Args:
        option: Of which argument.
        value: The value.
        kind: The class.
        meant: What would be right, for the message.

    Raises:
        OptionsError: If it is not.
    """
    if isinstance(value, kind):
        return value

    raise OptionsError(f"{option} is {meant}, not {value!r}")


def token_of(option: str, value: object) -> str:
    """Check a token: a header must be able to bear it.

    Raises:
        OptionsError: If it cannot.
    """
    if isinstance(value, str) and _TOKEN.fullmatch(value):
        return value

    raise OptionsError(
        f"{option} is a text of ASCII letters, digits and signs, neither empty nor with "
        f"spaces, not {value!r}"
    )


def tokens_of(option: str, value: object) -> dict[str, Any]:
    """Check what maps tokens to something.

    Raises:
        OptionsError: If it is no mapping, or a key of it no token.
    """
    if not isinstance(value, Mapping):
        raise OptionsError(
            f"{option} maps tokens to users, such as {{'a-token': 'alice'}}, "
            f"not {value!r}"
        )

    return {token_of(f"a token of {option}", key): it for key, it in value.items()}


# ---------------------------------------------------------------- resources, names


def resource_of(option: str, value: object) -> Resource:
    """Check that something is a resource.

    Raises:
        OptionsError: If it is something else, such as its name.
    """
    return instance_of(
        option, value, Resource, "a Resource, such as aioinformer.model.resources.PODS"
    )


def resources_of(option: str, value: object) -> list[Resource]:
    """Check several resources.

    Raises:
        OptionsError: If they are no iterable, or one of them is something else.
    """
    if isinstance(value, str | Resource) or not isinstance(value, Iterable):
        raise OptionsError(f"{option} is a list of Resources, not {value!r}")

    return [resource_of(f"each of {option}", it) for it in value]


def name_of(resource: Resource, value: object) -> str:
    """Check the name of an object.

    Raises:
        OptionsError: If it is no text, or empty.
    """
    return text_of(f"the name of one of {resource}", value)


def namespace_of(resource: Resource, value: object) -> str:
    """Check a namespace, which may be empty.

    Raises:
        OptionsError: If it is no text, or named for a kind that is in none.
    """
    if not isinstance(value, str):
        raise OptionsError(f"a namespace is a text, not {value!r}")

    if value and not resource.namespaced:
        raise OptionsError(f"{resource} is cluster-scoped and has no namespaces")

    return value


# ---------------------------------------------------------------- bodies


def body_of(what: str, value: object) -> dict[str, Any]:
    """Copy a body.

    Args:
        what: It is, for the message.
        value: A mapping that holds what JSON can hold.

    Raises:
        OptionsError: If it is something else, or holds it: the message says where.
    """
    given = value.to_dict() if isinstance(value, KubeObject) else value
    if not isinstance(given, Mapping):
        raise OptionsError(f"{what} is a dictionary, not {value!r}")

    try:
        return _copied(given)
    except _Unfit as exc:
        raise OptionsError(f"{what} is JSON, and {exc}") from None
    except RecursionError:
        raise OptionsError(f"{what} is nested too deeply") from None


class _Unfit(Exception):
    """Something in a body is no JSON; where it is, is filled in on its way out."""

    def __init__(self, value: object, *, is_key: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.is_key = is_key
        self.where = ""

    def __str__(self) -> str:
        where = self.where.removeprefix(".")
        if self.is_key:
            place = f" in {where}" if where else ""
            return f"the key {self.value!r}{place} is no text of it"

        hint = "; write times as text" if isinstance(self.value, date) else ""
        return f"{where} is {self.value!r}{hint}"


def _copied(given: Mapping[Any, Any]) -> dict[str, Any]:
    made = {}
    for key, value in given.items():
        if not (isinstance(key, str) and _is_unicode(key)):
            raise _Unfit(key, is_key=True)

        try:
            made[key] = _json(value)
        except _Unfit as exc:
            exc.where = f".{key}{exc.where}"
            raise

    return made


def _json(value: object) -> Any:
    match value:
        case None | bool():
            return value
        case str() if _is_unicode(value):
            return value
        case int() if _LEAST <= value <= _MOST:
            return value
        case float() if math.isfinite(value):
            return value
        case dict() | Mapping():  # the first is known at once, and most are
            return _copied(value)
        case list() | tuple():
            return _listed(value)
        case _:
            raise _Unfit(value)


def _listed(given: Iterable[object]) -> list[Any]:
    made = []
    for number, value in enumerate(given):
        try:
            made.append(_json(value))
        except _Unfit as exc:
            exc.where = f"[{number}]{exc.where}"
            raise

    return made


def _is_unicode(text: str) -> bool:
    """Whether it can be encoded: half of a surrogate pair cannot."""
    return text.isascii() or not any("\ud800" <= it <= "\udfff" for it in text)
