"""How far back exact mode begins where sessions may have begun at any time: as far as the archive's own sessions go.

What is needed before the window is not bounded by the query (a session goes on while its events do), but it is there
to be seen: the job's sessions over the archive, read from further and further back until none that reaches into the
window began at the edge of what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rekappa.plan.finality import Finality
from rekappa.plan.margins import Margins
from rekappa.replay.sessions import cut_from
from rekappa.timeline import Window, format_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONGEST = timedelta(days=1)
"""As far back as is looked: a longer --warm-up is for the user to ask for."""


def with_whole_sessions(
    spark: SparkSession,
    margins: Margins,
    finality: Finality,
    output: Window,
    results: Callable[[Window], Iterable[DataFrame]],
) -> Margins:
    """The margins with a warm-up that holds every session that reaches into the output, from its first event.

    `results` are the job's rows as a batch over a stretch of ingestion time. As they are if sessions are longer than
    `LONGEST`, and for a job that can't run as a batch: what they cut is then told after the run.
    """
    from pyspark.errors import AnalysisException

    before = max(margins.before, finality.gap or timedelta())
    try:
        while before <= LONGEST:
            reads = replace(margins, before=before).reads(output)
            if all(cut_from(spark, rows, finality, reads, output) is None for rows in results(reads)):
                why = f"{format_duration(before)}, before which no session of the window began (the archive shows)"
                return margins.reaching_back(before, why)
            before = LONGEST if before < LONGEST < 2 * before else 2 * before
    except AnalysisException:
        pass
    return margins
