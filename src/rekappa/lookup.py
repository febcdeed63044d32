"""A table as it was then: what a job joins its events with.

    @app.job
    def priced(orders: DataFrame, prices: Lookup) -> DataFrame:
        return prices.join(orders, at="event_ts")

Each event gets the version of its key that held at the event's own time: the last one that begins at or before it, and
none before the first. That depends on the event and on the table's history, never on when the job runs, so a replay
sees what the live run saw. `Lookup.of` makes one from rows, for a test of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from rekappa.errors import AppError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FROM, _TO = "__valid_from", "__valid_to"
_FOREVER = 2**63 - 1
"""The end of a version that nothing has replaced, in microseconds: no event is later."""


class Precedence(StrEnum):
    """What decides which of two rows of a key holds."""

    VALIDITY = "validity"
    """Each row holds from its time until the next one's; of rows of the same time the highest sequence."""
    ARRIVAL = "arrival"
    """Rows are changes that came at their times: one with a lower sequence than one before it changes nothing."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The versions of a table's rows: `rows` has each with the times [from, to) in which it held."""

    rows: DataFrame
    key: tuple[str, ...]

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        key: str | Sequence[str],
        valid_from: str,
        *,
        sequence: str | None = None,
        deleted: str | None = None,
        order: Precedence = Precedence.VALIDITY,
    ) -> Lookup:
        """From rows that each hold from their `valid_from` on.

        `deleted` is a BOOLEAN column: a row in which it is true ends its key. `sequence` ranks rows of one key.
        """
        named = (key,) if isinstance(key, str) else tuple(key)
        require_columns(rows, (*named, valid_from, *(one for one in (sequence, deleted) if one)), "the lookup's rows")
        require_instant(rows, valid_from, "valid_from")
        _require_ranks(rows, sequence, deleted)
        return cls(_held(rows, named, valid_from, sequence, deleted, order), named)

    def held_now(self) -> DataFrame:
        """The rows that nothing has replaced yet, without their times."""
        from pyspark.sql import functions as F

        return self.rows.where(F.col(_TO) == F.timestamp_micros(F.lit(_FOREVER))).drop(_FROM, _TO)

    @property
    def columns(self) -> tuple[str, ...]:
        """What an event gets."""
        return tuple(name for name in self.rows.columns if name not in (*self.key, _FROM, _TO))

    def join(
        self,
        events: DataFrame,
        at: str,
        *,
        on: Mapping[str, str] | None = None,
        how: Literal["left", "inner"] = "left",
    ) -> DataFrame:
        """The events with the lookup's columns beside them, null where no version held (`how="inner"`: left out).

        `at` is the TIMESTAMP column of the events that says when; `on` names, for a key column of the lookup, the
        events' column of another name.
        """
        from pyspark.sql import functions as F

        pairs = [(name, (on or {}).get(name, name)) for name in self.key]
        unknown = [name for name in on or {} if name not in self.key]
        if unknown:
            raise AppError(f"Cannot join a lookup on {unknown[0]!r}: its key is {', '.join(self.key)}")
        require_columns(events, (at, *(theirs for _, theirs in pairs)), "the events")
        require_instant(events, at, "at")
        if how not in ("left", "inner"):
            raise AppError(f"Cannot join a lookup with how={how!r}", hint="It is 'left' or 'inner'.")
        for name, theirs in pairs:
            require_alike(self.rows, name, events, theirs)
        taken = {name.lower() for name in events.columns}
        twice = [name for name in self.columns if name.lower() in taken]
        if twice:
            raise AppError(
                f"Cannot join a lookup: both it and the events have a column {twice[0]!r}",
                hint="Rename it in the events first: .withColumnRenamed(…).",
            )
        # Names of our own: whatever the columns of both sides are called, nothing is ambiguous.
        mine = {name: f"__lookup_{number}" for number, name in enumerate(self.rows.columns)}
        versions = self.rows.toDF(*mine.values())
        moment = events[quoted(at)]
        holds = (F.col(mine[_FROM]) <= moment) & (moment < F.col(mine[_TO]))
        for name, theirs in pairs:
            holds = holds & (events[quoted(theirs)] == F.col(mine[name]))
        joined = events.join(versions, holds, "left" if how == "left" else "inner")
        added = [F.col(mine[name]).alias(name) for name in self.columns]
        return joined.select(*(events[quoted(name)] for name in events.columns), *added)


def _held(
    rows: DataFrame, key: tuple[str, ...], valid_from: str, sequence: str | None, deleted: str | None, order: Precedence
) -> DataFrame:
    """Each row with the stretch of time in which it is the one that holds; rows that never do are left out."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    own = Window.partitionBy(*(F.col(quoted(name)) for name in key))
    ranked: list[Column] = [F.col(quoted(one)) for one in (valid_from, sequence, deleted) if one is not None]
    if order is Precedence.ARRIVAL and sequence is not None:
        before = own.orderBy(*ranked).rowsBetween(Window.unboundedPreceding, -1)
        known = F.max(F.col(quoted(sequence))).over(before)
        rows = rows.withColumn(_TO, known).where(F.col(_TO).isNull() | (F.col(quoted(sequence)) > F.col(_TO)))
    end = F.coalesce(F.lead(F.col(quoted(valid_from))).over(own.orderBy(*ranked)), F.timestamp_micros(F.lit(_FOREVER)))
    kept = rows.withColumn(_TO, end).withColumn(_FROM, F.col(quoted(valid_from))).where(F.col(_FROM) < F.col(_TO))
    if deleted is not None:
        kept = kept.where(~F.coalesce(F.col(quoted(deleted)), F.lit(False)))
    return kept.drop(*(name for name in (valid_from, sequence, deleted) if name is not None and name not in key))


def require_columns(rows: DataFrame, names: Sequence[str], whose: str) -> None:
    for name in names:
        if name not in rows.columns:
            raise AppError(
                f"Cannot use a lookup: {whose} have no column {name!r}", hint=f"They have: {', '.join(rows.columns)}."
            )


def require_alike(rows: DataFrame, name: str, events: DataFrame, theirs: str) -> None:
    """Refuse keys that Spark would convert before it compares them: one event could match two keys, or fail."""
    own, other = (
        _kind(frame.schema[column].dataType.simpleString()) for frame, column in ((rows, name), (events, theirs))
    )
    if own != other:
        raise AppError(
            f"Cannot join a lookup: its key {name!r} is a {own} and the events' {theirs!r} a {other}",
            hint="Give both the same type: .withColumn(…, F.col(…).cast(…)).",
        )


def _kind(name: str) -> str:
    """The type, but whole numbers of any width are alike, and so are texts."""
    if name in ("tinyint", "smallint", "int", "bigint"):
        return "whole number"
    return "string" if name.startswith(("string", "varchar", "char")) else name


def _require_ranks(rows: DataFrame, sequence: str | None, deleted: str | None) -> None:
    if deleted is not None and (kind := rows.schema[deleted].dataType.simpleString()) != "boolean":
        raise AppError(f"Cannot use {deleted!r} as deleted of a lookup: it is a {kind}, not a BOOLEAN")
    if sequence is not None and _kind(rows.schema[sequence].dataType.simpleString()) == "string":
        raise AppError(
            f"Cannot use {sequence!r} as sequence of a lookup: it is a text, in which 9 comes after 10",
            hint="Let a view cast it to a number.",
        )


def require_instant(rows: DataFrame, name: str, what: str) -> None:
    kind = rows.schema[name].dataType.simpleString()
    if kind != "timestamp":
        raise AppError(
            f"Cannot use {name!r} as {what} of a lookup: it is a {kind}, not a TIMESTAMP",
            hint="A time without a zone is a moment only together with one: convert it, "
            "for example F.to_utc_timestamp(column, zone).cast('timestamp').",
        )


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
