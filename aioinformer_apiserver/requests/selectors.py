"""Label and field selectors, with the errors of an API server. Pure.

`LabelSelector.parse` reads the same language for clients, with messages of its own that
have positions. Messages here name the token at which a real server stops, and the
tokens that it expected. This parser also accepts `a in (b,,)`, as newer servers do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from aioinformer.model.selectors import (
    FieldRequirement,
    FieldSelector,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    integer_of,
)
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.names import (
    validate_label_value,
    validate_qualified_name,
)
from aioinformer_apiserver.errors.statuses import quote

if TYPE_CHECKING:
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["field_selector_of", "label_selector_of"]

# Whitespace, then a symbol or a word. `==` is one symbol.
_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+)?")
_SYMBOLS = frozenset(["=", "==", "!=", "!", "(", ")", ",", "<", ">"])

_OPERATORS: dict[str, LabelOperator] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<": "<",
    ">": ">",
    "in": "in",
    "notin": "notin",
}


def label_selector_of(text: str) -> LabelSelector:
    """Parse a label selector.

    Args:
        text: Value of the query parameter.

    Raises:
        ApiError: 400 for a malformed selector.
    """
    try:
        return LabelSelector(_Parser(text).read())
    except _SelectorError as exc:
        raise statuses.bad_request(str(exc)) from None


class _SelectorError(Exception):
    """Syntax error."""


class _Parser:
    """Parser of one selector, up to the first error."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens_of(text)
        self._at = 0

    def read(self) -> list[LabelRequirement]:
        """Parse all requirements.

        Raises:
            _SelectorError: At the first error, with the message.
        """
        found: list[LabelRequirement] = []
        while self._next != "":
            if self._next in _SYMBOLS and self._next != "!":
                self._fail("!, identifier, or 'end of string'")

            try:
                found.append(self._requirement())
            except _SelectorError as exc:
                raise _SelectorError(f"unable to parse requirement: {exc}") from None

            if self._next == "":
                break

            if self._take() != ",":
                self._at -= 1
                self._fail("',' or 'end of string'")

            if self._next == "" or (self._next in _SYMBOLS and self._next != "!"):
                self._fail("identifier after ','")

        return found

    @property
    def _next(self) -> str:
        """Return the next token; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token, self._at = self._next, self._at + 1
        return token

    def _fail(self, expected: str) -> NoReturn:
        raise _SelectorError(f"found '{self._next}', expected: {expected}")

    def _word(self) -> str:
        if self._next == "" or self._next in _SYMBOLS:
            self._fail("identifier")

        return self._take()

    def _requirement(self) -> LabelRequirement:
        absent = self._next == "!"
        if absent:
            self._take()

        key = self._word()
        errors = validate_qualified_name(key)
        if errors:
            why = "; ".join(errors)
            raise _SelectorError(f"<nil>: Invalid value: {quote(key)}: {why}")

        if absent or self._next in {"", ","}:
            return LabelRequirement(key, "!" if absent else "exists")

        operator = _OPERATORS.get(self._next)
        if operator is None:
            self._fail("in, notin, =, ==, !=, gt, lt")

        self._take()
        if operator in {"in", "notin"}:
            values = sorted(self._values())
        else:
            values = ["" if self._next in {"", ","} else self._word()]

        found = _validate_value(key, values, numeric=operator in {"<", ">"})
        if found:
            joined = ", ".join(found)
            raise _SelectorError(f"[{joined}]" if len(found) > 1 else joined)

        return LabelRequirement(key, operator, tuple(values))

    def _values(self) -> set[str]:
        if self._next != "(":
            raise _SelectorError(f"found '{self._next}' expected: '('")

        self._take()
        if self._next == ")":
            self._take()
            return {""}

        if self._next == "" or self._next in _SYMBOLS - {","}:
            self._fail("',', ')' or identifier")

        values = self._items()
        self._take()
        return values

    def _items(self) -> set[str]:
        """Parse up to the closing parenthesis; a missing value is empty."""
        values: set[str] = set()
        while True:
            if self._next == ",":
                self._take()
                if not values:
                    values.add("")

                if self._next in {",", ")"}:
                    values.add("")

                if self._next == ")":
                    return values
            elif self._next == "" or self._next in _SYMBOLS:
                self._fail("',', or identifier")
            else:
                values.add(self._take())
                if self._next == ")":
                    return values

                if self._next != ",":
                    self._fail("',' or ')'")


def _tokens_of(text: str) -> list[str]:
    found = [it[1] for it in _TOKEN.finditer(text)]
    return [token for token in found if token]


def _validate_value(key: str, values: list[str], *, numeric: bool) -> list[str]:
    found = []
    if numeric and integer_of(values[0]) is None:
        found.append(
            f"values[0]: Invalid value: {quote(values[0])}: for 'Gt', 'Lt' operators, "
            "the value must be an integer"
        )

    for index, value in enumerate(values):
        errors = validate_label_value(value)
        if errors:
            head = f"values[{index}][{key}]: Invalid value: {quote(value)}"
            found.append(f"{head}: {'; '.join(errors)}")

    return found


# A backslash escapes any character.
_TERM = re.compile(r"(?:\\.|[^,\\]|\\\Z)+", re.DOTALL)
_OPERATOR = re.compile("!=|==|=")
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED = frozenset(["\\", ",", "="])
_NAMES = ("metadata.name", "metadata.namespace")


def field_selector_of(kind: Kind, text: str) -> FieldSelector:
    """Parse a field selector.

    Args:
        kind: Kind of the objects, which has the selectable fields.
        text: Value of the query parameter.

    Raises:
        ApiError: 400 for a malformed selector, or a field that is not selectable.
    """
    terms = [_term(text, it[0]) for it in _TERM.finditer(text)]
    # The server sorts the fields, and ignores an empty term.
    sorted_terms = sorted(term for term in terms if term[0] or term[2])
    for field, _, _ in sorted_terms:
        if not _is_selectable(kind, field):
            raise statuses.bad_request(_unsupported_field_message(kind, field))

    return FieldSelector(
        tuple(
            FieldRequirement(field, "!=" if operator == "!=" else "=", value)
            for field, operator, value in sorted_terms
        )
    )


def _term(whole: str, term: str) -> tuple[str, str, str]:
    """Split a term into field, operator and value."""
    operator = _OPERATOR.search(term)
    if operator is None:
        message = f"invalid selector: '{whole}'; can't understand '{term}'"
        raise statuses.bad_request(message)

    value = term[operator.end() :]
    for escape in _ESCAPE.finditer(value):
        if escape[1] not in _ESCAPED:
            message = f"invalid field selector: invalid escape sequence: {escape[0]}"
            raise statuses.bad_request(message)

    for free in re.findall("[,=]", _ESCAPE.sub("", value)):
        # The real message has the character as a number.
        message = f"invalid field selector: unescaped character in value: {ord(free)}"
        raise statuses.bad_request(message)

    return term[: operator.start()], operator[0], _ESCAPE.sub(r"\1", value)


def _is_selectable(kind: Kind, field: str) -> bool:
    return field in kind.fields or field in _names_of(kind)


def _names_of(kind: Kind) -> tuple[str, ...]:
    """Return the metadata fields by which a kind can be selected.

    Cluster-scoped kinds have an empty namespace. Only those with a list of selectable
    fields reject a selector for it.
    """
    if kind.typed and kind.fields and not kind.resource.namespaced:
        return _NAMES[:1]

    return _NAMES


def _unsupported_field_message(kind: Kind, field: str) -> str:
    if kind.resource.kind == "Job":
        return f"field label {quote(field)} not supported for Job"

    if kind.typed and not kind.fields:
        known = ", ".join(map(quote, _NAMES))
        return f"{quote(field)} is not a known field selector: only {known}"

    return f"field label not supported: {field}"
