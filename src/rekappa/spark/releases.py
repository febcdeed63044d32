"""The versions of Spark and Iceberg that rekappa's use of their inner classes was tried with.

Those classes are named in two modules only, `rekappa.spark.private` and `rekappa.iceberg.private`. A new version may
have moved or changed them, so it is refused when a session starts, not in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rekappa.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KNOWN: Mapping[str, tuple[str, ...]] = {"Spark": ("4.1",), "Iceberg": ("1.12",)}


def versions(spark: SparkSession) -> dict[str, str]:
    """What is running: the cluster's Spark and the Iceberg on its class path."""
    jvm: Any = spark._jvm
    return {"Spark": spark.version, "Iceberg": str(jvm.org.apache.iceberg.IcebergBuild.version())}


def check_versions(spark: SparkSession) -> None:
    refuse_unknown(versions(spark))


def refuse_unknown(found: Mapping[str, str]) -> None:
    """Refuse versions whose inner classes nobody has tried, naming them and the known ones."""
    odd = [name for name, version in found.items() if ".".join(version.split(".")[:2]) not in KNOWN[name]]
    if odd:
        said = ", ".join(f"{name} {found[name]} (known: {', '.join(KNOWN[name])})" for name in odd)
        raise SetupError(
            f"Cannot use {said}: this rekappa was not tried with it",
            hint="Install the versions that rekappa names, on the cluster too. To try a new one, run "
            "tests/spark/test_private.py and add it to rekappa.spark.releases.",
        )
