"""Watching: events, framing and decoding of what a server streams, the seam to it.

The law of this layer: it knows bytes and events, not sockets. Whoever implements
`ListerWatcher` brings the bytes.

Every stream of changes is a `Watch`: iterate it, `stop()` it, or leave it by `async
with`. What differs is where the events come from:

    StreamWatch         the bytes of one answer of a server: `client.watch()`
    RetryWatch          as many such answers as it takes, one behind the other
    filtered, Recorder  another watch, of which some is left out, or all remembered
    Broadcaster.watch   what this process sends to all its watches
    FakeWatch, RaceFreeFakeWatch, EmptyWatch    a test
    aioinformer.informer.InformerWatch          an informer, which lists where it must

`until` and `until_without_retry` read one until something has happened.

The map, from what is used down to what it stands on:

    until, retry_watch (decides by resuming), filtering
    broadcaster, fakes, on channel      within this process
    stream_watch, pages                 of servers: changes, and lists in pages
    watch, interface                    what all of them are, and who gives them
    decoding, on framing and kinds      from bytes to events and objects
    events
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
    ServedCheck,
    Watch,
    WatchOptions,
)
from aioinformer.watch.pages import PagesAhead
from aioinformer.watch.stream_watch import ByteStream, StreamWatch
from aioinformer.watch.tools.broadcaster import Broadcaster, FullChannelBehavior
from aioinformer.watch.tools.fakes import EmptyWatch, FakeWatch, RaceFreeFakeWatch
from aioinformer.watch.tools.filtering import Recorder, filtered
from aioinformer.watch.tools.retry_watch import RetryWatch
from aioinformer.watch.tools.until import until, until_without_retry

__all__ = [
    "Broadcaster",
    "ByteStream",
    "Decoder",
    "EmptyWatch",
    "EventType",
    "FakeWatch",
    "FullChannelBehavior",
    "ListOptions",
    "ListPage",
    "ListSplitter",
    "ListerWatcher",
    "ObjectDecoder",
    "PagesAhead",
    "RaceFreeFakeWatch",
    "Recorder",
    "RetryWatch",
    "ServedCheck",
    "StreamDecoder",
    "StreamWatch",
    "Watch",
    "WatchEvent",
    "WatchOptions",
    "filtered",
    "until",
    "until_without_retry",
]
