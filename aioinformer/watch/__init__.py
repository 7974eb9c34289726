"""Watching: events, framing and decoding of what a server streams, the seam to it.

The law of this layer: it knows bytes and events, not sockets. Whoever implements
`ListerWatcher` brings the bytes.
"""

from aioinformer.watch.decoding import (
    Decoder,
    ListSplitter,
    ObjectDecoder,
    StreamDecoder,
)
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.interface import (
    ListerWatcher,
    ListOptions,
    ListPage,
    Watch,
    WatchOptions,
)

__all__ = [
    "Decoder",
    "EventType",
    "ListOptions",
    "ListPage",
    "ListSplitter",
    "ListerWatcher",
    "ObjectDecoder",
    "StreamDecoder",
    "Watch",
    "WatchEvent",
    "WatchOptions",
]
