"""`json_patch` and `merge_changes`: applying a patch gives the changed object."""

from __future__ import annotations

import copy
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aioinformer.webhooks import json_diff
from aioinformer.webhooks.json_diff import json_patch, merge_changes
from aioinformer_apiserver.patches.json_patch import json_patch as apply

# Few of each, so that two objects have much in common.
KEYS = st.sampled_from(["a", "b", "a/b", "~", "~1", "", "0", "-"])
LEAVES = st.sampled_from([None, True, False, 0, 1, 1.0, "", "x"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def shown(value: Any) -> str:
    """Return a text in which 1, 1.0 and true differ, but not the order of keys."""
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{key!r}: {shown(value[key])}' for key in sorted(value))}}}"
        )

    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"

    return repr(value)


@given(OBJECTS, OBJECTS)
def test_patch_changes_one_object_into_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = json_patch(before, after)

    assert shown(apply(before, patch)) == shown(after)
    assert bool(patch) == (shown(before) != shown(after))


@given(OBJECTS, OBJECTS)
def test_patch_of_whole_fields_changes_one_object_into_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = list(json_diff._of_objects("", before, after, whole=True))

    assert shown(apply(before, patch)) == shown(after)


@given(OBJECTS, OBJECTS)
def test_merge_of_all_fields_gives_the_changed_object(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    original = copy.deepcopy(before)

    assert shown(merge_changes(original, before, after)) == shown(after)
    assert shown(original) == shown(before)


def test_patch_of_a_list_names_only_the_inserted_item() -> None:
    containers = [{"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}]
    proxy = {"name": "proxy", "image": "proxy:1"}

    assert json_patch({"a": containers}, {"a": [proxy, *containers]}) == [
        {"op": "add", "path": "/a/0", "value": proxy}
    ]
    assert json_patch({"a": [proxy, *containers]}, {"a": containers}) == [
        {"op": "remove", "path": "/a/0"}
    ]
    changed = [{**containers[0], "image": "web:2"}, containers[1]]
    assert json_patch({"a": containers}, {"a": changed}) == [
        {"op": "replace", "path": "/a/0/image", "value": "web:2"}
    ]


def test_patch_of_many_changes_stays_below_the_limit_of_the_server() -> None:
    before = {"data": {str(n): "old" for n in range(12_000)}, "kept": 1}
    after = {"data": {str(n): "new" for n in range(12_000)}, "kept": 1}

    assert json_patch(before, after) == [
        {"op": "replace", "path": "/data", "value": after["data"]}
    ]


def test_merge_keeps_fields_that_the_model_does_not_have() -> None:
    original = {
        "spec": {
            "items": [{"name": "a", "more": 1}, {"name": "b", "more": 2}],
            "unknown": True,
            "image": "web:1",
            "gone": 1,
        }
    }
    before = {
        "spec": {
            "items": [{"name": "a"}, {"name": "b"}],
            "image": "web:1",
            "replicas": 1,  # a default of the model
            "gone": 1,
        }
    }
    after = {
        "spec": {
            "items": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
            "image": "web:2",
            "replicas": 1,
        }
    }

    assert merge_changes(original, before, after) == {
        "spec": {
            "items": [
                {"name": "c"},
                {"name": "b", "more": 2},
                {"name": "a", "more": 1},
            ],
            "image": "web:2",
            "unknown": True,
        }
    }


def test_merge_recognizes_moved_and_changed_items_of_lists() -> None:
    def original(*names: str) -> list[dict[str, Any]]:
        return [{"name": it, "image": f"{it}:1", "env": [it]} for it in names]

    def known(*items: str) -> list[dict[str, Any]]:
        return [{"name": it[0], "image": it} for it in items]

    def merged(*after: str) -> list[dict[str, Any]]:
        before = known("a:1", "b:1", "c:1")
        found: list[dict[str, Any]] = merge_changes(
            original("a", "b", "c"), before, known(*after)
        )
        return found

    a, b, c = original("a", "b", "c")
    assert merged("c:1", "b:1", "a:1") == [c, b, a]
    assert merged("a:2", "b:1", "c:1", "d:1") == [
        {**a, "image": "a:2"},
        b,
        c,
        {"name": "d", "image": "d:1"},
    ]
    assert merged("b:2", "c:1") == [{**b, "image": "b:2"}, c]
    assert merged("b:1", "c:2", "d:1") == [
        b,
        {**c, "image": "c:2"},
        {"name": "d", "image": "d:1"},
    ]
    # A changed name leaves the place.
    assert merged("a:1", "x:1", "c:1")[1] == {"name": "x", "image": "x:1", "env": ["b"]}


def test_merge_of_items_of_the_same_name_keeps_their_places() -> None:
    mounts = [
        {"name": "data", "mountPath": "/a", "subPath": "a"},
        {"name": "data", "mountPath": "/b", "subPath": "b"},
    ]
    before = [{"name": "data", "mountPath": it} for it in ("/a", "/b")]
    after = [{**before[1], "readOnly": True}]

    assert merge_changes(mounts, before, after) == [{**mounts[1], "readOnly": True}]


def test_merge_of_long_lists_is_fast() -> None:
    before = [{"value": f"a{it}"} for it in range(20_000)]
    original = [{**it, "more": 1} for it in before]
    after = [{"value": f"b{it}"} for it in range(20_000)]
    began = time.monotonic()

    assert merge_changes(original, before, after)[-1] == {"value": "b19999", "more": 1}
    assert time.monotonic() - began < 10  # comparing all with all takes a minute
