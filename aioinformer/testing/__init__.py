"""What tests of programs that use Kubernetes need: an API server, and its faults.

The law of this layer: it imitates the server that its users will meet, down to what is
inconvenient, and misbehaves only where a test asks for it. It may use whatever is below
it; only tests, and the command line, use it.

The map, from what tests touch down to what everything stands on; each folder imports
only from those below it:

    server, plugin, fakes   `APIServer`, the fixture `apiserver`, `FakeListerWatcher`
    arrangement, direct     objects without requests; requests without a network
    registration, arguments custom resources of tests; what tests hand over, checked
    serving/                HTTP in and out, and what is done about each request
    faults/                 scripted misbehaviour
    documents/              discovery, OpenAPI, health
    access/                 users, roles, and questions about rights
    reading/                lists and watches
    writing/                from a body to a stored object, and its deletion
    definitions/            custom resources, as their definitions say
    showing/                objects as JSON, YAML, metadata alone, or a table
    requests/               what a request asks for
    patching/               patches, server-side apply, managed fields
    printing/               the tables of each kind
    protobuf/               reads the binary encoding
    storing/                objects, versions, history, kinds
    schema/                 what each kind's objects look like; defaults and checks
    refusals/               the words of a real server

Importing this package loads nothing else: pytest does so in every run, for the plugin.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioinformer.testing import faults
    from aioinformer.testing.fakes import FakeListerWatcher
    from aioinformer.testing.server import APIServer, User

__all__ = ["APIServer", "FakeListerWatcher", "User", "faults"]


def __getattr__(name: str) -> object:
    match name:
        case "APIServer" | "User":
            return getattr(import_module("aioinformer.testing.server"), name)
        case "FakeListerWatcher":
            return import_module("aioinformer.testing.fakes").FakeListerWatcher
        case "faults":
            return import_module("aioinformer.testing.faults")
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
