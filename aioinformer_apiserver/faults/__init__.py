"""Faults: scripted misbehaviour, as data.

    server.faults.add(Gone(after_events=3), Cut(after_bytes=100, verb="list"))

Each request about a resource that is let in takes the first fault that matches it by
verb, resource, namespace and parameter, and uses it up once. Those for the server itself,
such as health or discovery, take none.

Verbs are those of Kubernetes permissions: get, list, watch, create, update, patch, delete
and deletecollection. Each class says by its default of `verb` which it strikes unless
told, and by `acts_on` on which it can have an effect. What could never strike is refused
when it is made.

===================  ===================================================================
fault                what the client meets
===================  ===================================================================
`Refuse`             an error of any status, perhaps with `Retry-After`
`Gone`               410, as a status or as an ERROR event
`Page`               a web page, of a proxy or a log-in, with any status
`Compact`            a history that was forgotten just now; an expired token
`Delay`              an answer that comes late
`Stall`              silence: before the head, behind it, or in the middle of a line
`Slow`               bytes that trickle
`Cut`                a connection that breaks: before the head, in the middle, by a reset
`End`                an answer that ends early and cleanly, perhaps in the middle of a line
`ErrorEvent`         a watch that ends with an ERROR event of any status
`Garble`             an event or a list that is no JSON
`Unreadable`         an event or an item that is JSON and no object
`UnknownType`        an event of a type that does not exist
`Foreign`            an event or an item of another kind
`Duplicate`          an event or an item that comes again
`Drop`               one that does not come at all
`StepBack`           an event, or a list, of an older version
`BlankBookmarks`     bookmarks without a version
`NoBookmarks`        no bookmarks, or no end of the initial events
===================  ===================================================================

`Chaos` draws from all of them by a seed. `server.faults.struck` tells what has changed
what is answered to which request, and `server.faults.check()` fails if a fault has changed
nothing. `APIServer.restart()` brings a server back with an older history.
"""

from aioinformer_apiserver.faults.answers import Compact, Gone, Page, Refuse
from aioinformer_apiserver.faults.base import Fault, Occasion
from aioinformer_apiserver.faults.chaos import Chaos
from aioinformer_apiserver.faults.connections import Cut, Delay, End, Slow, Stall
from aioinformer_apiserver.faults.events import (
    BlankBookmarks,
    Drop,
    Duplicate,
    ErrorEvent,
    EventFault,
    Foreign,
    Garble,
    NoBookmarks,
    StepBack,
    UnknownType,
    Unreadable,
)
from aioinformer_apiserver.faults.script import Faults, Strike

__all__ = [
    "BlankBookmarks",
    "Chaos",
    "Compact",
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "End",
    "ErrorEvent",
    "EventFault",
    "Fault",
    "Faults",
    "Foreign",
    "Garble",
    "Gone",
    "NoBookmarks",
    "Occasion",
    "Page",
    "Refuse",
    "Slow",
    "Stall",
    "StepBack",
    "Strike",
    "UnknownType",
    "Unreadable",
]
