"""What a service outside answered: an operator that a job puts around its call.

    def ask(keys):
        return [requests.get(f"{URL}/{key['account']}").json() for key in keys]

    @app.job
    def scored(orders: DataFrame, scores: Answers) -> DataFrame:
        return scores.join(orders, ask, at="event_ts")

A service can't travel in time, so a live run keeps what it answered, by key and time of the event, before any row that
holds it leaves its task; a replay answers from that. `Answers.of` only calls, for a test of the job.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rekappa.errors import AppError
from rekappa.lookup import quoted, require_columns, require_instant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Ask = Callable[[Sequence[Mapping[str, Any]]], Iterable[Mapping[str, Any] | None]]
"""A job's call: gets the keys as JSON has them, answers one mapping for each, in their order; None is an answer too."""
KEY, TIME, ANSWER = "__key", "__time", "__answer"
"""What an answer is known by, as text and microseconds, and the answer as text."""


class Throttle(Protocol):
    """What holds calls back (`rekappa.rate.Pace`): `step` may be made at once, after `wait` has let them."""

    @property
    def step(self) -> int: ...

    def wait(self, rows: int) -> None: ...


class Giving(Protocol):
    """How answers are come by."""

    def given(self, asked: DataFrame, call: Ask) -> DataFrame:
        """The rows with a column ANSWER; `asked` has KEY and TIME, null in rows that ask nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Answers:
    """A service that a job asks by these columns, and the columns of its answer."""

    key: tuple[str, ...]
    answer: str
    giving: Giving

    @classmethod
    def of(cls, key: str | Sequence[str], answer: str) -> Answers:
        """One that calls and keeps nothing. `answer` names the columns and types of an answer, as Spark writes them."""
        return cls((key,) if isinstance(key, str) else tuple(key), answer, Calling())

    def join(self, events: DataFrame, call: Ask, at: str, *, on: Mapping[str, str] | None = None) -> DataFrame:
        """The events with the columns of the answer beside them, nulls where a key or the time is null: none is asked.

        `at` is the TIMESTAMP column of the events that an answer is kept under, beside the key; `on` names, for a key
        column, the events' column of another name.
        """
        from pyspark.sql import functions as F

        unknown = [name for name in on or {} if name not in self.key]
        if unknown:
            raise AppError(f"Cannot ask a service by {unknown[0]!r}: its key is {', '.join(self.key)}")
        pairs = [(name, (on or {}).get(name, name)) for name in self.key]
        require_columns(events, (at, *(theirs for _, theirs in pairs)), "the events")
        require_instant(events, at, "at")
        kind = _parsed(events, self.answer)
        twice = [name for name in kind if name in events.columns]
        if twice:
            raise AppError(
                f"Cannot ask a service: both its answer and the events have a column {twice[0]!r}",
                hint="Rename it in the events first: .withColumnRenamed(…).",
            )
        moment = events[quoted(at)]
        there: Column = moment.isNotNull()
        for _, theirs in pairs:
            there = there & events[quoted(theirs)].isNotNull()
        named = F.struct(*(events[quoted(theirs)].alias(name) for name, theirs in pairs))
        asked = events.select(
            "*",
            F.when(there, F.to_json(named)).alias(KEY),
            F.when(there, F.unix_micros(moment)).alias(TIME),
        )
        answered = self.giving.given(asked, call)
        text = F.col(ANSWER)
        found = F.from_json(F.when(text != "null", text), self.answer, {"mode": "FAILFAST"})
        whole = answered.withColumn(ANSWER, found)
        own = [whole[quoted(name)] for name in events.columns]
        return whole.select(*own, *(F.col(f"{ANSWER}.{quoted(name)}").alias(name) for name in kind))


@dataclass(frozen=True, slots=True)
class Calling:
    """Asks the service for every key and time, and keeps nothing."""

    pace: Throttle | None = None

    def given(self, asked: DataFrame, call: Ask) -> DataFrame:
        return asked.withColumn(ANSWER, answered_by(self.asker(call)))

    def asker(self, call: Ask) -> partial[dict[tuple[str, int], str]]:
        return partial(called, call, self.pace)


Pairs = Sequence[tuple[str, int]]
"""Keys, as JSON, and times, none of them twice."""


def answered_by(give: Callable[[Pairs], Mapping[tuple[str, int], str]]) -> Column:
    """The column ANSWER, from a function that is given in a task what is asked, a batch of rows at a time.

    Marked as one whose value may differ: Spark must neither call it twice for a row nor move it.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.functions import arrow_udf

    def answers(batches):  # type: ignore[no-untyped-def]
        return _batches(give, batches)

    # What kind of function it is, Spark reads from its annotations.
    answers.__annotations__ = {"batches": Iterator[tuple[pa.Array, pa.Array]], "return": Iterator[pa.Array]}
    function: Any = arrow_udf(answers, "string")  # type: ignore[call-overload]
    made: Column = function.asNondeterministic()(F.col(KEY), F.col(TIME))
    return made


def called(call: Ask, pace: Throttle | None, wanted: Pairs) -> dict[tuple[str, int], str]:
    """In a task: what the service answers now, as text, no faster than the pace allows."""
    found: dict[tuple[str, int], str] = {}
    step = len(wanted) if pace is None else pace.step
    for start in range(0, len(wanted), max(step, 1)):
        part = wanted[start : start + step]
        if pace is not None:
            pace.wait(len(part))
        answers = list(call([json.loads(key) for key, _ in part]))
        if len(answers) != len(part):
            raise AppError(
                f"Cannot use the answers of {getattr(call, '__name__', call)}: it was given {len(part)} keys and "
                f"answered {len(answers)} times",
                hint="One answer for each key, in their order; None where the service knows nothing.",
            )
        found |= {pair: json.dumps(answer, default=_plain) for pair, answer in zip(part, answers, strict=True)}
    return found


def _batches(give: Callable[[Pairs], Mapping[tuple[str, int], str]], batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for keys, times in batches:
        rows = list(zip(keys.to_pylist(), times.to_pylist(), strict=True))
        found = give([pair for pair in dict.fromkeys(rows) if pair[0] is not None])
        yield pa.array([found.get(pair) for pair in rows], pa.string())


def _plain(value: Any) -> Any:
    """What JSON has no word for, as Spark reads it."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"an answer holds a {type(value).__name__}, which JSON can't tell")


def _parsed(events: DataFrame, answer: str) -> list[str]:
    from pyspark.sql.types import StructType

    kind = events.sparkSession.createDataFrame([], answer).schema
    assert isinstance(kind, StructType)
    return [field.name for field in kind]
