"""Stores, indexes, and the queue of changes that feeds them.

The law of this layer: it holds objects of any type and knows neither servers nor
handlers. State changes are plain methods; only waiting is a coroutine.
"""

from aioinformer.cache.delta_fifo import DeltaFIFO
from aioinformer.cache.deltas import (
    DeletedFinalStateUnknown,
    Delta,
    DeltaType,
    Replacement,
)
from aioinformer.cache.index import (
    NAMESPACE_INDEX,
    IndexFunction,
    index_by,
    index_by_label,
)
from aioinformer.cache.store import Contents, Indexer, Store

__all__ = [
    "NAMESPACE_INDEX",
    "Contents",
    "DeletedFinalStateUnknown",
    "Delta",
    "DeltaFIFO",
    "DeltaType",
    "IndexFunction",
    "Indexer",
    "Replacement",
    "Store",
    "index_by",
    "index_by_label",
]
