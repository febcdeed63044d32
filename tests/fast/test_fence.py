"""Which messages of a topic count, however often their writer was rewound, and how that is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.checkpoints.restarts import FORK, Leg, abandoned_by, line_of
from rekappa.config.model import AppConfig, KafkaCandidate
from rekappa.errors import SourceError
from rekappa.fence.filter import unknown_sender
from rekappa.fence.line import BATCH, RUN, Fence, WriterLine, begun_message, fences, line_message
from rekappa.fence.line import QUERY as QUERY_HEADER
from rekappa.home import Home
from rekappa.sources.fenced import archive_fence, note_abandoned

QUERY = "out"


@dataclass
class Writer:
    """A query that sends one message per batch, is rewound and undone; `right` are the messages that count."""

    line: WriterLine = field(default_factory=lambda: WriterLine("app", QUERY))
    forks: dict[str, dict[str, dict[str, dict[str, int | str]]]] = field(default_factory=lambda: {"live_0": {}})
    run: str = "live_0"
    at: int = -1
    sent: set[tuple[str, int]] = field(default_factory=set)
    right: list[tuple[str, int]] = field(default_factory=list)
    done: list[tuple[str, tuple[Leg, ...], str, int, list[tuple[str, int]]]] = field(default_factory=list)

    @property
    def legs(self) -> tuple[Leg, ...]:
        return line_of(self.run, QUERY, lambda run: self.forks[run])

    def send(self) -> None:
        self.at += 1
        self.sent.add((self.run, self.at))
        self.right.append((self.run, self.at))

    def rewind(self, batch: int, twice: bool) -> None:
        holder = next((leg.run for leg in self.legs if leg.holds(batch)), None)
        gone = self.legs if holder is None else abandoned_by(self.legs, holder, batch)
        made = f"live_{len(self.forks)}"
        self.done.append((self.run, gone, made, self.at, list(self.right)))
        for _ in range(2 if twice else 1):
            self.line = self.line.abandoned(gone, made)
        self.forks[made] = {} if holder is None else {FORK: {QUERY: {"run": holder, "batch": batch}}}
        self.run, self.at = made, batch if holder is not None else -1
        self.right = [one for one in self.right if one[1] <= self.at]

    def undo(self, twice: bool) -> None:
        self.run, gone, made, self.at, self.right = self.done.pop()
        for _ in range(2 if twice else 1):
            self.line = self.line.restored(gone, made)


acts = st.lists(
    st.one_of(st.just("send"), st.tuples(st.just("rewind"), st.integers(-1, 8), st.booleans()),
              st.tuples(st.just("undo"), st.booleans())),
    max_size=30,
)  # fmt: skip


@given(acts)
def test_what_counts_is_what_a_writer_sent_on_its_line_and_was_not_rewound(story: list[object]) -> None:
    writer = Writer()
    for act in story:
        match act:
            case "send":
                writer.send()
            case ("rewind", int(batch), bool(twice)):
                writer.rewind(min(batch, writer.at), twice)
            case ("undo", bool(twice)) if writer.done:
                writer.undo(twice)
        fence = Fence((writer.line,), frozenset((run, QUERY) for run, _ in writer.sent))
        assert {one for one in writer.sent if fence.counts(one[0], QUERY, one[1])} == set(writer.right)
        for _, gone, _, _, _ in writer.done:
            # A dead process that goes on sending changes nothing.
            assert not any(fence.counts(leg.run, QUERY, 99) for leg in gone if leg.run != writer.run)


def test_a_message_without_headers_counts_and_one_of_an_unknown_run_is_not_judged() -> None:
    fence = Fence(
        (WriterLine("app", QUERY, {"live_1": 4, "live_2": None, "live_0": -1}),), frozenset({("b", "publish")})
    )
    assert fence.counts(None, None, None)
    assert [fence.counts("live_1", QUERY, batch) for batch in (4, 5)] == [True, False]
    assert fence.counts("live_0", QUERY, 0) is False
    assert fence.counts("b", "publish", 0)
    assert fence.counts("b", QUERY, 0) is None, "another query of that run"
    assert Fence().counts("live_1", QUERY, 0) is None
    assert not Fence(begun=frozenset({("b", "publish")})).abandons


def test_the_lineage_topic_is_read_back_and_a_late_announcement_does_not_undo_a_line() -> None:
    line = WriterLine("app", QUERY, {"live_1": 4, "live_2": None})
    told = [
        begun_message("plays", ("live_1", QUERY)),
        line_message("plays", WriterLine("app", QUERY, {"live_1": None})),
        line_message("plays", line),
        line_message("other", WriterLine("app", QUERY, {"live_1": 2})),
        begun_message("plays", ("live_1", QUERY)),
    ]
    assert fences(told) == {
        "plays": Fence((line,), frozenset({("live_1", QUERY)})),
        "other": Fence((WriterLine("app", QUERY, {"live_1": 2}),)),
    }
    assert fences(told)["plays"].counts("live_1", QUERY, 5) is False
    assert fences(told)["plays"].line("app", "another").until == {}
    with pytest.raises(SourceError, match="of version 7: this rekappa knows 1"):
        fences([(told[0][0], '{"version": 7}')])


@dataclass(frozen=True)
class Consumed:
    """A message as confluent-kafka's consumer gives it."""

    told: tuple[str, str] = ("", "")
    marks: tuple[tuple[str, bytes], ...] | None = None

    def key(self) -> bytes:
        return self.told[0].encode()

    def value(self) -> bytes:
        return self.told[1].encode()

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.marks is None else list(self.marks)


@given(st.dictionaries(st.sampled_from(["live_1", "live_2"]), st.none() | st.integers(-1, 3)), st.integers(0, 4))
def test_the_documented_lines_for_other_consumers_judge_as_we_do(until: dict[str, int | None], batch: int) -> None:
    page = (Path(__file__).parents[2] / "docs" / "rewind.md").read_text()
    there: dict[str, Any] = {"json": json}
    exec(page.split("```python\n")[1].split("```")[0], there)
    line = WriterLine("app", QUERY, until)
    told = [
        line_message("plays", WriterLine("app", QUERY, dict.fromkeys(until))),
        line_message("plays", line),
        line_message("other", WriterLine("app", QUERY, {"live_1": -1, "live_2": -1})),
        begun_message("plays", ("live_3", QUERY)),
    ]
    found = there["lines"]([Consumed(one) for one in told], "plays")
    for run in (*until, "live_3"):
        marks = ((RUN, run.encode()), (QUERY_HEADER, QUERY.encode()), (BATCH, str(batch).encode()))
        assert there["counts"](Consumed(marks=marks), found) == fences(told)["plays"].counts(run, QUERY, batch)
    assert there["counts"](Consumed(), found)
    assert there["counts"](Consumed(marks=(("other", b"x"),)), found)


def test_the_sender_that_nobody_knows_is_read_from_sparks_words() -> None:
    said = "[USER_RAISED_EXCEPTION] which messages count is not known for run 'live_9', query 'out' SQLSTATE: P0001"
    assert unknown_sender(said) == ("live_9", "out")
    plan = "raise_error(concat(which messages count is not known for run ', cast(x as string), ', query ', y, '))"
    assert unknown_sender(f"anything else\n=== Streaming Query ===\nFilter {plan}") is None


def test_an_archive_is_read_while_its_cluster_is_away_unless_some_of_it_is_known_not_to_count(
    tmp_path: Path, bare_config: AppConfig
) -> None:
    home = Home(tmp_path / ".rekappa").made()
    source = bare_config.sources["events"]
    assert archive_fence(bare_config, home, source) is None, "the local stack is down"
    candidate = source.candidates["live"]
    assert isinstance(candidate, KafkaCandidate)
    note_abandoned(bare_config, home, candidate.cluster[0], candidate.topic)
    with pytest.raises(SourceError, match="archive of topic 'events': some of its messages do not count"):
        archive_fence(bare_config, home, source)
