"""Quantities: canonical forms such as `"500m"` or `"1Gi"`.

The canonical form has the largest suffix that leaves a whole number, in the family of
the given suffix. For an exception see `_is_taken_for_canonical`.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from decimal import ROUND_UP, Context, Decimal, DecimalException, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["canonical_quantity", "is_multiple", "quantity"]

_RULE = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_FORM = re.compile(_RULE)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")
_POWERS = {name: 3 * n for n, name in enumerate(["n", "u", "m", "", *"kMGTPE"], -3)}
_NAMES = {power: name for name, power in _POWERS.items()}
_BINARY: dict[str, int] = {f"{name}i": 1024**n for n, name in enumerate("KMGTPE", 1)}
# Finer values are rounded away from zero, so that no request becomes zero.
_SMALLEST = Decimal("1e-9")
_LARGEST = Decimal(2**63 - 1)
_ONE = Decimal(1)
# So many digits are always exact in 64 bits.
_EXACT_DIGITS = 18
# Longer exponents are rejected: a real server would calculate for minutes.
_EXPONENT_DIGITS = 3
# Precision enough for all accepted quantities.
_CONTEXT = Context(prec=2 * 10**_EXPONENT_DIGITS)


@lru_cache(maxsize=4096)
def canonical_quantity(text: str) -> str:
    """Return the form in which the server stores a quantity.

    Args:
        text: Quantity such as `"1000m"`, `"0.5Gi"` or `"1e3"`.

    Raises:
        ValueError: If the text is not a quantity; the message is the server's.
    """
    number, suffix = _parse(text)
    if _is_taken_for_canonical(text, suffix):
        return text

    with _exact_context():
        value = _value(number, suffix)
        if suffix in _BINARY and abs(value) >= 1024 and not value % 1:
            return _binary(value)

        return _decimal(value, exponent=suffix not in _BINARY | _POWERS)


@lru_cache(maxsize=4096)
def quantity(text: str) -> Decimal:
    """Return the value of a quantity, for comparison.

    Raises:
        ValueError: If the text is not a quantity.
    """
    with _exact_context():
        return _value(*_parse(text))


def is_multiple(value: Decimal, step: Decimal = _ONE) -> bool:
    """Return whether a quantity is a whole number, or a multiple of another one."""
    with _exact_context():
        return not value % step


@contextmanager
def _exact_context() -> Iterator[None]:
    """Calculate with enough digits, and reject quantities that need more."""
    try:
        with localcontext(_CONTEXT):
            yield
    except DecimalException as exc:
        raise ValueError("unable to parse quantity's suffix") from exc


def _value(number: Decimal, suffix: str) -> Decimal:
    if suffix in _BINARY:
        return number * _BINARY[suffix]

    return number.scaleb(_power(suffix))


def _power(suffix: str) -> int:
    """Return the power of ten of a suffix."""
    return _POWERS[suffix] if suffix in _POWERS else int(suffix[1:])


def _parse(text: str) -> tuple[Decimal, str]:
    form = _FORM.match(text)
    if not form:
        raise ValueError(f"quantities must match the regular expression '{_RULE}'")

    number, suffix = form.groups()
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"quantities must match the regular expression '{_RULE}'")

    if suffix not in _BINARY | _POWERS:
        digits = suffix.lstrip("eE+-0")
        if not _EXPONENT.fullmatch(suffix) or len(digits) > _EXPONENT_DIGITS:
            raise ValueError("unable to parse quantity's suffix")

    return Decimal(number), suffix


def _is_taken_for_canonical(text: str, suffix: str) -> bool:
    """Return whether the real server takes a text for canonical without a closer look.

    So `+1` and `01` stay as they are, but `1000` does not.
    """
    number = text.removesuffix(suffix).lstrip("+-")
    whole, _, fraction = number.partition(".")
    digits = (whole.lstrip("0") or "0") + fraction
    if suffix in _BINARY:
        exponent = 10 * (list(_BINARY).index(suffix) + 1)
        short = len(digits) + exponent * 3 // 10 < 15
        return short and not fraction and int(digits) % 8 != 0

    scale = _power(suffix) - len(fraction)
    if len(digits) > _EXACT_DIGITS or scale < -9 or scale % 3:
        return False

    return digits[0] != "0" and not digits.endswith("000")


def _decimal(value: Decimal, *, exponent: bool) -> str:
    """Format with a power of a thousand, as a suffix or an exponent."""
    value = value.quantize(_SMALLEST, ROUND_UP)
    if not value:
        return "0"

    power = -9
    whole = int(value.scaleb(9))
    while whole % 1000 == 0 and power < 18:
        whole //= 1000
        power += 3

    if exponent:
        return f"{whole}e{power}" if power else str(whole)

    return f"{whole}{_NAMES[power]}"


def _binary(value: Decimal) -> str:
    whole = int(min(max(value, -_LARGEST), _LARGEST))
    name = ""
    for suffix in _BINARY:
        if whole % 1024:
            break

        whole //= 1024
        name = suffix

    return f"{whole}{name}"
