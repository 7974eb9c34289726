"""JSON syntax errors with the messages of Go's decoder. Pure.

Used only for texts that another decoder has rejected, so speed does not matter.
"""

from __future__ import annotations

import json

__all__ = ["json_syntax_error"]

_BLANKS = b" \t\r\n"
_DIGITS = b"0123456789"
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_ESCAPABLE = b'bfnrt\\/"'
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_END = "unexpected end of JSON input"


def json_syntax_error(raw: bytes) -> str:
    """Return the syntax error of a text; empty for valid JSON.

    Example:
        >>> json_syntax_error(b'{"a": 1,}')
        "invalid character '}' looking for beginning of object key string"
    """
    try:
        _Scanner(raw).scan()
    except _SyntaxError as exc:
        return str(exc)

    return ""


class _SyntaxError(Exception):
    """First syntax error."""


class _Scanner:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def scan(self) -> None:
        self._value()
        if self._next() is not None:
            raise self._invalid("after top-level value")

    # ---------------------------------------------------------------- steps

    def _next(self) -> int | None:
        """Return the next byte that is not whitespace; None at the end."""
        while self._at < len(self._raw) and self._raw[self._at] in _BLANKS:
            self._at += 1

        return self._raw[self._at] if self._at < len(self._raw) else None

    def _require_next(self) -> int:
        found = self._next()
        if found is None:
            raise _SyntaxError(_END)

        return found

    def _current(self) -> int:
        """Return the current byte; at the end of the text, a space."""
        return self._raw[self._at] if self._at < len(self._raw) else _BLANKS[0]

    def _invalid(self, where: str) -> _SyntaxError:
        return _SyntaxError(f"invalid character {_quote(self._current())} {where}")

    # ---------------------------------------------------------------- values

    def _value(self) -> None:
        first = self._require_next()
        if first in _LITERALS:
            self._literal(_LITERALS[first])
        elif first == ord("-") or first in _DIGITS:
            self._number()
        elif first == ord('"'):
            self._string()
        elif first == ord("{"):
            self._object()
        elif first == ord("["):
            self._array()
        else:
            raise self._invalid("looking for beginning of value")

    def _literal(self, expected: bytes) -> None:
        for letter in expected:
            if self._current() != letter:
                why = f"in literal {expected.decode()} (expecting {_quote(letter)})"
                raise self._invalid(why)

            self._at += 1

    def _number(self) -> None:
        if self._current() == ord("-"):
            self._at += 1
            self._check_digit("in numeric literal")

        if self._current() == ord("0"):
            self._at += 1
        else:
            self._digits()

        if self._current() == ord("."):
            self._at += 1
            self._check_digit("after decimal point in numeric literal")
            self._digits()

        if self._current() in b"eE":
            self._at += 1
            self._at += self._current() in b"+-"
            self._check_digit("in exponent of numeric literal")
            self._digits()

    def _check_digit(self, where: str) -> None:
        if self._current() not in _DIGITS:
            raise self._invalid(where)

    def _digits(self) -> None:
        while self._current() in _DIGITS:
            self._at += 1

    def _string(self) -> None:
        self._at += 1
        while self._at < len(self._raw):
            found = self._current()
            if found < ord(" "):
                raise self._invalid("in string literal")

            self._at += 1
            if found == ord('"'):
                return

            if found == ord("\\"):
                self._escape()

        raise _SyntaxError(_END)

    def _escape(self) -> None:
        found = self._current()
        if found != ord("u") and found not in _ESCAPABLE:
            raise self._invalid("in string escape code")

        self._at += 1
        for _ in range(4 if found == ord("u") else 0):
            if self._current() not in _HEX_DIGITS:
                raise self._invalid("in \\u hexadecimal character escape")

            self._at += 1

    def _object(self) -> None:
        self._at += 1
        more = self._require_next() != ord("}")
        while more:
            if self._require_next() != ord('"'):
                raise self._invalid("looking for beginning of object key string")

            self._string()
            if self._require_next() != ord(":"):
                raise self._invalid("after object key")

            self._at += 1
            self._value()
            more = self._has_more("}", "after object key:value pair")

        self._at += 1

    def _array(self) -> None:
        self._at += 1
        more = self._require_next() != ord("]")
        while more:
            self._value()
            more = self._has_more("]", "after array element")

        self._at += 1

    def _has_more(self, end: str, where: str) -> bool:
        """Consume a comma, and return whether there was one."""
        found = self._require_next()
        if found == ord(","):
            self._at += 1
            return True

        if found != ord(end):
            raise self._invalid(where)

        return False


def _quote(letter: int) -> str:
    """Format a byte as Go quotes it in these messages."""
    text = chr(letter)
    if text == "'":
        return r"'\''"

    if text == '"':
        return "'\"'"

    if not text.isprintable() and text not in "\t\r\n":
        return f"'\\x{letter:02x}'" if letter < 128 else f"'\\u00{letter:02x}'"

    return f"'{json.dumps(text, ensure_ascii=False)[1:-1]}'"
