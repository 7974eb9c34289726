"""Label and field selectors.

The grammars and the rules for keys and values are those of the API server and kubectl.
So a selector has the same meaning as on the server, and mistakes are found before a
request is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args

from aioinformer.errors import OptionsError, SelectorSyntaxError
from aioinformer.model.objects import KubeObject
from aioinformer.model.validation import (
    NAME_LENGTH,
    NAME_RULE,
    is_name,
    qualified_name_problem,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "INT64_BOUND",
    "FieldRequirement",
    "FieldSelector",
    "LabelOperator",
    "LabelRequirement",
    "LabelSelector",
    "integer_of",
    "key_problem",
    "selector_text",
    "value_problem",
]

T = TypeVar("T", bound=KubeObject)


def selector_text(given: object) -> str:
    """Return the text of a selector, as given.

    Raises:
        OptionsError: If it is not a string; the text says what to write.
    """
    if isinstance(given, str):
        return given

    write = ""
    if isinstance(given, Mapping):
        write = (
            f". Write {','.join(f'{key}={value}' for key, value in given.items())!r}"
        )
    elif isinstance(given, LabelSelector | FieldSelector):
        write = f". Write str(selector), which is {str(given)!r}"

    raise OptionsError(
        f"a selector must be a string such as 'app=web', not {given!r}{write}"
    )


def _refuse_text(requirements: object, kind: str) -> None:
    if isinstance(requirements, str):
        raise OptionsError(
            f"requirements must not be a text: write {kind}.parse({requirements!r})"
        )


class LabelSelector:
    """Conjunction of requirements on labels. Without any, it matches everything.

    `==` and `hash()` compare the requirements, independent of order and spacing in the
    text (`a==b` is `a=b`). `str()` writes them in a fixed order, so that equal
    selectors have equal texts. Immutable.

    Example:
        >>> LabelSelector.parse("app=web,tier in (a, b),!canary").matches(
        ...     {"app": "web", "tier": "a"}
        ... )
        True
    """

    __slots__ = ("_bounds", "_forbidden", "_required", "_requirements")

    def __init__(self, requirements: Iterable[LabelRequirement] = ()) -> None:
        _refuse_text(requirements, "LabelSelector")
        self._requirements = tuple(
            sorted(set(requirements), key=lambda it: (it.key, it.operator, it.values))
        )
        # Sets for matches(). An absent label reads as None, so presence and absence are
        # set tests like all others.
        required: list[tuple[str, frozenset[str | None]]] = []
        forbidden: list[tuple[str, frozenset[str | None]]] = []
        bounds: list[tuple[str, int, int]] = []
        for it in self._requirements:
            match it.operator:
                case "=" | "in":
                    required.append((it.key, frozenset(it.values)))
                case "!=" | "notin":
                    forbidden.append((it.key, frozenset(it.values)))
                case "!":
                    required.append((it.key, frozenset([None])))
                case "exists":
                    forbidden.append((it.key, frozenset([None])))
                case ">":
                    bounds.append((it.key, int(it.values[0]), INT64_BOUND))
                case "<":
                    bounds.append((it.key, -INT64_BOUND - 1, int(it.values[0])))

        self._required = tuple(required)
        self._forbidden = tuple(forbidden)
        self._bounds = tuple(bounds)

    @staticmethod
    def parse(text: str) -> LabelSelector:
        """Parse a selector such as `"app=web,tier in (a, b),!canary"`.

        Args:
            text: Requirements separated by commas, as in kubectl: `key=value`,
                `key==value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key`
                (present), `!key` (absent), and with an integer `key>1` and `key<1`.
                Blanks between tokens are ignored. An empty text matches everything.

        Raises:
            SelectorSyntaxError: If it cannot be parsed, or a key or value is invalid;
                `position` says where.
        """
        return LabelSelector(_LabelParser(selector_text(text)).parse())

    @staticmethod
    def of(spec: Mapping[str, Any]) -> LabelSelector:
        """Create a selector from the `LabelSelector` object of a spec.

        Args:
            spec: Object with `matchLabels` and `matchExpressions`, both optional, as in
                the `spec.selector` of a Deployment. An empty one matches everything.

        Raises:
            OptionsError: If an operator, key or value is invalid, or there are other
                fields, as in the flat `spec.selector` of a Service.
        """
        given: object = spec
        if not isinstance(given, Mapping):
            raise OptionsError(
                'a label selector is an object, such as {"matchLabels": {...}}, not '
                f"{given!r}: parse a text by LabelSelector.parse()"
            )

        unknown = spec.keys() - {"matchLabels", "matchExpressions"}
        if unknown:
            raise OptionsError(
                f"a label selector has no field {min(unknown)!r}: write a flat selector "
                'as {"matchLabels": {...}}'
            )

        requirements = [
            LabelRequirement(key, "=", (value,))
            for key, value in (spec.get("matchLabels") or {}).items()
        ]
        for expression in spec.get("matchExpressions") or ():
            name = expression.get("operator")
            operator = _SPEC_OPERATORS.get(name)
            if operator is None:
                raise OptionsError(f"{name!r} is not an operator of label selectors")

            key, values = expression.get("key") or "", expression.get("values") or ()
            requirements.append(LabelRequirement(key, operator, tuple(values)))

        return LabelSelector(requirements)

    @property
    def requirements(self) -> tuple[LabelRequirement, ...]:
        """Requirements, in the order in which `str()` writes them."""
        return self._requirements

    @property
    def empty(self) -> bool:
        """True if it matches everything."""
        return not self._requirements

    def matches(self, labels: Mapping[str, str] | KubeObject) -> bool:
        """Return whether an object, or one with these labels, is selected.

        `!=` and `notin` also match objects without the label. `>` and `<` match only if
        the label is a 64-bit integer.
        """
        if isinstance(labels, KubeObject):
            labels = labels.label_set

        for key, values in self._required:
            if labels.get(key) not in values:
                return False

        for key, values in self._forbidden:
            if labels.get(key) in values:
                return False

        return not self._bounds or self._within_bounds(labels)

    def select(self, objects: Iterable[T]) -> list[T]:
        """Return the selected objects, in their order.

        The result is that of `matches()` for each, but several times faster: it reads
        their `label_set`, one requirement at a time.
        """
        kept = list(objects)
        for key, values in self._required:
            kept = [it for it in kept if it.label_set.get(key) in values]

        for key, values in self._forbidden:
            kept = [it for it in kept if it.label_set.get(key) not in values]

        if self._bounds:
            kept = [it for it in kept if self._within_bounds(it.label_set)]

        return kept

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelSelector):
            return NotImplemented

        return self._requirements == other._requirements

    def __hash__(self) -> int:
        return hash(self._requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self._requirements))

    def __repr__(self) -> str:
        return f"LabelSelector.parse({str(self)!r})"

    def _within_bounds(self, labels: Mapping[str, str]) -> bool:
        for key, lower, upper in self._bounds:
            number = integer_of(labels.get(key))
            if number is None or not lower < number < upper:
                return False

        return True


_SPEC_OPERATORS: dict[object, LabelOperator] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
}


_OPERATORS: dict[str, LabelOperator] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    ">": ">",
    "<": "<",
    "in": "in",
    "notin": "notin",
}


class _LabelParser:
    """Parser of a label selector."""

    # Blanks, then a symbol or a word. `in` and `notin` are words like any other: only
    # their position makes them operators.
    _TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+)?")
    _SYMBOLS = frozenset(["=", "==", "!=", "!", "(", ")", ",", "<", ">"])

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._advance()

    def parse(self) -> list[LabelRequirement]:
        """Parse all requirements."""
        requirements: list[LabelRequirement] = []
        while self._token or requirements:
            requirements.append(self._requirement())
            if not self._token:
                break

            self._expect(",")

        return requirements

    def _requirement(self) -> LabelRequirement:
        absent = self._token == "!"
        if absent:
            self._advance()

        key = self._word("a label key")
        self._check(key_problem(key))
        self._advance()
        if absent:
            return LabelRequirement(key, "!")

        if self._token in {"", ","}:
            return LabelRequirement(key, "exists")

        operator = _OPERATORS.get(self._token)
        if operator is None:
            self._fail("one of =, ==, !=, in, notin, <, >, or a comma")

        self._advance()
        if operator in {"in", "notin"}:
            return LabelRequirement(key, operator, self._values())

        numeric = operator in {">", "<"}
        return LabelRequirement(key, operator, (self._value(numeric=numeric),))

    def _value(self, *, numeric: bool) -> str:
        """Parse the value after a comparison. A missing value is ""."""
        value = "" if self._token in {"", ","} else self._word("a value")
        self._check(value_problem(value, numeric=numeric))
        if value:
            self._advance()

        return value

    def _values(self) -> tuple[str, ...]:
        """Parse `(a,b)`. Nothing before, between or after commas is the value ""."""
        self._expect("(")
        values: set[str] = set()
        while True:
            commas = self._commas()
            closed = self._token == ")"
            if commas > 1 or (not values and (commas or closed)):
                values.add("")

            if closed:
                # The API server consumes commas in pairs and then misses the value.
                if commas and commas % 2 == 0:
                    self._fail("a value")

                if commas:
                    values.add("")

                self._advance()
                return tuple(values)

            value = self._word("a value, a comma or )")
            self._check(value_problem(value))
            values.add(value)
            self._advance()
            if self._token not in {",", ")"}:
                self._fail("a comma or )")

    def _commas(self) -> int:
        count = 0
        while self._token == ",":
            count += 1
            self._advance()

        return count

    def _word(self, expected: str) -> str:
        if not self._token or self._token in self._SYMBOLS:
            self._fail(expected)

        return self._token

    def _expect(self, symbol: str) -> None:
        if self._token != symbol:
            self._fail("a comma" if symbol == "," else symbol)

        self._advance()

    def _advance(self) -> None:
        found = self._TOKEN.match(self._text, self._end)
        self._token = (found and found[1]) or ""
        self._end = found.end() if found else self._end

    def _check(self, problem: str) -> None:
        if problem:
            self._raise(problem)

    def _fail(self, expected: str) -> NoReturn:
        found = repr(self._token) if self._token else "the end"
        self._raise(f"expected {expected}, found {found}")

    def _raise(self, message: str) -> NoReturn:
        position = self._end - len(self._token)
        raise SelectorSyntaxError(message, text=self._text, position=position)


LabelOperator = Literal["=", "!=", "in", "notin", "exists", "!", ">", "<"]

INT64_BOUND = 2**63
"""Exclusive upper bound of integers in label comparisons; its negative is the lowest."""

_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One condition on one label.

    Attributes:
        key: Label, such as `"app"` or `"example.com/tier"`.
        operator: `=`, `!=`, `in`, `notin`, `exists`, `!` (absent), `>` or `<`.
        values: Values, sorted and without duplicates: one for `=`, `!=`, `>` and `<`,
            at least one for `in` and `notin`, none for `exists` and `!`.

    Raises:
        OptionsError: If the key, the operator, a value or their number is invalid.
    """

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.key, *self.values)):
            raise OptionsError(f"label {self.key!r}: key and values must be strings")

        if self.operator not in get_args(LabelOperator):
            raise OptionsError(
                f"{self.operator!r} is not an operator of label selectors"
            )

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
    """Return what is wrong with a label's key; empty if it is valid."""
    return qualified_name_problem(key, "a label key")


def value_problem(value: str, *, numeric: bool = False) -> str:
    """Return what is wrong with a label's value; empty if it is valid."""
    if numeric and integer_of(value) is None:
        return f"< and > need a 64-bit integer, not {value!r}"

    if value and not is_name(value):
        return f"invalid label value {value!r}: {NAME_RULE}"

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
    """Parse a decimal 64-bit integer; return None for anything else."""
    if text is None or len(text) > NAME_LENGTH or not _INTEGER.fullmatch(text):
        return None

    number = int(text)
    return number if -INT64_BOUND <= number < INT64_BOUND else None


FieldOperator = Literal["=", "!="]

# A backslash escapes any character.
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
        field: Path, such as `"spec.nodeName"`.
        operator: `=` or `!=`.
        value: Value to compare with; a missing field counts as `""`.

    Raises:
        OptionsError: If the operator is unknown, or the field is empty or contains a
            blank, a backslash, or one of `,`, `=` and `!`.
    """

    field: str
    operator: FieldOperator
    value: str

    def __post_init__(self) -> None:
        if not _FIELD.fullmatch(self.field):
            raise OptionsError(f"{self.field!r} is not a field name")

        if self.operator not in get_args(FieldOperator):
            raise OptionsError(
                f"{self.operator!r} is not an operator of field selectors"
            )

    def __str__(self) -> str:
        escaped = _SPECIAL.sub(r"\\\g<0>", self.value)
        return f"{self.field}{self.operator}{escaped}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Conjunction of requirements on fields. Without any, it matches everything.

    The server decides which fields it supports: a few of each kind, such as
    `metadata.name`, or a pod's `spec.nodeName` and `status.phase`. Immutable, and
    compared by its requirements, independent of their order in the text.

    Attributes:
        requirements: Requirements, in the order in which `str()` writes them.
    """

    requirements: tuple[FieldRequirement, ...] = ()

    def __post_init__(self) -> None:
        _refuse_text(self.requirements, "FieldSelector")
        ordered = sorted(
            set(self.requirements), key=lambda it: (it.field, it.operator, it.value)
        )
        object.__setattr__(self, "requirements", tuple(ordered))

    @staticmethod
    def parse(text: str) -> FieldSelector:
        """Parse a selector such as `"spec.nodeName=node-7,status.phase!=Failed"`.

        Args:
            text: `field=value`, `field==value` and `field!=value`, separated by commas.
                Empty terms are skipped. A backslash escapes a comma, an equals sign or
                a backslash in a value. Blanks are part of the value; field names have
                none.

        Raises:
            SelectorSyntaxError: If it cannot be parsed; `position` says where.
        """
        terms = _TERM.finditer(selector_text(text))
        return FieldSelector(tuple(_field_requirement(text, term) for term in terms))

    @property
    def empty(self) -> bool:
        """True if it matches everything."""
        return not self.requirements

    def matches(self, get: Callable[[str], str] | KubeObject) -> bool:
        """Return whether an object is selected.

        A server may know fields under other names, or with defaults.

        Args:
            get: The object, or a function that returns the text of a field by its path,
                `""` if it is missing.
        """
        if isinstance(get, KubeObject):
            get = partial(_field_text, get)

        for it in self.requirements:
            if (get(it.field) == it.value) is (it.operator == "!="):
                return False

        return True

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def _field_text(obj: KubeObject, path: str) -> str:
    """Return a field's value as selectors write it."""
    value = obj.at(path, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field_requirement(text: str, term: re.Match[str]) -> FieldRequirement:
    def fail(message: str, position: int) -> NoReturn:
        raise SelectorSyntaxError(message, text=text, position=position)

    operator = _OPERATOR.search(term[0])
    if operator is None:
        field = _FIELD.match(term[0])
        fail(
            "expected =, == or != after a field",
            term.start() + (field.end() if field else 0),
        )

    path = term[0][: operator.start()]
    name = _FIELD.match(path)
    if name is None or name.end() < len(path):
        fail("not a field name", term.start() + (name.end() if name else 0))

    start = term.start() + operator.end()
    value = term[0][operator.end() :]
    legal = _VALUE.match(value)
    if legal is not None and legal.end() < len(value):
        fail(
            r"in a value, escape , = and \ by a backslash",
            start + legal.end(),
        )

    kind: FieldOperator = "!=" if operator[0] == "!=" else "="
    return FieldRequirement(path, kind, _ESCAPE.sub(r"\1", value))
