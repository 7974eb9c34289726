"""`Entry`: a named part of a kubeconfig file, and what may stand in it."""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Entry", "at_home"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A named cluster, user or context, or a part of one, and the file that it is from.

    Every method raises `OptionsError`, which names the file and the field, for what the
    field cannot hold. Null is as absent.
    """

    title: str
    file: Path
    data: Mapping[str, Any] = field(repr=False)

    @property
    def where(self) -> str:
        """For errors: `user 'me' in ~/.kube/config`."""
        return f"{self.title} in {self.file}"

    def text(self, key: str) -> str:
        """The text of a field; empty if it is absent."""
        value = self.data.get(key)
        if value is None:
            return ""

        if not isinstance(value, str):
            raise OptionsError(f"{key} of {self.where} must be text: put it in quotes")

        return value

    def flag(self, key: str) -> bool:
        """True or false; false if it is absent."""
        value = self.data.get(key)
        if not isinstance(value, bool | None):
            raise OptionsError(f"{key} of {self.where} must be true or false, unquoted")

        return bool(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.data.get(key) or []
        if not isinstance(value, list) or not all(isinstance(it, str) for it in value):
            raise OptionsError(
                f"{key} of {self.where} must be a list of texts: put each in quotes"
            )

        return tuple(value)

    def part(self, key: str) -> Entry | None:
        """A mapping inside of this one."""
        value = self.data.get(key)
        if not isinstance(value, dict | None):
            raise OptionsError(f"{key} of {self.where} must be a mapping")

        return Entry(f"{key} of {self.title}", self.file, value) if value else None

    def parts(self, key: str) -> list[Entry]:
        """A list of mappings inside of this one."""
        value = self.data.get(key) or []
        if not isinstance(value, list) or not all(isinstance(it, dict) for it in value):
            raise OptionsError(f"{key} of {self.where} must be a list of mappings")

        return [Entry(f"{key} of {self.title}", self.file, each) for each in value]

    def path(self, key: str) -> Path | None:
        """The file named by `key`, relative to the kubeconfig file that names it."""
        name = self.text(key)
        if "\0" in name:
            raise OptionsError(f"{key} of {self.where} cannot be a path")

        return self.file.parent / at_home(name) if name else None

    def material(self, key: str) -> bytes | Path | None:
        """The embedded data, which wins, or the file."""
        encoded = self.text(f"{key}-data")
        if not encoded:
            return self.path(key)

        try:
            return base64.b64decode("".join(encoded.split()), validate=True)
        except ValueError as exc:  # binascii.Error is one, and what is no ASCII another
            message = f"{key}-data of {self.where} is not base64"
            raise OptionsError(message) from (
                exc if isinstance(exc, binascii.Error) else None
            )


def at_home(path: str | Path) -> Path:
    """The path with a leading `~` replaced by what it stands for, if that is known."""
    # Not Path.expanduser(): it raises for a user without a home, which is what pods
    # with an arbitrary user id have.
    return Path(os.path.expanduser(path))
