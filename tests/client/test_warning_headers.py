"""`Warning:` headers: parsed, logged once, or passed to a function."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from canned import CannedServer
from hypothesis import given
from hypothesis import strategies as st

from aioinformer.client import Client
from aioinformer.client.config import ClientConfig
from aioinformer.client.warning_headers import Warnings, texts_in
from aioinformer.errors import ApiError
from aioinformer.model.resources import CRON_JOBS, PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.testing import APIServer

POD = {"metadata": {"name": "a", "namespace": "default"}}


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ('299 - "a"', ["a"]),
        ('299 - "a \\"b\\" \\\\ c"', ['a "b" \\ c']),
        ('299 - "a, b", 299 host:80 "c"', ["a, b", "c"]),
        ('299 - "a" "Mon, 02 Jan 2006 15:04:05 GMT"', ["a"]),
        ('199 - "a", 299 - "b"', ["b"]),
        ('299 - ""', []),
        ('299 - "a', []),
        ("299 - a", []),
        ('299 - "a", nonsense, 299 - "b"', ["a"]),
        ('299 - "a\x1b[31m b"', ["a [31m b"]),
        ("", []),
    ],
)
def test_texts_of_a_header(header: str, texts: list[str]) -> None:
    assert list(texts_in(header)) == texts


@given(st.text('ab"\\,é'))
def test_quoted_text_is_read_back(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    assert list(texts_in(f'299 - "{quoted}"')) == [text][: len(text)]


def test_long_malformed_header_is_read_in_linear_time() -> None:
    assert list(texts_in('299 - "' + "\\a" * 500_000)) == []


def client_of(url: str, on_warning: Callable[[str], object] | None = None) -> Client:
    return Client(ClientConfig(server=url, on_warning=on_warning))


async def test_each_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with CannedServer() as server, client_of(server.url) as client:
        for text in ("old", "old", "older"):
            server.json(POD, Warning=f'299 - "{text}"')

        for _ in range(4):
            await client.get(PODS, "a", namespace="default")

    path = "/api/v1/namespaces/default/pods/a"
    assert [it.getMessage() for it in caplog.records] == [
        f"{server.url} warns: {text} (GET {path})" for text in ("old", "older")
    ]
    assert {it.levelno for it in caplog.records} == {logging.WARNING}


async def test_warning_of_a_refusal_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with CannedServer() as server, client_of(server.url) as client:
        server.json({"kind": "Status"}, 422, Warning='299 - "old"')
        with pytest.raises(ApiError):
            await client.get(PODS, "a", namespace="default")

    assert "warns: old" in caplog.text


async def test_on_warning_gets_each_warning_and_may_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts: list[str] = []

    def fail(text: str) -> None:
        texts.append(text)
        raise ValueError("mine")

    async with CannedServer() as server, client_of(server.url, fail) as client:
        server.json(POD, Warning='299 - "old"')
        for _ in range(2):
            await client.get(PODS, "a", namespace="default")

    assert texts == ["old", "old"]
    assert "on_warning failed" in caplog.text


async def test_unknown_field_is_reported_by_the_test_server(
    apiserver: APIServer,
) -> None:
    texts: list[str] = []
    body: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"schedule": "* * * * *", "no": 1, "jobTemplate": {}},
    }
    async with client_of(apiserver.url, texts.append) as client:
        with pytest.raises(ApiError):
            await client.create(CRON_JOBS, body)

    assert texts == ['unknown field "spec.no"']


def test_number_of_remembered_warnings_is_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warnings = Warnings("https://x", None)
    for number in range(1500):
        warnings.report([f'299 - "{number}"'], "GET /")

    warnings.report(['299 - "1499"'], "GET /")
    assert len(caplog.records) == 1500
    warnings.report(['299 - "0"'], "GET /")
    assert len(caplog.records) == 1501
