"""What an archive says of hours that were dropped on purpose, and who must hear of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from rekappa.archive.expire import cut_at
from rekappa.archive.expired import PROPERTY, Expired
from rekappa.cli.main import main
from rekappa.errors import PlanError
from rekappa.plan.plan import SourcePlan
from rekappa.planning.inputs import Input, check_complete
from rekappa.planning.reach import still_reading
from rekappa.store.record import Kind, Run, State
from rekappa.timeline import Window

CUT = datetime(2026, 8, 1, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_an_hour_goes_when_all_of_it_is_older() -> None:
    now = datetime(2026, 11, 1, 6, 59, tzinfo=UTC)
    assert cut_at(timedelta(days=1), now) == datetime(2026, 10, 31, 6, tzinfo=UTC)
    assert cut_at(timedelta(hours=7), now) == datetime(2026, 10, 31, 23, tzinfo=UTC)


def test_what_was_dropped_is_remembered_and_only_grows() -> None:
    first = Expired().and_then(CUT, [(("t", "eu", 0), 10), (("t", "eu", 1), 7)])
    then = first.and_then(CUT + HOUR, [(("t", "eu", 0), 25), (("t", "us", 0), 3)])
    assert then == Expired(CUT + HOUR, {("t", "eu", 0): 25, ("t", "eu", 1): 7, ("t", "us", 0): 3})
    assert then.and_then(CUT, [(("t", "eu", 0), 5)]) == then, "a shorter cut after a longer one"
    assert Expired.of({PROPERTY: then.as_property()}) == then
    assert Expired.of({"other": "x"}) == Expired()


def source(begins: datetime | None) -> Input:
    plan = SourcePlan("plays", "lake.e.plays", 1, (), HOUR, 0, 0, 0, complete_until={"eu": CUT + 99 * HOUR})
    return Input(plan, begins=begins)


def test_a_plan_that_needs_a_dropped_event_is_refused_unless_told() -> None:
    window = Window(CUT, CUT + HOUR)
    reads = window.widened(HOUR, HOUR)
    with pytest.raises(PlanError, match=r"'plays' was expired up to 2026-08-01T06:00Z, and events from 2026-08-01T05"):
        check_complete([source(CUT)], window, reads, (), False)
    (said,) = check_complete([source(CUT)], window, reads, (), True)
    assert said.startswith("Incomplete: the archive of source 'plays' was expired up to")
    assert check_complete([source(CUT - HOUR), source(None)], window, reads, (), False) == []


def test_backfills_that_are_not_over_and_read_older_events_are_named() -> None:
    def run(name: str, state: State, start: datetime, table: str = "lake.e.plays", kind: Kind = Kind.BACKFILL) -> Run:
        return Run(name, "a", kind, "", state, spec={"start": start.isoformat(), "archive": {table: 1}})

    runs = [
        run("reads", State.FAILED, CUT - HOUR),
        run("later", State.FAILED, CUT),
        run("over", State.FINISHED, CUT - HOUR),
        run("elsewhere", State.RUNNING, CUT - HOUR, "lake.e.other"),
        run("live", State.RUNNING, CUT - HOUR, kind=Kind.LIVE),
    ]
    assert still_reading(runs, ["lake.e.plays"], CUT) == ["reads"]


@pytest.mark.parametrize("told", ["0", "0d", "1d1d", "٣d", "-1d"])
def test_an_age_that_keeps_nothing_or_is_none_is_refused(told: str, tmp_path: Path) -> None:
    answer = CliRunner().invoke(main, ["archive", "expire", str(tmp_path), f"--older-than={told}", "--dry-run"])
    assert answer.exit_code == 2
    assert told in answer.stderr
    assert ("would drop every hour that has ended" in " ".join(answer.stderr.split())) == told.startswith("0")
