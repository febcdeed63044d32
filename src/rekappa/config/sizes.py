"""Amounts of memory as Spark writes them: 4g, 512m. A number without a unit counts mebibytes."""

from __future__ import annotations

import re
from math import ceil

LEAST_HEAP = 512
"""Mebibytes with which a driver or an executor of Spark still starts."""
_SIZE = re.compile(r"([1-9][0-9]*)\s*(?:([kmgtp])i?b?|(b))?", re.IGNORECASE)
_MEBIBYTES = {"b": 2**-20, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20, "p": 2**30}


def mebibytes(text: str) -> int | None:
    """Whole mebibytes, rounded up; None for what is no amount of memory."""
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else ceil(int(found[1]) * _MEBIBYTES[(found[2] or found[3] or "m").lower()])
