"""`finalizer`: an object that is deleted waits for its controller to clean up.

What is to be done, and to which list of finalizers, is decided by plain functions of an
object; a write that lost a race against another is decided anew, on the object as it is.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aioinformer.controller.reconcile import check_reconcile
from aioinformer.errors import Conflict, NotFound, OptionsError
from aioinformer.model.names import qualified_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller.context import Context
    from aioinformer.controller.reconcile import Reconcile
    from aioinformer.controller.request import ReconcileRequest
    from aioinformer.controller.result import Result
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["finalizer"]

ATTEMPTS = 5
"""How often a list of finalizers is written, if others change the object meanwhile."""


def finalizer(
    resource: Resource, name: str, *, cleanup: Reconcile
) -> Callable[[Reconcile], Reconcile]:
    """Decorate a reconcile that makes something which outlives the object.

    ::

        @with_object(KubeObject)
        async def remove_record(site: KubeObject, ctx: Context) -> None: ...

        @finalizer(SITES, "example.com/record", cleanup=remove_record)
        @with_object(KubeObject)
        async def reconcile(site: KubeObject, ctx: Context) -> None: ...

    Before `reconcile` is first called for an object, the finalizer is written into it,
    and `ctx.lister` shows it. From then on a deletion only marks the object; `cleanup`
    is called in the place of `reconcile`, and when it answers None the finalizer is
    taken away, and the object goes when nobody else's is left. While an object waits for
    the finalizers of others, neither is called. For one that is gone, or was never
    there, `reconcile` is called as without the decorator.

    `cleanup` may be called again though it has ended, as any reconcile may: if the
    process died before the finalizer was taken away, or if that failed. So what is
    already gone is no failure. It is not called if somebody takes the finalizer away by
    hand, nor for objects that were deleted before they had it.

    Others may change the object at the same time: the finalizers are written with the
    version that they were read in, and after a `Conflict` decided anew on the object as
    it is, up to 5 times. Then the conflict is raised, and the request is retried like
    any other. As kube-rs has it (`runtime/finalizer.rs`), but for that `reconcile`
    follows at once and needs no second event.

    It takes the verbs `get` and `patch` of the resource, and a controller with a client.

    Args:
        resource: What the controller's `for_` is about.
        name: The finalizer: a domain that is yours, a slash and a name. Two controllers
            of one kind need two of them.
        cleanup: Undoes what `reconcile` did outside of the object. A `Result` says that
            it is not done yet: the finalizer stays, and it is called again as that says,
            or when something changes. What it raises is retried with backoff.

    Raises:
        OptionsError: If the name is no qualified one, or `cleanup` or what is decorated
            is no reconcile.
    """
    if problem := qualified_name_problem(name, "a finalizer"):
        raise OptionsError(problem)

    if "/" not in name:
        raise OptionsError(f"a finalizer needs a domain: 'example.com/{name}'")

    check_reconcile(cleanup)

    def adapt(function: Reconcile) -> Reconcile:
        check_reconcile(function)

        @functools.wraps(function)
        async def reconcile(request: ReconcileRequest, ctx: Context) -> Result | None:
            obj = ctx.lister.get(request.key)
            if obj is None:
                return await function(request, ctx)

            if obj.deletion_timestamp is None:
                if not await _hold(resource, obj, name, ctx):
                    return None  # it is going: the event that tells so follows

                return await function(request, ctx)

            if name not in obj.finalizers:
                return None

            answer = await cleanup(request, ctx)
            if answer is None:
                await _change(resource, obj, ctx, lambda it: _without(it, name))

            return answer

        return reconcile

    return adapt


# ---------------------------------------------------------------- decisions


def _with(obj: KubeObject, name: str) -> list[str] | None:
    """The finalizers that it should have; None if nothing is to be changed."""
    if name in obj.finalizers or obj.deletion_timestamp is not None:
        return None

    return [*obj.finalizers, name]


def _without(obj: KubeObject, name: str) -> list[str] | None:
    """The finalizers that it should keep; None if nothing is to be changed."""
    kept = [it for it in obj.finalizers if it != name]
    return kept if len(kept) < len(obj.finalizers) else None


# ---------------------------------------------------------------- performing them


async def _hold(resource: Resource, obj: KubeObject, name: str, ctx: Context) -> bool:
    """Have the object wait for us when it is deleted; False if it is on its way."""
    if name in obj.finalizers:
        return True

    held = await _change(resource, obj, ctx, lambda it: _with(it, name))
    if held is None or held.deletion_timestamp is not None:
        return False

    await ctx.settled()
    return True


async def _change(
    resource: Resource,
    obj: KubeObject,
    ctx: Context,
    decide: Callable[[KubeObject], list[str] | None],
) -> KubeObject | None:
    """Bring the finalizers to what is decided; the object then, None if it is gone.

    Raises:
        Conflict: Somebody else changed it each time.
    """
    client, namespace = ctx.client, obj.namespace or None
    now = obj
    conflicts = 0
    try:
        while (names := decide(now)) is not None:
            metadata = {"resourceVersion": now.resource_version, "finalizers": names}
            try:
                return await client.patch(
                    resource, obj.name, {"metadata": metadata}, namespace=namespace
                )
            except Conflict:
                conflicts += 1
                if conflicts == ATTEMPTS:
                    raise

            now = await client.get(resource, obj.name, namespace=namespace)
            if now.uid != obj.uid:
                return None  # another one of that name, which has an event of its own
    except NotFound:
        return None

    return now
