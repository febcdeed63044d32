"""Failures that happen to many: the signs by which each is known in what Spark says, and what to do about it.

A new one is a line of `KNOWN`. Signs are looked for in everything that was said; the first line that fits counts, and
none does where the job's own code raised something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

MEMORY = "spark.driver.memory"
NULL_KEY = "Filter such rows out in the job, or key the sink by columns that are never null."
SAME_KEY = "Let the sink's event_time or version say which row is the newest, or make one row per key in the job."


class Again(Enum):
    """Whether the same work, tried again, could get through."""

    HELPS = "a server, a connection or a worker was away"
    USELESS = "code, data or a missing file: the same would happen again"
    UNKNOWN = "nothing tells"


@dataclass(frozen=True, slots=True)
class Known:
    """One kind of failure. `said` goes before Spark's own words, with what the named groups of `signs` found."""

    signs: re.Pattern[str]
    said: str
    again: Again
    remedy: str

    def told(self, found: re.Match[str]) -> str:
        return self.said.format(**{name: value or "?" for name, value in found.groupdict().items()})


def _known(signs: str, said: str, again: Again, remedy: str) -> Known:
    return Known(re.compile(signs), said, again, remedy)


KNOWN = (
    _known(r"several rows have the key ", "A sink that upserts takes one row per key", Again.USELESS, SAME_KEY),
    _known(r"key column .+ is null", "A key must not be null", Again.USELESS, NULL_KEY),
    _known(
        r'Cannot run program "(?P<program>[^"]+)"',
        "Python can't be started for the job's functions: there is no program {program}",
        Again.USELESS,
        "Let PYSPARK_PYTHON name a Python that has pyspark and pyarrow, on every machine of the cluster.",
    ),
    _known(
        r"Error from python worker|No port number in|reading the port number|PYTHON_VERSION_MISMATCH"
        r"|worker failed to connect back|Python worker failed to start",
        "Python can't be started for the job's functions",
        Again.USELESS,
        "PYSPARK_PYTHON must name a Python of the same version that has pyspark and pyarrow: import both with it, and "
        "see what is missing.",
    ),
    _known(
        r"Python worker exited unexpectedly|PYTHON_WORKER_EXITED|Python worker .*crashed",
        "The Python process of the job's functions ended in the middle of its work, as for lack of memory",
        Again.HELPS,
        "If it happens again: fewer rows at a time (max_records_per_batch, --slice-rows), fewer tasks at a time "
        "(master: local[1]), or more memory.",
    ),
    _known(
        r"OutOfMemoryError|GC overhead limit exceeded",
        "Spark ran out of memory",
        Again.USELESS,
        f"Give it more: {MEMORY} in the profile, or more and smaller pieces (spark.sql.shuffle.partitions, "
        "--slice-rows).",
    ),
    _known(
        r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PART|does not host this topic-partition",
        "A topic is missing in Kafka",
        Again.USELESS,
        "Create it, or correct the topic in rekappa.yaml; `rekappa config APP` shows which topics are read.",
    ),
    _known(
        r"org\.apache\.kafka\.[\w.]*(?:TimeoutException|DisconnectException|NetworkException)"
        r"|TimeoutException: (?:Timed out waiting for a node|Timeout of \d+ms expired before|Call\()"
        r"|NoBrokersAvailable|Bootstrap broker .* disconnected|_TRANSPORT|_ALL_BROKERS_DOWN",
        "Kafka does not answer",
        Again.HELPS,
        "Is the broker up, and is clusters.NAME.bootstrap its address? The local one: `rekappa status`, `rekappa up`.",
    ),
    _known(
        r"org\.apache\.iceberg\.exceptions\.RESTException|ServiceUnavailableException|ServiceFailureException",
        "The Iceberg catalog does not answer",
        Again.HELPS,
        "Is it up, and is catalogs.NAME.uri its address? `rekappa config APP` shows it.",
    ),
)
