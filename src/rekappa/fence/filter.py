"""A topic's fence as a condition on its messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rekappa.fence.line import BATCH, QUERY, RUN, Fence, Sender

if TYPE_CHECKING:
    from pyspark.sql import Column

_UNKNOWN = "which messages count is not known for run"
# Spark adds the query's plan to an error, which has these words in pieces: no name follows them there.
_SAID = re.compile(rf"{_UNKNOWN} '(?P<run>[^'\s,()]+)', query '(?P<query>[^'\s,()]+)'")
_ALL = (1 << 63) - 1


def counting(headers: Column, fence: Fence) -> Column:
    """Whether a message with these headers counts; never null. One of an unknown sender fails the query."""
    from pyspark.sql import functions as F

    run, query = _header(headers, RUN), _header(headers, QUERY)
    batch = _header(headers, BATCH).cast("bigint")
    plain = run.isNull() | query.isNull() | batch.isNull()
    known = [
        column
        for (name, of), until in sorted(fence.limits.items())
        for column in (F.lit(f"{name}/{of}"), F.lit(_ALL if until is None else until).cast("bigint"))
    ]
    unknown = F.raise_error(F.concat(F.lit(f"{_UNKNOWN} '"), run, F.lit("', query '"), query, F.lit("'")))
    until = F.lit(None).cast("bigint")
    if known:
        until = F.try_element_at(F.create_map(*known), F.concat_ws("/", run, query))
    return F.when(plain, True).when(until.isNull(), unknown.cast("boolean")).otherwise(batch <= until)


def sent_by(headers: Column, sender: Sender, after: int, until: int | None) -> Column:
    """Whether a message is of this sender, of a batch after one number and up to another, if there is one."""
    from pyspark.sql import functions as F

    batch = _header(headers, BATCH).cast("bigint")
    mine = (_header(headers, RUN) == F.lit(sender[0])) & (_header(headers, QUERY) == F.lit(sender[1]))
    found = mine & (batch > F.lit(after))
    return found if until is None else found & (batch <= F.lit(until))


def unknown_sender(error: object) -> Sender | None:
    """The sender that nobody had heard of, if that is why a query failed."""
    found = _SAID.search(str(error))
    return (found["run"], found["query"]) if found else None


def _header(headers: Column, name: str) -> Column:
    from pyspark.sql import functions as F

    return F.get(F.filter(headers, lambda one: one["key"] == F.lit(name)), F.lit(0))["value"].cast("string")
