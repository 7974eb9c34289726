"""JSON syntax errors: the messages of a real server for each of these texts."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from aioinformer_apiserver.errors.json_errors import json_syntax_error

END = "unexpected end of JSON input"
KEY = "looking for beginning of object key string"
VALUE = "looking for beginning of value"
PAIR = "after object key:value pair"


ERRORS = {
    "": END,
    "{": END,
    '{"a"': END,
    '{"a":': END,
    '{"a":1': END,
    '{"a":1,': END,
    '{"a":1,}': f"invalid character '}}' {KEY}",
    "[1,]": f"invalid character ']' {VALUE}",
    "[1 2]": "invalid character '2' after array element",
    '{"a" 1}': "invalid character '1' after object key",
    '{"a":1 "b":2}': f"invalid character '\"' {PAIR}",
    "{a:1}": f"invalid character 'a' {KEY}",
    "{} x": "invalid character 'x' after top-level value",
    "tru": "invalid character ' ' in literal true (expecting 'e')",
    "nul": "invalid character ' ' in literal null (expecting 'l')",
    '"abc': END,
    '"a\\qb"': "invalid character 'q' in string escape code",
    '{"a":01}': f"invalid character '1' {PAIR}",
    '{"a":1.}': "invalid character '}' after decimal point in numeric literal",
    "-": "invalid character ' ' in numeric literal",
    '{"a":"b\nc"}': r"invalid character '\n' in string literal",
    "[1": END,
    "x": f"invalid character 'x' {VALUE}",
    "{'a':1}": rf"invalid character '\'' {KEY}",
    '{"a":1]': f"invalid character ']' {PAIR}",
    '{"a":+1}': f"invalid character '+' {VALUE}",
    '{"a":\t1,"b":nope}': "invalid character 'o' in literal null (expecting 'u')",
    "\ufeff{}": f"invalid character 'ï' {VALUE}",
    '{"a":"\\u12"}': "invalid character '\"' in \\u hexadecimal character escape",
    "1e": "invalid character ' ' in exponent of numeric literal",
    "\x00": rf"invalid character '\x00' {VALUE}",
}


def test_json_error_matches_go() -> None:
    assert {text: json_syntax_error(text.encode()) for text in ERRORS} == ERRORS


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=30)
@given(JSON)
def test_json_error_is_empty_for_valid_json(value: object) -> None:
    for text in (json.dumps(value, allow_nan=False), json.dumps(value, indent=1)):
        assert json_syntax_error(text.encode()) == ""


@given(st.text(alphabet='{}[]",:\\0123e-.tfnu \n'))
def test_json_error_exists_for_invalid_json(text: str) -> None:
    try:
        json.loads(text, parse_constant=_refused)
    except ValueError:
        assert json_syntax_error(text.encode()) != ""
    else:
        assert json_syntax_error(text.encode()) == ""


def _refused(name: str) -> None:
    raise ValueError(name)
