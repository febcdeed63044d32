"""The values of a publication: the plan that is shown and carried out, the baseline that a backfill notes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import PublishError, RunError
from rekappa.iceberg.selection import _iceberg_value
from rekappa.publish.plan import Effect, PublishPlan, PublishState, SinkPlan, counted
from rekappa.publish.publishers.contract import require_base
from rekappa.staging.baseline import Baseline
from rekappa.timeline import EPOCH, Window, instant, micros

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def sink_plan(state: PublishState = PublishState.NEVER, base: str | None = "7") -> SinkPlan:
    return SinkPlan("out", "lake.a.out", state, Effect(1, 2, 3, 4), base, 9)


def test_a_plan_is_done_when_every_sink_is() -> None:
    done = sink_plan(PublishState.PUBLISHED)
    window = Window(NOON, NOON + timedelta(hours=1))
    assert PublishPlan("r", window, (done, done)).done
    for state in set(PublishState) - {PublishState.PUBLISHED}:
        plan = PublishPlan("r", window, (done, sink_plan(state)))
        assert not plan.done
        shown = json.loads(json.dumps(plan.as_json()))
        assert [one["state"] for one in shown["sinks"]] == ["published", state.value]
        assert shown["sinks"][1]["base"] == "7"


def test_counts_of_kinds() -> None:
    assert counted({"added": 1, "kept": 5}) == Effect(added=1, kept=5)


@given(st.none() | st.text(), st.none() | st.text())
def test_a_plan_holds_for_its_base_only(planned: str | None, now: str | None) -> None:
    if planned == now:
        require_base(sink_plan(base=planned), now)
    else:
        with pytest.raises(PublishError, match="changed since the plan was made"):
            require_base(sink_plan(base=planned), now)


@given(st.dictionaries(st.text(min_size=1), st.none() | st.integers(0, 2**63 - 1)))
def test_a_baseline_survives_the_store(snapshots: dict[str, int | None]) -> None:
    noted = Baseline(NOON, snapshots)
    assert Baseline.from_json(json.loads(json.dumps(noted.as_json()))) == noted


def test_a_newer_baseline_is_refused_with_both_versions() -> None:
    with pytest.raises(RunError, match="version 2: this rekappa knows 1"):
        Baseline.from_json({"version": 2, "at": NOON.isoformat(), "snapshots": {}})


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_an_instant_in_icebergs_words(moment: datetime) -> None:
    """Microseconds for a timestamp; for a date the first day that begins at or after it."""
    assert instant(micros(moment)) == moment
    assert _iceberg_value(moment, "timestamptz") == micros(moment)
    assert _iceberg_value(moment, "timestamptz_ns") == micros(moment) * 1000
    day = EPOCH + timedelta(days=_iceberg_value(moment, "date"))
    assert day - timedelta(days=1) < moment <= day
    assert _iceberg_value(moment, "string") is None
