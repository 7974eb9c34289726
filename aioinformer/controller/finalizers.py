"""`finalizer`: a decorator that runs a cleanup before an object is deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioinformer.controller.context import reconcile_of
from aioinformer.errors import Conflict, NotFound, OptionsError
from aioinformer.model.resources import check_resource
from aioinformer.model.validation import qualified_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.controller.client import ReconcileClient
    from aioinformer.controller.context import Context, PlainReconcile, Reconcile
    from aioinformer.controller.reconcile import ReconcileRequest, Result
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["finalizer", "finalizers_of"]

ATTEMPTS: Final = 5
"""Maximum number of attempts to write finalizers, after conflicts."""


def finalizer(
    resource: Resource, name: str, *, cleanup: Reconcile | PlainReconcile
) -> Callable[[Reconcile | PlainReconcile], Reconcile]:
    """Decorate a reconcile that creates something outside of the object.

    ::

        @with_object(KubeObject)
        async def remove_record(site: KubeObject, ctx: Context) -> None: ...

        @finalizer(SITES, "example.com/record", cleanup=remove_record)
        @with_object(KubeObject)  # below it
        async def reconcile(site: KubeObject, ctx: Context) -> None: ...

    The finalizer is written into an object before `reconcile` is called for it.
    `ctx.lister` normally shows it then (otherwise `ctx.stale` is set). A deletion then
    only marks the object: `cleanup` is called instead of `reconcile`. When that returns
    None the finalizer is removed, and the server deletes the object once no finalizer
    is left. Neither function is called while an object waits for other finalizers. For
    a deleted object, `reconcile` is called as without the decorator. Decorate twice for
    two
    finalizers: the outer one is cleaned up first.

    `cleanup` must be idempotent, like any reconcile: it is called again if the process
    ended, or the request failed, before the finalizer was removed. It is not called if
    another client removes the finalizer, or for objects deleted before they had it.

    The deletion must reach the controller. `predicates=` get it as an `Added`, if the
    controller calls the decorated reconcile itself, not within another function. Objects
    should always match the informer's selectors, and transforms must keep
    `metadata.finalizers`.

    Finalizers are written with the version of the object that was read. After a
    `Conflict` the object is read and changed again, up to 5 times. Then the conflict is
    raised, and the request is retried like any other.

    It needs the verbs `get` and `patch` of the resource, and a controller with a
    client. The design is that of kube-rs (`runtime/finalizer.rs`), where a cleanup that
    does not fail is complete, and `reconcile` follows with the next event.

    Args:
        resource: Resource of the controller's `for_`.
        name: Name of the finalizer: your domain, a slash and a name. Two controllers of
            one resource need different names.
        cleanup: Reconcile that undoes what `reconcile` did outside of the object. If it
            returns a `Result`, the finalizer stays, and it is called again after
            `requeue_after` or with the next change. Exceptions are retried with
            backoff, except for a `TerminalError`, which waits for a change.

    Raises:
        OptionsError: If the name has no domain, the resource is not a `Resource`, or
            one of the functions is not a reconcile.
    """
    check_resource(resource)
    if problem := qualified_name_problem(name, "a finalizer"):
        raise OptionsError(problem)

    if "/" not in name:
        raise OptionsError(f"a finalizer needs a domain, such as 'example.com/{name}'")

    clean = reconcile_of(cleanup)

    def adapt(function: Reconcile | PlainReconcile) -> Reconcile:
        return _Finalized(resource, name, clean, reconcile_of(function))

    return adapt


def finalizers_of(reconcile: object) -> frozenset[str]:
    """Return the names of the finalizers that a reconcile is decorated with."""
    found = set()
    while isinstance(reconcile, _Finalized):
        found.add(reconcile.name)
        reconcile = reconcile.function

    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Finalized:
    """Reconcile with a finalizer."""

    resource: Resource
    name: str
    cleanup: Reconcile
    function: Reconcile

    async def __call__(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        client = ctx.client
        obj = ctx.lister.get(request.key)
        if obj is not None and _with(obj, self.name) is not None:
            if not await self._add(obj, client):
                return None  # being deleted: an event follows

            await ctx.settled()
            held, obj = obj, ctx.lister.get(request.key)
            if obj is not None and obj.uid != held.uid:
                return None  # another object of that name: an event follows

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

    async def _add(self, obj: KubeObject, client: ReconcileClient) -> bool:
        """Add the finalizer. Return False if the object is being deleted already."""
        held = await self._change(obj, client, _with)
        return held is not None and held.deletion_timestamp is None

    async def _change(
        self,
        obj: KubeObject,
        client: ReconcileClient,
        decide: Callable[[KubeObject, str], list[str] | None],
    ) -> KubeObject | None:
        """Write the finalizers that `decide` returns.

        Returns:
            The changed object, or None if it is deleted.

        Raises:
            Conflict: If the object was changed before each attempt.
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
                raise  # the resource is not served: the object may still exist

            return None

        return now


# ---------------------------------------------------------------- finalizer lists


def _with(obj: KubeObject, name: str) -> list[str] | None:
    """Return the finalizers of an object with one more, or None for no change."""
    if name in obj.finalizers or obj.deletion_timestamp is not None:
        return None

    return [*obj.finalizers, name]


def _without(obj: KubeObject, name: str) -> list[str] | None:
    """Return the finalizers of an object without one, or None for no change."""
    kept = [it for it in obj.finalizers if it != name]
    return kept if len(kept) < len(obj.finalizers) else None
