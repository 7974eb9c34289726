"""Request bodies and options: YAML, nesting, duplicate fields, wrong types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import WIDGETS_GROUP, ask, named
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

NOBODY = "nobody-of-this-name"


async def sent_yaml(
    http: aiohttp.ClientSession, path: str, text: str, **params: str
) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/yaml"}
    async with http.post(path, data=text, headers=headers, params=params) as answer:
        return answer.status, await answer.json()


# -------------------------------------------------------------------- YAML


@each_case(
    "text, value",
    [
        ("2024-01-31", "2024-01-31"),
        ("1:30", "1:30"),
        ("yes", True),
        ("n", False),
        ("012", 10),
        ("08", 8),
        ("1e3", 1000),
        ("0x1F", 31),
        ("~", None),
        ("{1: a, true: b, 2.5: c}", {"1": "a", "true": "b", "2.5": "c"}),
        ("[&a {b: c}, *a]", [{"b": "c"}, {"b": "c"}]),
        ("{<<: {a: b}, c: d}", {"a": "b", "c": "d"}),
    ],
)
async def test_yaml_body_is_decoded_like_go_decodes_it(
    target: ServerUnderTest, http: aiohttp.ClientSession, text: str, value: object
) -> None:
    head = "{apiVersion: example.com/v1, kind: Widget, metadata: {generateName: w-}}"
    body = f"{head[:-1]}, spec: {{it: {text}}}}}"

    code, made = await sent_yaml(http, target.path("widgets", WIDGETS_GROUP), body)

    assert (code, made["spec"]) == (201, {"it": value})


async def test_only_first_yaml_document_is_used(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    text = "metadata: {name: a}\n---\nmetadata: {name: b}\n"

    code, made = await sent_yaml(http, target.path("configmaps"), text)

    assert (code, made["metadata"]["name"]) == (201, "a")


@each_case(
    "text",
    [
        pytest.param("{", id="malformed"),
        pytest.param("a: &a [*a]", id="in-itself"),
        pytest.param("{null: 1}", id="key-null"),
        pytest.param("{[1]: 2}", id="key-list"),
        pytest.param("a: .nan", id="nan"),
        pytest.param("{" * 5000, id="deep"),
        pytest.param(
            "a: &a [1,1,1,1,1,1,1,1]\n"
            + "".join(
                f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
                for before, name in zip("abcdefghi", "bcdefghij", strict=True)
            ),
            id="grows",
        ),
    ],
)
async def test_malformed_yaml_is_400(
    target: ServerUnderTest, http: aiohttp.ClientSession, text: str
) -> None:
    code, status = await sent_yaml(http, target.path("configmaps"), text)

    assert (code, status["reason"]) == (400, "BadRequest")


# -------------------------------------------------------------------- JSON


async def test_deeply_nested_body_is_400(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    text = '{"spec":' + '{"a":' * 20_000 + "1" + "}" * 20_001
    headers = {"Content-Type": "application/json"}
    path = target.path("widgets", WIDGETS_GROUP)

    async with http.post(path, data=text, headers=headers) as answer:
        code, status = answer.status, await answer.json()

    assert (code, status["reason"]) == (400, "BadRequest")


async def test_last_of_duplicate_fields_in_large_body_counts(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    many = ",".join(f'"key-{number}":""' for number in range(50_000))
    text = f'{{"metadata":{{"name":"a"}},"data":{{{many},"key-7":"x"}}}}'
    headers = {"Content-Type": "application/json"}

    async with http.post(
        target.path("configmaps"), data=text, headers=headers
    ) as answer:
        code, made = answer.status, await answer.json()

    assert (code, made["data"]["key-7"]) == (201, "x")


# -------------------------------------------------------------------- options


@each_case(
    "options, why",
    [
        ({"gracePeriodSeconds": True}, "bool"),
        ({"gracePeriodSeconds": 1.5}, "number 1.5"),
        ({"preconditions": "x"}, "string"),
        ({"preconditions": {"uid": 3}}, "number"),
        ({"dryRun": "All"}, "string"),
        ({"propagationPolicy": ["Orphan"]}, "array"),
        ({"orphanDependents": "x"}, "string"),
    ],
)
async def test_query_options_of_wrong_type_are_400(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    options: dict[str, Any],
    why: str,
) -> None:
    path = f"{target.path('configmaps')}/{NOBODY}"

    code, status = await ask(http, "DELETE", path, options)

    assert code == 400
    start = f"json: cannot unmarshal {why} into Go struct field "
    assert status["message"].startswith(start)


@each_case(
    "text, wanted, why",
    [
        ("+5", 404, ""),
        ("-1", 404, ""),
        ("x", 400, "invalid syntax"),
        ("99999999999999999999", 400, "value out of range"),
    ],
)
async def test_grace_period_in_url_must_be_number(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    text: str,
    wanted: int,
    why: str,
) -> None:
    path = f"{target.path('configmaps')}/{NOBODY}"

    code, status = await ask(http, "DELETE", path, gracePeriodSeconds=text)

    assert code == wanted
    assert why in status["message"]


async def test_force_is_rejected_without_apply(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    code, _ = await ask(http, "POST", path, named("a"), force="true")
    merge = "application/merge-patch+json"

    codes = {
        (await ask(http, "PATCH", f"{path}/a", {}, content_type=merge, force=text))[0]
        for text in ("true", "false", "anything")
    }

    assert (code, codes) == (201, {422})
