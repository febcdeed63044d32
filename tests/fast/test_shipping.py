"""What executors are given, and what Spark is told to mask."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rekappa
from rekappa.config.model import AppConfig, Profile
from rekappa.home import Home
from rekappa.spark.session import redaction
from rekappa.spark.sharing import shared_folders
from rekappa.spark.shipping import packed, python_settings


@pytest.fixture(autouse=True)
def _environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "as before")
        monkeypatch.delenv(name)


def test_executors_import_this_very_version(tmp_path: Path) -> None:
    package = Path(rekappa.__file__).parent
    assert packed(package) == packed(package), "the same content has the same name"
    (tmp_path / "rekappa.zip").write_bytes(packed(package))
    words = "import rekappa.rate, rekappa.sinks.postgres; print(rekappa.__file__)"
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "rekappa.zip")}
    told = subprocess.run([sys.executable, "-c", words], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout.startswith(str(tmp_path / "rekappa.zip")), told.stderr


def test_an_environment_archive_is_for_executors_alone() -> None:
    far = Profile(master="spark://head:7077", environment="s3a://bucket/env.tar.gz")
    assert python_settings(far.model_copy(update={"master": "local[2]"})) == {}
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]) == (sys.executable, sys.executable)
    assert python_settings(far, "models.zip") == {"spark.archives": "models.zip,s3a://bucket/env.tar.gz#environment"}
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_what_executors_must_see_of_this_machines_disk(
    tmp_path: Path, bare_config: AppConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / ".rekappa")
    assert shared_folders(bare_config, home) == {"REKAPPA_STORAGE": home.root}
    told = {
        "sinks": {
            "near": {"type": "parquet", "path": "out"},
            "far": {"type": "parquet", "path": "s3a://bucket/out"},
            "table": {"type": "iceberg", "table": "own.shop.totals"},
        },
        "catalogs": {
            "own": {"type": "stack"},
            "unused": {"type": "stack"},
            "team": {"type": "rest", "uri": "http://catalog", "warehouse": "production"},
            "disk": {"type": "hadoop", "warehouse": "/mnt/tables"},
        },
    }
    config = AppConfig.model_validate({**bare_config.model_dump(by_alias=True), **told})
    monkeypatch.setenv("REKAPPA_STORAGE", "s3a://bucket/rekappa")
    assert shared_folders(config, home) == {
        "sinks.near.path": tmp_path / "out",
        "catalogs.own": home.warehouse,
        "catalogs.disk.warehouse": Path("/mnt/tables"),
    }


@pytest.mark.parametrize(
    "name",
    [
        "spark.sql.catalog.lake.s3.secret-access-key",
        "spark.sql.catalog.lake.s3.access-key-id",
        "spark.sql.catalog.lake.credential",
        "spark.sql.catalog.lake.header.X-Api-Key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
        "kafka.sasl.jaas.config",
        "spark.ours.myown",
    ],
)
def test_spark_masks_what_we_take_for_a_secret_and_what_the_profile_names(name: str) -> None:
    told = redaction({"spark.redaction.regex": "myown"})
    assert re.search(told["spark.redaction.regex"].replace("(?i)", ""), name, re.IGNORECASE)
    assert not re.search(told["spark.redaction.regex"].replace("(?i)", ""), "spark.sql.shuffle.partitions")
