"""Informers: live, indexed, local copies of collections, with event handlers.

Decisions are pure functions (`machine`), state changes are synchronous and in one place
(`pipeline`), and coroutines only perform them. The reflector, the machine and the
processor use the `ListerWatcher` protocol, not the client.
"""

from aioinformer.informer.factory import (
    DynamicInformerFactory,
    MetadataInformerFactory,
    SharedInformerFactory,
    wait_for_cache_sync,
)
from aioinformer.informer.handlers.registration import Events, Registration
from aioinformer.informer.informer_watch import InformerWatch, until_with_sync
from aioinformer.informer.lister import Lister, TypedLister
from aioinformer.informer.listwatch.reflector import (
    Reflector,
    ReflectorOptions,
    ReflectorStore,
    Resume,
)
from aioinformer.informer.memory_budget import MemoryBudget, MemoryStatus
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.informer.status import CacheStatus, InformerStatus

__all__ = [
    "Added",
    "CacheStatus",
    "Deleted",
    "DynamicInformerFactory",
    "Events",
    "InformerStatus",
    "InformerWatch",
    "Lister",
    "MemoryBudget",
    "MemoryStatus",
    "MetadataInformerFactory",
    "Reflector",
    "ReflectorOptions",
    "ReflectorStore",
    "Registration",
    "Resume",
    "SharedInformer",
    "SharedInformerFactory",
    "TypedLister",
    "Updated",
    "until_with_sync",
    "wait_for_cache_sync",
]
