"""Writes that depend on what was read before, and are repeated after a `Conflict`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
)

from aioinformer.client import verbs
from aioinformer.errors import AlreadyExists, Conflict, NotFound, OptionsError
from aioinformer.model.callables import check_plain
from aioinformer.model.times import seconds_of
from aioinformer.model.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioinformer.client.verbs import Body
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource
    from aioinformer.model.times import Duration

__all__ = [
    "ObjectClient",
    "Operation",
    "create_or_patch",
    "is_absent",
    "merge_difference",
    "retry_on_conflict",
]

T = TypeVar("T")

ATTEMPTS: Final = 5
DELAY_SECONDS: Final = 0.01
JITTER: Final = 0.1

Operation: TypeAlias = Literal["created", "patched", "unchanged"]
"""Operation that `create_or_patch` performed."""


async def retry_on_conflict(
    function: Callable[[], Awaitable[T]],
    *,
    attempts: int = ATTEMPTS,
    delay: Duration = DELAY_SECONDS,
) -> T:
    """Call a function again after each `Conflict`, as client-go's `RetryOnConflict`.

    ::

        async def scale_up() -> KubeObject:
            web = (await client.get(DEPLOYMENTS, "web", namespace="shop")).to_dict()
            web["spec"]["replicas"] += 1
            return await client.update(DEPLOYMENTS, web)

        await retry_on_conflict(scale_up)

    Args:
        function: Function without arguments that returns an awaitable, such as a
            coroutine function. It reads the object from the server, since a cache may
            still show the old version, and writes it.
        attempts: Maximum number of calls.
        delay: Time between two calls; up to 10 % are added.

    Returns:
        Return value of the function.

    Raises:
        Conflict: If the last attempt conflicted. `AlreadyExists`, and a conflict of
            field managers, are raised at once: they do not pass.
        OptionsError: If it returns nothing to await, or a number is invalid.
        Exception: Any other error of the function.

    Cancellation:
        That of the function.
    """
    if not callable(function):
        raise OptionsError(
            f"retry_on_conflict() takes a function, not {shown(function)}: pass it "
            "without calling it"
        )

    count: object = attempts
    if not isinstance(count, int) or attempts < 1:
        raise OptionsError(
            f"attempts must be an integer of at least 1, not {attempts!r}"
        )

    seconds = seconds_of(delay)
    if seconds < 0:
        raise OptionsError(f"delay must not be negative: {delay!r}")

    for left in reversed(range(attempts)):
        try:
            step: object = function()
            if not isinstance(step, Awaitable):
                raise OptionsError(
                    "retry_on_conflict() calls a coroutine function (`async def`), not "
                    f"{function!r}"
                )

            return cast("T", await step)
        except Conflict as exc:
            if not left or _is_lasting(exc):
                raise

        await asyncio.sleep(seconds * (1 + JITTER * random.random()))

    raise AssertionError


def _is_lasting(conflict: Conflict) -> bool:
    """Return True for a conflict that repeating the write does not solve."""
    causes = conflict.details.get("causes") or ()
    return isinstance(conflict, AlreadyExists) or any(
        cause.get("reason") == "FieldManagerConflict" for cause in causes
    )


def is_absent(error: NotFound, name: str) -> bool:
    """Return True if an object of this name is missing, False if its resource is."""
    return error.details.get("name") == name


# ------------------------------------------------------------ create or patch


class ObjectClient(Protocol):
    """Part of `Client` and `ReconcileClient` that `create_or_patch` uses."""

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None
    ) -> KubeObject:
        """Read one object."""

    async def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Create an object."""

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        field_manager: str | None = None,
    ) -> KubeObject:
        """Change parts of an object."""


async def create_or_patch(
    client: ObjectClient,
    resource: Resource,
    name: str,
    change: Callable[[dict[str, Any]], object],
    *,
    namespace: str | None = None,
    field_manager: str | None = None,
) -> tuple[KubeObject, Operation]:
    """Create an object or change parts of it, by a function that changes a dict.

    ::

        def change(settings: dict[str, Any]) -> None:
            settings.setdefault("data", {})["colour"] = "blue"

        settings, done = await create_or_patch(
            client, CONFIG_MAPS, "settings", change, namespace="shop"
        )

    It reads the object, calls the function with a copy, and sends a merge patch of the
    difference with the version that was read. Without a difference it writes nothing.
    Of a missing object, the function gets only the name and the namespace. The function
    is called again if another client has written the object meanwhile, up to 5 times in
    all. To set fields without reading them, use `Client.apply`.

    Args:
        client: Client, or `ctx.client` of a reconcile.
        resource: Resource of the object.
        name: Name of the object.
        change: Plain function that changes the dict in place. It must not change the
            status: see `Client.patch_status`.
        namespace: Namespace; required for namespaced resources.
        field_manager: Name under which the server records the fields set.

    Returns:
        The object as stored by the server, and `"created"`, `"patched"` or
        `"unchanged"`.

    Raises:
        Conflict: If other clients wrote the object during each of 5 attempts; for other
            errors see `Client`.
        OptionsError: If the function is not plain, or changes the status, the name or
            the namespace.
        Exception: Error of the function.

    Cancellation:
        The connection is closed; the object may have been written.
    """
    check_plain(change, "the function of create_or_patch()")

    async def attempt() -> tuple[KubeObject, Operation]:
        try:
            found = await client.get(resource, name, namespace=namespace)
        except NotFound as exc:
            if not is_absent(exc, name):
                raise

            found = None

        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        old = {"metadata": metadata} if found is None else found.to_dict()
        new = verbs.plain(old)
        change(new)
        new = verbs.plain(new)
        _check_identity(old, new, f"{resource} {name}")
        options: Any = {"namespace": namespace, "field_manager": field_manager}
        try:
            if found is None:
                return await client.create(resource, new, **options), "created"

            patch = merge_difference(old, new)
            if not patch:
                return found, "unchanged"

            version = {"resourceVersion": found.resource_version}
            patch["metadata"] = patch.get("metadata", {}) | version
            return await client.patch(resource, name, patch, **options), "patched"
        except AlreadyExists as exc:
            raise _read_again(exc) from exc
        except NotFound as exc:
            if found is None or not is_absent(exc, name):
                raise  # for example the namespace is missing

            raise _read_again(exc) from exc

    return await retry_on_conflict(attempt)


def _read_again(error: AlreadyExists | NotFound) -> Conflict:
    """Return the error for an object that appeared or vanished after it was read."""
    return Conflict(error.message, status=409, reason="Conflict")


def _check_identity(old: Mapping[str, Any], new: Mapping[str, Any], what: str) -> None:
    if new.get("status") != old.get("status"):
        raise OptionsError(
            f"create_or_patch() does not write the status of {what}: use patch_status()"
        )

    before, after = old["metadata"], new.get("metadata")
    after = after if isinstance(after, dict) else {}
    for key in ("name", "namespace"):
        if after.get(key) != before.get(key):
            raise OptionsError(f"create_or_patch() must not change the {key} of {what}")


def merge_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch from one JSON object to another, empty if they are equal.

    In the new object, null means absent.

    Example:
        >>> merge_difference({"a": 1, "b": {"c": 1, "d": 1}}, {"b": {"c": 1, "d": 2}})
        {'a': None, 'b': {'d': 2}}
    """
    patch: dict[str, Any] = {}
    for key, value in old.items():
        if value is not None and new.get(key) is None:
            patch[key] = None

    for key, value in new.items():
        before = old.get(key)
        if value is None or value == before:
            continue

        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_difference(before, value)
            if inner:
                patch[key] = inner
        else:
            patch[key] = value

    return patch
