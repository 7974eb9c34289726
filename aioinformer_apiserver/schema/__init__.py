"""Schemas of kinds: decoding, defaults and validation.

Rule of this package: pure functions over bodies and schemas; no argument is changed.
"""

from aioinformer_apiserver.schema.openapi_schema import Schema

__all__ = ["Schema"]
