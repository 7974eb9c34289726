"""The lines of `watch`: outages, and readers that pause."""

from __future__ import annotations

import pytest
from cli_helpers import status

from aioinformer.cli.stream import outage_line
from aioinformer.errors import TransportError


def test_the_beginning_of_an_outage_is_told_with_its_cause() -> None:
    line = outage_line(status(TransportError("gone.")), was_out=False)

    assert line == "out of contact, trying again: gone."


@pytest.mark.parametrize("error", [None, TransportError("gone.")])
def test_nothing_is_told_while_nothing_changes(error: Exception | None) -> None:
    assert outage_line(status(error), was_out=error is not None) == ""


def test_the_end_of_an_outage_is_told() -> None:
    assert outage_line(status(None), was_out=True) == "in contact again"
