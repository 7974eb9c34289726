"""Tables of custom resources: JSON paths, types and unsuitable values."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case
from table_helpers import NOW, ago

from aioinformer_apiserver.serialization.jsonpath import JSONPathError, json_path
from aioinformer_apiserver.serialization.printer_columns import custom_layout

SPEC: dict[str, Any] = {
    "str": "hello",
    "str-x": "dash",
    "a.b": "dot",
    "nul": None,
    "nums": [1, 2, 3],
    "map": {"b": "1", "a": "2"},
    "lists": [[1, 2]],
    "list": [
        {"name": "a", "n": 1, "sub": {"x": "y"}},
        {"name": "b", "n": 2, "opt": None, "ok": True},
        {"name": "c", "n": 3, "ok": False},
    ],
    "mixed": [{"v": 1, "n": "one"}, {"v": "x", "n": "x"}, {"v": [1], "n": "list"}],
    "deep": {"deep": "inner"},
}
BODY = {
    "metadata": {"name": "full", "labels": {"app.kubernetes.io/name": "dotted"}},
    "spec": SPEC,
}


@each_case(
    "path, found",
    [
        (".spec.str", ["hello"]),
        ("$.spec.str", ["hello"]),
        (".spec.str-x", ["dash"]),
        (".spec['str']", ["hello"]),
        ('.spec["a.b"]', ["dot"]),
        (".spec['str','a.b']", ["hello", "dot"]),
        (r".metadata.labels.app\.kubernetes\.io/name", ["dotted"]),
        (".metadata.labels['app.kubernetes.io/name']", ["dotted"]),
        (".spec.missing.more", []),
        (".spec.str.more", []),
        (".spec.nul", [None]),
        (".spec.nul.more", []),
        (".spec.nul[0]", []),
        (".spec.nums[0]", [1]),
        (".spec.nums[ 1 ]", [2]),
        (".spec.nums[-1]", [3]),
        (".spec.nums[0,2]", [1, 3]),
        (".spec.nums[:2]", [1, 2]),
        (".spec.nums[-2:]", [2, 3]),
        (".spec.nums[::2]", [1, 3]),
        (".spec.nums[1:1]", []),
        (".spec.nums[*]", [1, 2, 3]),
        (".spec.lists[0][1]", [2]),
        (".spec.map.*", ["2", "1"]),
        (".spec.nums.*", [1, 2, 3]),
        ("..opt", [None]),
        (".spec..n", [1, 2, 3, "one", "x", "list"]),
        (".spec.deep..deep", ["inner"]),
        ("..[0]", JSONPathError),
        ('.spec.list[?(@.name=="b")].n', [2]),
        (".spec.list[?(@.name == 'b')].n", [2]),
        (".spec.list[?('b'==@.name)].n", [2]),
        (".spec.list[?(@.name!='b')].n", [1, 3]),
        (".spec.list[?(@.n>=2)].name", ["b", "c"]),
        (".spec.list[?(@.n<2)].name", ["a"]),
        (".spec.list[?(@.n>1.5)].name", ["b", "c"]),
        (".spec.list[?(@.n<=1)].name", ["a"]),
        (".spec.list[?(@.ok==true)].name", ["b"]),
        (".spec.list[?(@.opt)].name", ["b"]),
        (".spec.list[?(@.sub.x=='y')].name", ["a"]),
        (".spec.nums[?(@==2)]", [2]),
        (".spec.map[0]", JSONPathError),
        (".spec.map[*]", JSONPathError),
        (".spec.str[0]", JSONPathError),
        (".spec.nums[3]", JSONPathError),
        (".spec.nums[-4]", JSONPathError),
        (".spec.nums[0:9]", JSONPathError),
        (".spec.map[?(@.a)]", JSONPathError),
        (".spec.mixed[?(@.v==1)].n", JSONPathError),
        (".spec.mixed[?(@.v>1)].n", JSONPathError),
        (".spec.list[?(@..x=='y')].n", [1]),
    ],
)
def test_json_path_finds_values(
    path: str, found: list[Any] | type[JSONPathError]
) -> None:
    find = json_path(path)

    if isinstance(found, list):
        assert find(BODY) == found
    else:
        with pytest.raises(found):
            find(BODY)


@each_case(
    "path",
    [
        ".spec.nums[0",
        ".spec.nums[]",
        ".spec.nums[x]",
        f".spec.nums[{'9' * 5000}]",
        ".spec.nums[0:3:0]",
        ".spec.list[?()]",
        ".spec.list[?(@.n==oops)]",
        ".spec.",
        "]",
    ],
)
def test_json_path_rejects_malformed_path(path: str) -> None:
    with pytest.raises(JSONPathError):
        json_path(path)


def cell(kind: str, value: object, path: str = ".spec.it") -> Any:
    columns = [{"name": "It", "type": kind, "jsonPath": path}]
    return custom_layout(columns).cells({"spec": {"it": value}}, NOW)[1]


@each_case(
    "kind, value, reported",
    [
        ("string", "a", "a"),
        ("string", 12, "12"),
        ("string", True, "true"),
        ("string", None, "<no value>"),
        ("string", 1.0, "1"),
        ("string", 1.5, "1.5"),
        ("string", -0.0001, "-0.0001"),
        ("string", 123456.5, "123456.5"),
        ("string", 1234567.5, "1.2345675e+06"),
        ("string", 0.00001, "1e-05"),
        ("string", 1e-7, "1e-07"),
        ("string", 1e20, "1e+20"),
        ("string", 12345678901234567890, "1.2345678901234567e+19"),
        ("string", {"b": [1, None], "a": "<"}, '{"a":"\\u003c","b":[1,null]}'),
        ("integer", 7, 7),
        ("integer", 1.7, 1),
        ("integer", -2.5, -2),
        ("integer", 1e20, -(2**63)),
        ("integer", "12", None),
        ("integer", True, None),
        ("integer", [4], None),
        ("number", 1.5, 1.5),
        ("number", 12, 12),
        ("number", 12.0, 12),
        ("number", False, None),
        ("number", "x", None),
        ("boolean", False, False),
        ("boolean", 0, None),
        ("boolean", "yes", None),
        pytest.param("date", ago(days=3, hours=1, minutes=5), "3d1h", id="old"),
        pytest.param("date", ago(days=-9), "<invalid>", id="future"),
        ("date", "garbage", "<invalid>"),
        ("date", None, None),
        ("date", ["2025-01-01T00:00:00Z"], None),
        ("unheard-of", "a", None),
    ],
)
def test_printer_column_formats_value_by_type(
    kind: str, value: object, reported: object
) -> None:
    shown = cell(kind, value)

    assert shown == reported
    assert type(shown) is type(reported)


@pytest.mark.parametrize("path", [".spec.other", ".spec.it[0]", ".spec.it[", ""])
def test_printer_column_is_empty_for_missing_value(path: str) -> None:
    assert cell("integer", "a", path) is None


def test_printer_columns_follow_name() -> None:
    stated = {
        "name": "Size",
        "type": "integer",
        "jsonPath": ".spec.size",
        "description": "How big.",
        "priority": 1,
        "format": "int32",
    }

    name, size = custom_layout([stated]).definitions()

    assert (name["name"], name["format"]) == ("Name", "name")
    assert size == {
        "name": "Size",
        "type": "integer",
        "format": "int32",
        "description": "How big.",
        "priority": 1,
    }


def test_custom_layout_defaults_to_age() -> None:
    layout = custom_layout([])
    body = {"metadata": {"name": "w", "creationTimestamp": ago(hours=9)}}

    assert [it.name for it in layout.columns] == ["Name", "Age"]
    assert layout.columns[1].type == "date"
    assert layout.cells(body, NOW) == ["w", "9h"]
