"""Kubeconfigs with any value in any place either work or raise one clear error."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import yaml
from credential_helpers import V1
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.client.kubeconfig import load_kubeconfig
from aioinformer.errors import OptionsError
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

CLUSTER = {
    "server": "https://api.example:6443",
    "certificate-authority-data": "eA==",
    "insecure-skip-tls-verify": False,
    "tls-server-name": "api.example",
    "proxy-url": "http://proxy.example",
    "extensions": [
        {"name": "other", "extension": {}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"a": ["b"]}},
    ],
}
# The program does not exist, but its arguments are prepared.
EXEC = {
    "apiVersion": V1,
    "command": "./absent",
    "args": ["a"],
    "env": [{"name": "A", "value": "b"}],
    "interactiveMode": "Never",
    "provideClusterInfo": True,
    "installHint": "get it",
}
ACTS = {"as": "jane", "as-uid": "7", "as-groups": ["a"], "as-user-extra": {"a": ["b"]}}
USERS: list[dict[str, Any]] = [
    {"exec": EXEC} | ACTS,
    {"tokenFile": "absent"} | ACTS,
    {"username": "me", "password": "pw", "client-certificate": "a", "client-key": "b"},
    {"token": "x", "client-certificate-data": "eA==", "client-key-data": "eA=="},
]


def kubeconfig(user: dict[str, Any]) -> dict[str, Any]:
    context = {"cluster": "main", "user": "main", "namespace": "x"}
    return {
        "clusters": [{"name": "main", "cluster": CLUSTER}],
        "users": [{"name": "main", "user": user}],
        "contexts": [{"name": "main", "context": context}],
        "current-context": "main",
    }


# Values that YAML interprets, or cannot parse, without quotes.
WORDS = (
    "2024-01-31",
    "2024-99-99",
    "!!int ''",
    "!!bool maybe",
    "!!timestamp x",
    "!!binary eA==",
    "!!set {a}",
    "1:60:61",
    "<<",
    "=",
    "0x",
    ".nan",
    "1e999",
    "9" * 400,
    "&a [*a]",
    "*a",
    "{? [a] : b}",
    "{1: 2, true: 3}",
)
ODD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(WORDS).map("WORD {}".format),
    st.sampled_from([None, True, 0, 7, 1.5, [], {}, [None], {"a": None}, [[]], [{}]]),
    st.sampled_from(["", "\0", "a\nb", "http://[::1", "https://:x", "//", "é", "a=b"]),
    st.dates(),
    st.text(max_size=8),
)


def paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Draw the path of a value in a kubeconfig."""
    match value:
        case dict():
            inner = list(value.items())
        case list():
            inner = list(enumerate(value))
        case _:
            inner = []

    for key, each in inner:
        yield (*path, key)
        yield from paths(each, (*path, key))


@st.composite
def odd_kubeconfigs(draw: st.DrawFn) -> str:
    content: Any = deepcopy(kubeconfig(draw(st.sampled_from(USERS))))
    for _ in range(draw(st.integers(1, 3))):
        *outer, last = draw(st.sampled_from(list(paths(content))))
        place = content
        for key in outer:
            place = place[key]

        place[last] = draw(ODD)

    if draw(st.booleans()):
        return json.dumps(content, default=str)

    text: str = yaml.safe_dump(content, allow_unicode=True, width=10_000)
    for word in WORDS:
        text = text.replace(f"'WORD {word}'", word).replace(f"WORD {word}", word)

    return text


def outcome(file: Path) -> str:
    """Read a kubeconfig and its credentials; return the error, if any."""
    try:
        credentials = load_kubeconfig(file).credentials
    except OptionsError as exc:
        assert_names(file, str(exc))
        return str(exc)

    try:
        asyncio.run(credentials.auth_info())
    except OptionsError as exc:
        return str(exc)

    return ""


def assert_names(file: Path, said: str) -> None:
    assert str(file) in said


@examples(80)
@given(odd_kubeconfigs())
def test_kubeconfig_with_odd_values_works_or_raises_options_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "odd-kubeconfig"
    file.write_text(text, encoding="utf-8")

    outcome(file)


@given(st.binary(max_size=64) | st.text("[]{}:,-&*!#'\"| \nax1", max_size=64))
def test_kubeconfig_of_random_bytes_raises_options_error(
    tmp_path_factory: pytest.TempPathFactory, text: bytes | str
) -> None:
    file = tmp_path_factory.getbasetemp() / "odd-kubeconfig"
    file.write_bytes(text.encode() if isinstance(text, str) else text)

    assert outcome(file)
