"""String formats and patterns of custom resources.

Formats of ISBNs and credit card numbers are not implemented.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import unicodedata
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING

from aioinformer_apiserver.errors import names

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["fits_format", "go_pattern"]


def fits_format(format_: str, text: str) -> bool:
    """Return whether a text has a format; unknown formats fit any text.

    Args:
        format_: Name of the format, such as `"date-time"`; dashes are ignored.
        text: Text to validate.
    """
    fits = _FORMATS.get(format_.replace("-", ""))
    return fits is None or fits(text)


def _pattern(text: str) -> Callable[[str], bool]:
    compiled = re.compile(text, re.ASCII)
    return lambda it: compiled.fullmatch(it) is not None


def _uuid(
    version: str = "[0-9a-f]", variant: str = "[0-9a-f]"
) -> Callable[[str], bool]:
    return _pattern(
        rf"(?i)[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?"
        rf"{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}"
    )


def _date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False

    return len(text) == len("2006-01-02")


_TIME = re.compile(r"(\d{2}):(\d{2}):(\d{2})(.\d+)?(z|([+-]\d{2}:\d{2}))", re.ASCII)


def _date_time(text: str) -> bool:
    day, _, time = text.lower().partition("t")
    found = _TIME.fullmatch(time)
    if not found or not _date(day):
        return False

    return found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


# Go accepts the micro sign and the Greek letter.
_MICRO = "\u00b5"
_GO_DURATION = re.compile(
    rf"[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|[u{_MICRO}\u03bc]s|ms|s|m|h))+)", re.ASCII
)
_LONG_DURATION = re.compile(rf"(?:(\d+)\s*([A-Za-z{_MICRO}]+))", re.ASCII)
_UNITS = ("ns", "us", f"{_MICRO}s", "ms", "s", "m", "h", "hr", "d", "w", "wk")
_LONG_UNITS = ("nano", "micro", "milli", "second", "sec", "minute", "min")
_LONGER_UNITS = ("hour", "day", "week")


def _duration(text: str) -> bool:
    if _GO_DURATION.fullmatch(text):
        return True

    # durations as in Scala: "5 minutes", "2 d"
    return any(
        unit.lower() in _UNITS
        or unit.lower().startswith((*_LONG_UNITS, *_LONGER_UNITS))
        for _, unit in _LONG_DURATION.findall(text)
    )


def _base64(text: str) -> bool:
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False

    return bool(text)


_LEADING_ZEROS = re.compile(r"\b0+(?=\d)", re.ASCII)


def _address(kind: type) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        # Go ignores leading zeros, Python rejects them.
        plain = text if ":" in text else _LEADING_ZEROS.sub("", text)
        try:
            return isinstance(ipaddress.ip_address(plain), kind)
        except ValueError:
            return False

    return fits


def _network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False

    return "/" in text and text.rpartition("/")[2].isdigit()


# Letters (l), digits and symbols (x), dashes and dots. A single label may contain or
# end with one dash; several labels may contain many.
_HOST = re.compile(
    r"[lx](?:-?[lx]{0,62})?|(?:[lx](?:[lx-]{0,61}[lx])?\.)+l{2,63}", re.ASCII
)


def _hostname(text: str) -> bool:
    parts = text.split(".")
    fits = _HOST.fullmatch("".join(map(_host_letter, text)))
    return bool(fits) and len(text) <= 255 and max(map(len, parts)) <= 63


def _host_letter(letter: str) -> str:
    category = unicodedata.category(letter)
    if category.startswith("L"):
        return "l"

    digit = letter.isascii() and letter.isdigit()
    return "x" if digit or category.startswith("S") else letter


def _email(text: str) -> bool:
    bare = re.fullmatch(r"[^<]*<([^<>]+)>", text)
    address = bare[1] if bare else text
    user, _, host = address.rpartition("@")
    return bool(
        re.fullmatch(r"[\w!#$%&'*+/=?^`{|}~-]+(\.[\w!#$%&'*+/=?^`{|}~-]+)*", user)
        and re.fullmatch(r"[^\s@\[\]<>(),;:\"]+|\[[^\s\]]+\]", host)
    )


def _uri(text: str) -> bool:
    """Return whether a text is an absolute URI or a path, as in a request line."""
    if not text or re.search(r"[\x00-\x20\x7f]", text):
        return False

    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        return False

    return text.startswith("/") or bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text))


_FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _pattern(r"[0-9a-fA-F]{24}"),
    "byte": _base64,
    "cidr": _network,
    "date": _date,
    "datetime": _date_time,
    "duration": _duration,
    "email": _email,
    "hexcolor": _pattern(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _hostname,
    "ipv4": _address(ipaddress.IPv4Address),
    "ipv6": _address(ipaddress.IPv6Address),
    "k8slongname": lambda text: not names.validate_subdomain(text),
    "k8sshortname": lambda text: not names.validate_dns_label(text),
    "mac": _pattern(
        r"(?i)(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4,18}[0-9a-f]{2}|"
        r"[0-9a-f]{4}(?:\.[0-9a-f]{4}){2,9}"
    ),
    "rgbcolor": _pattern(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"),
    "ssn": _pattern(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "uri": _uri,
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
}

# ------------------------------------------------------------------ patterns


_CLASSES = {
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:ascii:]": r"\x00-\x7F",
    "[:blank:]": r"\t ",
    "[:cntrl:]": r"\x00-\x1F\x7F",
    "[:digit:]": "0-9",
    "[:graph:]": "!-~",
    "[:lower:]": "a-z",
    "[:print:]": " -~",
    "[:punct:]": r"!-/:-@\[-`{-~",
    "[:space:]": r"\t\n\v\f\r ",
    "[:upper:]": "A-Z",
    "[:word:]": "0-9A-Za-z_",
    "[:xdigit:]": "0-9A-Fa-f",
}
_TOKENS = re.compile(r"\\.|\[:\w+:\]|\[\^?\]?|\]|\$|.", re.DOTALL)


@lru_cache(maxsize=1024)
def go_pattern(text: str) -> re.Pattern[str] | None:
    """Compile a pattern as Go's `regexp` understands it.

    Returns:
        The pattern, to be used with `search`; None if Python cannot express it, such as
        classes of Unicode (`\\p{Greek}`).
    """
    pieces: list[str] = []
    inside = False
    for token in _TOKENS.findall(text):
        if inside and token in _CLASSES:
            pieces.append(_CLASSES[token])
            continue

        if not inside and token.startswith("["):
            inside = True
        elif inside and token == "]":
            inside = False

        # Go's `$` matches only at the end, Python's also before a newline.
        ends = token == r"\z" or (token == "$" and not inside)
        pieces.append(r"\Z" if ends else token)

    try:
        return re.compile("".join(pieces), re.ASCII)
    except re.error:
        return None
