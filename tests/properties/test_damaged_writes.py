"""The registry applies or refuses any write as a whole.

Objects that a real server accepts are damaged in some places, and written in all ways.
A write may only fail with an `ApiError`. A refused write or dry run must not leave a
trace. No write may modify its arguments.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from recorded_writes import definition_of_things, load, placed

from aioinformer.errors import ApiError
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.registry.registry import Registry
from aioinformer_apiserver.requests.options import WriteOptions
from aioinformer_apiserver.storage.storage import Storage
from examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recorded_writes import Write

    from aioinformer.client.verbs import PatchType
    from aioinformer_apiserver.storage.storage import Collection

NAMESPACE = "somewhere"
WRITES = [
    it
    for file in ("creations", "things")
    for it in load(file)
    if it.answer["status"] == 201
]
ODD: list[Any] = [
    None,
    "",
    "x",
    "é\n\u2028",
    "-5m",
    "1e999",
    "2020-01-01T00:00:00Z",
    0,
    -1,
    1.5,
    2**63,
    1e300,
    True,
    [],
    [None],
    [1],
    ["a", "a"],
    [{}],
    [[]],
    [{"name": None}],
    [{"$patch": "delete"}],
    {},
    {"": ""},
    {"a": None},
    {"$patch": "replace"},
    {"$retainKeys": ["x"]},
    {"$setElementOrder/containers": []},
]
NEW_FIELDS = [
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    "managedFields",
    "ownerReferences",
    "finalizers",
    "labels",
    "$patch",
    "$deleteFromPrimitiveList/finalizers",
    "unknown",
]
PATCHES: list[PatchType] = ["merge", "strategic", "json", "apply"]

Damage = tuple[int, int, int | None]

damages = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.integers(0, len(ODD) - 1),
        st.none() | st.integers(0, len(NEW_FIELDS) - 1),
    ),
    min_size=1,
    max_size=3,
)


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place below a value, as its parent and its key there."""
    keys: Any = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))

    for key in keys:
        yield value, key
        yield from places_in(value[key])


def damaged(body: dict[str, Any], found: list[Damage]) -> dict[str, Any]:
    """Put odd values into a body: instead of others, or as further fields."""
    body = deepcopy(body)
    for place, odd, field in found:
        places = list(places_in(body))
        parent, key = places[place % len(places)]
        value = deepcopy(ODD[odd])
        if field is None:
            parent[key] = value
        elif isinstance(parent[key], dict):
            parent[key][NEW_FIELDS[field]] = value
        else:
            body[NEW_FIELDS[field]] = value

    return body


class Attempt:
    """A registry with one valid object, for test writes."""

    def __init__(self, write: Write) -> None:
        self.storage = Storage()
        # A namespace created with its first object must not appear without it.
        self.registry = Registry(self.storage, auto_namespaces=True)
        definitions = self.storage.collection(CUSTOM_RESOURCE_DEFINITIONS)
        self.registry.create(definitions, "", definition_of_things(), WriteOptions())
        resource = write.resource
        self.collection: Collection = self.storage.collection(resource)
        self.namespace = NAMESPACE if resource.namespaced else ""
        self.name = write.name or "damaged"
        named = placed(write.body, NAMESPACE)
        self.body: dict[str, Any] = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **named,
            "metadata": {**(named.get("metadata") or {}), "name": self.name},
        }

    def make(self) -> dict[str, Any]:
        """Create the valid object."""
        options = WriteOptions(manager="maker")
        made = self.registry.create(self.collection, self.namespace, self.body, options)
        return made.stored.body()

    def write(
        self, sent: object, options: WriteOptions, write: Callable[[], object]
    ) -> None:
        """Do a write and check its effects."""
        before, version = deepcopy(sent), self.storage.version
        try:
            write()
        except ApiError:
            assert self.storage.version == version
        else:
            assert not options.dry_run or self.storage.version == version

        assert sent == before


write_options = st.builds(
    WriteOptions,
    part=st.sampled_from(["main", "status", "all"]),
    dry_run=st.booleans(),
    manager=st.just("me"),
    force=st.booleans(),
    field_validation=st.sampled_from(["Strict", "Warn", "Ignore"]),
)
thorough = examples(25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(st.sampled_from(WRITES), damages, write_options)
def test_damaged_object_is_created_or_refused(
    write: Write, found: list[Damage], options: WriteOptions
) -> None:
    attempt = Attempt(write)
    sent = damaged(attempt.body, found)

    attempt.write(
        sent,
        options,
        lambda: attempt.registry.create(
            attempt.collection, attempt.namespace, sent, options
        ),
    )


@thorough
@given(st.sampled_from(WRITES), damages, write_options)
def test_damaged_update_is_applied_or_refused(
    write: Write, found: list[Damage], options: WriteOptions
) -> None:
    attempt = Attempt(write)
    sent = damaged(attempt.make(), found)

    attempt.write(
        sent,
        options,
        lambda: attempt.registry.update(
            attempt.collection, attempt.namespace, attempt.name, sent, options
        ),
    )


@pytest.mark.parametrize("patch_type", PATCHES)
@thorough
@given(
    write=st.sampled_from(WRITES),
    found=damages,
    options=write_options,
    whole=st.booleans(),
)
def test_damaged_patch_is_applied_or_refused(
    patch_type: PatchType,
    write: Write,
    found: list[Damage],
    options: WriteOptions,
    whole: bool,
) -> None:
    attempt = Attempt(write)
    made = attempt.make()
    sent: Any = damaged(made if whole else attempt.body, found)
    if patch_type == "json":
        sent = [
            {"op": op, "path": f"/{field}", "from": "/metadata", "value": value}
            for op, (field, value) in zip(
                ("add", "replace", "test", "move", "copy"), sent.items(), strict=False
            )
        ]

    attempt.write(
        sent,
        options,
        lambda: attempt.registry.patch(
            attempt.collection,
            attempt.namespace,
            attempt.name,
            sent,
            options,
            patch_type=patch_type,
        ),
    )
