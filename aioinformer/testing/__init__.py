"""What tests of programs that use Kubernetes need: an API server, and its faults.

The law of this layer: it imitates the server that its users will meet, down to what is
inconvenient, and misbehaves only where a test asks for it. It may use whatever is below
it; only tests, and the demo of the command line, use it.
"""

from aioinformer.testing import faults
from aioinformer.testing.server import APIServer

__all__ = ["APIServer", "faults"]
