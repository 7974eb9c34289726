"""`Fault`: what all faults have in common, and the requests that they select."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar

from aioinformer.errors import OptionsError
from aioinformer_apiserver.faults.checks import (
    check_name,
    check_number,
    check_plural,
    check_verb,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Fault", "Occasion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """A request, as far as faults look at it.

    Attributes:
        verb: As permissions name it.
        resource: The plural.
        namespace: Empty for all, and for what is in none.
        query: The parameters.
        path: Without the query; for tests to recognise the request by.
    """

    verb: str
    resource: str
    namespace: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Fault:
    """What all faults have in common: which requests they strike.

    Attributes:
        acts_on: The verbs on which such a fault can have an effect; empty for every one.

    Raises:
        OptionsError: If it could never strike, or a number makes no sense.
    """

    acts_on: ClassVar[tuple[str, ...]] = ()

    verb: str = ""
    """Which verb; empty for every one on which it can have an effect."""

    resource: str = ""
    """Which resource, by its plural; empty for every one."""

    namespace: str | None = None
    """Which namespace; `""` for requests that name none, None for every one."""

    parameter: str = ""
    """A parameter that the request must carry, such as `"continue"`; empty for none."""

    times: int | None = 1
    """How many requests it strikes; None for all from now on."""

    skip: int = 0
    """How many requests it first lets pass, of those that match and that no fault
    before it has taken."""

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
            raise OptionsError(f"{shown} would change nothing: {name} is for {verbs}")

    def __repr__(self) -> str:
        """Show what was given, and nothing that goes without saying."""
        shown = [
            f"{it.name}={getattr(self, it.name)!r}"
            for it in fields(self)
            if getattr(self, it.name) != it.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def matches(self, occasion: Occasion) -> bool:
        """Say whether it is meant for such a request."""
        return (
            self.verb in {"", occasion.verb}
            and (not self.acts_on or occasion.verb in self.acts_on)
            and self.resource in {"", occasion.resource}
            and self.namespace in {None, occasion.namespace}
            and (not self.parameter or bool(occasion.query.get(self.parameter)))
        )
