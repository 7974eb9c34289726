"""`finalizer`: an object that is deleted waits for its controller to clean up.

Which finalizers an object should have is decided by plain functions of it; a write that
lost a race against another is decided anew, on the object as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioinformer.controller.reconcile import check_reconcile
from aioinformer.errors import Conflict, NotFound, OptionsError
from aioinformer.model.resource import check_resource
from aioinformer.model.validation import qualified_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller.client import ReconcileClient
    from aioinformer.controller.context import Context
    from aioinformer.controller.reconcile import Reconcile
    from aioinformer.controller.request import ReconcileRequest
    from aioinformer.controller.result import Result
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["finalizer"]

ATTEMPTS: Final = 5
"""How often a list of finalizers is written, if others change the object meanwhile."""


def finalizer(
    resource: Resource, name: str, *, cleanup: Reconcile
) -> Callable[[Reconcile], Reconcile]:
    """Decorate a reconcile that makes something which outlives the object.

    ::

        @with_object(KubeObject)
        async def remove_record(site: KubeObject, ctx: Context) -> None: ...

        @finalizer(SITES, "example.com/record", cleanup=remove_record)
        @with_object(KubeObject)  # below it
        async def reconcile(site: KubeObject, ctx: Context) -> None: ...

    Before `reconcile` is called for an object, the finalizer is written into it; normally
    `ctx.lister` shows it then (if not in time, `ctx.stale` says so). From then on a
    deletion only marks the object: `cleanup` is called in the place of `reconcile`, and
    when it answers None the finalizer is taken away, and the object goes when nobody
    else's is left. While an object waits for the finalizers of others, neither is called.
    For one that is gone, `reconcile` is called as without the decorator. For two things,
    decorate twice: the outer one is cleaned up first.

    `cleanup` may be called again though it has ended, as any reconcile may: if the
    process died before the finalizer was taken away, or if that failed. So what is
    already gone is no failure. It is not called if somebody takes the finalizer away by
    hand, nor for objects that were deleted before they had it.

    The deletion has to reach the controller: `predicates=` must let it pass
    (`generation_changed` does, `labels_changed` alone does not), the informer's selectors
    should be such that no object can leave them, and no transform may drop
    `metadata.finalizers`.

    Others may change the object at the same time: the finalizers are written with the
    version that they were read in, and after a `Conflict` decided anew on the object as
    it is, up to 5 times. Then the conflict is raised, and the request is retried like
    any other.

    It takes the verbs `get` and `patch` of the resource, and a controller with a client.
    The idea is that of kube-rs (`runtime/finalizer.rs`), where a cleanup is done unless
    it fails, and `reconcile` follows with the next event.

    Args:
        resource: What the controller's `for_` is about.
        name: The finalizer: a domain that is yours, a slash and a name. Two controllers
            of one kind need two of them.
        cleanup: Undoes what `reconcile` did outside of the object. A `Result` says that
            it is not done yet: the finalizer stays, and it is called again as that says,
            or when the controller is told of a change. What it raises is retried with
            backoff, but for a `TerminalError`, which waits for a change.

    Raises:
        OptionsError: If the name is no qualified one, the resource is none, or `cleanup`
            or what is decorated is no reconcile.
    """
    check_resource(resource)
    if problem := qualified_name_problem(name, "a finalizer"):
        raise OptionsError(problem)

    if "/" not in name:
        raise OptionsError(f"a finalizer needs a domain: 'example.com/{name}'")

    check_reconcile(cleanup)

    def adapt(function: Reconcile) -> Reconcile:
        check_reconcile(function)
        return _Finalized(resource, name, cleanup, function)

    return adapt


@dataclass(frozen=True, slots=True)
class _Finalized:
    """A reconcile with a finalizer."""

    resource: Resource
    name: str
    cleanup: Reconcile
    function: Reconcile

    async def __call__(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        client = ctx.client
        obj = ctx.lister.get(request.key)
        if obj is not None and _with(obj, self.name) is not None:
            if not await self._hold(obj, client):
                return None  # it is going, of which an event tells

            await ctx.settled()
            held, obj = obj, ctx.lister.get(request.key)
            if obj is not None and obj.uid != held.uid:
                return None  # another one of that name, of which an event tells

        if obj is None or obj.deletion_timestamp is None:
            return await self.function(request, ctx)

        if self.name in obj.finalizers:
            answer = await self.cleanup(request, ctx)
            if answer is None:
                await self._change(obj, client, _without)

            return answer

        if isinstance(self.function, _Finalized):
            return await self.function(request, ctx)

        return None

    async def _hold(self, obj: KubeObject, client: ReconcileClient) -> bool:
        """Have the object wait for us when it is deleted; False if it is on its way."""
        held = await self._change(obj, client, _with)
        return held is not None and held.deletion_timestamp is None

    async def _change(
        self,
        obj: KubeObject,
        client: ReconcileClient,
        decide: Callable[[KubeObject, str], list[str] | None],
    ) -> KubeObject | None:
        """Bring the finalizers to what is decided; the object then, None if it is gone.

        Raises:
            Conflict: Somebody else changed it each time.
        """
        namespace = obj.namespace or None
        now = obj
        conflicts = 0
        try:
            while (names := decide(now, self.name)) is not None:
                version = now.resource_version
                metadata = {"resourceVersion": version, "finalizers": names}
                try:
                    return await client.patch(
                        self.resource,
                        obj.name,
                        {"metadata": metadata},
                        namespace=namespace,
                    )
                except Conflict:
                    conflicts += 1
                    if conflicts == ATTEMPTS:
                        raise

                now = await client.get(self.resource, obj.name, namespace=namespace)
                if now.uid != obj.uid:
                    return None
        except NotFound as exc:
            if exc.details.get("name") != obj.name:
                raise  # not the object: its kind is not served, or not as this resource

            return None

        return now


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
