"""Packages of the optional extras, which are imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aioinformer.errors import OptionsError

__all__ = ["import_extra"]


def import_extra(module: str, extra: str, why: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: Name of the module.
        extra: Extra of this package that installs it.
        why: Reason for the error, such as `"recordings need zstandard"`.

    Raises:
        OptionsError: If it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as exc:
        raise OptionsError(f"{why}: pip install 'aioinformer[{extra}]'") from exc
