"""`_user_code`: exceptions and log handlers of users that raise."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from aioinformer._user_code import guarded_logger, user_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = guarded_logger(__name__)


class Foreign(BaseException):
    """A base exception like that of `pytest.fail()`."""


def caught(error: BaseException) -> bool:
    try:
        raise error
    except user_errors():
        return True


@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError(), Foreign()])
def test_user_errors_catches_every_error_of_a_function(error: BaseException) -> None:
    assert caught(error)


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), GeneratorExit()])
def test_user_errors_passes_system_exit_on(error: BaseException) -> None:
    with pytest.raises(type(error)):
        caught(error)


class Raising(logging.Filter):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def filter(self, record: logging.LogRecord) -> bool:
        raise self.error


@pytest.fixture
def raising() -> Iterator[Raising]:
    """Add a filter to this module's logger."""
    it = Raising(ValueError("no more logs"))
    logger.logger.addFilter(it)
    yield it
    logger.logger.removeFilter(it)


@pytest.mark.parametrize(
    "error", [ValueError("no more logs"), Foreign("no more logs")], ids=type
)
def test_logger_prints_and_drops_errors_of_filters(
    raising: Raising, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    raising.error = error
    logger.warning("event key=%s", "a")

    printed = capsys.readouterr().err
    assert "no more logs" in printed
    assert "Message: 'event key=%s'" in printed


def test_logger_passes_system_exit_on(raising: Raising) -> None:
    raising.error = SystemExit()
    with pytest.raises(SystemExit):
        logger.warning("event")


def test_logger_prints_nothing_if_logging_is_silent(
    raising: Raising,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger.warning("event")
    assert capsys.readouterr().err == ""


def test_logger_records_name_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger.warning("event")
    try:
        raise ValueError
    except ValueError:
        logger.exception("failure")

    for record in caplog.records:
        assert record.name == __name__
        assert record.funcName == "test_logger_records_name_the_caller"

    assert caplog.records[1].exc_info is not None
