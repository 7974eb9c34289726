"""`ShardLease`: what members write, and what they read of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aioinformer import KubeObject
from aioinformer.controller.shards.lease import (
    Flag,
    Role,
    ShardLease,
    blank_lease,
    fence_name,
    member_name,
)
from aioinformer.errors import DecodeError, OptionsError


def _read(body: dict[str, Any]) -> ShardLease:
    metadata = {"namespace": "ns", "resourceVersion": "7", "uid": "u-1"}
    return ShardLease.of(
        KubeObject.of({**body, "metadata": {**metadata, **body["metadata"]}})
    )


BLANK = blank_lease("sites", 64, "uid")
TIMES = {
    "acquired": "2030-01-01T00:00:00.000000Z",
    "renewed": "2030-01-01T00:00:01.000000Z",
}
LEASES = [
    replace(BLANK, name="sites", role=Role.GROUP, holder="a", epoch=3),
    replace(
        BLANK,
        name=member_name("sites", "a"),
        holder="a",
        epoch=3,
        seconds=20,
        flags=frozenset({Flag.JOINING, Flag.OWNER}),
    ),
    replace(BLANK, name=member_name("sites", "a"), holder="", epoch=3),
    replace(
        BLANK,
        name="sites-range-07",
        role=Role.FENCE,
        index=7,
        holder="a/b",
        epoch=3,
        moves=9,
    ),
    replace(BLANK, name="sites-range-07", role=Role.FENCE, index=7, moves=9),
]


@pytest.mark.parametrize("lease", LEASES)
def test_lease_reads_as_it_was_written(lease: ShardLease) -> None:
    lease = replace(lease, **TIMES)  # type: ignore[arg-type]
    assert _read(lease.body()) == replace(lease, version="7", uid="u-1")


def test_member_and_fence_have_readable_specs() -> None:
    member, fence = LEASES[1].body(), LEASES[3].body()
    assert member["spec"]["holderIdentity"] == "a"
    assert member["spec"]["leaseTransitions"] == 3
    assert fence["spec"]["holderIdentity"] == "a/b/3"
    assert fence["spec"]["leaseTransitions"] == 9
    assert fence["metadata"]["labels"] == {
        "aioinformer.dev/shards": "sites",
        "aioinformer.dev/role": "fence",
    }


def test_update_has_version_and_uid_so_that_it_creates_nothing() -> None:
    metadata = replace(LEASES[1], version="5", uid="u-1").body()["metadata"]
    assert (metadata["resourceVersion"], metadata["uid"]) == ("5", "u-1")
    assert "resourceVersion" not in LEASES[1].body()["metadata"]


def test_lease_without_annotations_is_refused_with_its_name() -> None:
    body = LEASES[3].body()
    del body["metadata"]["annotations"]
    with pytest.raises(DecodeError, match="'sites-range-07' is not as members"):
        _read(body)


def test_flags_of_a_later_version_are_ignored() -> None:
    body = LEASES[1].body()
    body["metadata"]["annotations"]["aioinformer.dev/shard-flags"] = "owner paused"
    assert _read(body).flags == {Flag.OWNER}


def test_lease_whose_version_is_no_number_is_refused() -> None:
    body = LEASES[0].body()
    body["metadata"]["resourceVersion"] = "opaque"
    with pytest.raises(DecodeError, match=r"'opaque', which is no number"):
        _read(body)


def test_lease_of_an_unknown_field_is_refused() -> None:
    body = LEASES[0].body()
    body["metadata"]["annotations"]["aioinformer.dev/shard-field"] = "name"
    with pytest.raises(DecodeError, match="shards by 'name'"):
        _read(body)


def test_names_sort_by_range() -> None:
    assert fence_name("sites", 7) == "sites-range-07"
    assert member_name("sites", "a") != member_name("sites", "b")


@pytest.mark.parametrize(
    ("group", "ranges", "field", "text"),
    [
        ("Sites", 64, "uid", "lower-case"),
        ("s" * 41, 64, "uid", "at most 40"),
        ("sites", 48, "uid", "power of two"),
        ("sites", 0, "uid", "power of two"),
        ("sites", 64, "name", "by 'uid' or by 'namespace'"),
    ],
)
def test_impossible_groups_are_refused(
    group: str, ranges: int, field: Any, text: str
) -> None:
    with pytest.raises(OptionsError, match=text):
        blank_lease(group, ranges, field)
