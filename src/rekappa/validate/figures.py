"""Values of rows as a person reads them: numbers rounded, but never so far that two different ones look the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIGITS = 6
"""Significant digits of a fraction, unless more are needed to see a difference."""
_EXACT = 17


def written(value: Any, digits: int = DIGITS) -> str:
    """The value as text, fractions with so many significant digits."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return _rounded(value, digits)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {written(item, digits)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(written(item, digits) for item in value) + "]"
    return str(value)


def exactly(value: Any) -> str:
    """The value as text, every digit of it."""
    return written(value, _EXACT)


def apart(before: Any, after: Any) -> tuple[str, str]:
    """Both values as text, with as few digits as show that they differ, if they do."""
    for digits in range(DIGITS, _EXACT):
        pair = written(before, digits), written(after, digits)
        if pair[0] != pair[1]:
            return pair
    return exactly(before), exactly(after)


def _rounded(value: float, digits: int) -> str:
    if digits >= _EXACT:
        return repr(value)
    whole = f"{value:.{digits}g}"
    return repr(value) if float(whole) == value else whole
