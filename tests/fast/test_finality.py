"""When output is final, and that a plan keeps it when it is saved."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rekappa.plan.finality import Finality
from rekappa.plan.plan import JobPlan, Mode, Plan
from rekappa.plan.store import load, save
from rekappa.replay.journal import Journal
from rekappa.storage.location import Location
from rekappa.timeline import Window

T0 = datetime(2026, 11, 1, tzinfo=UTC)
M = timedelta(minutes=1)
READS = Window(T0, T0 + 60 * M)
PLAIN = Finality(T0 + 90 * M, ahead=M, delay=10 * M, after=5 * M)


def test_what_is_read_or_the_archive_ends_it() -> None:
    assert PLAIN.settled(READS) == T0 + 50 * M
    assert PLAIN.final_until(READS) == T0 + 45 * M
    early = replace(PLAIN, archived=T0 + 30 * M)
    assert early.settled(READS) == T0 + 20 * M
    assert early.final_until(READS) == T0 + 15 * M


def test_of_sessions_only_the_state_knows() -> None:
    sessions = replace(PLAIN, after=None, gap=5 * M)
    assert sessions.final_until(READS) is None
    assert sessions.known_from(READS) == T0 + 6 * M


@pytest.mark.parametrize("finality", [None, PLAIN, replace(PLAIN, after=None, gap=5 * M, open_before=True)])
def test_a_saved_plan_keeps_it(location: Location, finality: Finality | None) -> None:
    zero = timedelta()
    job = JobPlan("job", ("out",), Mode.BULK, "", zero, "", zero, "", READS, (), finality=finality)
    plan = Plan("app", READS, (), (job,))
    save(plan, location / "plan")
    assert load(location / "plan") == plan


def test_a_resumed_replay_still_knows_what_it_forced_out(location: Location) -> None:
    journal = Journal(location / "replay")
    assert journal.not_final_from is None
    journal.note_watermark(T0)
    journal.note_not_final(T0 + 3 * M)
    journal.note_not_final(T0 + 3 * M)
    again = Journal(location / "replay")
    assert (again.not_final_from, again.watermark) == (T0 + 3 * M, T0)
    assert len((location / "replay" / "000000.jsonl").read_text().splitlines()) == 2
