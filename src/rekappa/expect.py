"""What a repair is expected to change, said by the person who makes it. Pure.

    changed=playback_id,missing=0,extra=0      only this column changes, no row comes or goes
    changed=play*,changed<=5%,extra<=10        columns by pattern; at most so many rows

Terms are joined by commas. `changed` takes column names or patterns (`*`, `?`), or a number of rows; `missing` and
`extra` take a number of rows. A number follows `=` (exactly) or `<=` (at most) and may be a share (`5%`) of all
compared rows; `*` is any number. A name that looks like a number, or holds a comma or an equals sign, is put in
backticks. What an expectation does not mention must not happen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from rekappa.errors import ValidationError

_TERM = re.compile(r"\s*(?:(changed|missing|extra)\s*(<=|=)\s*)?(`(?:[^`]|``)*`|[^,`=<>]+?)\s*(?:,|$)")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


@dataclass(frozen=True, slots=True)
class Limit:
    """How many rows: exactly, or at most; a number, or a share in per cent of all rows. `most` None is any number."""

    most: float | None
    share: bool = False
    exact: bool = False

    def allows(self, rows: int, total: int) -> bool:
        if self.most is None:
            return True
        # Compared in products: a share must not become a limit by rounding.
        have, want = (100 * rows, self.most * total) if self.share else (rows, self.most)
        return have == want if self.exact else have <= want

    def __str__(self) -> str:
        if self.most is None:
            return "any number"
        return f"{'' if self.exact else 'at most '}{self.most:g}{' %' if self.share else ''}"


NONE = Limit(0)
ANY = Limit(None)


@dataclass(frozen=True, slots=True)
class CodeChange:
    """What the change in code did: rows by the set of columns that changed, rows that went and rows that came."""

    changed: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    missing: int = 0
    extra: int = 0

    @property
    def rows(self) -> int:
        return sum(self.changed.values()) + self.missing + self.extra


@dataclass(frozen=True, slots=True)
class Expectation:
    """`columns` are patterns: a changed row is expected if each of its changed columns matches one of them."""

    columns: tuple[str, ...] = ()
    changed: Limit = NONE
    missing: Limit = NONE
    extra: Limit = NONE
    text: str = ""

    def surprises(self, found: CodeChange, total: int) -> list[str]:
        """What is not as expected, in words; empty if all is."""
        said = []
        odd: dict[str, int] = {}
        for columns, rows in found.changed.items():
            for column in columns:
                if not any(fnmatchcase(column, pattern) for pattern in self.columns):
                    odd[column] = odd.get(column, 0) + rows
        if odd:
            said += [f"{rows} rows changed in {column}" for column, rows in sorted(odd.items())]
        changed = sum(found.changed.values())
        counts = (("changed", changed, self.changed), ("missing", found.missing, self.missing),
                  ("extra", found.extra, self.extra))  # fmt: skip
        for name, rows, limit in counts:
            if not limit.allows(rows, total) and not (name == "changed" and odd and limit == NONE):
                said.append(f"{rows} rows {name}, expected {limit}")
        return said


def parse_expectation(text: str) -> Expectation:
    """Read an expectation; refuses with `ValidationError` what is none, naming the part."""
    columns: list[str] = []
    limits: dict[str, Limit] = {}
    at, last = 0, ""
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None:
            raise _unreadable(text, text[at:])
        at = term.end()
        what, sign, value = term.groups()
        if what is None and last != "changed":
            raise _unreadable(text, value)
        what, sign = what or last, sign or "="
        number = None if value.startswith("`") else _NUMBER.fullmatch(value)
        if number is None and (what == "changed" and sign == "="):
            columns.append(value[1:-1].replace("``", "`") if value.startswith("`") else value)
        elif number is None and value != "*":
            raise _unreadable(text, f"{what}{sign}{value}")
        elif what in limits:
            raise ValidationError(f"Cannot read expectation {text!r}: it says twice how many rows are {what}")
        elif number is None:
            limits[what] = ANY
        else:
            limits[what] = Limit(float(number[1]), bool(number[2]), sign == "=")
        last = what
    if not columns and not limits:
        raise _unreadable(text, text)
    changed = limits.get("changed")
    if changed is not None and not columns and changed.most != 0:
        columns = ["*"]
    return Expectation(
        tuple(columns),
        changed if changed is not None else ANY if columns else NONE,
        limits.get("missing", NONE),
        limits.get("extra", NONE),
        text,
    )


def _unreadable(text: str, part: str) -> ValidationError:
    return ValidationError(
        f"Cannot read expectation {text!r}: what is {part.strip()!r}?",
        hint="Write it like changed=playback_id,missing=0,extra<=5%",
    )
