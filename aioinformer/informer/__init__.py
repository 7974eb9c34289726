"""Informers: live, indexed, local copies of collections, and what is told of them.

The law of this layer: decisions are pure functions (`machine`), state changes are
synchronous and in one place (`pipeline`), coroutines only perform. The reflector,
machine and processor know the `ListerWatcher` protocol, not the client.
"""

from aioinformer.informer.factory import SharedInformerFactory, wait_for_cache_sync
from aioinformer.informer.lister import Lister
from aioinformer.informer.notifications import Added, Deleted, Updated
from aioinformer.informer.reflector import (
    Reflector,
    ReflectorOptions,
    ReflectorStore,
)
from aioinformer.informer.registration import Registration
from aioinformer.informer.shared_informer import SharedInformer
from aioinformer.informer.status import InformerStatus

__all__ = [
    "Added",
    "Deleted",
    "InformerStatus",
    "Lister",
    "Reflector",
    "ReflectorOptions",
    "ReflectorStore",
    "Registration",
    "SharedInformer",
    "SharedInformerFactory",
    "Updated",
    "wait_for_cache_sync",
]
