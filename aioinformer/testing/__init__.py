"""What tests of programs that use Kubernetes need: an API server, and its faults.

The law of this layer: it imitates the server that its users will meet, down to what is
inconvenient, and misbehaves only where a test asks for it. It may use whatever is below
it; only tests, and the demo of the command line, use it.

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
