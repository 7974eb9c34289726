"""`conversion`: functions that convert objects between versions of a custom resource."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from aioinformer.errors import AioInformerError, OptionsError
from aioinformer.model.callables import is_coroutine_function
from aioinformer.model.objects import KubeObject
from aioinformer.model.resource import Resource
from aioinformer.webhooks.calls import Calls, check_function
from aioinformer.webhooks.hooks import Denied, plain
from aioinformer.webhooks.json_diff import merge_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["Conversion", "ConversionError", "Converter", "conversion"]

# Number of objects that a coroutine function converts before other tasks run.
_AT_ONCE = 100


class ConversionError(AioInformerError):
    """Failure to convert an object. The text is for the client.

    `__cause__` is the error of the function, or None.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Conversion:
    """Function that converts objects of one version to another. Made by `conversion`.

    Attributes:
        function: Decorated function.
        resource: Resource of the objects; its version does not matter.
        from_version: Version of the argument.
        to_version: Version of the result.
        into: Type of the argument, or None for a dict.
    """

    function: Callable[..., Any]
    resource: Resource
    from_version: str
    to_version: str
    into: type[Any] | None = None

    def __repr__(self) -> str:
        steps = f"{self.from_version} -> {self.to_version}"
        return f"<Conversion {self.resource} {steps}>"

    async def review(self, obj: Mapping[str, Any] | bytes) -> KubeObject:
        """Convert an object, without a server. For tests.

        Raises:
            Exception: Error of the function.
            TypeError: If its result is not an object, or of another kind.

        Cancellation:
            Safe.
        """
        given = KubeObject.of(obj).to_dict()
        argument, before = self.argument(given)
        returned = await Calls().call(self.function, argument)
        return KubeObject.of(self.result(given, argument, before, returned))

    def argument(self, obj: dict[str, Any]) -> tuple[Any, Any]:
        """Return the function's argument for an object, and its JSON if it is a model."""
        copied = KubeObject.of(obj)
        if self.into is None:
            return copied.to_dict(), None

        model = copied.into(self.into)
        return model, plain(model)

    def result(
        self, obj: dict[str, Any], argument: Any, before: Any, returned: Any
    ) -> dict[str, Any]:
        """Return the converted object. Of its metadata, labels and annotations count.

        Args:
            obj: Object before the conversion.
            argument: Argument of the function, which it may have changed.
            before: JSON of the argument before, if it is a model.
            returned: Result of the function, or None.

        Raises:
            TypeError: If the function has not returned an object, or one of another kind.
        """
        converted = argument if returned is None else returned
        after = plain(converted)
        if before is not None and converted is argument:
            after = merge_changes(obj, before, after)

        if not isinstance(after, dict):
            raise TypeError(
                f"the conversion returned {type(converted).__name__}, not an object"
            )

        kind = obj.get("kind")
        if after.get("kind", kind) != kind:
            raise TypeError("the conversion changed the kind of the object")

        metadata = dict(obj.get("metadata") or {})
        changed = after.get("metadata")
        if changed is not None:
            for key in ("labels", "annotations"):
                if key not in changed and self.into is not None:
                    continue  # models need not have them

                metadata.pop(key, None)
                if changed.get(key):
                    metadata[key] = changed[key]

        version = Resource(self.resource.group, self.to_version, self.resource.plural)
        head = {"apiVersion": version.api_version, "kind": kind, "metadata": metadata}
        return {**head, **{key: it for key, it in after.items() if key not in head}}


def conversion(
    resource: Resource,
    from_version: str,
    to_version: str,
    *,
    into: type[Any] | None = None,
) -> Callable[[Callable[..., Any]], Conversion]:
    """Decorate a function that converts objects of a CRD to another version.

    ::

        @conversion(SITES, "v1beta1", "v1")
        def upgrade(site: dict[str, Any]) -> None:
            site["spec"]["image"] = site["spec"].pop("container")

    The function changes its argument in place, or returns another object. `apiVersion`,
    `kind` and all metadata but labels and annotations are those of the argument. A plain
    function is called in a thread.

    Two functions for each version are enough: to a common version and from it. The
    server applies several in a row, by the shortest way. No version may lose data: put
    fields that it does not have into an annotation.

    Args:
        resource: Resource of the objects; its version does not matter.
        from_version: Version of the argument, such as `"v1beta1"`.
        to_version: Version of the result.
        into: Type of the argument, as for `KubeObject.into`. None for a dict. If the
            function changes a model in place, fields that the model does not have stay.
            An object that it returns instead must have all fields.

    Raises:
        OptionsError: If an option is invalid, or the function cannot be called so.
    """
    if not isinstance(resource, Resource):
        raise OptionsError(f"a conversion needs a Resource, not {resource!r}")

    for version in (from_version, to_version):
        Resource(resource.group, version, resource.plural)  # checks it

    if from_version == to_version:
        raise OptionsError(f"a conversion needs two versions, not {to_version!r} twice")

    def adapt(function: Callable[..., Any]) -> Conversion:
        check_function(function, ("object",), "a conversion")
        return Conversion(
            function=function,
            resource=resource,
            from_version=from_version,
            to_version=to_version,
            into=into,
        )

    return adapt


class Converter:
    """All conversions of one resource.

    Args:
        conversions: Functions between its versions.

    Raises:
        OptionsError: If there are two for the same versions.
    """

    def __init__(self, conversions: Sequence[Conversion]) -> None:
        self.resource: Resource = conversions[0].resource
        self._steps: dict[tuple[str, str], Conversion] = {}
        for it in conversions:
            pair = it.from_version, it.to_version
            if pair in self._steps:
                raise OptionsError(
                    f"two conversions of {self.resource} from {pair[0]} to {pair[1]}"
                )

            self._steps[pair] = it

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return str(self.resource)

    @property
    def path(self) -> str:
        """Path of its endpoint."""
        return f"/convert/{self.resource}"

    async def convert(
        self, objects: Iterable[object], api_version: str, calls: Calls
    ) -> list[dict[str, Any]]:
        """Convert objects of any versions to one.

        Raises:
            ConversionError: If an object cannot be converted.

        Cancellation:
            Safe; see `Calls.call`.
        """
        group, _, to_version = api_version.rpartition("/")
        if group != self.resource.group:
            raise ConversionError(f"cannot convert {self.name} to {api_version!r}")

        found: list[dict[str, Any]] = []
        by_version: dict[str, list[int]] = {}
        for number, obj in enumerate(objects):
            version = obj.get("apiVersion") if isinstance(obj, dict) else None
            if not isinstance(version, str) or not version.startswith(f"{group}/"):
                raise ConversionError(
                    f"object {number} of the review is not one of {self.name}"
                )

            found.append(cast("dict[str, Any]", obj))
            by_version.setdefault(version.removeprefix(f"{group}/"), []).append(number)

        for version, numbers in by_version.items():
            converted = [found[it] for it in numbers]
            for step in self._way(version, to_version):
                converted = await _all_by(step, converted, calls)

            for number, obj in zip(numbers, converted, strict=True):
                found[number] = obj

        return found

    def _way(self, start: str, end: str) -> list[Conversion]:
        """Return the fewest functions that lead from one version to another."""
        ways: dict[str, list[Conversion]] = {start: []}
        waiting = deque([start])
        while waiting and end not in ways:
            here = waiting.popleft()
            for (before, after), step in self._steps.items():
                if before == here and after not in ways:
                    ways[after] = [*ways[here], step]
                    waiting.append(after)

        if end not in ways:
            raise ConversionError(
                f"no conversion of {self.name} from {start} to {end} is declared"
            )

        return ways[end]


async def _all_by(
    step: Conversion, objects: list[dict[str, Any]], calls: Calls
) -> list[dict[str, Any]]:
    """Convert all objects by one function. A plain one gets a single thread for all."""
    if not is_coroutine_function(step.function):
        return cast(
            "list[dict[str, Any]]",
            await calls.in_thread(lambda: [_by(step, it) for it in objects]),
        )

    converted = []
    for number, obj in enumerate(objects):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)  # the function itself may never wait

        try:
            argument, before = step.argument(obj)
            returned = await step.function(argument)
            converted.append(step.result(obj, argument, before, returned))
        except Exception as exc:
            raise _failure(step, obj, exc) from exc

    return converted


def _by(step: Conversion, obj: dict[str, Any]) -> dict[str, Any]:
    try:
        argument, before = step.argument(obj)
        return step.result(obj, argument, before, step.function(argument))
    except Exception as exc:
        raise _failure(step, obj, exc) from exc


def _failure(
    step: Conversion, obj: dict[str, Any], error: Exception
) -> ConversionError:
    """Name the object and the function. Other texts may quote the object."""
    metadata = obj.get("metadata") or {}
    name, namespace = metadata.get("name"), metadata.get("namespace")
    key = f"{namespace}/{name}" if namespace else name
    reason = str(error) if isinstance(error, Denied) else type(error).__name__
    return ConversionError(
        f"cannot convert {step.resource} {key} from {step.from_version} to "
        f"{step.to_version}: {reason}"
    )
