"""The pure parts of `aioinformer doctor`: what facts mean, and how that is said."""

from __future__ import annotations

import errno
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioinformer.cli.checkup import judging
from aioinformer.cli.checkup.findings import Finding, Mark, has_failed, summary
from aioinformer.client import ClientConfig, Credentials
from aioinformer.client.rest_mapper import ServedResource
from aioinformer.model.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)


def config(server: str = "https://api.example:6443", **more: Any) -> ClientConfig:
    return ClientConfig(server=server, **more)


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("marks", "words", "failed"),
    [
        ([], "All is well: .", False),
        (["ok", "not asked"], "All is well: 1 ok, 1 not asked.", False),
        (
            ["ok", "warning", "warning"],
            "Informers will work, with care: 2 warnings, 1 ok.",
            False,
        ),
        (
            ["failed", "warning", "ok"],
            "Informers will not work: 1 failed, 1 warning, 1 ok.",
            True,
        ),
    ],
)
def test_the_summary_counts(marks: Sequence[Mark], words: str, failed: bool) -> None:
    found = [Finding(step="a", mark=it, text="b") for it in marks]

    assert (summary(found), has_failed(found)) == (words, failed)


def test_a_line_has_mark_step_text() -> None:
    finding = Finding(step="list", mark="ok", text="3 objects", resource="pods")

    assert finding.line(12) == "ok         pods: list    3 objects"
    assert finding.document() == {
        "step": "list",
        "resource": "pods",
        "mark": "ok",
        "text": "3 objects",
        "seconds": 0.0,
    }


# ---------------------------------------------------------------- the way there


@pytest.mark.parametrize(
    ("more", "address"),
    [
        ({"server": "https://a.example"}, ("a.example", 443)),
        ({"server": "HTTP://a.example"}, ("a.example", 80)),
        ({"server": "https://[::1]:6443/k8s"}, ("::1", 6443)),
        ({"proxy": "http://p.example:3128"}, ("p.example", 3128)),
        ({"proxy": "http://me:pw@p.example"}, ("p.example", 80)),
    ],
)
def test_the_address_is_that_of_the_next_one(
    more: dict[str, str], address: tuple[str, int]
) -> None:
    assert judging.address_of(config(**more)) == address


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (["api.example"], "api.example answers on port 6443, after 12 ms"),
        (["10.0.0.1"], "api.example (10.0.0.1) answers on port 6443, after 12 ms"),
        (
            ["10.0.0.2", "10.0.0.1"],
            "api.example (10.0.0.2), one of 2 addresses answers on port 6443, after 12 ms",
        ),
    ],
)
def test_says_what_was_reached(addresses: list[str], words: str) -> None:
    assert judging.reached(config(), addresses, 0.012) == ("ok", words)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            socket.gaierror(-2, "Name or service not known"),
            "looked up: Name or service",
        ),
        (UnicodeError("label too long"), "cannot be looked up: label too long"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "refused the connection"),
        (
            OSError(errno.EHOSTUNREACH, "No route to host"),
            "reached on port 6443: No route",
        ),
        (OSError("Multiple exceptions: a, b"), "6443: Multiple exceptions: a, b"),
    ],
)
def test_says_why_nothing_answered(error: OSError | UnicodeError, words: str) -> None:
    mark, text = judging.unreachable(config(), error)

    assert mark == "failed"
    assert words in text


@pytest.mark.parametrize(
    ("server", "mark"),
    [
        ("http://127.0.0.1:8001", "not asked"),
        ("http://localhost", "not asked"),
        ("http://[::1]:8001", "not asked"),
        ("http://localhost.example", "warning"),
        ("http://10.0.0.1", "warning"),
    ],
)
def test_plain_http_is_a_warning_elsewhere(server: str, mark: str) -> None:
    assert judging.plain(config(server)).mark == mark


@pytest.mark.parametrize(
    ("days", "mark", "words"),
    [
        (14.5, "ok", "good until 2030-06-16 00:00 UTC"),
        (13.5, "warning", "in 13 days: renew it"),
        (0.1, "warning", "in 0 days: renew it"),
        (-0.1, "warning", "EXPIRED since 2030-06-01 09:36 UTC"),
        (None, "ok", "its end is not to be read"),
    ],
)
def test_a_certificate_is_renewed_in_time(
    days: float | None, mark: str, words: str
) -> None:
    ends = None if days is None else NOW + timedelta(days=days)
    answer = judging.certificate("it", ends, NOW, names=["a", "b", "c", "d", "e"])

    assert (answer.mark, words in answer.text) == (mark, True)
    assert answer.text.startswith("it, for a, b, c, d, ...; ")


def test_a_certificate_that_nobody_checked_is_a_warning() -> None:
    later = NOW + timedelta(days=100)
    answers = [
        judging.certificate("it", it, NOW, verified=False) for it in (later, None)
    ]

    assert [it.mark for it in answers] == ["warning", "warning"]


def test_the_password_of_a_proxy_is_not_shown() -> None:
    proxy = "http://me:s3cr3t@p.example:3128"
    answer = judging.configuration(config(proxy=proxy), "--server")

    assert answer.text.endswith("through the proxy http://p.example:3128")


async def test_credentials_are_told_by_their_kind() -> None:
    told = [
        str(it)
        for it in (
            Credentials(),
            Credentials(token="s3cr3t"),
            Credentials(token_file="/run/token", token="s3cr3t"),
            Credentials(username="me", password="s3cr3t"),
        )
    ]

    assert told == [
        "none",
        "a token",
        "the token in /run/token",
        "a user name and password",
    ]


# ---------------------------------------------------------------- the server


@pytest.mark.parametrize(
    "said", [None, [], {}, {"gitVersion": None}, {"gitVersion": "main"}, "v1.36.0"]
)
def test_what_tells_no_version_is_no_kubernetes(said: object) -> None:
    assert judging.version(said, "http://a").mark == "failed"


@pytest.mark.parametrize(
    ("name", "mark"), [("v1.9.6", "warning"), ("v2.0.0", "ok"), ("1.30", "ok")]
)
def test_versions_are_numbers(name: str, mark: str) -> None:
    assert judging.version({"gitVersion": name}, "http://a").mark == mark


def test_finds_nobody_in_other_words() -> None:
    assert judging.name_in("forbidden by a policy") == ""


# ---------------------------------------------------------------- a resource


@pytest.mark.parametrize(
    ("verbs", "mark"),
    [
        ((), "ok"),
        (("get", "list", "watch"), "ok"),
        (("get", "list"), "failed"),
        (("create",), "failed"),
    ],
)
def test_what_cannot_be_watched_fails(verbs: tuple[str, ...], mark: str) -> None:
    found = ServedResource(PODS, "pod", verbs=verbs)

    assert judging.served(found, "here").mark == mark


@pytest.mark.parametrize(
    ("denied", "mark", "words"),
    [
        (set(), "ok", "may list, watch and get it"),
        ({"get"}, "ok", "may list and watch it; not get"),
        ({"watch"}, "failed", "may not watch it"),
        ({"list", "watch", "get"}, "failed", "may not list and watch it"),
    ],
)
def test_informers_list_and_watch(denied: set[str], mark: str, words: str) -> None:
    answer = judging.permissions(denied)

    assert (answer.mark, words in answer.text) == (mark, True)


@pytest.mark.parametrize(
    ("count", "remaining", "more", "words"),
    [
        (0, None, False, "0 objects"),
        (1, None, False, "1 object,"),
        (1, 41, True, "42 objects"),
        (1, None, True, "more than 1 objects"),
    ],
)
def test_counts_objects(
    count: int, remaining: int | None, more: bool, words: str
) -> None:
    answer = judging.listed(count, remaining, 0.001, more=more)

    assert answer.text.startswith(words)
