"""What the executors of a cluster are given: our package, the jars of the stores in use, and a Python to run.

An app's own code needs nothing: its functions are sent with what they are made of. What it imports from elsewhere comes
in an environment archive (as venv-pack or conda-pack make), which the profile names:

    profiles:
      backfill: {master: "spark://head:7077", environment: "s3a://bucket/environments/rmi.tar.gz"}
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import rekappa
from rekappa.config.model import AppConfig, ParquetSink, Profile
from rekappa.home import Home
from rekappa.jvm.jars import jars
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENVIRONMENT = "environment"
"""The folder that the archive is unpacked to, in an executor's working folder."""
_ARCHIVES = "spark.archives"
_JARS = "spark.jars"
_ITS_TIME = (1980, 1, 1, 0, 0, 0)


def is_local(master: str) -> bool:
    """Whether Spark runs inside this one process."""
    return master.startswith("local")


def extra_jars(config: AppConfig, home: Home) -> list[Path]:
    """The jars beside Spark's own: those that all need, then those of the stores that the app or its runs use."""
    return [*jars("spark"), *(jar for conf in sorted(_stores(config, home)) for jar in jars(conf))]


def jar_settings(extra: list[Path], given: str = "") -> dict[str, str]:
    """Spark's setting to send them to the executors of a cluster; `given` are jars that the profile names."""
    return {_JARS: ",".join(filter(None, (given, *map(str, extra))))}


def _stores(config: AppConfig, home: Home) -> set[str]:
    found = home.storage.storage.jars
    places = [catalog.warehouse or "" for catalog in config.catalogs.values()]
    places += [sink.path for sink in config.sinks.values() if isinstance(sink, ParquetSink)]
    return {"s3a"} & ({found} | {place.partition(":")[0] for place in places})


def python_settings(profile: Profile, given: str = "") -> dict[str, str]:
    """Choose the Python of Spark's workers and answer Spark's settings for it; `given` are archives already named."""
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if profile.environment is None or is_local(profile.master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return {}
    os.environ["PYSPARK_PYTHON"] = f"./{ENVIRONMENT}/bin/python"
    return {_ARCHIVES: ",".join(filter(None, (given, f"{profile.environment}#{ENVIRONMENT}")))}


def ship_package(spark: SparkSession, home: Home) -> None:
    """Let executors import this very version of rekappa, whatever is installed there."""
    content = packed(Path(rekappa.__file__).parent)
    # A name of its own for each content: Spark takes a file of a known name for the one it has.
    name = f"rekappa-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    file = home.made().code / name
    if not file.exists():
        Location.local(file).write(content)
    spark.sparkContext.addPyFile(str(file))


def packed(package: Path) -> bytes:
    """A package as a zip that Python imports from; the same files are the same bytes."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for file in _files(package):
            name = str(Path(package.name) / file.relative_to(package))
            out.writestr(zipfile.ZipInfo(name, _ITS_TIME), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _files(package: Path) -> Iterator[Path]:
    for file in sorted(package.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file
