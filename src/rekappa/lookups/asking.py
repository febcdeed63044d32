"""A task's side of a recorded service: the ledger is asked first, the service only for what it does not know."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection
from typing import TYPE_CHECKING, Any

from rekappa.answers import ANSWER, Ask, Pairs, answered_by, called
from rekappa.errors import RunError
from rekappa.lookups.ledger import REPLAY, LedgerPlace
from rekappa.rate import Pace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT_AT_ONCE = 1000
"""How many answers a task may lose if it dies: those that it has not brought yet."""
_connections: dict[tuple[int, str, int], Connection] = {}


@dataclass(frozen=True, slots=True)
class Recording:
    """Answers that are kept in a ledger before any row with them goes on."""

    ledger: LedgerPlace
    pace: Pace | None = None

    def given(self, asked: DataFrame, call: Ask) -> DataFrame:
        return asked.withColumn(ANSWER, answered_by(self.asker(call)))

    def asker(self, call: Ask) -> partial[dict[tuple[str, int], str]]:
        return partial(_recorded, self.ledger, call, self.pace)


def _recorded(ledger: LedgerPlace, call: Ask, pace: Pace | None, wanted: Pairs) -> dict[tuple[str, int], str]:
    if not wanted:
        return {}
    known = _told(ledger, "known", list(wanted))
    found = {pair: answer for pair, answer in zip(wanted, known, strict=True) if answer is not None}
    fresh = [pair for pair in wanted if pair not in found]
    for start in range(0, len(fresh), KEPT_AT_ONCE):
        part = fresh[start : start + KEPT_AT_ONCE]
        brought = [(*pair, answer) for pair, answer in called(call, pace, part).items()]
        found |= dict(zip(part, _told(ledger, "keep", *_where(), brought), strict=True))
    return found


def _where() -> tuple[str, int]:
    """The query and the number of the micro-batch that this task is of."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    return (query.replace("_", "-"), int(batch)) if query and batch else (REPLAY, 0)


def _told(ledger: LedgerPlace, deed: str, *told: Any) -> list[Any]:
    where = (os.getpid(), ledger.host, ledger.port)
    for attempt in range(2):
        try:
            connection = _connections.get(where)
            if connection is None:
                connection = _connections[where] = Client((ledger.host, ledger.port), authkey=ledger.secret)
            connection.send_bytes(json.dumps({"deed": deed, "told": told}).encode())
            answer = json.loads(connection.recv_bytes())
        except (OSError, EOFError):
            # A worker process outlives a run: its connection may be to a ledger that is gone.
            if (stale := _connections.pop(where, None)) is not None:
                stale.close()
            if attempt:
                raise RunError(
                    f"Cannot ask the ledger of answers at {ledger.host}:{ledger.port}",
                    hint="Tasks must be able to reach the driver: check spark.driver.host and the firewall.",
                ) from None
            continue
        if "failed" in answer:
            raise RunError(f"Cannot keep what a service answered: {answer['failed']}")
        return list(answer["found"])
    raise AssertionError("the second attempt answers or raises")
