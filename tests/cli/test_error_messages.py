"""Error messages of one line with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioinformer.cli.error_messages import CommandError, message_of, unreadable
from aioinformer.client.environment import load_from_environment
from aioinformer.client.error_mapping import api_error
from aioinformer.client.kubeconfig import load_kubeconfig
from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    NotSynced,
    OptionsError,
    SelectorSyntaxError,
    TransportError,
    Unauthorized,
)

if TYPE_CHECKING:
    from pathlib import Path


def refusal(code: int) -> ApiError:
    return ApiError.from_status({"message": "it says no."}, code=code)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        pytest.param(refusal(401), "pass a valid --token", id="401"),
        pytest.param(refusal(403), "permission to list and watch", id="403"),
        pytest.param(refusal(404), "`kubectl api-resources`", id="404"),
        pytest.param(refusal(400), "check --field-selector", id="400"),
        pytest.param(refusal(405), "cannot be listed or watched", id="405"),
        pytest.param(refusal(429), "try again later", id="429"),
        pytest.param(refusal(503), "try again later", id="503"),
        pytest.param(
            SelectorSyntaxError("bad", text="a in", position=4),
            "Selectors look like 'app=web",
            id="selector",
        ),
    ],
)
def test_message_adds_advice(error: Exception, advice: str) -> None:
    line = message_of(error)

    assert line.startswith(str(error).rstrip(".") + ". ")
    assert advice in line


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        pytest.param(
            'User "eve" cannot list resource "pods" in API group "" at the cluster scope',
            "permission to list and watch it, or use one namespace (-n).",
            id="all-namespaces",
        ),
        pytest.param(
            'User "eve" cannot list resource "pods" in API group "" in the namespace "x"',
            "permission to list and watch it.",
            id="one-namespace",
        ),
        pytest.param(
            'User "eve" cannot list resource "nodes" in API group "" at the cluster scope',
            "permission to list and watch it.",
            id="cluster-scoped",
        ),
        pytest.param(
            'User "eve" cannot list resource "w" in API group "x.y" at the cluster scope',
            "or use one namespace (-n) if it has namespaces.",
            id="custom",
        ),
        pytest.param(
            'User "system:anonymous" cannot list resource "pods" in API group "" at the '
            "cluster scope",
            "No credentials were sent: pass --token, or a kubeconfig whose context has a "
            "user.",
            id="anonymous",
        ),
    ],
)
def test_message_of_403_has_advice_for_its_scope(refusal: str, advice: str) -> None:
    error = Forbidden(refusal, status=403, reason="Forbidden")

    assert message_of(error).endswith(advice)


def test_message_of_401_does_not_repeat_the_reason() -> None:
    error = Unauthorized("Unauthorized", status=401, reason="Unauthorized")

    assert message_of(error).startswith("401 Unauthorized. The server rejected the ")


def answered(status: int, kind: str, body: bytes, **headers: str) -> ApiError:
    """Return the client's error for a response that is not a Status."""
    return api_error(status, "", {"Content-Type": kind, **headers}, body, "http://x")


def test_html_404_is_not_blamed_on_resource() -> None:
    line = message_of(answered(404, "text/html", b"<h1>not here</h1>"))

    assert line.endswith("and the API server's URL")


def test_status_404_is_blamed_on_resource() -> None:
    line = message_of(answered(404, "text/plain", b"404 page not found\n"))

    assert line == (
        "404: http://x serves no such resource (404 page not found): check its name, "
        "version and group, and that its CustomResourceDefinition is installed, or that "
        "the URL is that of an API server"
    )


def test_redirect_gets_no_further_advice() -> None:
    line = message_of(answered(302, "text/html", b"", Location="/login"))

    assert line.endswith("a redirect to /login: use the URL of the API server itself")


def test_undecodable_response_names_server() -> None:
    assert unreadable(DecodeError("no list"), "http://x") == (
        "http://x returned an invalid list: no list. Is the URL that of an API server?"
    )
    assert unreadable(DecodeError("http://x is odd"), "http://x") == "http://x is odd"


@pytest.mark.parametrize("kind", [TransportError, OptionsError, CommandError])
def test_message_with_advice_is_unchanged(kind: type[Exception]) -> None:
    assert message_of(kind("wrong. Do that.")) == "wrong. Do that."


def test_not_synced_shows_message_of_cause() -> None:
    error = NotSynced("pods is not synced: listing")
    error.__cause__ = TransportError("the server is away.")

    assert message_of(error) == "the server is away."


def test_not_synced_without_cause_is_unchanged() -> None:
    assert message_of(NotSynced("pods is not synced")) == "pods is not synced"


def test_message_is_one_line() -> None:
    assert message_of(OptionsError("one\n  two")) == "one two"


def test_error_without_text_is_named_by_class() -> None:
    assert message_of(TransportError("")) == "TransportError"


def test_message_names_options_instead_of_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(OptionsError) as nothing:
        load_from_environment()
    with pytest.raises(OptionsError) as absent:
        load_kubeconfig(tmp_path / "absent")

    assert message_of(nothing.value).endswith("or pass --server.")
    assert "/absent does not exist" in message_of(absent.value)
    assert "Pass an existing file by --kubeconfig" in message_of(absent.value)
