"""`Fault`: what all faults have in common, and the requests that they select."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Fault", "Occasion", "check_not_negative"]


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

    Raises:
        OptionsError: If it could never strike, or a number makes no sense.
    """

    verb: str = ""
    """Which verb; empty for every one."""

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
        if self.skip < 0 or (self.times is not None and self.times < 1):
            raise OptionsError(f"a fault that never strikes: {self}")

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
            and self.resource in {"", occasion.resource}
            and self.namespace in {None, occasion.namespace}
            and (not self.parameter or bool(occasion.query.get(self.parameter)))
        )


def check_not_negative(fault: Fault, *names: str) -> None:
    """Check numbers of a fault that count something.

    Raises:
        OptionsError: If one is negative.
    """
    for name in names:
        value = getattr(fault, name)
        if value is not None and not value >= 0:  # As NaN is not.
            raise OptionsError(f"{name} of a {type(fault).__name__} cannot be {value}")
