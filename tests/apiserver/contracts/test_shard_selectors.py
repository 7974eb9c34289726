"""Syntax of shard selectors, with the feature gate on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api_calls import WIDGETS_GROUP, ask
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

UID, NAMESPACE = "object.metadata.uid", "object.metadata.namespace"
ZERO, HALF, END = (
    "'0x0000000000000000'",
    "'0x8000000000000000'",
    "'0x10000000000000000'",
)
FIRST = f"shardRange({UID}, {ZERO}, {HALF})"
SECOND = f"shardRange({UID}, {HALF}, {END})"


def between(start: str = ZERO, end: str = HALF, *, field: str = UID) -> str:
    return f"shardRange({field}, {start}, {end})"


@each_case(
    "selector, shown",
    [
        (FIRST, FIRST),
        (FIRST.replace(" ", ""), FIRST),
        (f"  {FIRST}\n", FIRST),
        (f"({FIRST})", FIRST),
        (f"{FIRST}||{SECOND}", f"{FIRST} || {SECOND}"),
        (f"(({SECOND} ||\n\t({FIRST})))", f"{SECOND} || {FIRST}"),
        (f"{FIRST} || {FIRST}", f"{FIRST} || {FIRST}"),
        (" || ".join([FIRST] * 64), " || ".join([FIRST] * 64)),
        (between(field=NAMESPACE), between(field=NAMESPACE)),
        (between(field="object . metadata . uid"), FIRST),
        (between(field="(object.metadata).uid"), FIRST),
        (between('"0x0000000000000000"'), FIRST),
        (between("r'0x0000000000000000'"), FIRST),
        (between("'''0x0000000000000000'''"), FIRST),
        (between(rf"'\x30\u0078\060{'0' * 14}\U00000030'"), FIRST),
        (f"{FIRST} // to the end", FIRST),
        # Of a call, only the name of the function counts.
        (f"x.y.{FIRST}", FIRST),
    ],
)
async def test_shard_selector_may_be_written_in_several_ways(
    target: ServerUnderTest, http: aiohttp.ClientSession, selector: str, shown: str
) -> None:
    path = target.path("configmaps")

    code, found = await ask(http, "GET", path, shardSelector=selector)

    assert code == 200, found
    assert found["metadata"]["shardInfo"]["selector"] == shown


KIND = "expected shardRange() call or || operator"
ONLY = "only shardRange() and || are allowed"
FIELDS = f"supported: {UID}, {NAMESPACE}"
FIELD = (
    "shardRange() first argument: expected field path (e.g. object.metadata.uid), got "
    "expression kind"
)
TEXT = "must be a string literal, got"
OPERANDS = (
    "'-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, "
    "IDENTIFIER}"
)
START = f"{{'[', '{{', '(', '.', {OPERANDS}"
AFTER = f"{{'[', '{{', '(', ')', '.', {OPERANDS}"
SYNTAX = "CEL parse error: Syntax error:"

REFUSED = [
    (
        " ",
        "empty shard selector is not allowed; omit the parameter for unfiltered lists",
    ),
    # Expressions of other kinds.
    ("true", f"unexpected expression kind 5; {KIND}"),
    ("'x'", f"unexpected expression kind 5; {KIND}"),
    ("-1.5", f"unexpected expression kind 5; {KIND}"),
    ("--1", f"unexpected expression kind 5; {KIND}"),
    ("shardRange", f"unexpected expression kind 3; {KIND}"),
    ("a.b", f"unexpected expression kind 7; {KIND}"),
    ("[1, 2]", f"unexpected expression kind 4; {KIND}"),
    ("{'a': 1}", f"unexpected expression kind 6; {KIND}"),
    ("a.B{c: 1}", f"unexpected expression kind 8; {KIND}"),
    # Other functions and operators.
    ("f()", f'unsupported function "f"; {ONLY}'),
    ("a.f(1)", f'unsupported function "f"; {ONLY}'),
    (f".{FIRST}", f'unsupported function ".shardRange"; {ONLY}'),
    (f"{FIRST} && {FIRST}", f'unsupported function "_&&_"; {ONLY}'),
    (f"!{FIRST}", f'unsupported function "!_"; {ONLY}'),
    (f"-{FIRST}", f'unsupported function "-_"; {ONLY}'),
    (f"{FIRST} ? {FIRST} : {FIRST}", f'unsupported function "_?_:_"; {ONLY}'),
    ("a == b", f'unsupported function "_==_"; {ONLY}'),
    ("a in b", f'unsupported function "@in"; {ONLY}'),
    ("1 + 2 * 3", f'unsupported function "_+_"; {ONLY}'),
    ("a[0]", f'unsupported function "_[_]"; {ONLY}'),
    (f"{FIRST} || f()", f'unsupported function "f"; {ONLY}'),
    # Arguments.
    ("shardRange()", "shardRange() requires exactly 3 arguments, got 0"),
    (
        f"shardRange({UID}, {ZERO}, {HALF}, 1)",
        "shardRange() requires exactly 3 arguments, got 4",
    ),
    (between(field="uid"), f'unsupported field path "uid"; {FIELDS}'),
    (
        between(field="object.metadata.name"),
        f'unsupported field path "object.metadata.name"; {FIELDS}',
    ),
    (between(field=f".{UID}"), f'unsupported field path ".{UID}"; {FIELDS}'),
    (between(field=f"'{UID}'"), f"{FIELD} 5"),
    (between(field="object['metadata']"), f"{FIELD} 1"),
    (between(field="f().uid"), f"{FIELD} 1"),
    (between("0"), f"hexStart {TEXT} int64"),
    (between("0u"), f"hexStart {TEXT} uint64"),
    (between("1.5"), f"hexStart {TEXT} float64"),
    (between("true"), f"hexStart {TEXT} bool"),
    (between("null"), f"hexStart {TEXT} structpb.NullValue"),
    (between(end="b'0x'"), f"hexEnd {TEXT} []uint8"),
    (
        between(end="f()"),
        "hexEnd must be a string literal (e.g. '0xff'), got expression kind 1",
    ),
    (between("'0000000000000000'"), "hexStart must have '0x' prefix, got "),
    (between("'0x'"), "hexStart: hex value is required after '0x'"),
    (
        between("'0x0'"),
        'hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean ',
    ),
    (
        between(end="'0x100000000000000000'"),
        'hexEnd: hex value too long (18 chars, max 17): "100000000000000000"',
    ),
    (
        between(end="'0x20000000000000000'"),
        "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got ",
    ),
    (between("'0x000000000000000A'"), 'hexStart: invalid hex character "A" in '),
    (between("'0xé'"), 'hexStart: invalid hex character "é" in "0xé"'),
    (
        between(HALF, HALF),
        "shard range start 0x8000000000000000 must be less than end 0x8000000000000000",
    ),
    (
        f"{FIRST} || {between(field=NAMESPACE)}",
        f'all shard ranges must use the same field, got "{UID}" and "{NAMESPACE}"',
    ),
    # Syntax.
    (f"{FIRST} ||", f"{SYNTAX} mismatched input '<EOF>' expecting {START}"),
    (f"|| {FIRST}", f"{SYNTAX} extraneous input '||' expecting {START}"),
    ("shardRange(", f"{SYNTAX} mismatched input '<EOF>' expecting {AFTER}"),
    (f"shardRange({UID}, {ZERO}", f"{SYNTAX} missing ')' at '<EOF>'"),
    (f"shardRange({UID},)", f"{SYNTAX} mismatched input ')' expecting {START}"),
    (f"{FIRST} {FIRST}", f"{SYNTAX} mismatched input 'shardRange' expecting <EOF>"),
    (f"{FIRST})", f"{SYNTAX} extraneous input ')' expecting <EOF>"),
    (f"({FIRST}, 1)", f"{SYNTAX} mismatched input ',' expecting ')'"),
    ("[1", f"{SYNTAX} mismatched input '<EOF>' expecting {{']', ','}}"),
    ("a ? b", f"{SYNTAX} mismatched input '<EOF>' expecting ':'"),
    ("object..uid", f"{SYNTAX} no viable alternative at input '..'"),
    ("a.true", f"{SYNTAX} mismatched input 'true' expecting IDENTIFIER"),
    ("! )", f"{SYNTAX} extraneous input ')' expecting {START}"),
    (f"{FIRST} | {FIRST}", f"{SYNTAX} token recognition error at: '| '"),
    ("'open", f"{SYNTAX} token recognition error at: ''open'"),
    ("for", "CEL parse error: reserved identifier: for"),
    ("a.?b", "CEL parse error: unsupported syntax '.?'"),
    ("a.`b`", "CEL parse error: unsupported syntax: '`'"),
    ("9223372036854775808", "CEL parse error: invalid int literal"),
    (r"'\ud800'", "CEL parse error: invalid unicode code point"),
    (
        f"{'(' * 300}{FIRST}{')' * 300}",
        "CEL parse error: expression recursion limit exceeded: 250",
    ),
]


@each_case("selector, message", REFUSED, ids=[it[0][:40] for it in REFUSED])
async def test_malformed_shard_selector_is_500(
    target: ServerUnderTest, http: aiohttp.ClientSession, selector: str, message: str
) -> None:
    path = target.path("configmaps")

    code, status = await ask(http, "GET", path, shardSelector=selector)

    assert code == 500
    assert status["message"].startswith(f"invalid shard selector: {message}")
    assert set(status) == {
        "kind",
        "apiVersion",
        "metadata",
        "status",
        "message",
        "code",
    }


@each_case(
    "method, plural, group, query",
    [
        ("GET", "configmaps", "api/v1", {"watch": "1"}),
        ("DELETE", "configmaps", "api/v1", {}),
        ("GET", "widgets", WIDGETS_GROUP, {}),
        ("GET", "events", "api/v1", {"watch": "1"}),
        # These are checked later.
        ("GET", "configmaps", "api/v1", {"resourceVersion": "x"}),
        ("GET", "configmaps", "api/v1", {"resourceVersion": "x", "watch": "1"}),
        ("GET", "configmaps", "api/v1", {"continue": "x"}),
        ("GET", "configmaps", "api/v1", {"resourceVersion": "99999999"}),
    ],
)
async def test_malformed_shard_selector_is_refused_everywhere(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    method: str,
    plural: str,
    group: str,
    query: dict[str, str],
) -> None:
    path = target.path(plural, group)

    code, status = await ask(http, method, path, shardSelector="x", **query)

    assert (code, status["message"].partition(":")[0]) == (
        500,
        "invalid shard selector",
    )


@each_case(
    "query, code",
    [
        ({"labelSelector": "!!"}, 400),
        ({"fieldSelector": "spec.x=1"}, 400),
        ({"limit": "x"}, 400),
        ({"timeoutSeconds": "x", "watch": "1"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Exact", "watch": "1"}, 422),
    ],
)
async def test_other_errors_come_before_that_of_the_shard_selector(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    query: dict[str, str],
    code: int,
) -> None:
    got, _ = await ask(
        http, "GET", target.path("configmaps"), shardSelector="x", **query
    )

    assert got == code
