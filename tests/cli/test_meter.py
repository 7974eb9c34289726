"""Rates of growing totals."""

from __future__ import annotations

from aioinformer.cli.meter import Meter


def test_a_meter_begins_at_zero() -> None:
    assert Meter().rate(10.0, 500) == 0.0


def test_a_meter_tells_growth_in_a_second() -> None:
    meter = Meter()
    meter.rate(10.0, 500)

    assert meter.rate(10.5, 600) == 200.0


def test_a_meter_forgets_what_is_older_than_three_seconds() -> None:
    meter = Meter()
    for second in range(10):
        meter.rate(float(second), 1000 * second)

    rates = [meter.rate(10.0 + second, 9000) for second in range(4)]

    assert rates[0] > rates[1] > rates[2] == rates[3] == 0.0
