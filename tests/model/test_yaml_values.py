"""YAML decoded as JSON values: values, nesting and size."""

from __future__ import annotations

import pytest
from each_case import each_case

from aioinformer.model.yaml_values import (
    MOST_BYTES,
    MOST_NESTING,
    YAMLError,
    decoded_yaml,
    decoded_yamls,
)


def nested(levels: int) -> bytes:
    return b"a: " + b"[" * (levels - 1) + b"]" * (levels - 1)


def test_decoded_yaml_reads_the_first_document_only() -> None:
    assert decoded_yaml(b"a: 1\n---\n[") == {"a": 1}
    assert decoded_yaml(b"") is None


def test_decoded_yamls_reads_all_documents() -> None:
    assert decoded_yamls(b"a: 1\n---\n---\n- b\n") == [{"a": 1}, None, ["b"]]
    assert decoded_yamls(b'{"a": 1}') == [{"a": 1}]


def test_decoded_yaml_limits_nesting() -> None:
    assert decoded_yaml(nested(MOST_NESTING))
    for text in (nested(MOST_NESTING + 1), b"[" * 200_000, b'{"a":' * 200 + b"1" * 200):
        with pytest.raises(YAMLError, match="nested deeper than 100 levels"):
            decoded_yaml(text)

    with pytest.raises(YAMLError) as caught:
        decoded_yaml(b'{"a":' * 200 + b"1" + b"}" * 200)

    assert caught.value.reason == "nested deeper than 100 levels"


def test_decoded_yaml_limits_size() -> None:
    with pytest.raises(YAMLError, match=f"larger than {MOST_BYTES} bytes"):
        decoded_yaml(b" " * (MOST_BYTES + 1))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &a [*a]", id="itself"),
        pytest.param(
            "\n".join(
                ["a0: &a0 [x]"]
                + [
                    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]"
                    for n in range(1, 9)
                ]
            ),
            id="bomb",
        ),
        pytest.param("a: &a {<<: *a}", id="merge-of-itself"),
        pytest.param(
            "\n".join(
                ["a0: &a0 {x: 1}"]
                + [
                    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}"
                    for n in range(1, 7)
                ]
            ),
            id="bomb-of-merges",
        ),
    ],
)
def test_decoded_yaml_limits_aliases(text: str) -> None:
    with pytest.raises(YAMLError, match=r"excessive aliasing|recursion"):
        decoded_yaml(text.encode())


def test_decoded_yaml_merges_mappings() -> None:
    text = b"a: &a {x: 1, w: 2}\nb: &b {<<: *a, w: 3}\nc: {<<: [{z: 0}, *b]}"
    assert decoded_yaml(text) == {
        "a": {"x": 1, "w": 2},
        "b": {"x": 1, "w": 3},
        "c": {"x": 1, "w": 3, "z": 0},
    }


@each_case(
    "text",
    [
        "!!int ''",
        "!!bool maybe",
        "!!timestamp x",
        "!!set {a}",
        "!!binary eA==",
        ".nan",
        r'"\ud800"',
        r'{"\ud800": 1}',
    ],
)
def test_decoded_yaml_rejects_values_without_json_form(text: str) -> None:
    with pytest.raises(YAMLError):
        decoded_yaml(f"a: {text}".encode())


def test_yaml_error_names_line() -> None:
    with pytest.raises(YAMLError) as caught:
        decoded_yaml(b"a: 1\nb: [\n")

    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0o17", 15),
        ("-0O17", -15),
        ("0X1F", 31),
        ("0B101", 5),
        ("+_5", 5),
        ("7E_2", 700.0),
        ("089", 89.0),
        (".2_7", 0.27),
        ("._1", "._1"),
        ("0b_", "0b_"),
        ("0o8", "0o8"),
        ("0x_", "0x_"),
        ("1e", "1e"),
    ],
)
def test_plain_scalars_are_what_kubectl_reads(text: str, value: object) -> None:
    assert decoded_yaml(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("password: !hun'ter2", "could not determine a constructor for the tag ..."),
        ("password: !hun't'er2", "could not determine a constructor for the tag ..."),
        ("a: *hunter2", "found undefined alias ..."),
        ("a: [1, 2\nb: c", "expected ',' or ']', but got ':'"),
        ("\ta: b", r"found character '\t' that cannot start any token"),
    ],
)
def test_reason_quotes_symbols_only(text: str, reason: str) -> None:
    with pytest.raises(YAMLError) as caught:
        decoded_yaml(text.encode())

    assert caught.value.reason == f"not YAML: {reason}"
