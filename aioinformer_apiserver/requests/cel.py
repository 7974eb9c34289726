"""Syntax trees of CEL expressions, with the errors of a real server. Pure.

Nothing evaluates an expression. Rare syntax errors have another message than in a real
server, whose parser is generated and reports what it could have expected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CELError", "Expression", "ExpressionKind", "parse_cel"]


class CELError(Exception):
    """Error in an expression."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ExpressionKind(IntEnum):
    """Kinds of expressions, with the numbers that are in messages."""

    CALL = 1
    IDENT = 3
    LIST = 4
    LITERAL = 5
    MAP = 6
    SELECT = 7
    STRUCT = 8


@dataclass(frozen=True, slots=True)
class Expression:
    """Node of a syntax tree.

    Attributes:
        kind: Kind of the expression.
        name: Name of the function, identifier or field, or Go type of a literal.
        parts: Arguments of a call, or operand of a field selection.
        text: Value of a string literal.
    """

    kind: ExpressionKind
    name: str = ""
    parts: tuple[Expression, ...] = ()
    text: str = ""


def parse_cel(text: str) -> Expression:
    """Parse an expression.

    Raises:
        CELError: At the first error.
    """
    try:
        return _Parser(text).read()
    except RecursionError:
        # A real server allows 250 levels, more than Python's stack has space for.
        raise CELError("expression recursion limit exceeded: 250") from None


# ---------------------------------------------------------------- tokens

_ESCAPE = (
    r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}"""
    r"|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
_STRING = "|".join(
    [
        r"[rR]'''[\s\S]*?'''",
        r'[rR]"""[\s\S]*?"""',
        r"[rR]'[^'\n\r]*'",
        r'[rR]"[^"\n\r]*"',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
    ]
)
_TOKEN = re.compile(
    r"(?P<hidden>[\t \r\n\f]+|//[^\n]*)"
    r"|(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
    r"|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])"
    r"|(?P<int>0x[0-9a-fA-F]+|[0-9]+)"
    rf"|(?P<string>{_STRING})"
    rf"|(?P<bytes>[bB](?:{_STRING}))"
    r"|(?P<ident>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<escaped>`[A-Za-z0-9_./ -]+`)"
    r"|(?P<symbol>==|!=|<=|>=|&&|\|\||[\[\]{}().,!?:+*/%<>-])"
)
# What the lexer has read when it finds that no token begins here.
_BROKEN = re.compile(
    rf"'(?:{_ESCAPE}|[^\\'\n\r])*(?:\\.?|[\n\r])?"
    rf'|"(?:{_ESCAPE}|[^\\"\n\r])*(?:\\.?|[\n\r])?'
    r"|[&|`][\s\S]?|[\s\S]"
)
_END = "<EOF>"
_KEYWORDS = frozenset(["in", "true", "false", "null"])
_RESERVED = frozenset(
    [
        *(
            "as",
            "break",
            "const",
            "continue",
            "else",
            "for",
            "function",
            "if",
            "import",
        ),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    ]
)


class _Token(NamedTuple):
    type: str
    text: str
    end: int


def _tokens_of(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at) or _BROKEN.match(text, at)
        assert match is not None
        at = match.end()
        # A pattern without groups matches what is no token.
        type_ = match.lastgroup or "broken"
        if type_ != "hidden":
            word = match[0]
            type_ = word if type_ == "symbol" or word in _KEYWORDS else type_
            found.append(_Token(type_, word, at))

    return [*found, _Token(_END, _END, at)]


# ---------------------------------------------------------------- literals

_LETTERS = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_GO_TYPES = {
    "true": "bool",
    "false": "bool",
    "null": "structpb.NullValue",
    "float": "float64",
    "bytes": "[]uint8",
}


def _unquoted(text: str) -> str:
    """Return the value of a string literal."""
    raw = text[0] in "rR"
    text = text[1:] if raw else text
    quotes = 3 if text[:3] in {"'''", '"""'} else 1
    text = re.sub(r"\r\n?", "\n", text[quotes:-quotes])
    return text if raw else re.sub(_ESCAPE, _unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    letter, digits = match[0][1], match[0][2:]
    if not digits:
        return _LETTERS.get(letter, letter)

    code = int(digits, 16) if letter in "xXuU" else int(letter + digits, 8)
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise CELError("invalid unicode code point")

    return chr(code)


# ---------------------------------------------------------------- parser

# Types of tokens in the order of messages.
_ORDER = (
    *("[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":"),
    *("true", "false", "null", "float", "int", "uint", "string", "bytes", "ident"),
    "escaped",
)
_NAMES = {
    "float": "NUM_FLOAT",
    "int": "NUM_INT",
    "uint": "NUM_UINT",
    "string": "STRING",
    "bytes": "BYTES",
    "ident": "IDENTIFIER",
    "escaped": "ESC_IDENTIFIER",
    _END: _END,
}
_LITERALS = frozenset(
    ["true", "false", "null", "float", "int", "uint", "string", "bytes"]
)
# Types of tokens with which an operand, or an expression, starts.
_OPERANDS = frozenset(["[", "{", "(", ".", "ident"]) | _LITERALS
_START = _OPERANDS | {"-", "!"}
# Binary operators, from the loosest to the tightest.
_LEVELS = (
    ("||",),
    ("&&",),
    ("<", "<=", ">=", ">", "==", "!=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
# Of them, the number of levels with logical operators.
_LOGICAL = 2


class _Parser:
    """Parser of one expression, up to the first error."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens_of(text)
        self._at = 0
        # For each open bracket, types of tokens that may follow an operand in it.
        self._around = [frozenset([_END])]
        # First error in what the grammar allows; syntax errors come before it.
        self._error = ""

    def read(self) -> Expression:
        """Parse the whole text."""
        found = self._expression()
        self._expect(_END, frozenset())
        if self._error:
            raise CELError(self._error)

        return found

    # ------------------------------------------------------------ tokens

    def _peek(self, ahead: int = 0) -> _Token:
        token = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        if token.type == "broken":
            raise CELError(f"Syntax error: token recognition error at: '{token.text}'")

        return token

    def _take(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _takes(self, *types: str) -> bool:
        """Take the next token if it has one of the types."""
        fits = self._peek().type in types
        self._at += fits
        return fits

    def _expect(self, type_: str, following: frozenset[str] | None = None) -> None:
        """Take a token of a type.

        Args:
            type_: Type of the token.
            following: Types of tokens of which one follows it; None for those that end
                or continue what is around.
        """
        if self._takes(type_):
            return

        token, expected = self._peek(), frozenset([type_])
        following = self._around[-1] if following is None else following
        if self._peek(1).type != type_ and token.type in following:
            raise CELError(
                f"Syntax error: missing {_listed(expected)} at '{token.text}'"
            )

        self._fail(expected)

    def _fail(self, expected: frozenset[str], *, extra: bool = False) -> NoReturn:
        token = self._peek()
        # Without an extra token, the expression would go on.
        extra = self._peek(1).type in expected or extra
        kind = "extraneous" if extra else "mismatched"
        raise CELError(
            f"Syntax error: {kind} input '{token.text}' expecting {_listed(expected)}"
        )

    def _fail_after(self, first: _Token) -> NoReturn:
        read = self._text[first.end - len(first.text) : self._peek().end].rstrip()
        if re.fullmatch("[.](true|false|null)", read):
            self._fail(frozenset(["ident"]))

        shown = re.sub("[\n\r\t]", lambda it: repr(it[0])[1:-1], read)
        raise CELError(f"Syntax error: no viable alternative at input '{shown}'")

    def _note(self, error: str) -> None:
        self._error = self._error or error

    # ------------------------------------------------------------ grammar

    def _expression(self, also: frozenset[str] = frozenset()) -> Expression:
        """Parse an expression.

        Args:
            also: Types of tokens that may stand here instead, for the message.
        """
        found = self._binary(0, also)
        if self._takes("?"):
            chosen = self._binary(0)
            self._expect(":", _START)
            found = _call("_?_:_", found, chosen, self._expression())

        return found

    def _within(self, end: str, also: frozenset[str] = frozenset()) -> Expression:
        """Parse an expression in brackets, without the opening one."""
        self._around.append(frozenset([end]))
        found = self._expression(also)
        self._around.pop()
        self._expect(end)
        return found

    def _binary(self, level: int, also: frozenset[str] = frozenset()) -> Expression:
        if level == len(_LEVELS):
            return self._unary(also)

        found = self._binary(level + 1, also)
        # A chain of logical operators is one call, so that long ones are not deep.
        rest: list[Expression] = []
        while self._takes(*_LEVELS[level]):
            operator = self._tokens[self._at - 1].type
            part = self._binary(level + 1)
            if level < _LOGICAL:
                rest.append(part)
            else:
                name = "@in" if operator == "in" else f"_{operator}_"
                found = _call(name, found, part)

        return _call(f"_{_LEVELS[level][0]}_", found, *rest) if rest else found

    def _unary(self, also: frozenset[str]) -> Expression:
        first = self._peek()
        operator = first.type
        if operator not in {"!", "-"}:
            return self._members(self._primary(_START | also))

        count = 0
        while self._takes(operator):
            count += 1

        token = self._peek()
        if count == 1 and operator == "-" and token.type in {"int", "float"}:
            return self._members(self._literal("-"))

        if token.type not in _OPERANDS:
            if operator == "-" or token.type == "-":
                self._fail_after(first if operator == "-" else token)

            self._fail(_START, extra=True)

        found = self._members(self._primary(_START))
        return _call(f"{operator}_", found) if count % 2 else found

    def _members(self, found: Expression) -> Expression:
        """Parse the fields, calls and indexes that follow an operand."""
        while True:
            if self._takes("."):
                found = self._member(found)
            elif self._takes("["):
                if self._takes("?"):
                    self._note("unsupported syntax '[?'")

                found = _call("_[_]", found, self._within("]", frozenset("?")))
            else:
                return found

    def _member(self, operand: Expression) -> Expression:
        dot = self._tokens[self._at - 1]
        optional = self._takes("?")
        token = self._peek()
        if token.type not in {"ident", "escaped"}:
            if optional:
                self._fail(frozenset(["ident", "escaped"]))

            self._fail_after(dot)

        self._take()
        if token.type == "escaped":
            self._note("unsupported syntax: '`'")

        if optional:
            self._note("unsupported syntax '.?'")
        elif token.type == "ident" and self._takes("("):
            return _call(token.text, *self._list(")"))

        return Expression(ExpressionKind.SELECT, token.text, (operand,))

    def _primary(self, expected: frozenset[str]) -> Expression:
        type_ = self._peek().type
        if type_ not in _OPERANDS:
            self._fail(expected)

        match type_:
            case "ident" | ".":
                return self._identifier()
            case "(":
                self._take()
                return self._within(")")
            case "[":
                self._take()
                self._list("]", self._optional)
                return Expression(ExpressionKind.LIST)
            case "{":
                self._take()
                self._list("}", self._entry)
                return Expression(ExpressionKind.MAP)
            case _:
                return self._literal()

    def _identifier(self) -> Expression:
        """Parse an identifier, a call, or a message such as `a.B{}`."""
        first = self._peek()
        if self._takes(".") and self._peek().type != "ident":
            self._fail_after(first)

        token = first if first.type == "ident" else self._peek()
        self._take()
        name = token.text if token is first else f".{token.text}"
        if self._is_message():
            while not self._takes("{"):
                self._take()

            self._list("}", self._field)
            return Expression(ExpressionKind.STRUCT)

        if token.text in _RESERVED:
            self._note(f"reserved identifier: {token.text}")

        if self._takes("("):
            return _call(name, *self._list(")"))

        return Expression(ExpressionKind.IDENT, name)

    def _is_message(self) -> bool:
        at = self._at
        while [it.type for it in self._tokens[at : at + 2]] == [".", "ident"]:
            at += 2

        return self._tokens[at].type == "{"

    def _list(
        self, end: str, item: Callable[[frozenset[str]], Expression] | None = None
    ) -> list[Expression]:
        """Parse items up to the end, with a comma after the last one where allowed."""
        found: list[Expression] = []
        also = frozenset([end] if item is None else [end, ",", "?"])
        item = item or self._expression
        if end != ")" and self._takes(","):
            self._expect(end)
            return found

        self._around.append(frozenset([end, ","]))
        while not self._takes(end):
            found.append(item(also))
            if not self._takes(","):
                if end != ")" and self._peek().type != end:
                    self._fail(frozenset([end, ","]))

                self._around.pop()
                self._expect(end)
                return found

            also = frozenset() if end == ")" else frozenset([end, "?"])
            if end == ")" and self._peek().type == end:
                self._fail(_START)

        self._around.pop()
        return found

    def _optional(self, also: frozenset[str]) -> Expression:
        if self._takes("?"):
            self._note("unsupported syntax '?'")
            return self._expression()

        return self._expression(also)

    def _entry(self, also: frozenset[str]) -> Expression:
        key = self._optional(also)
        self._expect(":", _START)
        return _call("", key, self._expression())

    def _field(self, also: frozenset[str]) -> Expression:
        if self._takes("?"):
            self._note("unsupported syntax '?'")

        if not self._takes("ident", "escaped"):
            self._fail(also | {"ident", "escaped"})

        self._expect(":", _START)
        return self._expression()

    def _literal(self, sign: str = "") -> Expression:
        token = self._take()
        match token.type:
            case "string":
                try:
                    return _literal("string", _unquoted(token.text))
                except CELError as exc:
                    self._note(str(exc))
                    return _literal("string")
            case "int":
                self._check_number(sign + token.text, _INT64, "int")
                return _literal("int64")
            case "uint":
                self._check_number(token.text[:-1], _UINT64, "uint")
                return _literal("uint64")
            case type_:
                return _literal(_GO_TYPES[type_])

    def _check_number(self, text: str, fitting: range, type_: str) -> None:
        # More digits than any fitting number has; int() fails for thousands of them.
        if len(text) > 40 or int(text, 16 if "x" in text else 10) not in fitting:
            self._note(f"invalid {type_} literal")


def _listed(types: frozenset[str]) -> str:
    names = [_NAMES.get(it, f"'{it}'") for it in (*_ORDER, _END) if it in types]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"


def _call(name: str, *arguments: Expression) -> Expression:
    return Expression(ExpressionKind.CALL, name, arguments)


def _literal(type_: str, text: str = "") -> Expression:
    return Expression(ExpressionKind.LITERAL, type_, text=text)
