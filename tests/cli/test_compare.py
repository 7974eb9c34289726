"""What a cache holds, compared with what the server holds."""

from __future__ import annotations

import pytest
from conftest import pod

from aioinformer.cli.compare import differences
from aioinformer.model import KubeObject

A, B = pod("a", "x"), pod("b", "x")
NODE = {"metadata": {"name": "n"}}


def test_equal_contents_have_no_differences() -> None:
    cached = [KubeObject.of(body) for body in (NODE, B, A)]

    assert differences([A, B, NODE], cached) == []


@pytest.mark.parametrize(
    ("cached", "found"),
    [
        pytest.param([A], ["n is missing", "x/b is missing"], id="missing"),
        pytest.param([A, B, NODE, pod("c", "x")], ["x/c is too much"], id="extra"),
        pytest.param(
            [A, pod("b", "x", spec={"nodeName": "other"}), NODE],
            ["x/b is different"],
            id="body",
        ),
    ],
)
def test_differences_are_named_by_key(
    cached: list[dict[str, object]], found: list[str]
) -> None:
    objects = [KubeObject.of(body) for body in cached]

    assert differences([A, B, NODE], objects) == found
