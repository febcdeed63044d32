"""Which recovery fits an outage, and why: pure rules over facts that were gathered before.

    for one in advise(facts):
        one.recovery, one.why, one.commands

The order of preference: nothing, if nothing is wrong; a backfill, which touches production only when it is proven; a
rewind, which takes the job itself back; a bootstrap, where there is nothing to go back to; and what is lost, otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from rekappa.recovery.outage import Memory, OutageFacts, QueryFacts, SinkPlace, Trouble
from rekappa.timeline import Window, format_duration, format_instant


class Recovery(StrEnum):
    NOTHING = "do nothing"
    BACKFILL = "backfill"
    REWIND = "rewind"
    CASCADE = "rewind with cascade"
    BOOTSTRAP = "bootstrap"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about these sinks. `window` is what a backfill has to make anew: more than the outage, where wrong
    state spoilt what came after it."""

    recovery: Recovery
    sinks: tuple[str, ...]
    why: tuple[str, ...]
    commands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def advise(facts: OutageFacts) -> tuple[Advice, ...]:
    """The recovery for every query of the app; queries that fare alike are named together."""
    if facts.trouble is Trouble.STOPPED:
        return (_stopped(facts),)
    found = [_wrong(facts, query) for query in facts.queries]
    return tuple(_together(facts, found))


def _stopped(facts: OutageFacts) -> Advice:
    sinks = tuple(query.sink for query in facts.queries)
    again = (f"rekappa run {facts.app}",)
    if facts.holes:
        why = ("The job has to go on with events that neither Kafka nor the archive has:", *facts.holes)
        return Advice(
            Recovery.LOST,
            sinks,
            why,
            (f"rekappa archive verify {facts.app}", f"rekappa run {facts.app} --fresh"),
            ("Begun afresh it has no state, and starts with the oldest event that Kafka has.",),
        )
    if facts.dropped:
        why = (
            f"It stood still, no output is wrong; but Kafka has dropped what comes next: {', '.join(facts.dropped)}.",
            "The archive has all of it: a run reads the archive first and carries on from Kafka, in the same state.",
        )
        return Advice(Recovery.NOTHING, sinks, why, again)
    if facts.going:
        late = f"{facts.behind:,} events still wait." if facts.behind else "It has caught up."
        return Advice(Recovery.NOTHING, sinks, ("It stood still, and goes on where it was: no event is lost.", late))
    why = ("It stood still, and Kafka has all that it has not read: it goes on where it was, and no event is lost.",)
    return Advice(Recovery.NOTHING, sinks, (*why, *_left(facts, facts.kept_until)), again)


def _left(facts: OutageFacts, until: datetime | None) -> tuple[str, ...]:
    """How long there is time, before Kafka drops what is to be read."""
    if until is None:
        return ()
    after = (
        "after that the archive is read first" if facts.archived_since else "there is no archive: be done before that"
    )
    return (f"Kafka keeps the first of it until {format_instant(until)} at least; {after}.",)


def _wrong(facts: OutageFacts, query: QueryFacts) -> Advice:
    """One query whose output in the window is wrong, and whose code is mended by now."""
    own = (query.sink,)
    heals = _heals(facts, query)
    if _state_is_wrong(facts, query):
        why: tuple[str, ...] = (_of_state(query, heals),)
        if _can_rewind(query):
            return _rewound(facts, query, why)
        why = (*why, _no_rewind(query))
        if query.place is SinkPlace.TOPIC:
            return Advice(Recovery.LOST, own, (*why, "What was sent to the topic stays there."))
        if heals is not None:
            return _backfilled(facts, query, why, heals, wait=True)
        return _bootstrapped(facts, query, why)
    why = (_fine(query, facts),)
    if query.place is SinkPlace.TOPIC:
        why = (*why, "It writes a topic, in which a window can't be replaced.")
        if _can_rewind(query):
            return _rewound(facts, query, why)
        return Advice(Recovery.LOST, own, (*why, _no_rewind(query), "What was sent to the topic stays there."))
    if query.refused is None:
        return _backfilled(facts, query, why, heals)
    why = (*why, f"A backfill can't be planned: {query.refused}.")
    if _can_rewind(query):
        return _rewound(facts, query, why)
    return Advice(Recovery.LOST, own, (*why, _no_rewind(query)))


def _heals(facts: OutageFacts, query: QueryFacts) -> datetime | None:
    """When state that ends has forgotten the window; None where nothing says so."""
    if query.memory is not Memory.BOUNDED or query.remembers is None or facts.state_wrong is False:
        return None
    return facts.window.end + query.remembers


def _state_is_wrong(facts: OutageFacts, query: QueryFacts) -> bool:
    if query.memory is Memory.NONE or facts.state_wrong is False:
        return False
    heals = _heals(facts, query)
    return heals is None or facts.now < heals


def _of_state(query: QueryFacts, heals: datetime | None) -> str:
    if heals is not None:
        return f"Its state still holds what it made of the window, until {format_instant(heals)}."
    return f"It has {query.memory}: what it made of the window is in it for good."


def _fine(query: QueryFacts, facts: OutageFacts) -> str:
    if query.memory is Memory.NONE:
        return "It keeps no state: only what it wrote in the window is wrong."
    if facts.state_wrong is False:
        return "Its state is right, as told: only what it wrote in the window is wrong."
    assert query.remembers is not None
    return (
        f"Its state has forgotten the window, {format_duration(query.remembers)} after its end: only what it wrote "
        "until then is wrong."
    )


def _can_rewind(query: QueryFacts) -> bool:
    return query.point is not None and not query.point.holes


def _no_rewind(query: QueryFacts) -> str:
    if query.point is None:
        return "No batch from before the window can be restored."
    return (
        f"Batch {query.point.batch} could be restored, but neither Kafka nor the archive has all that follows it: "
        f"{'; '.join(query.point.holes)}."
    )


def _rewound(facts: OutageFacts, query: QueryFacts, why: Sequence[str]) -> Advice:
    assert query.point is not None
    recovery = Recovery.CASCADE if query.consumers else Recovery.REWIND
    why = (
        *why,
        f"Batch {query.point.batch}, of {format_instant(query.point.committed)}, can be restored, and all that follows "
        "it can be read again.",
        *_left(facts, query.point.kept_until),
    )
    if query.consumers:
        why = (*why, f"{', '.join(query.consumers)} read what it writes: good data after bad would reach them.")
    return Advice(recovery, (query.sink,), tuple(why), (), _notes(query))


def _backfilled(
    facts: OutageFacts, query: QueryFacts, why: Sequence[str], heals: datetime | None, *, wait: bool = False
) -> Advice:
    window = Window(facts.window.start, heals) if heals is not None else facts.window
    if query.refused is not None:
        return Advice(Recovery.LOST, (query.sink,), (*why, f"A backfill can't be planned: {query.refused}."))
    if wait:
        why = (*why, f"Once the state has forgotten it, the rows up to then can be made anew: not before {_at(heals)}.")
    else:
        why = (*why, "The archive has what the window needs, and nothing is touched before it is proven.")
    if query.takes is not None:
        why = (*why, f"It is thought to take {format_duration(query.takes)}.")
    return Advice(Recovery.BACKFILL, (query.sink,), tuple(why), _backfill_commands(facts, window), _notes(query))


def _bootstrapped(facts: OutageFacts, query: QueryFacts, why: Sequence[str]) -> Advice:
    if facts.archived_since is None:
        return Advice(Recovery.LOST, (query.sink,), (*why, "There is no archive to build its state from."))
    since = format_instant(facts.archived_since)
    commands: tuple[str, ...] = (
        f"rekappa bootstrap {facts.app} --from {since} --dry-run",
        f"rekappa bootstrap {facts.app} --from {since}",
    )
    if not facts.whole:
        lost = (
            f"The archive begins at {since}: state from before can't be built again.",
            "A bootstrap from there gives a job that is right about everything since, and knows nothing of before.",
        )
        return Advice(Recovery.LOST, (query.sink,), (*why, *lost), commands, _notes(query))
    why = (*why, "The archive has every event of its topics: its state can be built anew, and Kafka takes over.")
    if query.refused is None:
        commands = (*commands, *_backfill_commands(facts, facts.window))
        why = (*why, "What it wrote is then made anew by a backfill: a bootstrap holds back what history gives.")
    else:
        why = (*why, f"What it wrote stays as it is, because a backfill can't be planned: {query.refused}.")
    return Advice(Recovery.BOOTSTRAP, (query.sink,), tuple(why), commands, _notes(query))


def _notes(query: QueryFacts) -> tuple[str, ...]:
    found = [f"{query.sink} joins {name} as it is now, not as it was in the window." for name in query.lookups]
    if query.clock:
        found.append(f"{query.sink} reads the clock ({', '.join(query.clock)}): no second run gives the same.")
    if query.place is SinkPlace.SERVICE:
        found.append(f"{query.sink} is a service: keys that should not be there stay until something deletes them.")
    return tuple(found)


def _together(facts: OutageFacts, found: Sequence[Advice]) -> list[Advice]:
    """The answers for the app. A rewind takes all queries back, so where one needs it, it is the answer for all that
    can be repaired by it; the rest is said sink by sink."""
    back = [one for one in found if one.recovery in (Recovery.REWIND, Recovery.CASCADE)]
    points = {query.sink for query in facts.queries if _can_rewind(query)}
    answers: list[Advice] = []
    if back:
        taken = [one for one in found if set(one.sinks) <= points]
        worst = Recovery.CASCADE if any(one.recovery is Recovery.CASCADE for one in back) else Recovery.REWIND
        why = list(dict.fromkeys(text for one in back for text in one.why))
        sinks = tuple(sink for one in taken for sink in one.sinks)
        if len(taken) > len(back):
            why.append("A rewind takes all queries of the app back, so it repairs those as well that need no more.")
        notes = tuple(dict.fromkeys(note for one in taken for note in one.notes))
        commands = _rewind_commands(facts, cascade=worst is Recovery.CASCADE)
        answers.append(Advice(worst, sinks, tuple(why), commands, notes))
        found = [one for one in found if one not in taken]
    for one in found:
        same = next((at for at, other in enumerate(answers) if _alike(one, other)), None)
        if same is None:
            answers.append(one)
        else:
            other = answers[same]
            answers[same] = replace(other, sinks=other.sinks + one.sinks, notes=(*other.notes, *one.notes))
    every = {query.sink for query in facts.queries}
    return [_only(facts, one) if set(one.sinks) != every else one for one in answers]


def _alike(one: Advice, other: Advice) -> bool:
    return (one.recovery, one.why, one.commands) == (other.recovery, other.why, other.commands)


def _only(facts: OutageFacts, one: Advice) -> Advice:
    """The commands of a backfill for these sinks alone."""
    chosen = "".join(f" --sink {sink}" for sink in one.sinks)
    stretch = ("rekappa plan ", "rekappa backfill ")
    return replace(one, commands=tuple(text + chosen if text.startswith(stretch) else text for text in one.commands))


def _backfill_commands(facts: OutageFacts, window: Window) -> tuple[str, ...]:
    told = f"{facts.app} --start {format_instant(window.start)} --end {format_instant(window.end)}"
    return (f"rekappa plan {told}", f"rekappa backfill {told}", "rekappa validate last", "rekappa publish last --yes")


def _rewind_commands(facts: OutageFacts, *, cascade: bool) -> tuple[str, ...]:
    told = f"rekappa rewind {facts.app} --to {format_instant(facts.window.start)}" + (" --cascade" if cascade else "")
    stop = (f"rekappa stop {facts.run}",) if facts.going and facts.run else ()
    return (f"{told} --dry-run", *stop, f"{told} --start")


def _at(moment: datetime | None) -> str:
    assert moment is not None
    return format_instant(moment)
