"""Calling a job's function: what its code raises is told with the job, the file, the line and the message."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.errors import AppError, RekappaError
from rekappa.spark.failures import Again, is_own_code, read_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def results_of(job: Job, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """One DataFrame per output of the job; refuses with `AppError` whatever its function raises."""
    try:
        return job.results(inputs)
    except RekappaError:
        raise
    except Exception as error:
        place = _place(error)
        found = read_failure(error)
        # A server that the function asked may answer the next time.
        again = "" if found.again is Again.HELPS else f"It will fail again until {place} is changed."
        raise AppError(f"Job {job.name!r} failed at {place}: {found.cause}", hint=again or found.remedy) from error


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own_code(frame.filename)] or list(frames)
    return f"{own[-1].filename}:{own[-1].lineno}"
