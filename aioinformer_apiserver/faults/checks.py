"""Checks: what a fault is told, looked at before it is used. Pure."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError
from aioinformer.model import resources
from aioinformer.model.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "VERBS",
    "check_name",
    "check_number",
    "check_plural",
    "check_status",
    "check_verb",
]

VERBS = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
)
"""The verbs of Kubernetes permissions, which requests about resources have."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def check_verb(whose: str, verb: object) -> None:
    """Check that there are requests with such a verb.

    Raises:
        OptionsError: If there are none.
    """
    if verb in VERBS:
        return

    similar = difflib.get_close_matches(str(verb).lower(), VERBS, n=1)
    hint = f"Did you mean {similar[0]!r}? " if similar else ""
    raise OptionsError(
        f"{whose}: there is no verb {verb!r}. {hint}Verbs are {', '.join(VERBS)}"
    )


def check_plural(whose: str, resource: object) -> None:
    """Check that a resource may be called so in a path.

    Raises:
        OptionsError: If not, or if it is what one object of a built-in kind is called.
    """
    if isinstance(resource, Resource):
        wanted = f"the plural alone, {resource.plural!r}"
    elif not isinstance(resource, str):
        wanted = "a plural, such as 'pods'"
    elif plural := _plurals().get(resource.lower()):
        wanted = f"the plural, {plural!r}"
    elif not _NAME.fullmatch(resource):
        wanted = "a plural in lower case, such as 'pods', without group or subresource"
    else:
        return

    raise OptionsError(f"{whose}: resource must be {wanted}")


@cache
def _plurals() -> dict[str, str]:
    """The plurals of built-in resources, by what one of them is called."""
    found = (getattr(resources, name) for name in resources.__all__)
    named = {it.kind.lower(): it.plural for it in found if isinstance(it, Resource)}
    return {kind: plural for kind, plural in named.items() if kind != plural}


def check_name(whose: str, what: str, name: object) -> None:
    """Check that something may be called so.

    Raises:
        OptionsError: If nothing may.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionsError(f"{whose}: {what} must be a name, in lower case")


def check_number(
    whose: str, what: str, value: object, *, least: int = 0, whole: bool = True
) -> None:
    """Check a number that counts or measures something.

    Args:
        whose: The fault, as it is shown.
        what: The option.
        value: What was given.
        least: What it has to be at least, if it counts something.
        whole: It counts something. Otherwise it measures, and has to be above 0.

    Raises:
        OptionsError: If it is no such number.
    """
    if whole:
        fits = isinstance(value, int) and value >= least
        wanted = f"a whole number from {least} on"
    else:
        fits = isinstance(value, int | float) and value > 0  # As NaN is not.
        wanted = "a number above 0"

    if not fits:
        raise OptionsError(f"{whose}: {what} must be {wanted}")


def check_status(whose: str, status: object, statuses: Sequence[int]) -> None:
    """Check a status code of HTTP.

    Raises:
        OptionsError: If it is none of these.
    """
    if not isinstance(status, int) or status not in statuses:
        first, last = statuses[0], statuses[-1]
        raise OptionsError(f"{whose}: status must be from {first} to {last}")
