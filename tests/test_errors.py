"""Errors: classes by Status, attributes, texts, copies and pickles."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from aioinformer import errors
from aioinformer.errors import (
    AioInformerError,
    AlreadyExists,
    ApiError,
    Conflict,
    DecodeError,
    Forbidden,
    HandlerError,
    Invalid,
    NoKey,
    NotFound,
    NotSynced,
    OptionsError,
    ResourceExpired,
    SelectorSyntaxError,
    ServerError,
    Stale,
    TooManyRequests,
    Unauthorized,
    WrongLoop,
)

# ---------------------------------------------------------------- classes by Status


@pytest.mark.parametrize(
    ("reason", "code", "kind"),
    [
        ("Unauthorized", 401, Unauthorized),
        ("Forbidden", 403, Forbidden),
        ("NotFound", 404, NotFound),
        ("Conflict", 409, Conflict),
        ("AlreadyExists", 409, AlreadyExists),
        ("Expired", 410, ResourceExpired),
        ("Gone", 410, ResourceExpired),
        ("Invalid", 422, Invalid),
        ("BadRequest", 400, Invalid),
        ("TooManyRequests", 429, TooManyRequests),
        ("InternalError", 500, ServerError),
        ("ServiceUnavailable", 503, ServerError),
        ("Timeout", 504, ServerError),
        ("MethodNotAllowed", 405, ApiError),
        ("", 401, Unauthorized),
        ("", 403, Forbidden),
        ("", 404, NotFound),
        ("", 409, Conflict),
        ("", 410, ResourceExpired),
        ("", 400, Invalid),
        ("", 422, Invalid),
        ("", 429, TooManyRequests),
        ("", 500, ServerError),
        ("", 599, ServerError),
        ("", 499, ApiError),
        ("Unheard", 404, NotFound),
        ("Expired", 0, ResourceExpired),
        ("Unheard", 0, ApiError),
    ],
)
def test_status_becomes_the_matching_error_class(
    reason: str, code: int, kind: type[ApiError]
) -> None:
    error = ApiError.from_status({"reason": reason, "code": code, "message": "why"})

    assert type(error) is kind
    assert (error.reason, error.status, error.message) == (reason, code, "why")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        pytest.param({"code": 404}, 500, 404, id="the-status-wins"),
        pytest.param({}, 404, 404, id="absent"),
        pytest.param({"code": None}, 404, 404, id="null"),
        pytest.param({"code": 0}, 404, 404, id="zero"),
        pytest.param({"code": "410"}, 404, 404, id="text"),
        pytest.param({"code": True}, 404, 404, id="boolean"),
    ],
)
def test_http_status_is_used_if_the_status_object_has_no_code(
    status: dict[str, Any], code: int, expected: int
) -> None:
    error = ApiError.from_status(status, code=code)

    assert error.status == expected
    assert type(error) is NotFound


@pytest.mark.parametrize(
    ("status", "header", "expected"),
    [
        pytest.param({}, None, None, id="neither"),
        pytest.param({"retryAfterSeconds": 7}, None, 7.0, id="details"),
        pytest.param({"retryAfterSeconds": 7}, 3.0, 3.0, id="the-header-wins"),
        pytest.param({"retryAfterSeconds": 7}, 0.0, 0.0, id="a-zero-in-the-header-too"),
        pytest.param({"retryAfterSeconds": 0}, None, None, id="zero-is-absent"),
        pytest.param({"retryAfterSeconds": None}, None, None, id="null"),
        pytest.param({"retryAfterSeconds": "7"}, None, None, id="not-a-number"),
        pytest.param(None, None, None, id="no-details"),
        pytest.param([1], 2.0, 2.0, id="details-of-another-shape"),
    ],
)
def test_retry_after_comes_from_the_header_or_else_from_the_details(
    status: Any, header: float | None, expected: float | None
) -> None:
    error = ApiError.from_status({"code": 429, "details": status}, retry_after=header)

    assert error.retry_after == expected


def test_details_are_kept_as_received() -> None:
    details = {"name": "web", "causes": [{"field": "spec"}]}

    error = ApiError.from_status({"code": 422, "details": details})

    assert error.details == details
    assert ApiError("x").details == {}
    assert ApiError.from_status({"details": "odd"}).details == {}


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("status", "text"),
    [
        pytest.param(
            {"code": 404, "reason": "NotFound", "message": 'pods "a" not found'},
            '404 NotFound: pods "a" not found',
            id="all",
        ),
        pytest.param({"code": 502, "message": "bad"}, "502: bad", id="no-reason"),
        pytest.param({"reason": "Gone", "message": "old"}, "Gone: old", id="no-code"),
        pytest.param(
            {"code": 401, "reason": "Unauthorized", "message": "Unauthorized"},
            "401 Unauthorized",
            id="message-is-the-reason",
        ),
        pytest.param({"message": "odd"}, "odd", id="only-a-message"),
        pytest.param({"code": 500}, "500: the server answered 500", id="no-message"),
        pytest.param(
            {"code": 500, "message": None, "reason": None},
            "500: the server answered 500",
            id="nulls",
        ),
    ],
)
def test_error_text_has_code_reason_and_message(
    status: dict[str, Any], text: str
) -> None:
    assert str(ApiError.from_status(status)) == text


def test_selector_error_points_at_the_position() -> None:
    error = SelectorSyntaxError("unexpected ','", text="a,,b", position=2)

    assert str(error) == "unexpected ',' at position 2 of 'a,,b'"
    assert (error.text, error.position) == ("a,,b", 2)


def test_handler_error_names_the_failed_function() -> None:
    error = HandlerError("filter", "mine", {"a": 1})

    assert str(error) == "filter mine failed"
    assert (error.where, error.name, error.subject) == ("filter", "mine", {"a": 1})


def test_decode_error_names_the_position() -> None:
    assert DecodeError("not JSON", offset=7).offset == 7
    assert DecodeError("not JSON").offset == -1


def test_not_synced_names_the_reason_of_each_informer() -> None:
    error = NotSynced("too early", results={"pods": "listing"})

    assert error.results == {"pods": "listing"}
    assert NotSynced("too early").results == {}


# ---------------------------------------------------------------- class hierarchy


@pytest.mark.parametrize("name", errors.__all__)
def test_base_class_catches_every_error(name: str) -> None:
    assert issubclass(getattr(errors, name), AioInformerError)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (SelectorSyntaxError, ValueError),
        (OptionsError, ValueError),
        (WrongLoop, RuntimeError),
        (AlreadyExists, Conflict),
        *[
            (kind, ApiError)
            for kind in (
                Unauthorized,
                Forbidden,
                NotFound,
                Conflict,
                ResourceExpired,
                Invalid,
                TooManyRequests,
                ServerError,
            )
        ],
    ],
)
def test_errors_are_also_subclasses_of_builtin_errors(
    kind: type[Exception], base: type[Exception]
) -> None:
    assert issubclass(kind, base)


def test_documented_tree_equals_the_class_hierarchy() -> None:
    drawn: dict[str, str] = {}
    parents = ["AioInformerError"]
    for line in (errors.__doc__ or "").splitlines():
        branch, mark, rest = line.rpartition("─ ")
        if mark:
            name = rest.split()[0]
            depth = (len(branch) - len("    ├")) // len("│  ")
            drawn[name] = parents[depth]
            parents[depth + 1 :] = [name]

    real = {name: getattr(errors, name).__bases__[0].__name__ for name in drawn}
    assert drawn == real
    assert {*drawn, "AioInformerError"} == set(errors.__all__)


# ---------------------------------------------------------------- copies

SAMPLES: list[AioInformerError] = [
    AioInformerError("x"),
    ApiError(
        "why", status=418, reason="Teapot", retry_after=2.0, details={"causes": [1]}
    ),
    AlreadyExists("why", status=409),
    DecodeError("not JSON", offset=7),
    SelectorSyntaxError("unexpected ','", text="a,,b", position=2),
    NotSynced("too early", results={"pods": "listing"}),
    HandlerError("filter", "mine", {"a": 1}),
    NoKey({"a": 1}, "it has no name"),
    Stale("12 s old"),
    WrongLoop("elsewhere"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "copied",
    [
        pytest.param(copy.copy, id="copy"),
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(lambda error: pickle.loads(pickle.dumps(error)), id="pickle"),
    ],
)
def test_copied_error_equals_the_original(error: AioInformerError, copied: Any) -> None:
    error.add_note("seen on Tuesday")

    twin = copied(error)

    assert twin is not error
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert twin.args == error.args
    assert vars(twin) == vars(error)
