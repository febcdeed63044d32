"""Every difference that a validation found, with its cause and both rows: worked out again, as production was then.

The verdict keeps counts and a few samples. An Iceberg table remembers how it was when it was compared, so its
differences can be had after the run was published; other sinks only hold what they hold now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rekappa.config.model import IcebergSink
from rekappa.errors import ValidationError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import current_id
from rekappa.staging.staged import Staged, StagedSink
from rekappa.validate.compare import settled
from rekappa.validate.pair import AsOf, Tell, pair_of
from rekappa.validate.run import Request, published
from rekappa.validate.settle import CAUSE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("kind", CAUSE, "columns", "production", "staging")


@dataclass(frozen=True, slots=True)
class Differences:
    """`rows` has one row per difference: kind (different, missing, extra), cause, columns (those that differ),
    production and staging (the two rows, null where there is none). `counted` is how many the verdict counted."""

    sink: str
    rows: DataFrame
    counted: int


@contextmanager
def differences(
    spark: SparkSession, staged: Staged, sink: str | None = None, tell: Tell = lambda text: None
) -> Iterator[Differences]:
    """The differences of one sink of a validated run; `rows` can be used inside the `with` only.

    Controls that the validation ran are not run again, unless `rekappa clean` has removed what they staged.
    """
    one = _chosen(staged, sink)
    verdict = _verdict(staged, one.name)
    if verdict["staging"] != current_id(load_table(spark, one.table)):
        raise ValidationError(
            f"Cannot tell the differences of run {staged.run.id}: it was written to since it was validated",
            hint=f"Validate it again: rekappa validate {staged.run.id}",
        )
    if not isinstance(staged.loaded.config.sinks[one.name], IcebergSink) and published(staged):
        raise ValidationError(
            f"Cannot tell the differences of sink {one.name!r}: production holds the run now",
            hint=f"`rekappa undo {staged.run.id}` brings it back.",
        )
    request = Request.from_json((staged.run.validation or {}).get("asked") or {})
    opened = verdict.get("open_from")
    then = AsOf(verdict.get("snapshot"), datetime.fromisoformat(opened) if opened else None)
    pair = pair_of(spark, staged, one, request, tell, then)
    assert pair is not None, "it was compared before"
    with settled(
        pair.production,
        pair.staging,
        pair.rules,
        experiments=pair.experiments,
        event_time=pair.event_time,
        open_from=pair.open_from,
    ) as (_, made):
        counted = sum(verdict["comparison"][kind] for kind in ("different", "missing", "extra"))
        yield Differences(one.name, made.rows, counted)


def _chosen(staged: Staged, sink: str | None) -> StagedSink:
    names = [one.name for one in staged.sinks]
    if sink is None and len(names) > 1:
        raise ValidationError(
            f"Cannot choose a sink of run {staged.run.id}: it has {len(names)}",
            hint=f"Say which: --sink {' or --sink '.join(names)}",
        )
    for one in staged.sinks:
        if sink in (None, one.name):
            return one
    raise ValidationError(f"Cannot find sink {sink!r} of run {staged.run.id}", hint=f"Its sinks: {', '.join(names)}.")


def _verdict(staged: Staged, sink: str) -> Mapping[str, Any]:
    run = staged.run
    sinks: list[Mapping[str, Any]] = (run.validation or {}).get("sinks") or []
    found = next((one for one in sinks if one["sink"] == sink), None)
    if found is None or "snapshot" not in found:
        raise ValidationError(
            f"Cannot tell the differences of run {run.id}: it was not validated", hint=f"rekappa validate {run.id}"
        )
    if found["comparison"] is None:
        raise ValidationError(f"Cannot tell the differences of sink {sink!r}: {'; '.join(found['why'])}")
    return found
