"""Kubernetes informers for asyncio: a live, indexed, local copy of cluster objects.

The map, from what users touch down to what everything stands on; each folder is a layer
and imports only from those below it:

    cli/          the `aioinformer` command
    testing/      an API server for tests, with faults
    web/          what a web app mounts: health, metrics, a live stream
    controller/   Controller, Manager, LeaderElector, EventRecorder; requests, results
    informer/     SharedInformer, its factory, Lister; reflector, pipeline, processor
    client/       Client: HTTP, configuration, credentials, discovery
    cache/        Store, Indexer, DeltaFIFO, OrderedFIFO
    workqueue/    WorkQueue, delays, rate limits, priorities
    watch/        events, decoding, watches and fakes; the ListerWatcher protocol
    model/        KubeObject, Resource, selectors, keys

Importing this package loads nothing else: a name brings its layer when it is first used,
and aiohttp and kubernetes_asyncio come when a client is entered.
"""

from importlib import import_module

TYPE_CHECKING = False  # Type checkers take it for that of `typing`, which loads slowly.
if TYPE_CHECKING:
    from aioinformer.cache import (
        DeltaFIFO,
        Indexer,
        OrderedFIFO,
        Store,
        index_by,
    )
    from aioinformer.client import Client, ListWatch
    from aioinformer.controller import (
        Context,
        Controller,
        EventRecorder,
        LeaderElector,
        Manager,
        ReconcileRequest,
        Result,
    )
    from aioinformer.errors import (
        AioInformerError,
        AlreadyExists,
        ApiError,
        Conflict,
        Forbidden,
        HistoryReset,
        InformerStopped,
        Invalid,
        LeadershipLost,
        NotFound,
        NotSynced,
        QueueShutDown,
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
        strip_managed_fields,
    )
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
    "Reflector",
    "Registration",
    "Resource",
    "ResourceExpired",
    "Result",
    "ServerError",
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
    "index_by",
    "strip_managed_fields",
    "until",
    "until_with_sync",
    "wait_for_cache_sync",
]

# Where the names are, each layer after those that it loads itself.
_LAYERS = (
    "errors",
    "model",
    "watch",
    "workqueue",
    "cache",
    "client",
    "informer",
    "controller",
)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    for layer in _LAYERS:
        module = import_module(f"{__name__}.{layer}")
        if name in module.__all__:
            # From now on it is found without asking here.
            return globals().setdefault(name, getattr(module, name))

    raise AttributeError(f"no layer of {__name__!r} exports {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
