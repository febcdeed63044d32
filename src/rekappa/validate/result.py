"""What a comparison found: frozen values. How they are shown is `rekappa.validate.report`'s business."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from rekappa.errors import ValidationError
from rekappa.expect import CodeChange, Expectation
from rekappa.timeline import Window
from rekappa.validate.over_time import OverTime

VERSION = 2
IGNORED = "ignored"
ROUNDING = 1e-9
"""The share of the larger number by which two sums of the same fractions may differ."""


class Cause(StrEnum):
    """Why a difference is there. Each but the last two was shown by running something."""

    CODE = "change in code"
    LOOKUP = "lookup changed"
    LATE = "late in production"
    LATE_IN_BACKFILL = "late in the backfill"
    NOT_FINAL = "not final"
    UNEXPLAINED = "unexplained"


class Outcome(StrEnum):
    """What a validation comes to. `NEEDS_YES`: everything is explained, and a person must want it."""

    PASSED = "passed"
    NEEDS_YES = "needs a yes"
    FAILED = "failed"


class Late(StrEnum):
    """What to do with rows that production lacks because it dropped events as late: the backfill has them."""

    KEEP = "keep"
    DROP = "drop"


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
    samples: int = 20

    def __post_init__(self) -> None:
        if not (0 <= self.absolute < float("inf") and 0 <= self.relative < float("inf")):
            raise ValidationError(f"Cannot use tolerance {self.absolute or self.relative}: it must be 0 or more")
        if (self.absolute or self.relative) and not self.key:
            raise ValidationError(
                "Cannot compare with a tolerance: the sink has no key to pair rows by", hint="Set the sink's `key`."
            )

    @property
    def special(self) -> dict[str, str]:
        """The columns that are not compared as they are, and how."""
        words = dict.fromkeys(self.ignore, IGNORED)
        words |= {name: f"up to {ROUNDING:g} of the value" for name in self.rounded if name not in words}
        return words | {name: "in any order" for name in self.unordered if name not in words}


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
    the different rows, how many differ in each column. Percentages are of all keys on either side. `code` is what the
    change in code did, told by control runs: production's late drops are not in it; `late_too` counts the rows that
    differ by both. `special` names the columns that
    were not compared as they are. `controls` are the runs that settled the causes. `over_time` says when the rows that
    differ happened, where a column tells.
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
    code: CodeChange = field(default_factory=CodeChange)
    late_too: int = 0
    special: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    notes: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    over_time: OverTime | None = None

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

    def caused_by(self, cause: Cause) -> int:
        """How many differences have this cause; what no cause was named for is unexplained."""
        named = self.causes.get(cause, 0)
        left = self.differences - sum(self.causes.values()) if cause is Cause.UNEXPLAINED else 0
        return named + max(left, 0)

    @property
    def late(self) -> int:
        """How many rows hold events that production dropped as late, changed by code or not."""
        return self.caused_by(Cause.LATE) + self.late_too

    @property
    def unexplained(self) -> int:
        return self.caused_by(Cause.UNEXPLAINED)

    def as_json(self) -> dict[str, Any]:
        code = {
            "changed": [{"columns": list(columns), "rows": rows} for columns, rows in self.code.changed.items()],
            "missing": self.code.missing,
            "extra": self.code.extra,
        }
        causes = {str(cause): count for cause, count in self.causes.items()}
        more = {"causes": causes, "code": code, "match": self.match, "unexplained": self.unexplained}
        over_time = self.over_time.as_json() if self.over_time else None
        return {"version": VERSION, **asdict(replace(self, over_time=None)), **more, "over_time": over_time}


def judge(found: Comparison, expected: Expectation | None, late: Late) -> tuple[Outcome, tuple[str, ...]]:
    """Whether this may be published, and why not, or why somebody has to say so."""
    wrong = []
    if rows := found.unexplained:
        wrong.append(f"{rows} rows differ and nothing shows why")
    if rows := found.caused_by(Cause.NOT_FINAL):
        wrong.append(f"{rows} rows were not final when the backfill ended: --final-only leaves them out")
    if rows := found.caused_by(Cause.LATE_IN_BACKFILL):
        wrong.append(f"{rows} rows lack events that the backfill itself dropped as late")
    if (rows := found.late) and late is Late.DROP:
        wrong.append(f"{rows} rows hold events that production dropped as late, and late: drop was chosen")
    changed = found.caused_by(Cause.CODE)
    if changed and expected is not None:
        wrong += [f"not expected: {words}" for words in expected.surprises(found.code, found.total)]
    if wrong:
        return Outcome.FAILED, tuple(wrong)
    asked = []
    if changed and expected is None:
        asked.append(f"{changed} rows differ by the change in code, and no expectation was given")
    if rows := found.caused_by(Cause.LOOKUP):
        asked.append(f"{rows} rows differ because a lookup was changed after production had read it")
    if ignored := [name for name, how in found.special.items() if how == IGNORED]:
        asked.append(f"not compared, and published all the same: {', '.join(ignored)}")
    return (Outcome.NEEDS_YES if asked else Outcome.PASSED), tuple(asked)


@dataclass(frozen=True, slots=True)
class SinkVerdict:
    """One sink of the run: compared, or why it could not be. `why` says what keeps it from passing.

    `staging` is the snapshot of the staging table that was looked at: the verdict holds for no other. `snapshot` is
    production's, where it has such, and `open_from` the event time from which on rows were not final.
    """

    sink: str
    production: str
    comparison: Comparison | None
    outcome: Outcome
    why: tuple[str, ...] = ()
    expected: str | None = None
    late: Late = Late.KEEP
    staging: int | None = None
    snapshot: int | None = None
    open_from: datetime | None = None

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED


@dataclass(frozen=True, slots=True)
class Verdict:
    """The validation of one run: as good as the worst of its sinks; without any it failed."""

    run: str
    app: str
    start: datetime
    end: datetime
    at: datetime
    sinks: tuple[SinkVerdict, ...]

    @property
    def outcome(self) -> Outcome:
        return _worst(one.outcome for one in self.sinks)

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    def as_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "run": self.run,
            "app": self.app,
            "window": Window(self.start, self.end).as_json(),
            "at": self.at.isoformat(),
            "outcome": str(self.outcome),
            "passed": self.passed,
            "sinks": [
                {
                    "sink": one.sink,
                    "production": one.production,
                    "outcome": str(one.outcome),
                    "passed": one.passed,
                    "why": list(one.why),
                    "expected": one.expected,
                    "late": str(one.late),
                    "staging": one.staging,
                    "snapshot": one.snapshot,
                    "open_from": one.open_from.isoformat() if one.open_from else None,
                    "comparison": one.comparison.as_json() if one.comparison else None,
                }
                for one in self.sinks
            ],
        }


def _worst(outcomes: Iterable[Outcome]) -> Outcome:
    found = set(outcomes)
    if not found or Outcome.FAILED in found:
        return Outcome.FAILED
    return Outcome.NEEDS_YES if Outcome.NEEDS_YES in found else Outcome.PASSED


def outcome_of(validation: Mapping[str, Any] | None, sinks: Collection[str] = ()) -> Outcome | None:
    """The outcome that a run's record holds, of these sinks alone if any are named.

    None if they were never validated, or by a rekappa that knew no outcomes.
    """
    told = validation or {}
    by_sink = {one["sink"]: one.get("outcome") for one in told.get("sinks", ())}
    known = [str(by_sink.get(sink)) for sink in sinks] if sinks else [str(told.get("outcome"))]
    return _worst(Outcome(one) for one in known) if set(known) <= set(Outcome) else None
