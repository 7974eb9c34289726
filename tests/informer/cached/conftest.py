"""Followers of stores on disk."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from cached_helpers import Followed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aioinformer.model import KubeObject


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Callable[..., Followed]]:
    """Open a store of some objects, and its follower."""
    with contextlib.ExitStack() as stack:

        def opened(*objects: KubeObject, **options: bool) -> Followed:
            rig = Followed(tmp_path, *objects, **options)
            stack.callback(rig.close)
            return rig

        yield opened
