"""Numbers of Hypothesis examples: few in each run, many in a search for new ones."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

__all__ = ["examples"]

_FACTOR = 50 if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else 1


def examples(number: int, **options: Any) -> settings:
    """Return settings for so many examples; with the profile `explore` for 50 times."""
    return settings(max_examples=number * _FACTOR, **options)
