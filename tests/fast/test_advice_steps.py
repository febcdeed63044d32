"""What the Advice page offers, from what advice says; and the command that it asks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rekappa.errors import PlanError
from rekappa.operations.advice import OutageForm, next_steps
from rekappa.recovery.advice import Recovery, advise
from rekappa.recovery.outage import Memory, OutageFacts, PointFact, QueryFacts, Trouble
from rekappa.shown import plain
from rekappa.timeline import Window

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
WINDOW = Window(NOON, NOON + timedelta(hours=1))
STATELESS = QueryFacts("plays")
OPEN = QueryFacts("totals", memory=Memory.OPEN)
FACTS = OutageFacts("shop", WINDOW, NOON + timedelta(hours=5), Trouble.WRONG, (STATELESS,))


def offered(facts: OutageFacts) -> tuple[Recovery, dict[str, object]]:
    (one,) = advise(facts)
    return one.recovery, {name: step for name, step in next_steps(plain(one)).items() if step}


def test_every_recovery_that_a_person_can_begin_is_offered() -> None:
    window = {"start": "2026-11-01T12:00Z", "end": "2026-11-01T13:00Z", "sinks": []}
    assert offered(FACTS) == (Recovery.BACKFILL, {"backfill": window})
    point = PointFact(7, NOON - timedelta(minutes=1))
    back = replace(FACTS, queries=(replace(OPEN, point=point),))
    recovery, steps = offered(back)
    assert recovery is Recovery.REWIND
    assert steps["rewind"] == {"to": "2026-11-01T12:00Z", "cascade": False}
    anew = replace(FACTS, queries=(OPEN,), archived_since=NOON - timedelta(days=9), whole=True)
    recovery, steps = offered(anew)
    assert (recovery, steps["bootstrap"]) == (Recovery.BOOTSTRAP, "2026-10-23T12:00Z")
    assert offered(replace(FACTS, trouble=Trouble.STOPPED)) == (Recovery.NOTHING, {"start": True})
    lost = replace(FACTS, trouble=Trouble.STOPPED, dropped=("x",), holes=("offsets 3 to 9",))
    assert offered(lost) == (Recovery.LOST, {"verify": True})


def test_one_of_several_sinks_is_offered_alone() -> None:
    found = advise(replace(FACTS, queries=(STATELESS, replace(OPEN, refused="it has no archive"))))
    (plan,) = [step for one in found if (step := next_steps(plain(one))["backfill"])]
    assert plan["sinks"] == ["plays"]


def test_what_is_asked_is_the_command() -> None:
    told = OutageForm("2026-11-01 12:00", "2026-11-01 13:00", "wrong", "right").words()
    assert told == ("--start=2026-11-01T12:00Z", "--end=2026-11-01T13:00Z", "--trouble=wrong", "--state-right")
    assert OutageForm("2026-11-01 12:00", "2026-11-01 13:00").words() == told[:2]
    for wrong in (("x", "y", "", ""), ("2026-11-02", "2026-11-01", "", ""), ("2026-11-01", "2026-11-02", "--help", "")):
        with pytest.raises(PlanError):
            OutageForm(*wrong).words()
