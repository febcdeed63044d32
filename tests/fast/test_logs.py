"""Logs do not pile up."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from rekappa.spark.logs import KEEP_BYTES, KEEP_LOGS, LogFile, drop_old_logs, surplus
from rekappa.store.host import this_host

DAY = timedelta(days=1)


def log(name: str, age: timedelta, size: int = 1, in_use: bool = False) -> LogFile:
    return LogFile(Path(name), age, size, in_use)


def test_old_logs_go_but_not_of_a_process_that_is_still_there() -> None:
    files = [log("new", DAY), log("old", KEEP_LOGS + DAY), log("quiet", KEEP_LOGS + DAY, in_use=True)]
    assert surplus(files) == [Path("old")]


def test_the_oldest_go_when_they_are_too_many() -> None:
    third = KEEP_BYTES // 3
    files = [log(f"{days}", days * DAY, third) for days in range(1, 6)]
    assert surplus(files) == [Path("4"), Path("5")]
    assert surplus([*files, log("live", 9 * DAY, 2 * third, in_use=True)]) == [
        Path("2"),
        Path("3"),
        Path("4"),
        Path("5"),
    ]
    assert surplus([log("huge", DAY, 2 * KEEP_BYTES, in_use=True)]) == []


def test_only_spark_logs_of_this_machine_are_dropped(tmp_path: Path) -> None:
    here = this_host().name
    names = {
        "gone": f"spark-{here}-999999999.log",
        "rolled": f"spark-{here}-999999999.log.2",
        "alive": f"spark-{here}-{os.getpid()}.log",
        "elsewhere": "spark-another-machine-999999999.log",
        "broker": "broker.log",
    }
    long_ago = (tmp_path.stat().st_mtime - 2 * KEEP_LOGS.total_seconds(),) * 2
    for name in names.values():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, long_ago)
    drop_old_logs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {names["alive"], names["elsewhere"], names["broker"]}
