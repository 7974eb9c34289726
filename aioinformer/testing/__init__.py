"""API server, fakes and pytest fixtures for tests of programs that use Kubernetes.

    APIServer, User      server of the package `aioinformer_apiserver`, with clients
    faults               scripted misbehaviour of that server
    plugin               pytest fixtures `apiserver` and `simulation`
    simulation           programs in virtual time, with faults by a seed
    FakeListerWatcher    source of lists and watches without a server

Rule of this layer: it adds clients of aioinformer to the test server, and has none of
its engine. Importing this package loads nothing else, because pytest imports it in
every run, for the plugin.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioinformer.testing import faults
    from aioinformer.testing.fakes import FakeListerWatcher
    from aioinformer.testing.server import APIServer
    from aioinformer_apiserver import User

__all__ = ["APIServer", "FakeListerWatcher", "User", "faults"]


if not TYPE_CHECKING:  # A type checker would let it accept misspelt names.

    def __getattr__(name: str) -> object:
        match name:
            case "APIServer":
                return import_module("aioinformer.testing.server").APIServer
            case "User":
                return import_module("aioinformer_apiserver").User
            case "FakeListerWatcher":
                return import_module("aioinformer.testing.fakes").FakeListerWatcher
            case "faults":
                return import_module("aioinformer.testing.faults")
            case _:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
