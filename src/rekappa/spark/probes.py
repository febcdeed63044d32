"""A job called on empty streams, to look at what it makes without running it.

The probes are streaming file sources on empty folders: cheap, streaming, and each known by its folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.home import local_uri
from rekappa.spark.calling import results_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@contextmanager
def probed(
    spark: SparkSession, job: Job, schemas: Mapping[str, str] | Mapping[str, StructType]
) -> Iterator[tuple[Mapping[str, DataFrame], Mapping[str, str]]]:
    """The job's results, and which source stands behind each stream that Spark's plan names.

    `schemas` are the record schemas of its sources.
    """
    with tempfile.TemporaryDirectory(prefix="rekappa-probe-") as folder:
        probes, names = {}, {}
        for name in job.sources:
            path = Path(folder, name)
            path.mkdir()
            probes[name] = spark.readStream.schema(schemas[name]).format("parquet").load(local_uri(path))
            names[f"FileSource[{local_uri(path)}]"] = name
        yield results_of(job, probes), names


def output_schemas(
    spark: SparkSession, job: Job, schemas: Mapping[str, str] | Mapping[str, StructType]
) -> dict[str, StructType]:
    """The columns of each output of a job."""
    with probed(spark, job, schemas) as (results, _):
        return {name: rows.schema for name, rows in results.items()}
