"""Field selectors: read, and refused, as the API server does. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aioinformer.model.selectors import FieldRequirement, FieldSelector
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.statuses import quoted

if TYPE_CHECKING:
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["field_selector_of"]

# A backslash takes the character after it along, whatever that is.
_TERM = re.compile(r"(?:\\.|[^,\\]|\\\Z)+", re.DOTALL)
_OPERATOR = re.compile("!=|==|=")
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED = frozenset(["\\", ",", "="])
_NAMES = ("metadata.name", "metadata.namespace")


def field_selector_of(kind: Kind, text: str) -> FieldSelector:
    """Read a field selector.

    Args:
        kind: Whose objects are selected; decides which fields may be asked for.
        text: The selector, as it stands in the parameter.

    Raises:
        ApiError: 400, if it is malformed, or asks for a field that is not selectable.
    """
    terms = [_term(text, it[0]) for it in _TERM.finditer(text)]
    # The server looks at the fields in their order, and drops a term without any text.
    asked = sorted(term for term in terms if term[0] or term[2])
    for field, _, _ in asked:
        if not _is_selectable(kind, field):
            raise statuses.bad_request(_refusal(kind, field))

    return FieldSelector(
        tuple(
            FieldRequirement(field, "!=" if operator == "!=" else "=", value)
            for field, operator, value in asked
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
        # The server prints the character as a number.
        message = f"invalid field selector: unescaped character in value: {ord(free)}"
        raise statuses.bad_request(message)

    return term[: operator.start()], operator[0], _ESCAPE.sub(r"\1", value)


def _is_selectable(kind: Kind, field: str) -> bool:
    return field in kind.fields or field in _names_of(kind)


def _names_of(kind: Kind) -> tuple[str, ...]:
    """Return what every kind can be selected by.

    Kinds that are in no namespace have an empty one; only those that name their fields
    one by one do not take the question.
    """
    if kind.typed and kind.fields and not kind.resource.namespaced:
        return _NAMES[:1]

    return _NAMES


def _refusal(kind: Kind, field: str) -> str:
    if kind.resource.kind == "Job":
        return f"field label {quoted(field)} not supported for Job"

    if kind.typed and not kind.fields:
        known = ", ".join(map(quoted, _NAMES))
        return f"{quoted(field)} is not a known field selector: only {known}"

    return f"field label not supported: {field}"
