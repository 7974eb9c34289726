"""A server with a pod, and reconciles that record finalizers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from controller_helpers import Lagging, Notes, informed, informer_of, named
from informer_helpers import running

from aioinformer import Client, Controller, Result
from aioinformer.controller import Context, finalizer
from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer import ReconcileRequest

OURS = "example.com/record"
THEIRS = "example.com/theirs"
LAG = 2.0


class Recorded(Notes):
    """A reconcile that records the finalizers of its object."""

    def __init__(self) -> None:
        super().__init__()
        self.finalizers: list[list[str] | None] = []

    async def act(self, request: ReconcileRequest, ctx: Context) -> None:
        obj = ctx.lister.get(request.key)
        self.finalizers.append(None if obj is None else obj.finalizers)


class Cleanup(Notes):
    """A cleanup with scripted results and errors, then done."""

    def __init__(self, *answers: Result | Exception) -> None:
        super().__init__()
        self.answers = list(answers)

    async def act(self, request: ReconcileRequest, ctx: Context) -> Result | None:
        obj = ctx.lister.get(request.key)
        assert obj is not None
        assert obj.deletion_timestamp is not None
        assert OURS in obj.finalizers
        if not self.answers:
            return None

        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer

        return answer


class Site:
    """A server with a pod, whose controller gets changes some seconds late."""

    def __init__(self, server: APIServer, client: Client) -> None:
        self.server = server
        self.client = client
        self.pods = informer_of(Lagging(server.list_watch(PODS), LAG))
        self.reconcile = Recorded()

    @asynccontextmanager
    async def controlled(
        self, cleanup: Notes, *more: str, **options: Any
    ) -> AsyncIterator[None]:
        """Run a controller with a cleanup for our finalizer, and for more of them."""
        reconcile = finalizer(PODS, OURS, cleanup=cleanup)(self.reconcile)
        for name in more:
            reconcile = finalizer(PODS, name, cleanup=cleanup)(reconcile)

        controller = Controller(
            "pods", reconcile, for_=self.pods, client=self.client, **options
        )
        async with running(controller.run()):
            yield

    def finalizers(self, name: str = "web") -> list[str]:
        metadata = self.server.get(PODS, name, namespace="default")["metadata"]
        return list(metadata.get("finalizers", ()))

    def names(self) -> list[str]:
        return [it["metadata"]["name"] for it in self.server.objects(PODS)]

    def writes(self) -> list[str]:
        return [it.verb for it in self.server.requests if it.verb in {"patch", "get"}]

    def remove_finalizer(self, name: str, finalizer: str) -> None:
        """Remove the finalizer of another controller."""
        kept = [it for it in self.finalizers() if it != finalizer]
        self.server.patch(
            PODS, name, {"metadata": {"finalizers": kept}}, namespace="default"
        )


@asynccontextmanager
async def site(**metadata: Any) -> AsyncIterator[Site]:
    async with APIServer() as server, server.client() as client:
        server.create(PODS, named("web", **metadata))
        it = Site(server, client)
        async with informed(it.pods):
            yield it
