"""Requests: names of objects, equal for equal names."""

from __future__ import annotations

import pytest

from aioinformer import ReconcileRequest
from aioinformer.errors import OptionsError


@pytest.mark.parametrize("key", ["shop/web", "node-1"])
def test_is_made_of_a_key_that_it_gives_back(key: str) -> None:
    assert ReconcileRequest.of(key).key == key


def test_of_no_key_is_refused() -> None:
    with pytest.raises(OptionsError, match="more than two parts"):
        ReconcileRequest.of("a/b/c")


def test_clusters_tell_equal_names_apart() -> None:
    here, there = ReconcileRequest("a", "b"), ReconcileRequest("a", "b", "west")

    assert len({here, there, ReconcileRequest("a", "b")}) == 2
    assert here.key == there.key
