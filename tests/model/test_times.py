"""Durations: conversion and formatting."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from each_case import each_case

from aioinformer.errors import OptionsError
from aioinformer.model.times import human_duration, seconds_of, timeout_of

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@each_case(
    "seconds, text",
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (0, "0s"),
        (0.9, "0s"),
        (119.9, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 1, "2m1s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR, "8y"),
    ],
)
def test_human_duration_gets_coarser_with_age(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_seconds_of_timedelta() -> None:
    assert seconds_of(timedelta(minutes=1, milliseconds=500)) == 60.5


@pytest.mark.parametrize("endless", [math.inf, -math.inf, math.nan])
def test_infinite_duration_is_rejected(endless: float) -> None:
    with pytest.raises(OptionsError):
        seconds_of(endless)


@pytest.mark.parametrize("given", ["30s", "5", [1], {}], ids=repr)
def test_duration_that_is_no_number_is_rejected(given: Any) -> None:
    with pytest.raises(OptionsError, match="a number of seconds, or a timedelta, not"):
        seconds_of(given)


def test_timeout_of_none_is_none() -> None:
    assert timeout_of(None) is None
    assert timeout_of(3) == 3.0
