"""Which recovery fits: golden answers, one for each situation, in tests/fast/advice.txt."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.recovery.advice import Recovery, advise
from rekappa.recovery.outage import Memory, OutageFacts, PointFact, QueryFacts, SinkPlace, Trouble
from rekappa.recovery.render import advice_lines
from rekappa.timeline import Window

GOLDEN = Path(__file__).with_name("advice.txt")
WINDOW = Window(datetime(2026, 11, 1, 13, tzinfo=UTC), datetime(2026, 11, 1, 16, tzinfo=UTC))
NOW = datetime(2026, 11, 2, 9, tzinfo=UTC)
POINT = PointFact(4711, datetime(2026, 11, 1, 12, 59, 50, tzinfo=UTC))
SOON = datetime(2026, 11, 2, 13, tzinfo=UTC)
HOLE = "topic 'plays' in region 'eu', partition 0, offsets 10 to 19: Kafka has dropped everything below 20"
STATELESS = QueryFacts("plays", takes=timedelta(minutes=4))
BOUNDED = QueryFacts("plays", memory=Memory.BOUNDED, remembers=timedelta(minutes=30))
LONG = QueryFacts("plays", memory=Memory.BOUNDED, remembers=timedelta(days=2))
OPEN = QueryFacts("plays", memory=Memory.OPEN, refused="an aggregate without a window keeps state for ever")
CUSTOM = QueryFacts("sessions", memory=Memory.CUSTOM)
TOPIC = QueryFacts("plays", SinkPlace.TOPIC, consumers=("charts", "bills"))


def wrong(*queries: QueryFacts, **told: object) -> OutageFacts:
    facts = OutageFacts("rmi", WINDOW, NOW, Trouble.WRONG, queries, run="live_20261101_000000_ab12")
    return replace(facts, **told)  # type: ignore[arg-type]


def stopped(**told: object) -> OutageFacts:
    return wrong(BOUNDED, trouble=Trouble.STOPPED, **told)


ARCHIVED = {"archived_since": datetime(2026, 10, 1, tzinfo=UTC)}
SITUATIONS = {
    "stopped, going again, caught up": stopped(going=True),
    "stopped, and Kafka has what comes next": stopped(behind=1200),
    "stopped, and Kafka will not have it for long, archived": stopped(behind=1200, kept_until=SOON, **ARCHIVED),
    "stopped, and Kafka will not have it for long, not archived": stopped(behind=1200, kept_until=SOON),
    "stopped for longer than Kafka keeps, archived": stopped(dropped=("plays/0 (eu)", "plays/1 (eu)")),
    "stopped for longer than Kafka keeps, not archived": stopped(dropped=("plays/0 (eu)",), holes=(HOLE,)),
    "no state, archived": wrong(STATELESS),
    "no state, not archived, a point": wrong(replace(STATELESS, refused="the archive ends at 12:00", point=POINT)),
    "no state, not archived, no point": wrong(replace(STATELESS, refused="the archive ends at 12:00")),
    "state that has forgotten the window": wrong(BOUNDED),
    "state that holds the window still, a point": wrong(replace(LONG, point=POINT)),
    "state that holds the window still, no point": wrong(LONG),
    "state that nothing ends, a point": wrong(replace(OPEN, point=POINT), going=True),
    "state that nothing ends, a point, consumers": wrong(replace(OPEN, point=POINT, consumers=("charts",))),
    "state that nothing ends, no point, archived from the first event": wrong(OPEN, whole=True, **ARCHIVED),
    "state that nothing ends, no point, archived later": wrong(OPEN, **ARCHIVED),
    "state that nothing ends, no point, no archive": wrong(OPEN),
    "state that nothing ends, a hole after the point": wrong(
        replace(OPEN, point=replace(POINT, holes=(HOLE,)), refused=None), whole=True, **ARCHIVED
    ),
    "state that nothing ends, a point that will not do for long": wrong(
        replace(OPEN, point=replace(POINT, kept_until=SOON)), **ARCHIVED
    ),
    "custom state, right as told": wrong(CUSTOM, state_wrong=False),
    "custom state, a point": wrong(replace(CUSTOM, point=POINT)),
    "a topic with consumers, a point": wrong(replace(TOPIC, point=POINT)),
    "a topic with consumers, no point": wrong(TOPIC),
    "a service, a lookup, the clock": wrong(
        replace(STATELESS, place=SinkPlace.SERVICE, lookups=("lake.dim.shows",), clock=("current_timestamp()",))
    ),
    "two sinks: one by backfill, one lost": wrong(STATELESS, replace(TOPIC, sink="alerts")),
    "two sinks: one needs a rewind": wrong(replace(STATELESS, point=POINT), replace(OPEN, sink="totals", point=POINT)),
}


def told(name: str) -> str:
    lines = [line for one in advise(SITUATIONS[name]) for line in advice_lines(one)]
    return "\n".join([f"## {name}", "", *lines]).rstrip() + "\n"


def test_the_golden_answers() -> None:
    """Written anew with  python tests/fast/test_advice.py  (and read before it is committed)."""
    assert GOLDEN.read_text() == "\n".join(told(name) for name in SITUATIONS)


@pytest.mark.parametrize("recovery", list(Recovery))
def test_every_recovery_is_the_answer_to_something(recovery: Recovery) -> None:
    assert any(one.recovery is recovery for facts in SITUATIONS.values() for one in advise(facts))


queries = st.builds(
    QueryFacts,
    sink=st.sampled_from("abc"),
    place=st.sampled_from(SinkPlace),
    memory=st.sampled_from(Memory),
    remembers=st.none() | st.just(timedelta(hours=1)) | st.just(timedelta(days=3)),
    point=st.none() | st.just(POINT) | st.just(replace(POINT, holes=(HOLE,))),
    refused=st.none() | st.just("no archive"),
    consumers=st.just(()) | st.just(("charts",)),
)
anything = st.builds(
    OutageFacts,
    app=st.just("rmi"),
    window=st.just(WINDOW),
    now=st.just(NOW),
    trouble=st.sampled_from(Trouble),
    queries=st.lists(queries, min_size=1, max_size=3, unique_by=lambda one: one.sink).map(tuple),
    state_wrong=st.none() | st.booleans(),
    dropped=st.just(()) | st.just(("plays/0",)),
    holes=st.just(()) | st.just((HOLE,)),
    archived_since=st.none() | st.just(WINDOW.start),
    whole=st.booleans(),
)


@given(anything)
def test_every_sink_gets_one_answer_that_can_be_carried_out(facts: OutageFacts) -> None:
    found = advise(facts)
    assert sorted(sink for one in found for sink in one.sinks) == sorted(query.sink for query in facts.queries)
    known = {query.sink: query for query in facts.queries}
    for one in found:
        assert one.why
        for sink in one.sinks:
            query = known[sink]
            if one.recovery in (Recovery.REWIND, Recovery.CASCADE):
                assert query.point is not None
                assert not query.point.holes
            if one.recovery is Recovery.BACKFILL:
                assert query.place is not SinkPlace.TOPIC
                assert query.refused is None
            if one.recovery is Recovery.BOOTSTRAP:
                assert facts.whole
        if one.recovery not in (Recovery.NOTHING, Recovery.LOST):
            assert one.commands


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(told(name) for name in SITUATIONS))
