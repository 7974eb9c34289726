"""JSON of any value: by orjson, or by msgspec where orjson is not installed.

orjson has no wheels for free-threaded and for the newest Python. Everything that encodes
or decodes plain values imports the functions from here, so it works without orjson, too.
"""

from __future__ import annotations

from json import JSONDecodeError  # orjson raises a subclass.

try:
    from orjson import OPT_INDENT_2, OPT_SORT_KEYS, dumps, loads
except ImportError:
    from aioinformer._msgspec_json import OPT_INDENT_2, OPT_SORT_KEYS, dumps, loads

__all__ = ["OPT_INDENT_2", "OPT_SORT_KEYS", "JSONDecodeError", "dumps", "loads"]
