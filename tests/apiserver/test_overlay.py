"""Overlays: the order of a list that is merged of two."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioinformer_apiserver.patches.structured_merge_diff import merge_order


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.permutations("abcdxyz"))
def test_a_merged_list_has_every_item_once(live: list[str], order: list[str]) -> None:
    body = order[:4]

    places = list(merge_order(live, body))

    items = [live[at] if origin == "live" else body[at] for origin, at in places]
    assert sorted(items) == sorted({*live, *body})
    assert [it for it in items if it in body] == body
    alone = [it for it in live if it not in body]
    assert [it for it in items if it not in body] == alone
