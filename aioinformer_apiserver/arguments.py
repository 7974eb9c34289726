"""Validation of the arguments of public methods. Pure.

Each function returns its value, so that callers use the validated one. Bodies become
plain dictionaries and lists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from aioinformer.errors import OptionsError
from aioinformer.model import KubeObject, Resource
from aioinformer_apiserver.auth.rbac import User
from aioinformer_apiserver.http.handler import FEATURE_GATES

__all__ = [
    "body_of",
    "check_token",
    "feature_gates_of",
    "flag_of",
    "instance_of",
    "name_of",
    "namespace_of",
    "path_of",
    "resource_of",
    "resources_of",
    "seconds_of",
    "services_of",
    "text_of",
    "token_of",
    "users_of",
    "whole_of",
]

T = TypeVar("T")

_TOKEN = re.compile("[!-~]+")
# Bounds of integers in JSON.
_LEAST, _MOST = -(2**63), 2**64 - 1


# ---------------------------------------------------------------- options


def whole_of(option: str, value: object, *, least: int, most: int | None = None) -> int:
    """Check a whole number.

    Raises:
        OptionsError: If it is not an integer, or out of bounds.
    """
    fits = isinstance(value, int) and not isinstance(value, bool)
    if fits and least <= value <= (value if most is None else most):  # type: ignore[operator]
        return value  # type: ignore[return-value]

    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise OptionsError(f"{option} must be a whole number {bounds}, not {value!r}")


def seconds_of(option: str, value: object, *, zero: bool = False) -> float:
    """Check a number of seconds, which must be positive, or may be zero.

    Raises:
        OptionsError: If it is not a number, negative, or NaN.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Both comparisons are false for NaN.
    if is_number and (value > 0 or (zero and value == 0)):  # type: ignore[operator]
        return value  # type: ignore[return-value]

    least = "0 or more" if zero else "more than 0"
    raise OptionsError(f"{option} must be a number of seconds, {least}, not {value!r}")


def flag_of(option: str, value: object) -> bool:
    """Check a boolean.

    Raises:
        OptionsError: If it is neither True nor False.
    """
    if isinstance(value, bool):
        return value

    raise OptionsError(f"{option} must be True or False, not {value!r}")


def text_of(option: str, value: object) -> str:
    """Check a string.

    Raises:
        OptionsError: If it is not a string, or empty.
    """
    if isinstance(value, str) and value:
        return value

    raise OptionsError(f"{option} must be a non-empty string, not {value!r}")


def instance_of(option: str, value: object, kind: type[T], meant: str) -> T:
    """Check that a value is an instance of a class.

    Args:
        option: Name of the argument.
        value: The value.
        kind: The class.
        meant: Description of a valid value, for the message.

    Raises:
        OptionsError: If it is not.
    """
    if isinstance(value, kind):
        return value

    raise OptionsError(f"{option} must be {meant}, not {value!r}")


def path_of(option: str, value: object, meant: str) -> Path:
    """Check a path.

    Args:
        option: Name of the argument.
        value: The value.
        meant: Description of a valid value, for the message.

    Raises:
        OptionsError: If it is neither a string nor a `Path`, or empty.
    """
    if isinstance(value, str | Path) and str(value):
        return Path(value)

    raise OptionsError(f"{option} must be {meant}, not {value!r}")


def token_of(option: str, value: object) -> str:
    """Check a bearer token, which must be valid in a header.

    Raises:
        OptionsError: If it is not.
    """
    if isinstance(value, str) and _TOKEN.fullmatch(value):
        return value

    raise OptionsError(
        f"{option} must be a non-empty string of printable ASCII characters without "
        f"spaces, not {value!r}"
    )


def _tokens_of(option: str, value: object) -> dict[str, Any]:
    """Check a mapping with tokens as its keys.

    Raises:
        OptionsError: If it is not a mapping, or a key is not a token.
    """
    if not isinstance(value, Mapping):
        raise OptionsError(
            f"{option} must map tokens to users, such as {{'a-token': 'alice'}}, "
            f"not {value!r}"
        )

    return {token_of(f"a token of {option}", key): it for key, it in value.items()}


def feature_gates_of(option: str, value: object) -> dict[str, bool]:
    """Check feature gates, and add the others with their defaults.

    Raises:
        OptionsError: If they are not a mapping of known gates to booleans.
    """
    given = value if isinstance(value, Mapping) else {"": value}
    if given.keys() <= FEATURE_GATES.keys() and all(
        isinstance(it, bool) for it in given.values()
    ):
        return {**FEATURE_GATES, **given}

    known = ", ".join(FEATURE_GATES)
    raise OptionsError(
        f"{option} must map feature gates to True or False, not {value!r}; this server "
        f"has {known}"
    )


def users_of(option: str, value: object) -> dict[str, User]:
    """Check users by token, of which some may be names.

    Raises:
        OptionsError: If a token or a user is invalid.
    """
    return {
        token: user
        if isinstance(user, User)
        else User(text_of("each user that is not a User", user))
        for token, user in _tokens_of(option, value).items()
    }


def check_token(token: str | None, users: Mapping[str, User]) -> None:
    """Check the token of the administrator.

    Raises:
        OptionsError: If it is invalid, missing, or the token of a user.
    """
    if token is None and users:
        raise OptionsError(
            "users need the token of an administrator, too, such as token='admin': "
            "without one, apiserver.client() and the kubeconfig would be anonymous"
        )

    if token is not None and token_of("token", token) in users:
        raise OptionsError("token is also the token of one of users")


def services_of(option: str, value: object) -> dict[str, str]:
    """Check a mapping of services to URLs.

    Raises:
        OptionsError: If it is not a mapping, or a key or URL is malformed.
    """
    given = value if isinstance(value, Mapping) else {"": value}
    for name, url in given.items():
        parts = name.split("/") if isinstance(name, str) else []
        is_url = isinstance(url, str) and url.startswith(("http://", "https://"))
        if len(parts) != 2 or not all(parts) or not is_url:
            raise OptionsError(
                f"{option} must map services to URLs, such as "
                f"{{'shop/operator': 'https://127.0.0.1:9443'}}, not {value!r}"
            )

    return dict(given)


# ---------------------------------------------------------------- resources, names


def resource_of(option: str, value: object) -> Resource:
    """Check a resource.

    Raises:
        OptionsError: If it is not a `Resource`, but its name for example.
    """
    return instance_of(
        option, value, Resource, "a Resource, such as aioinformer.model.resources.PODS"
    )


def resources_of(option: str, value: object) -> list[Resource]:
    """Check several resources.

    Raises:
        OptionsError: If they are not iterable, or one is not a `Resource`.
    """
    if isinstance(value, str | Resource) or not isinstance(value, Iterable):
        raise OptionsError(f"{option} must be a list of Resources, not {value!r}")

    return [resource_of(f"each item of {option}", it) for it in value]


def name_of(resource: Resource, value: object) -> str:
    """Check the name of an object.

    Raises:
        OptionsError: If it is not a string, or empty, or has a slash.
    """
    name = text_of(f"the name of an object of {resource}", value)
    namespace, slash, rest = name.partition("/")
    if not slash:
        return name

    advice = ""
    if resource.namespaced:
        advice = f": pass {rest!r} and namespace={namespace!r}"

    raise OptionsError(f"the name of an object of {resource} has no '/'{advice}")


def namespace_of(resource: Resource, value: object) -> str:
    """Check a namespace, which may be empty.

    Raises:
        OptionsError: If it is not a string, or not empty for a cluster-scoped resource.
    """
    if not isinstance(value, str):
        raise OptionsError(f"a namespace must be a string, not {value!r}")

    if value and not resource.namespaced:
        raise OptionsError(f"{resource} is cluster-scoped and has no namespaces")

    return value


# ---------------------------------------------------------------- bodies


def body_of(what: str, value: object) -> dict[str, Any]:
    """Copy a body.

    Args:
        what: Name of the body, for the message.
        value: Mapping of values that JSON can represent.

    Raises:
        OptionsError: If it is not a mapping, or JSON cannot represent a value. The
            message has its path.
    """
    given = value.to_dict() if isinstance(value, KubeObject) else value
    if not isinstance(given, Mapping):
        raise OptionsError(f"{what} must be a dictionary, not {value!r}")

    try:
        return _copy_mapping(given)
    except _NotJSON as exc:
        raise OptionsError(f"{what} must be JSON, but {exc}") from None
    except RecursionError:
        raise OptionsError(f"{what} is nested too deeply") from None


class _NotJSON(Exception):
    """JSON cannot represent a value in a body; callers prepend its path."""

    def __init__(self, value: object, *, is_key: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.is_key = is_key
        self.where = ""

    def __str__(self) -> str:
        where = self.where.removeprefix(".")
        if self.is_key:
            place = f" in {where}" if where else ""
            return f"the key {self.value!r}{place} is not a string"

        hint = " (write times as strings)" if isinstance(self.value, date) else ""
        return f"{where} is {self.value!r}{hint}"


def _copy_mapping(given: Mapping[Any, Any]) -> dict[str, Any]:
    made = {}
    for key, value in given.items():
        if not (isinstance(key, str) and _is_unicode(key)):
            raise _NotJSON(key, is_key=True)

        try:
            made[key] = _json(value)
        except _NotJSON as exc:
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
        case dict() | Mapping():  # `dict` is checked first, because it is fast.
            return _copy_mapping(value)
        case list() | tuple():
            return _copy_list(value)
        case _:
            raise _NotJSON(value)


def _copy_list(given: Iterable[object]) -> list[Any]:
    made = []
    for number, value in enumerate(given):
        try:
            made.append(_json(value))
        except _NotJSON as exc:
            exc.where = f"[{number}]{exc.where}"
            raise

    return made


def _is_unicode(text: str) -> bool:
    """Return whether a string can be encoded; lone surrogates cannot."""
    return text.isascii() or not any("\ud800" <= it <= "\udfff" for it in text)
