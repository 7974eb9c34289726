"""Watching: events, and how a server's bytes are framed and decoded.

This layer handles bytes and events, not sockets. An implementation of `ListerWatcher`
provides the bytes.

Every stream of changes is a `Watch`: iterate it, `stop()` it, or leave it by `async
with`. The kinds of watches differ in the source of their events:

    StreamWatch         the bytes of one response of a server: `client.watch()`
    RetryWatch          as many such responses as needed, one after the other
    filtered, Recorder  another watch, with some events left out or all recorded
    Broadcaster.watch   events that this process sends to all its watches
    FakeWatch, RaceFreeFakeWatch, EmptyWatch    a test
    aioinformer.informer.InformerWatch          an informer, which lists if it must

`until` and `until_without_retry` read one until a condition is met.

On the path of an event:

    interface           what watches and their sources have in common
    stream_watch, pages a server's changes, and its lists in pages
    decoding, framing, kinds    from bytes to events and objects
    events              decoded events
    connectivity        turns of a client's watches while the server is unreachable

`tools` has watches made of other watches.
"""

from aioinformer.watch.decoding import (
    Decoder,
    ListSplitter,
    ObjectDecoder,
    StreamDecoder,
)
from aioinformer.watch.events import EventType, WatchEvent
from aioinformer.watch.interface import (
    Identified,
    ListerWatcher,
    ListOptions,
    ListPage,
    ManagedFieldsOptOut,
    Reselectable,
    Selection,
    Selectors,
    ServedCheck,
    ShardedPage,
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
    "Identified",
    "ListOptions",
    "ListPage",
    "ListSplitter",
    "ListerWatcher",
    "ManagedFieldsOptOut",
    "ObjectDecoder",
    "PagesAhead",
    "RaceFreeFakeWatch",
    "Recorder",
    "Reselectable",
    "RetryWatch",
    "Selection",
    "Selectors",
    "ServedCheck",
    "ShardedPage",
    "StreamDecoder",
    "StreamWatch",
    "Watch",
    "WatchEvent",
    "WatchOptions",
    "filtered",
    "until",
    "until_without_retry",
]
