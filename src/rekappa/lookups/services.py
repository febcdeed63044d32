"""Giving a job the services that it asks: recorded as it runs live, recalled in a replay, or counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.answers import ANSWER, KEY, TIME, Answers, Calling
from rekappa.app import Job
from rekappa.config.lookups import ServiceLookup
from rekappa.config.model import AppConfig
from rekappa.errors import PlanError
from rekappa.home import Home
from rekappa.lookups.asking import Recording
from rekappa.lookups.ledger import opened_ledger
from rekappa.lookups.recalled import Noting, Recalled
from rekappa.lookups.record import record_of
from rekappa.plan.plan import CallsPlan, LookupPlan
from rekappa.rate import Cap, Pace, driver_host, pace_of
from rekappa.timeline import Window, format_instant, instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Inputs = Callable[[], Mapping[str, "DataFrame"]]
_EMPTY = f"{KEY} STRING, {TIME} BIGINT, {ANSWER} STRING"
_AROUND = timedelta(hours=1)


def services_of(config: AppConfig, job: Job) -> dict[str, ServiceLookup]:
    """The services that the job asks."""
    declared = {name: config.lookups[name] for name in job.lookups if name in config.lookups}
    return {name: one for name, one in declared.items() if isinstance(one, ServiceLookup)}


def live_answers(spark: SparkSession, config: AppConfig, home: Home, name: str, lookup: ServiceLookup) -> Answers:
    """The service itself; what it answers is kept if that is declared."""
    return Answers(lookup.key, lookup.answer, _calling(spark, config, home, name, lookup, live=True))


def recalled_answers(
    spark: SparkSession, config: AppConfig, home: Home, name: str, lookup: ServiceLookup, planned: CallsPlan | None
) -> Answers:
    """Answers from the record as the plan found it; without a plan, nulls where there is none."""
    record = record_of(config, home, name, lookup)
    rows = record.read(spark) if planned is None else record.read(spark, planned.until, planned.reach)
    missing = "null" if planned is None else planned.missing
    otherwise = _calling(spark, config, home, name, lookup, live=False) if missing == "call" else None
    return Answers(lookup.key, lookup.answer, Recalled(name, rows, otherwise, nulls=missing == "null"))


def empty_answers(spark: SparkSession, lookup: ServiceLookup) -> Answers:
    """A service that answers nothing, to look at the job alone."""
    return Answers(lookup.key, lookup.answer, Recalled("", spark.createDataFrame([], _EMPTY), nulls=True))


def plan_services(
    spark: SparkSession, config: AppConfig, home: Home, job: Job, inputs: Inputs, *, narrow: bool
) -> tuple[LookupPlan, ...]:
    """What the job asks of each of its services over these inputs, and how much of it the record can answer.

    Runs the job up to its calls. Refuses calls without an answer where that was declared. `narrow` says that the inputs
    are all that will be read.
    """
    found = services_of(config, job)
    if not found:
        return ()
    noted = {name: Noting() for name in found}
    given = {name: Answers(one.key, one.answer, noted[name]) for name, one in found.items()}
    _note(replace(job, given={**job.given, **given}), inputs)
    return tuple(
        _planned(spark, config, home, job, name, lookup, noted[name].asked, narrow=narrow)
        for name, lookup in found.items()
    )


def _note(job: Job, inputs: Inputs) -> None:
    from pyspark.errors import AnalysisException

    try:
        job.results(inputs())
    except AnalysisException:
        # Not every job that streams can be called on a batch; what it asks before that point is noted.
        return


def _planned(
    spark: SparkSession,
    config: AppConfig,
    home: Home,
    job: Job,
    name: str,
    lookup: ServiceLookup,
    asked: list[DataFrame],
    *,
    narrow: bool,
) -> LookupPlan:
    from pyspark.sql import functions as F

    record, until = record_of(config, home, name, lookup), datetime.now(UTC)
    rows = record.read(spark, until)
    first = record.first(spark)
    known = rows.select(F.col(KEY), F.col(TIME), F.lit(True).alias("known"))
    counts: list[tuple[int, int]] = []
    edges: list[int] = []
    for one in asked:
        lacking = F.col("known").isNull()
        told = (
            one.distinct()
            .join(known, [KEY, TIME], "left")
            .agg(
                F.count("*"), F.count(F.when(lacking, 1)), F.min(TIME), F.max(TIME), F.min(F.when(lacking, F.col(TIME)))
            )
            .collect()[0]
        )
        counts.append((int(told[0]), int(told[1])))
        edges += [int(told[2]), int(told[3])] if told[0] else []
        if told[1] and lookup.missing == "refuse":
            begins = "holds nothing" if first is None else f"begins at {format_instant(instant(first))}"
            raise PlanError(
                f"Cannot replay job {job.name!r}: {told[1]:,} of {told[0]:,} calls of service {name!r} have no "
                f"recorded answer, the first at {format_instant(instant(told[4]))}",
                hint=f"The record {begins}. Say what to do instead: --set lookups.{name}.missing=call, or =null.",
            )
    reach = Window(instant(min(edges)) - _AROUND, instant(max(edges)) + _AROUND) if edges and narrow else None
    calls, unanswered = (sum(one[at] for one in counts) if asked else None for at in (0, 1))
    plan = CallsPlan(lookup.missing, until, calls, unanswered, reach)
    kept = 0 if calls is None or unanswered is None else calls - unanswered
    return LookupPlan(name, record.table, None, kept, None if first is None else instant(first), plan)


def service_warnings(spark: SparkSession, config: AppConfig, home: Home, planned: tuple[LookupPlan, ...]) -> list[str]:
    """What a replay can't know of its services."""
    said = []
    for one in planned:
        lookup = config.lookups[one.name]
        if one.calls is None or not isinstance(lookup, ServiceLookup):
            continue
        if one.calls.calls is None:
            said.append(f"What the job asks of service {one.name!r} can't be counted before it runs.")
        elif one.calls.unanswered:
            then = "asks it now" if one.calls.missing == "call" else "takes nulls"
            said.append(
                f"Service {one.name!r}: {one.calls.unanswered:,} calls have no recorded answer: this run {then}."
            )
        if several := record_of(config, home, one.name, lookup).changed_answers(spark):
            said.append(
                f"Service {one.name!r} gave several answers to {several:,} keys and times: the last one counts. "
                f"A column more in lookups.{one.name}.key tells such calls apart."
            )
    return said


def _calling(
    spark: SparkSession, config: AppConfig, home: Home, name: str, lookup: ServiceLookup, *, live: bool
) -> Recording | Calling:
    pace = _pace(spark, name, lookup)
    if not lookup.record:
        return Calling(pace)
    return Recording(opened_ledger(home.answers(config.app, name), driver_host(spark), live=live), pace)


def _pace(spark: SparkSession, name: str, lookup: ServiceLookup) -> Pace | None:
    if lookup.max_calls_per_second is None:
        return None
    return pace_of(spark, [Cap(f"service {name}", lookup.max_calls_per_second)])
