"""Every sink against its real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sink_contract import EvolvingContract, KeyedContract, SinkContract

from rekappa.home import Home
from rekappa.sinks.contract import Rerun

BOTH: frozenset[str] = frozenset({"small", "amount"})
NEITHER: frozenset[str] = frozenset()


class TestIcebergAppend(EvolvingContract, SinkContract):
    kind, rerun = "append", Rerun.RESETTABLE
    widens, keeps_type = BOTH, NEITHER


class TestIcebergUpsert(KeyedContract):
    kind = "upsert"
    widens, keeps_type = BOTH, NEITHER


class TestParquet(SinkContract):
    kind, rerun = "parquet", Rerun.APPEND_ONLY


class TestKafka(SinkContract):
    kind, rerun, observable = "kafka", Rerun.APPEND_ONLY, False


class TestPostgres(KeyedContract):
    kind = "postgres"
    widens, keeps_type = BOTH, NEITHER


class TestCassandra(KeyedContract):
    kind = "cassandra"
    keeps_type = frozenset({"small"})


class TestOpenSearch(KeyedContract):
    kind = "opensearch"
    widens, keeps_type = frozenset({"amount"}), frozenset({"small"})


def test_hive_passes_the_suite_in_a_session_of_its_own(home: Home, killed: dict[str, int]) -> None:
    """Hive support is fixed when Spark starts, and its local metastore takes one process at a time."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", here / "hive_suite.py"],
        env={**os.environ, "SINKS_HOME": str(home.root), "SINKS_KILLED": str(killed["hive"])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
