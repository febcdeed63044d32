"""The slice of a row, told by the file that it stands in and, where files are cut, by its ingestion time.

Read slice by slice, thousands of slices are thousands of scans, and a file that is cut is opened for each of its
pieces. Read at once they are one scan, joined with a small table of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rekappa.plan.model import Split
from rekappa.record import INGESTION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HIDDEN = "_metadata"
"""The column in which Spark tells of a row's file, unless the files have one of that name."""
_PLAIN = re.compile(r"[A-Za-z0-9._=-]+")
_FILE, _START, _END = "__rekappa_file__", "__rekappa_start__", "__rekappa_end__"


def told_apart(splits: Iterable[Split]) -> bool:
    """Whether the splits' files are known by their names, whatever folders they are in: no two have the same, and none
    has a character that Spark might write otherwise. A row of a file that is not recognised would be left out."""
    paths = {split.path for split in splits}
    names = {_name(path) for path in paths}
    return len(names) == len(paths) and all(_PLAIN.fullmatch(name) for name in names)


def numbered(files: DataFrame, slices: Sequence[tuple[int, Split]], number: str) -> DataFrame:
    """The rows of whole files that belong to one of the slices, with its number. `slices` are splits of these files,
    each with its slice's number; every row is in one of them at most."""
    from pyspark.sql import functions as F

    known = [
        (_name(split.path), slice_number, split.cut and split.cut.start, split.cut and split.cut.end)
        for slice_number, split in slices
    ]
    schema = f"{_FILE} STRING, {number} INT, {_START} TIMESTAMP, {_END} TIMESTAMP"
    table = files.sparkSession.createDataFrame(known, schema)
    here = F.col(f"{HIDDEN}.file_name") == F.col(_FILE)
    if any(split.cut for _, split in slices):
        moment = F.col(INGESTION)
        here &= F.col(_START).isNull() | ((moment >= F.col(_START)) & (moment < F.col(_END)))
    return files.join(F.broadcast(table), here).drop(_FILE, _START, _END)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
