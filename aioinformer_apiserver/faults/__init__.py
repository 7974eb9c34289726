"""Faults: scripted misbehaviour, as data.

    server.faults.add(Gone(after_events=3), Cut(after_bytes=100, verb="list"))

Each authorized resource request takes the first fault that matches its verb, resource,
namespace and parameters, and uses it up once. Requests about the server itself, such as
health checks or discovery, take none. `docs/faults.md` describes every fault.

To add a fault:

1. Write a frozen dataclass that derives from `Fault` and overrides its hooks: in
   `responses` if it acts before the request is handled, in `events` (derived from
   `EventFault`) if it changes events or items, in `connections` if it breaks or slows
   the connection. The latter need a case in `http/response.py`.
2. Add the name to the imports and to `__all__` below and in
   `aioinformer.testing.faults`, and, if `Chaos` is to draw it, to the tables in
   `chaos`.
3. Add a row to the tables in `docs/faults.md`. `tests/project/test_docs_faults.py` runs
   the example in that row and fails for a fault that changes nothing.
"""

from aioinformer_apiserver.faults.base import Fault, Occasion, Strike
from aioinformer_apiserver.faults.chaos import Chaos
from aioinformer_apiserver.faults.connections import Cut, End, Slow, Stall
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
from aioinformer_apiserver.faults.responses import Compact, Delay, Gone, Page, Refuse
from aioinformer_apiserver.faults.script import Faults

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
