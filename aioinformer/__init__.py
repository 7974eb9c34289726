"""Kubernetes informers for asyncio: live, indexed, local copies of cluster objects.

The layers, from the user's side down. Each imports only from layers below it:

    cli/          the `aioinformer` command
    testing/      API server for tests, with faults
    controller/   Controller, Manager, LeaderElector, EventRecorder
    web/          health, metrics and event streams for web apps
    informer/     SharedInformer, its factory, Lister; reflector, pipeline, processor
    client/       Client: HTTP, configuration, credentials, discovery
    cache/        Store, Indexer, DeltaFIFO, OrderedFIFO
    workqueue/    WorkQueue, delays, rate limits, priorities
    watch/        events, decoding, watches and fakes; the ListerWatcher protocol
    tables/       columns that kubectl shows
    model/        KubeObject, Resource, selectors, keys

Importing this package loads nothing else. The first use of a name loads its layer.
aiohttp is imported when a client is entered.
"""

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False  # Treated like that of `typing`, which loads slowly.
if TYPE_CHECKING:
    from aioinformer.cache import (
        DeltaFIFO,
        Indexer,
        OrderedFIFO,
        Store,
        index_by,
    )
    from aioinformer.client import Client, ListWatch, retry_on_conflict
    from aioinformer.controller import (
        Context,
        Controller,
        EventRecorder,
        LeaderElector,
        LeaseLock,
        Manager,
        ReconcileRequest,
        Result,
        Shards,
        finalizer,
        generation_changed,
        set_controller_reference,
        with_object,
    )
    from aioinformer.errors import (
        AioInformerError,
        AlreadyExists,
        ApiError,
        CacheError,
        Conflict,
        Forbidden,
        HistoryReset,
        InformerStopped,
        Invalid,
        LeadershipLost,
        NotFound,
        NotSynced,
        QueueShutDown,
        RecordingError,
        ResourceExpired,
        ServerError,
        Stale,
        TerminalError,
        TooManyRequests,
        TransportError,
        Unauthorized,
        WatchClosed,
        WrongLoop,
    )
    from aioinformer.informer import (
        Added,
        CacheStatus,
        Deleted,
        InformerStatus,
        Lister,
        Reflector,
        Registration,
        SharedInformer,
        SharedInformerFactory,
        Updated,
        wait_for_cache_sync,
    )
    from aioinformer.informer.informer_watch import until_with_sync
    from aioinformer.model import (
        FieldSelector,
        KubeObject,
        LabelSelector,
        Resource,
        condition,
        is_ready,
        rolled_out,
        strip_managed_fields,
    )
    from aioinformer.tables import pod_trouble
    from aioinformer.watch import EventType, WatchEvent, until
    from aioinformer.workqueue import (
        DelayingQueue,
        PriorityQueue,
        RateLimitingQueue,
        WorkQueue,
    )

__all__ = [
    "Added",
    "AioInformerError",
    "AlreadyExists",
    "ApiError",
    "CacheError",
    "CacheStatus",
    "Client",
    "Conflict",
    "Context",
    "Controller",
    "DelayingQueue",
    "Deleted",
    "DeltaFIFO",
    "EventRecorder",
    "EventType",
    "FieldSelector",
    "Forbidden",
    "HistoryReset",
    "Indexer",
    "InformerStatus",
    "InformerStopped",
    "Invalid",
    "KubeObject",
    "LabelSelector",
    "LeaderElector",
    "LeadershipLost",
    "LeaseLock",
    "ListWatch",
    "Lister",
    "Manager",
    "NotFound",
    "NotSynced",
    "OrderedFIFO",
    "PriorityQueue",
    "QueueShutDown",
    "RateLimitingQueue",
    "ReconcileRequest",
    "RecordingError",
    "Reflector",
    "Registration",
    "Resource",
    "ResourceExpired",
    "Result",
    "ServerError",
    "Shards",
    "SharedInformer",
    "SharedInformerFactory",
    "Stale",
    "Store",
    "TerminalError",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "Updated",
    "WatchClosed",
    "WatchEvent",
    "WorkQueue",
    "WrongLoop",
    "condition",
    "finalizer",
    "generation_changed",
    "index_by",
    "is_ready",
    "pod_trouble",
    "retry_on_conflict",
    "rolled_out",
    "set_controller_reference",
    "strip_managed_fields",
    "until",
    "until_with_sync",
    "wait_for_cache_sync",
    "with_object",
]

# Layers that export the names, each after those that it imports.
_LAYERS = (
    "errors",
    "model",
    "watch",
    "workqueue",
    "cache",
    "client",
    "informer",
    "controller",
    "tables",
)


if not TYPE_CHECKING:  # A type checker would let it accept misspelt names.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

        for layer in _LAYERS:
            module = import_module(f"{__name__}.{layer}")
            if name in module.__all__:
                # Found without this function from now on.
                return globals().setdefault(name, getattr(module, name))

        raise AttributeError(f"no layer of {__name__!r} exports {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
