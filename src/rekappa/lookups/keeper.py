"""The process that looks at lookups' tables now and then, alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded
from rekappa.config.lookups import KeptTable
from rekappa.home import Home
from rekappa.lookups.keep import Look, keep
from rekappa.spark.failures import told
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK = 0.2


class VersionKeeper:
    """Keeps the versions of these lookups, each as often as it declares."""

    def __init__(
        self, spark: SparkSession, loaded: Loaded, home: Home, lookups: Mapping[str, KeptTable], since: datetime | None
    ) -> None:
        self._spark, self._loaded, self._home, self._lookups, self._since = spark, loaded, home, lookups, since

    def run(
        self, stop: threading.Event, *, once: bool = False, tell: Callable[[str], None] = lambda text: None
    ) -> list[Look]:
        """Look until stopped, or once; answers what was found in all. A second keeper of a lookup is refused."""
        config = self._loaded.config
        found: dict[str, Look] = {}
        due = dict.fromkeys(self._lookups, 0.0)
        names = [f"lookup {config.app}/{name}" for name in self._lookups]
        with RunStore.open(self._home).claim(names, f"keep lookups of {config.app!r}") as claim:
            while not stop.is_set():
                for name in [name for name, moment in due.items() if moment <= time.monotonic()]:
                    with told(f"keep lookup {name!r}", "Run it again: nothing that was seen is lost."):
                        look = keep(self._spark, config, name, since=self._since, check=claim.check)
                    due[name] = time.monotonic() + self._lookups[name].every.total_seconds()
                    before = found[name].changed if name in found else 0
                    found[name] = replace(look, changed=look.changed + before)
                    if look.changed:
                        tell(f"lookup {name}: {look.changed:,} keys changed")
                    if look.late:
                        tell(f"warning: lookup {name}: the commit took longer than its lead; raise lookups.{name}.lead")
                if once:
                    break
                stop.wait(_LOOK)
        return list(found.values())
