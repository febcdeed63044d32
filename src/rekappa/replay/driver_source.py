"""A Spark stream whose source lives on the driver, in Python: what is the same for all of them.

Spark asks a `Source` of its own kind for the offset to go to, and for each micro-batch's rows as a DataFrame. Ours
answers with a scan of the archive's files: the rows themselves never pass through Python.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rekappa.replay.scan import SliceScan
from rekappa.spark import private


class DriverSource:
    """What Spark calls, from the JVM, by these names; `latestOffset`, `getBatch`, `initialOffset` and `toString` are
    the subclass's. A slice can be prepared while the one before it is worked on."""

    def __init__(self, scan: SliceScan) -> None:
        self._scan = scan
        # A thread of the JVM that knows no session looks for catalogs in whichever came first.
        self._ahead = ThreadPoolExecutor(1, "rekappa-slices", scan.activate)
        self._prepared: dict[Hashable, Future[Any]] = {}

    def schema(self) -> Any:
        return private.java_schema(self._scan.spark, self._scan.schema)

    def deserializeOffset(self, text: str) -> Any:
        return private.offset_of(self._scan.spark, text)

    def getDefaultReadLimit(self) -> Any:
        return private.read_all(self._scan.spark)

    def reportLatestOffset(self) -> Any:
        return None

    def commit(self, end: Any) -> None:
        """Nothing to let go: the archive keeps what was read."""

    def stop(self) -> None:
        self._ahead.shutdown(wait=False, cancel_futures=True)

    def equals(self, other: Any) -> bool:
        return other is self

    def hashCode(self) -> int:
        return id(self) % (1 << 31)

    def _prepare(self, key: Hashable, rows: Callable[[], Any]) -> None:
        """Begin to make a batch's rows."""
        if key not in self._prepared:
            self._prepared[key] = self._ahead.submit(rows)

    def _taken(self, key: Hashable, rows: Callable[[], Any]) -> Any:
        """A batch's rows, prepared before or made now; forgotten then."""
        self._prepare(key, rows)
        made = self._prepared[key].result()
        del self._prepared[key]
        return made
