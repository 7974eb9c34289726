"""Labels: which keys and values are legal, and one requirement on one label."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from aioinformer.errors import OptionsError
from aioinformer.model.names import (
    NAME_LENGTH,
    NAME_RULE,
    is_name,
    qualified_name_problem,
)

__all__ = [
    "INT64_BOUND",
    "LabelOperator",
    "LabelRequirement",
    "integer_of",
    "key_problem",
    "value_problem",
]

LabelOperator = Literal["=", "!=", "in", "notin", "exists", "!", ">", "<"]

INT64_BOUND = 2**63
"""The integers that labels are compared as are below this, and not below its negative."""

_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One condition on one label.

    Attributes:
        key: The label, such as `"app"` or `"example.com/tier"`.
        operator: `=`, `!=`, `in`, `notin`, `exists`, `!` (absent), `>` or `<`.
        values: Sorted, each once: one for `=`, `!=`, `>` and `<`, at least one for
            `in` and `notin`, none for `exists` and `!`.

    Raises:
        OptionsError: If the key, the operator, a value or their number is not allowed.
    """

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.key, *self.values)):
            raise OptionsError(f"label {self.key!r}: keys and values are strings")

        if self.operator not in get_args(LabelOperator):
            raise OptionsError(f"{self.operator!r} is no operator of a label selector")

        problem = (
            key_problem(self.key)
            or _count_problem(self.operator, len(self.values))
            or next(filter(None, map(self._value_problem, self.values)), "")
        )
        if problem:
            raise OptionsError(problem)

        object.__setattr__(self, "values", tuple(sorted(set(self.values))))

    def _value_problem(self, value: str) -> str:
        return value_problem(value, numeric=self.operator in {">", "<"})

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"


def key_problem(key: str) -> str:
    """Say what is wrong with a label's key; nothing is wrong with a legal one."""
    return qualified_name_problem(key, "a label key")


def value_problem(value: str, *, numeric: bool = False) -> str:
    """Say what is wrong with a label's value; nothing is wrong with a legal one."""
    if numeric and integer_of(value) is None:
        return f"< and > need a 64-bit integer, not {value!r}"

    if value and not is_name(value):
        return f"{value!r} cannot be a label value: {NAME_RULE}"

    return ""


def _count_problem(operator: LabelOperator, count: int) -> str:
    match operator:
        case "exists" | "!":
            return f"{operator!r} takes no values" if count else ""
        case "in" | "notin":
            return "" if count else f"{operator!r} needs at least one value"
        case _:
            return "" if count == 1 else f"{operator!r} needs exactly one value"


def integer_of(text: str | None) -> int | None:
    """Read a decimal integer of 64 bits; None if it is something else."""
    if text is None or len(text) > NAME_LENGTH or not _INTEGER.fullmatch(text):
        return None

    number = int(text)
    return number if -INT64_BOUND <= number < INT64_BOUND else None
