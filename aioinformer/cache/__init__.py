"""Stores, indexes, and the queue of changes that feeds them.

The law of this layer: it holds objects of any type and knows neither servers nor
handlers. State changes are plain methods; only waiting is a coroutine.
"""

from aioinformer.cache.contents import Contents
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
from aioinformer.cache.expiration import (
    ExpirationPolicy,
    ExpirationStore,
    TTLPolicy,
)
from aioinformer.cache.fifo import FIFO
from aioinformer.cache.index import (
    NAMESPACE_INDEX,
    IndexFunction,
    index_by,
    index_by_label,
    index_by_owner,
)
from aioinformer.cache.mutation_cache import MutationCache
from aioinformer.cache.mutation_detector import Mutation, MutationDetector
from aioinformer.cache.ordered_fifo import OrderedFIFO
from aioinformer.cache.queue import KnownObjects, Queue
from aioinformer.cache.store import Indexer, Store
from aioinformer.cache.undelta import UndeltaStore

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
