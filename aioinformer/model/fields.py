"""Field selectors: which objects are meant, by the fields a server can select on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

from aioinformer.errors import OptionsError, SelectorSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FieldRequirement", "FieldSelector"]

FieldOperator = Literal["=", "!="]

# A backslash takes the character after it along, whatever that is.
_TERM = re.compile(r"(?:\\.|[^,\\]|\\\Z)+", re.DOTALL)
_OPERATOR = re.compile("!=|==|=")
_FIELD = re.compile(r"[^\s,=!\\]+")
_VALUE = re.compile(r"(?:[^\\,=]|\\[\\,=])*")
_SPECIAL = re.compile(r"[\\,=]")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One condition on one field.

    Attributes:
        field: The path, such as `"spec.nodeName"`.
        operator: `=` or `!=`.
        value: What it is compared with; a missing field counts as `""`.

    Raises:
        OptionsError: If the name of the field is empty, or contains a blank or one of
            `,`, `=`, `!` and a backslash; if the operator is another.
    """

    field: str
    operator: FieldOperator
    value: str

    def __post_init__(self) -> None:
        if not _FIELD.fullmatch(self.field):
            raise OptionsError(f"{self.field!r} is not the name of a field")

        if self.operator not in get_args(FieldOperator):
            raise OptionsError(f"{self.operator!r} is no operator of a field selector")

    def __str__(self) -> str:
        escaped = _SPECIAL.sub(r"\\\g<0>", self.value)
        return f"{self.field}{self.operator}{escaped}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of requirements on fields; without any, it matches everything.

    Which fields may be asked for is the server's decision: for each kind a few, such
    as `metadata.name`, or a pod's `spec.nodeName` and `status.phase`. Immutable, and
    compared by its requirements, whatever their order in the text.

    Attributes:
        requirements: What must hold, in the order in which `str()` writes it.
    """

    requirements: tuple[FieldRequirement, ...] = ()

    def __post_init__(self) -> None:
        ordered = sorted(
            set(self.requirements), key=lambda it: (it.field, it.operator, it.value)
        )
        object.__setattr__(self, "requirements", tuple(ordered))

    @staticmethod
    def parse(text: str) -> FieldSelector:
        r"""Parse a selector such as `"spec.nodeName=node-7,status.phase!=Failed"`.

        Args:
            text: `field=value`, `field==value` and `field!=value`, separated by
                commas; empty terms are skipped. In a value, `\` stands before a comma,
                an equals sign or a backslash that belongs to it. Blanks belong to the
                value; a field's name has none.

        Raises:
            SelectorSyntaxError: If it cannot be parsed; `position` says where.
        """
        terms = _TERM.finditer(text)
        return FieldSelector(tuple(_field_requirement(text, term) for term in terms))

    @property
    def empty(self) -> bool:
        """True if it matches everything."""
        return not self.requirements

    def matches(self, get: Callable[[str], str]) -> bool:
        """Say whether an object is selected.

        Args:
            get: Returns the text of a field by its path, `""` if it is missing.
        """
        for it in self.requirements:
            if (get(it.field) == it.value) is (it.operator == "!="):
                return False

        return True

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def _field_requirement(text: str, term: re.Match[str]) -> FieldRequirement:
    def fail(message: str, position: int) -> NoReturn:
        raise SelectorSyntaxError(message, text=text, position=position)

    operator = _OPERATOR.search(term[0])
    if operator is None:
        fail("expected =, == or != in a term", term.end())

    field = term[0][: operator.start()]
    name = _FIELD.match(field)
    if name is None or name.end() < len(field):
        fail("not the name of a field", term.start() + (name.end() if name else 0))

    start = term.start() + operator.end()
    value = term[0][operator.end() :]
    legal = _VALUE.match(value)
    if legal is not None and legal.end() < len(value):
        fail(
            r"in a value, write \, \= and \\ for , = and a backslash",
            start + legal.end(),
        )

    kind: FieldOperator = "!=" if operator[0] == "!=" else "="
    return FieldRequirement(field, kind, _ESCAPE.sub(r"\1", value))
