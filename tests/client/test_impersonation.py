"""Requests in the name of somebody else, up to what the server makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from credential_helpers import door, kubeconfig

from aioinformer.client import Client, ClientConfig
from aioinformer.client.impersonation import impersonation_headers
from aioinformer.client.kubeconfig import load_kubeconfig
from aioinformer.errors import OptionsError
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from pathlib import Path


def test_names_user_uid_groups_and_extra() -> None:
    headers = impersonation_headers(
        "jane", uid="7", groups=["dev", "ops"], extra={"scopes": ["a", "b"]}
    )

    assert headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-scopes", "a"),
        ("Impersonate-Extra-scopes", "b"),
    )


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("acme.com/project", "acme.com%2Fproject"),
        ("a b%c:d", "a%20b%25c%3Ad"),
        ("é", "%C3%A9"),
        ("!#$&'*+-.^_`|~", "!#$&'*+-.^_`|~"),
    ],
)
def test_escapes_what_no_header_can_be_named(name: str, header: str) -> None:
    (_, (found, _)) = impersonation_headers("jane", extra={name: ["x"]})

    assert found == f"Impersonate-Extra-{header}"


@pytest.mark.parametrize(
    "wrong", [{"uid": "7"}, {"groups": ["dev"]}, {"extra": {"scopes": ["a"]}}]
)
def test_nobody_cannot_have_groups(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="without a user"):
        impersonation_headers("", **wrong)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(("X", "a\r\nAuthorization: b"), id="value"),
        pytest.param(("X: a\r\nY", "b"), id="name"),
        pytest.param(("", "b"), id="no-name"),
    ],
)
def test_no_header_smuggles_another(header: tuple[str, str]) -> None:
    with pytest.raises(OptionsError, match="header"):
        ClientConfig(server="http://api.example", headers=(header,))


async def test_sends_what_the_kubeconfig_says_with_every_request(
    tmp_path: Path,
) -> None:
    async with door() as seen:
        user = {
            "token": "mine",
            "as": "jane",
            "as-uid": "7",
            "as-groups": ["dev", "ops"],
            "as-user-extra": {"acme.com/project": ["a", "b"]},
        }
        file = kubeconfig(tmp_path / "config", user, {"server": seen.url})
        async with Client.from_kubeconfig(file) as client:
            await client.get(PODS, "a", namespace="x")
            await client.get(PODS, "a", namespace="x")

    for headers in seen.headers:
        assert headers["Authorization"] == "Bearer mine"
        assert headers.getall("Impersonate-User") == ["jane"]
        assert headers.getall("Impersonate-Uid") == ["7"]
        assert headers.getall("Impersonate-Group") == ["dev", "ops"]
        assert headers.getall("Impersonate-Extra-acme.com%2Fproject") == ["a", "b"]


@pytest.mark.parametrize(
    ("user", "words"),
    [
        pytest.param({"as-groups": ["dev"]}, "add `as`", id="groups-of-nobody"),
        pytest.param({"as": "a", "as-groups": "dev"}, "as-groups of", id="no-list"),
        pytest.param({"as": "a", "as-groups": [1]}, "as-groups of", id="no-texts"),
        pytest.param(
            {"as": "a", "as-user-extra": []}, "mapping", id="extra-no-mapping"
        ),
        pytest.param(
            {"as": "a", "as-user-extra": {"b": "c"}}, "b of as-user-extra", id="extra"
        ),
        pytest.param({"as": "a\nb"}, "line break", id="line-break"),
    ],
)
def test_names_the_field_that_is_wrong(
    tmp_path: Path, user: dict[str, Any], words: str
) -> None:
    file = kubeconfig(tmp_path / "config", user)

    with pytest.raises(OptionsError) as caught:
        load_kubeconfig(file)

    assert words in str(caught.value)
    assert f"in {file}" in str(caught.value)
