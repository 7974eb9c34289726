"""Stores, indexes, and the queue of changes that feeds them.

This layer holds objects of any type. It is independent of servers and handlers. State
changes are plain methods; only waits are coroutines.

On the path of an event:

    delta_fifo, deltas, queue   changes between the reflector and the store
    store, index                objects by key, and by the values of index functions

`tools` has the other queues and stores of client-go.
"""

from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.deltas import (
    DeletedFinalStateUnknown,
    Delta,
    Deltas,
    DeltaType,
    Replacement,
    Requeue,
    ResyncAll,
)
from aioinformer.cache.index import (
    NAMESPACE_INDEX,
    IndexFunction,
    index_by,
    index_by_label,
    index_by_owner,
)
from aioinformer.cache.interface import Contents
from aioinformer.cache.queue import KnownObjects, Queue
from aioinformer.cache.store import Indexer, Store
from aioinformer.cache.tools.fifo import FIFO, OrderedFIFO
from aioinformer.cache.tools.mutation_cache import MutationCache
from aioinformer.cache.tools.mutation_detector import Mutation, MutationDetector
from aioinformer.cache.tools.stores import (
    ExpirationPolicy,
    ExpirationStore,
    TTLPolicy,
    UndeltaStore,
)

__all__ = [
    "FIFO",
    "NAMESPACE_INDEX",
    "Contents",
    "DeletedFinalStateUnknown",
    "Delta",
    "DeltaFIFO",
    "DeltaType",
    "Deltas",
    "ExpirationPolicy",
    "ExpirationStore",
    "IndexFunction",
    "Indexer",
    "KnownObjects",
    "Mutation",
    "MutationCache",
    "MutationDetector",
    "OrderedFIFO",
    "Queue",
    "Replacement",
    "Requeue",
    "ResyncAll",
    "Store",
    "TTLPolicy",
    "UndeltaStore",
    "index_by",
    "index_by_label",
    "index_by_owner",
]
