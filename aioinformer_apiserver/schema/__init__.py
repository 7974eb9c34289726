"""What a kind's objects look like, and what follows from it.

The law of this package: pure functions over bodies and schemas; nothing given is changed.
"""

from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = ["Schema"]
