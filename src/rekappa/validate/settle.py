"""From experiments to causes: which of two things that changed, the code or the way of running, made each difference.

Between production and staging lie two changes: other code, and a replay instead of production's micro-batches. A
control run changes one of them alone:

    production  = exact control  --replay-->  control    --code-->    staging     one code made the window
    production  = exact control  --code-->    exact new  --replay-->  staging     several did, each over its stretch

In the second case each version is run as the backfill was, too: where one of them differs from staging, that is the
code's doing even if production's micro-batches hide it.

If a lookup was changed after production had read it, all of this is asked without that change; what the run then does
not give as it staged it is the lookup's doing.

Rows that the exact control does not give as production has them are unexplained, whatever else is known of them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rekappa.errors import ValidationError
from rekappa.expect import CodeChange
from rekappa.plan.plan import Mode
from rekappa.store.code import Code
from rekappa.validate.controls import Control
from rekappa.validate.diff import UNIT, diff
from rekappa.validate.experiments import Experiments
from rekappa.validate.production import NoControl, same_code
from rekappa.validate.result import Cause, Rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CAUSE = "cause"
_NAMES = ("a control", "a control")


@dataclass(frozen=True, slots=True)
class Settled:
    """The differences with a column `cause`, and what the change in code did.

    `late_too` counts the rows by the change in code that also hold events which production dropped as late.
    """

    rows: DataFrame
    code: CodeChange
    late_too: int = 0


@dataclass(frozen=True, slots=True)
class _Found:
    """The differences that each experiment found; None where there was nothing to find.

    `code`: by the code alone. `replay`: by the way of running alone. `unfaithful`: between production and the exact
    control, which is looked at `everywhere`, or only where the replay differs. `bulk`: between production's
    micro-batches and a bulk run, asked only if the replay dropped events: where bulk agrees with production, it was
    the replay that dropped something. `undecided`: why a difference by the way of running is not known to be a late
    event, because that could not be asked, or because production dropped none. `disputed`: where another engine, given
    the same events and dropping none, gives other rows than the replay: there it was not lateness. `lookup`: by what
    was changed in a lookup after production had read it, alone; the others were asked without that change.
    """

    code: DataFrame | None = None
    replay: DataFrame | None = None
    unfaithful: DataFrame | None = None
    everywhere: bool = False
    bulk: DataFrame | None = None
    undecided: bool = False
    disputed: DataFrame | None = None
    lookup: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class _Dropping:
    """The last three of `_Found`."""

    bulk: DataFrame | None = None
    undecided: bool = False
    disputed: DataFrame | None = None


class _Settling:
    """One settling: comparisons stay usable until the stack is closed."""

    def __init__(self, stack: ExitStack, experiments: Experiments, production: DataFrame, rules: Rules) -> None:
        self.stack, self.experiments, self.production, self.rules = stack, experiments, production, rules

    def between(self, before: DataFrame, after: DataFrame) -> DataFrame:
        """The differences between two sides, usable for as long as the stack is open.

        Production and staging have been compared already: a key that is none is a control's.
        """
        try:
            return self.stack.enter_context(diff(before, after, self.rules, _NAMES)).rows
        except NoControl:
            raise
        except ValidationError as error:
            raise NoControl(f"what a control wrote can't be compared: {error.message}") from error

    def found(self, pending: DataFrame) -> _Found:
        """Run what is needed to settle these differences."""
        made = self.experiments.production
        self.experiments.notes.append(f"production is live run {made.run.id}")
        code = made.code
        if self.experiments.part.mode is Mode.EXACT or code is None:
            return self._with_lookups(self._through_exact(pending, several=code is None))
        try:
            return self._with_lookups(self._through_control(pending))
        except NoControl as error:
            self.experiments.notes.append(f"{error.message}; both codes were run over production's micro-batches")
            return self._with_lookups(self._through_exact(pending, several=False))

    def _with_lookups(self, found: _Found) -> _Found:
        """What was found, and what the change of a lookup did beside it."""
        made = self.experiments
        return replace(found, lookup=self.between(made.stored(), made.staged_rows())) if made.then else found

    def _through_control(self, pending: DataFrame) -> _Found:
        made = self.experiments
        code = made.production.code
        ran: tuple[Control, ...] = ()
        assert code is not None, "the caller has looked"
        if same_code(code, made.own):
            made.notes.append("the code is production's own: nothing was changed in it")
            changed, rows = None, made.stored()
        else:
            ran = (made.with_code(code),)
            rows = made.rows(*ran)
            changed = self.between(rows, made.stored())
        replay = self.between(self.production, rows)
        if not _some(pending, replay):
            return _Found(code=changed)
        try:
            exact = made.exact()
            unfaithful = self.between(self.production, made.rows(exact))
        except NoControl as error:
            made.notes.append(f"no exact control: {error.message}")
            return _Found(code=changed, replay=replay, unfaithful=replay)
        who = self._dropped(exact, self.production, code, rows, *ran)
        return _Found(changed, replay, unfaithful, False, who.bulk, who.undecided, who.disputed)

    def _through_exact(self, pending: DataFrame, *, several: bool) -> _Found:
        made = self.experiments
        if several:
            names = dict.fromkeys((one.code.hash or "")[:12] for one in made.production.stretches)
            made.notes.append(f"several versions of the code made the window ({', '.join(names)}), each in its stretch")
        exact = made.rows(made.exact())
        unfaithful = self.between(self.production, exact)
        if made.part.mode is Mode.EXACT:
            return _Found(code=self.between(exact, made.stored()), unfaithful=unfaithful, everywhere=True)
        again = made.exact_new()
        new = made.rows(again)
        code, replay = self.between(exact, new), self.between(new, made.stored())
        if not _some(pending, replay):
            return _Found(code, unfaithful=unfaithful, everywhere=True)
        who = self._dropped(again, new, made.own, made.stored())
        try:
            code = self._with_what_no_version_makes(code, replay)
        except NoControl as error:
            made.notes.append(f"whether a late event or the change in code made a row can't be told: {error.message}")
            who = replace(who, undecided=True)
        return _Found(code, replay, unfaithful, True, who.bulk, who.undecided, who.disputed)

    def _with_what_no_version_makes(self, code: DataFrame, replay: DataFrame) -> DataFrame:
        """The change in code, with what a late event alone does not explain.

        Over production's micro-batches the new code may drop as late what production's code never took at all: then
        both give the same there, and yet it is not lateness that keeps the row from production. So each version of
        production's code is run as the backfill was: where one of them differs, the code counts.
        """
        made = self.experiments
        versions = {one.code.hash: one.code for one in made.production.stretches}
        concerned = replay.select(UNIT).distinct()
        for version in versions.values():
            if same_code(version, made.own):
                continue
            differs = self.between(made.rows(made.with_code(version)), made.stored())
            fresh = differs.join(concerned, UNIT, "left_semi").join(code.select(UNIT).distinct(), UNIT, "left_anti")
            code = code.unionByName(fresh)
        return code

    def _dropped(
        self, exact: Control, reference: DataFrame, code: Code, replayed: DataFrame, *ran: Control
    ) -> _Dropping:
        """Who dropped events: where bulk, which drops nothing, differs from production's micro-batches it was
        production, elsewhere the replay. `replayed` are the rows of this code in the run's own mode.

        If only production did, that is shown row by row: another engine, which drops nothing either, must agree with
        the replay. For bulk that is a run in production's micro-batches, for the others it is bulk.
        """
        made = self.experiments
        bulk_run = made.part.mode is Mode.BULK and not made.part.by_slice
        if not made.part.vouched:
            made.notes.append(
                "the plan does not vouch for all inputs of the window (see its warnings; a longer --warm-up or --drain "
                "may): a difference by the replay is not known to be a late event"
            )
            return _Dropping(undecided=True)
        if not bulk_run and made.dropped_late(self.experiments.staged.run, *(it.run for it in ran)):
            try:
                return _Dropping(bulk=self.between(reference, made.rows(made.bulk(code))))
            except NoControl as error:
                made.notes.append(f"whether the backfill or production dropped events can't be told: {error.message}")
                return _Dropping(undecided=True)
        if not made.dropped_late(exact.run):
            made.notes.append("production dropped nothing as late: where the replay differs, it is not known why")
            return _Dropping(undecided=True)
        try:
            witness = made.rows(made.keeping(code) if bulk_run else made.bulk(code))
            return _Dropping(disputed=self.between(witness, replayed))
        except NoControl as error:
            made.notes.append(f"production dropped events as late; in which rows is not shown: {error.message}")
            return _Dropping()


def settle(
    stack: ExitStack,
    differences: DataFrame,
    experiments: Experiments | None,
    production: DataFrame,
    rules: Rules,
    not_final: Column,
) -> Settled:
    """A cause for every difference. Without experiments none has any but that it was not final."""
    from pyspark.sql import functions as F

    marked = differences.withColumn("not_final", not_final)
    found = _Found()
    pending = marked.where(~F.col("not_final"))
    if experiments is not None and pending.take(1):
        try:
            found = _Settling(stack, experiments, production, rules).found(pending)
        except NoControl as error:
            experiments.notes.append(f"no control: {error.message}")
    for name in ("code", "replay", "unfaithful", "bulk", "disputed", "lookup"):
        marked = _marked(marked, getattr(found, name), name)
    code, replay, unfaithful = F.col("code"), F.col("replay"), F.col("unfaithful")
    doubtful = unfaithful if found.everywhere else unfaithful & replay
    here = ~F.col("bulk") if found.bulk is not None else F.lit(False)
    cause = (
        F.when(F.col("not_final"), Cause.NOT_FINAL.value)
        .when(doubtful | (replay & (F.lit(found.undecided) | F.col("disputed"))), Cause.UNEXPLAINED.value)
        .when(replay & here, Cause.LATE_IN_BACKFILL.value)
        .when(code, Cause.CODE.value)
        .when(replay, Cause.LATE.value)
        .when(F.col("lookup"), Cause.LOOKUP.value)
        .otherwise(Cause.UNEXPLAINED.value)
    )
    marked = marked.withColumn(CAUSE, cause)
    rows = marked.select(*differences.columns, CAUSE)
    if found.code is None:
        return Settled(rows, CodeChange())
    late_too = marked.where((F.col(CAUSE) == Cause.CODE.value) & replay).count() if found.replay is not None else 0
    return Settled(rows, _change(found.code, rows), late_too)


def _some(differences: DataFrame, among: DataFrame) -> bool:
    return bool(differences.join(among.select(UNIT).distinct(), UNIT, "left_semi").take(1))


def _marked(rows: DataFrame, differences: DataFrame | None, name: str) -> DataFrame:
    """Add a column that says whether the row's unit is among these differences."""
    from pyspark.sql import functions as F

    if differences is None:
        return rows.withColumn(name, F.lit(False))
    units = differences.select(UNIT).distinct().withColumn(name, F.lit(True))
    return rows.join(units, UNIT, "left").withColumn(name, F.coalesce(name, F.lit(False)))


def _change(code: DataFrame, settled: DataFrame) -> CodeChange:
    """What the code did to the rows that differ because of it, without what came from anything else."""
    from pyspark.sql import functions as F

    caused = settled.where(F.col(CAUSE) == Cause.CODE.value).select(UNIT).distinct()
    counted = code.join(caused, UNIT, "left_semi").groupBy("kind", "columns").agg(F.count("*").alias("n")).collect()
    counts = {kind: sum(row["n"] for row in counted if row["kind"] == kind) for kind in ("missing", "extra")}
    changed = {tuple(row["columns"]): row["n"] for row in counted if row["kind"] == "different"}
    return CodeChange(dict(sorted(changed.items())), counts["missing"], counts["extra"])
