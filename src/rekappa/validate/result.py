"""What a comparison found: frozen values. How they are shown is `rekappa.validate.report`'s business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from rekappa.errors import ValidationError

VERSION = 2
ROUNDING = 1e-9
"""The share of the larger number by which two sums of the same fractions may differ."""


class Cause(StrEnum):
    """Why a difference is there. The first that applies, in this order."""

    DUPLICATED = "key duplicated"
    OUTSIDE = "outside the window"
    OPEN = "open at the end"
    LATE = "late in production"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Rules:
    """How to compare. Without a key, rows are compared as wholes and their number counts.

    `unique` refuses null and duplicate keys: an upsert sink holds one row per key. Numbers are equal when they
    differ by at most `absolute`, or by at most `relative` of the larger one. `rounded` columns are sums of fractions,
    whose last digits depend on the order of adding: equal up to `ROUNDING`. `unordered` ones are lists whose order
    means nothing.
    """

    key: tuple[str, ...] = ()
    unique: bool = False
    ignore: tuple[str, ...] = ()
    absolute: float = 0.0
    relative: float = 0.0
    rounded: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    threshold: float = 100.0
    samples: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 100:
            raise ValidationError(f"Cannot use threshold {self.threshold}: it is a percentage, 0 to 100")
        if not (0 <= self.absolute < float("inf") and 0 <= self.relative < float("inf")):
            raise ValidationError(f"Cannot use tolerance {self.absolute or self.relative}: it must be 0 or more")
        if (self.absolute or self.relative) and not self.key:
            raise ValidationError(
                "Cannot compare with a tolerance: the sink has no key to pair rows by", hint="Set the sink's `key`."
            )


@dataclass(frozen=True, slots=True)
class Sample:
    """One difference: the row on either side (None where there is none) and the columns that differ."""

    kind: str
    cause: Cause
    columns: tuple[str, ...]
    production: Mapping[str, Any] | None
    staging: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Production against staging over one window, key by key.

    `missing` rows are in production and not in staging, `extra` ones the other way round. `columns` counts, of
    the different rows, how many differ in each column. Percentages are of all keys on either side.
    """

    production: int
    staging: int
    matched: int
    different: int
    missing: int
    extra: int
    key: tuple[str, ...] = ()
    columns: Mapping[str, int] = field(default_factory=dict)
    causes: Mapping[Cause, int] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    threshold: float = 100.0
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> int:
        return self.different + self.missing + self.extra

    @property
    def total(self) -> int:
        return self.matched + self.differences

    @property
    def match(self) -> float:
        """Per cent; two empty sides match."""
        return 100.0 * self.matched / self.total if self.total else 100.0

    @property
    def unexplained(self) -> int:
        return self.causes.get(Cause.UNEXPLAINED, 0) if self.causes else self.differences

    @property
    def passed(self) -> bool:
        """The match reaches the threshold, or every single difference has a known cause."""
        # Compared in counts: 99.99999 % must not become 100 by rounding.
        reached = 100.0 * self.matched >= self.threshold * self.total
        return reached or (self.differences > 0 and self.unexplained == 0)

    def as_json(self) -> dict[str, Any]:
        shares = {"match": self.match, "passed": self.passed, "unexplained": self.unexplained}
        causes = {str(cause): count for cause, count in self.causes.items()}
        return {"version": VERSION, **asdict(self), "causes": causes, **shares}


@dataclass(frozen=True, slots=True)
class SinkVerdict:
    """One sink of the run: compared, or why it could not be."""

    sink: str
    production: str
    comparison: Comparison | None
    reason: str | None = None

    @property
    def passed(self) -> bool:
        return self.comparison is not None and self.comparison.passed


@dataclass(frozen=True, slots=True)
class Verdict:
    """The validation of one run: passed only if every sink did."""

    run: str
    app: str
    start: datetime
    end: datetime
    at: datetime
    sinks: tuple[SinkVerdict, ...]

    @property
    def passed(self) -> bool:
        return bool(self.sinks) and all(sink.passed for sink in self.sinks)

    def as_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "run": self.run,
            "app": self.app,
            "window": {"start": self.start.isoformat(), "end": self.end.isoformat()},
            "at": self.at.isoformat(),
            "passed": self.passed,
            "sinks": [
                {
                    "sink": one.sink,
                    "production": one.production,
                    "passed": one.passed,
                    "reason": one.reason,
                    "comparison": one.comparison.as_json() if one.comparison else None,
                }
                for one in self.sinks
            ],
        }
