"""What is taken for a plain function, and what is not."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from aioinformer.errors import OptionsError
from aioinformer.model.functions import check_plain


def plain(obj: object) -> object:
    return obj


async def coroutine(obj: object) -> object:
    return obj


class Plain:
    def __call__(self, obj: object) -> object:
        return obj


class Async:
    async def __call__(self, obj: object) -> object:
        return obj

    async def method(self, obj: object) -> object:
        return obj


@pytest.mark.parametrize(
    "function",
    [plain, lambda obj: obj, partial(plain, 1), Plain(), Plain, len, [].append],
    ids=["function", "lambda", "partial", "object", "class", "builtin", "method"],
)
def test_whatever_can_be_called_is_taken(function: Any) -> None:
    check_plain(function, "a filter")


@pytest.mark.parametrize(
    "function",
    [coroutine, partial(coroutine, 1), Async(), Async().method, asyncio.sleep, 5, None],
    ids=["function", "partial", "object", "method", "sleep", "number", "none"],
)
def test_what_has_to_be_awaited_or_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(OptionsError, match="a filter must be a plain function"):
        check_plain(function, "a filter")
