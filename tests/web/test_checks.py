"""Own checks of health endpoints."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from factory_helpers import FakeClient

from aioinformer import SharedInformerFactory
from aioinformer.errors import OptionsError
from aioinformer.web.checks import Checks
from aioinformer.web.health import health_responders
from aioinformer.web.responses import EndpointRequest

if TYPE_CHECKING:
    from collections.abc import Callable


async def answer_of(path: str, *query: tuple[str, str], **options: Any) -> Any:
    factory = SharedInformerFactory(FakeClient())
    responder = health_responders(factory, **options)[path]
    return await responder(EndpointRequest(query=query))


class Unreadable(Exception):
    """Exception whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def raises_unreadable() -> None:
    raise Unreadable


def raises() -> None:
    raise ConnectionError("token=abc is refused")


async def raises_later() -> None:
    raise ConnectionError("refused")


async def cancels() -> None:
    raise asyncio.CancelledError


async def hangs() -> None:
    await asyncio.Event().wait()


async def passes() -> None:
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("check", [lambda: None, lambda: "", lambda: True, passes])
async def test_check_without_an_objection_passes(check: Callable[[], object]) -> None:
    (result,) = await Checks("/readyz", {"it": check}, 1.0).run()

    assert result == ("it", "", "")


@pytest.mark.parametrize(
    ("check", "label", "reason"),
    [
        (lambda: "disk full", "failed", "disk full"),
        (lambda: False, "failed", "the check returned False, not a text or None"),
        (lambda: 3, "failed", "the check returned int, not a text or None"),
        (raises, "failed", "ConnectionError: token=abc is refused"),
        (raises_unreadable, "failed", "Unreadable: Unreadable"),
        (raises_later, "failed", "ConnectionError: refused"),
        (cancels, "failed", "CancelledError()"),
        (hangs, "timed out", "no result within 1 s"),
    ],
)
async def test_check_with_an_objection_fails(
    check: Callable[[], object], label: str, reason: str
) -> None:
    (result,) = await Checks("/readyz", {"it": check}, 1.0).run()

    assert result == ("it", label, reason)


async def test_checks_run_concurrently_and_in_time() -> None:
    checks = Checks("/readyz", {"a": hangs, "b": hangs, "c": passes}, 0.5)
    loop = asyncio.get_running_loop()
    began = loop.time()
    results = await checks.run(without=["b"])

    assert [it.name for it in results] == ["a", "c"]
    assert loop.time() - began == pytest.approx(0.5)


async def test_cancelled_request_cancels_its_checks() -> None:
    task = asyncio.ensure_future(Checks("/readyz", {"it": hangs}, 9.0).run())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_log_has_each_change_of_a_check_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now: list[Callable[[], object]] = [raises, raises, passes, passes, raises]

    async def check() -> object:
        answer = now.pop(0)()
        return await answer if asyncio.iscoroutine(answer) else answer

    checks = Checks("/livez", {"it": check}, 1.0)
    with caplog.at_level(logging.WARNING, logger="aioinformer"):
        for _ in range(5):
            await checks.run()

    failed = "/livez: check it failed: ConnectionError: token=... is refused"
    passed = "/livez: check it passes again"
    assert caplog.messages == [failed, passed, failed]


@pytest.mark.parametrize(
    ("checks", "timeout", "match"),
    [
        ({"a/b": passes}, 1.0, "as it is part of a path"),
        ({"": passes}, 1.0, "needs a name"),
        ({"a": 3}, 1.0, "not a function"),
        ([passes], 1.0, "are a dict of functions by name, not"),
        ({"a": lambda request: None}, 1.0, r"must be callable as a\(\)"),
        ({"a": passes}, 0.0, "check_timeout must be positive"),
    ],
)
def test_checks_reject_invalid_options(checks: Any, timeout: float, match: str) -> None:
    with pytest.raises(OptionsError, match=match):
        Checks("/readyz", checks, timeout)


# -------------------------------------------------------------------- endpoints


async def test_endpoints_have_checks_of_their_own() -> None:
    options: Any = {"checks": {"db": raises}, "livez_checks": {"loop": passes}}
    found = {
        path: (await answer_of(path, **options)).status
        for path in ("/livez", "/livez/loop", "/readyz", "/readyz/db")
    }

    assert found == {
        "/livez": 200,
        "/livez/loop": 200,
        "/readyz": 503,
        "/readyz/db": 503,
    }


async def test_reason_of_a_check_is_shown_on_request_only() -> None:
    shown = await answer_of("/readyz", checks={"db": raises}, reasons=True)
    hidden = await answer_of("/readyz", checks={"db": raises})

    (check,) = json.loads(shown.body)["checks"]
    assert check["reason"] == "ConnectionError: token=... is refused"
    assert b"refused" not in hidden.body


async def test_verbose_response_is_text() -> None:
    checks = {"db": raises, "disk": passes}
    verbose = await answer_of("/readyz", ("verbose", ""), checks=checks)
    alone = await answer_of("/readyz/disk", ("verbose", ""), checks=checks)

    assert verbose.body == b"[-]db failed\n[+]disk ok\ncheck failed\n"
    assert alone.body == b"[+]disk ok\ncheck passed\n"
    assert verbose.content_type.startswith("text/plain")


async def test_excluded_checks_are_left_out() -> None:
    excluded = ("exclude", "db"), ("exclude", "unknown")
    answer = await answer_of("/readyz", *excluded, checks={"db": raises, "x": passes})

    assert answer.status == 200
    assert [it["name"] for it in json.loads(answer.body)["checks"]] == ["x"]
