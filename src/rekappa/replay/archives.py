"""A planned source as the replay of slices reads it."""

from __future__ import annotations

from rekappa.config.load import Loaded
from rekappa.config.model import IcebergCandidate
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.plan import SourcePlan
from rekappa.replay.values import ArchiveSource
from rekappa.sources.decode import record_type
from rekappa.sources.fenced import archive_fence
from rekappa.sources.open import named_source, past_candidate


def archive_source(loaded: Loaded, home: Home, planned: SourcePlan) -> ArchiveSource:
    """Its table, the record's schema, the columns to read and which rows count.

    Refuses one that is not an Iceberg table.
    """
    source = named_source(loaded, planned.name)
    candidate = past_candidate(planned.name, source)[1]
    if not isinstance(candidate, IcebergCandidate):
        raise RunError(f"Cannot replay source {planned.name!r} in slices: it is not an Iceberg table")
    fence = archive_fence(loaded.config, home, source)
    return ArchiveSource(candidate.table, record_type(source, loaded.folder), planned.columns, fence)
