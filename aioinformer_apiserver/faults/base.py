"""`Fault`: the base of all faults, with the hooks that a new fault overrides."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from aioinformer.errors import OptionsError
from aioinformer.model import Resource, resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioinformer.errors import ApiError
    from aioinformer_apiserver.serialization.responses import APIResponse
    from aioinformer_apiserver.storage.dispatcher import Waker
    from aioinformer_apiserver.storage.storage import Storage

__all__ = [
    "VERBS",
    "Fault",
    "Occasion",
    "Strike",
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
"""The verbs of Kubernetes permissions for resource requests."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Request attributes that faults match.

    Attributes:
        verb: Kubernetes permission verb.
        resource: Plural name.
        namespace: Empty for cluster-wide requests and cluster-scoped resources.
        query: Query parameters.
        path: Path without the query. Faults ignore it; it identifies the request in
            tests.
    """

    verb: str
    resource: str
    namespace: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault and the request that took it.

    Attributes:
        fault: The fault.
        occasion: The request.
        record_effect: Function that the server calls when the fault has changed the
            response. Only the first call counts.
    """

    fault: Fault
    occasion: Occasion
    record_effect: Callable[[], None] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Fault:
    """Base of all faults: it selects requests, and its hooks change their responses.

    A subclass overrides `before()` to act before a request is handled or to replace
    the response. It overrides `watch_end`, `alter_event()`, `alter_bookmark()` or
    `alter_list()` to change the content of a response, and sets `alters_content`.

    Attributes:
        acts_on: Verbs that this fault can affect; empty for all verbs.

    Raises:
        OptionsError: If the fault could never strike, or a number is out of range.
    """

    acts_on: ClassVar[tuple[str, ...]] = ()

    verb: str = ""
    """Verb of the requests; empty for every verb that the fault can affect."""

    resource: str = ""
    """Plural of the resource; empty for every resource."""

    namespace: str | None = None
    """Namespace of the request; `""` for requests without one, None for every one."""

    parameter: str = ""
    """Query parameter that the request must have, such as `"continue"`; empty for none."""

    times: int | None = 1
    """Number of requests to strike; None for all from now on."""

    skip: int = 0
    """Number of matching requests to let pass first, not counting those that an earlier
    fault has taken."""

    def __post_init__(self) -> None:
        shown = repr(self)
        if self.verb != "":
            check_verb(shown, self.verb)

        if self.resource != "":
            check_plural(shown, self.resource)

        if self.namespace not in {None, ""}:
            check_name(shown, "namespace", self.namespace)

        check_number(shown, "skip", self.skip)
        if self.times is not None:
            check_number(shown, "times", self.times, least=1)

        if self.verb and self.acts_on and self.verb not in self.acts_on:
            verbs = " and ".join(self.acts_on)
            name = type(self).__name__
            raise OptionsError(
                f"{shown} would have no effect: {name} applies to {verbs} only"
            )

    def __repr__(self) -> str:
        """Show the options that differ from their defaults."""
        shown = [
            f"{it.name}={getattr(self, it.name)!r}"
            for it in fields(self)
            if getattr(self, it.name) != it.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def matches(self, occasion: Occasion) -> bool:
        """Return whether this fault selects a request."""
        return (
            self.verb in {"", occasion.verb}
            and (not self.acts_on or occasion.verb in self.acts_on)
            and self.resource in {"", occasion.resource}
            and self.namespace in {None, occasion.namespace}
            and (not self.parameter or bool(occasion.query.get(self.parameter)))
        )

    # ---------------------------------------------------------------- hooks

    async def before(
        self, strike: Strike, storage: Storage, waker: Waker
    ) -> APIResponse | None:
        """Act before the request is handled.

        Args:
            strike: This fault and its request. Call `strike.record_effect()` if the
                fault changes something without returning a response.
            storage: The objects and their history.
            waker: Use `waker.sleep()` to wait; it ends early when the server stops.

        Returns:
            Response to send instead of handling the request; None to handle it.

        Cancellation:
            Must be safe: it happens when the client disconnects.
        """
        return None

    @property
    def alters_content(self) -> bool:
        """True if events or lists must go through the hooks below."""
        return False

    def watch_end(self, events: int) -> ApiError | bool:
        """Return whether a watch ends after this number of events.

        Returns:
            True for a clean end, an error to send as an ERROR event before the end, or
            False to continue.
        """
        return False

    def alter_event(self, line: bytes, index: int) -> list[bytes]:
        """Return the lines to send instead of an event line.

        Args:
            line: One encoded event, with its newline.
            index: Number of events before it; bookmarks do not count.
        """
        return [line]

    def alter_bookmark(self, line: bytes, index: int) -> list[bytes]:
        """Return the lines to send instead of a bookmark; arguments as above."""
        return [line]

    def alter_list(self, body: dict[str, Any]) -> bytes | None:
        """Return the encoded list to send instead; None to leave it unchanged.

        Args:
            body: The decoded list, which may be modified.
        """
        return None


# ---------------------------------------------------------------- checks of options


def check_verb(fault: str, verb: object) -> None:
    """Check that a verb exists.

    Raises:
        OptionsError: If it does not.
    """
    if verb in VERBS:
        return

    similar = difflib.get_close_matches(str(verb).lower(), VERBS, n=1, cutoff=0.7)
    hint = f"Did you mean {similar[0]!r}? " if similar else ""
    raise OptionsError(
        f"{fault}: unknown verb {verb!r}. {hint}Verbs are {', '.join(VERBS)}"
    )


def check_plural(fault: str, resource: object) -> None:
    """Check that a resource is given by its plural name.

    Raises:
        OptionsError: If it is not, for example a built-in kind.
    """
    if isinstance(resource, Resource):
        expected = f"the plural alone, {resource.plural!r}"
    elif not isinstance(resource, str):
        expected = "a plural, such as 'pods'"
    elif plural := _plurals().get(resource.lower()):
        expected = f"the plural, {plural!r}"
    elif not _NAME.fullmatch(resource):
        expected = (
            "a plural in lower case, such as 'pods', without group or subresource"
        )
    else:
        return

    raise OptionsError(f"{fault}: resource must be {expected}")


@cache
def _plurals() -> dict[str, str]:
    """Return the plurals of built-in resources by lower-case kind."""
    found = (getattr(resources, name) for name in resources.__all__)
    named = {it.kind.lower(): it.plural for it in found if isinstance(it, Resource)}
    return {kind: plural for kind, plural in named.items() if kind != plural}


def check_name(fault: str, option: str, name: object) -> None:
    """Check that an option is a valid object name.

    Raises:
        OptionsError: If it is not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionsError(f"{fault}: {option} must be a name, in lower case")


def check_number(
    fault: str, option: str, value: object, *, least: int = 0, whole: bool = True
) -> None:
    """Check a count or a measure.

    Args:
        fault: Representation of the fault, for the message.
        option: Name of the option.
        value: The value.
        least: Minimum of a count.
        whole: True for a count, False for a measure, which must be above 0.

    Raises:
        OptionsError: If the value is out of range or of another type.
    """
    if whole:
        fits = isinstance(value, int) and value >= least
        expected = f"a whole number of at least {least}"
    else:
        fits = isinstance(value, int | float) and value > 0  # False for NaN.
        expected = "a number above 0"

    if not fits:
        raise OptionsError(f"{fault}: {option} must be {expected}")


def check_status(fault: str, status: object, statuses: Sequence[int]) -> None:
    """Check an HTTP status code.

    Raises:
        OptionsError: If it is none of these.
    """
    if not isinstance(status, int) or status not in statuses:
        first, last = statuses[0], statuses[-1]
        raise OptionsError(f"{fault}: status must be from {first} to {last}")
