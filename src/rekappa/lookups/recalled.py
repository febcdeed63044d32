"""A replay's side of a recorded service: answers from the record, and what to do where there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rekappa.answers import ANSWER, KEY, TIME, Ask, Calling, answered_by
from rekappa.lookups.asking import Recording

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Recalled:
    """Answers from `record`: rows of KEY, TIME and ANSWER, each key and time once.

    `otherwise` is asked where there is none; with None such a call is refused, unless `nulls`.
    """

    lookup: str
    record: DataFrame
    otherwise: Recording | Calling | None = None
    nulls: bool = False

    def given(self, asked: DataFrame, call: Ask) -> DataFrame:
        from pyspark.sql import functions as F

        key, time, answer = "__recalled_key", "__recalled_time", "__recalled"
        known = self.record.select(F.col(KEY).alias(key), F.col(TIME).alias(time), F.col(ANSWER).alias(answer))
        same = (F.col(KEY) == F.col(key)) & (F.col(TIME) == F.col(time))
        joined = asked.join(known, same, "left")
        if self.otherwise is not None:
            # A key that needs no call is hidden from the function that calls.
            missing = F.when(F.col(answer).isNull(), F.col(KEY))
            joined = joined.withColumn(KEY, missing)
            joined = joined.withColumn(ANSWER, F.coalesce(F.col(answer), answered_by(self.otherwise.asker(call))))
        else:
            joined = joined.withColumn(ANSWER, F.col(answer) if self.nulls else self._refusing(F.col(answer)))
        return joined.drop(key, time, answer)

    def _refusing(self, answer: Column) -> Column:
        from pyspark.sql import functions as F

        said = F.concat(
            F.lit(f"Cannot answer for service '{self.lookup}': no answer is recorded for "),
            F.col(KEY),
            F.lit(" at "),
            F.timestamp_micros(F.col(TIME)).cast("string"),
        )
        return F.when(F.col(KEY).isNotNull() & answer.isNull(), F.raise_error(said)).otherwise(answer)


@dataclass(frozen=True, slots=True)
class Noting:
    """Answers nothing, and notes the rows that ask."""

    asked: list[DataFrame] = field(default_factory=list)

    def given(self, asked: DataFrame, call: Ask) -> DataFrame:
        from pyspark.sql import functions as F

        self.asked.append(asked.where(F.col(KEY).isNotNull()).select(KEY, TIME))
        return asked.withColumn(ANSWER, F.lit(None).cast("string"))
